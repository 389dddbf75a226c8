"""What secure sums and privacy can do, and what is refused: checked before anything leaves."""

from collections.abc import Mapping

from eigenfed.data.source import Source
from eigenfed.errors import Argument, Aside, InputError, Pass, PrivacyError
from eigenfed.privacy.identity import LEAST_SITES
from eigenfed.privacy.published import Published
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.method import Method, all_methods
from eigenfed.protocol.pca import check_summable
from eigenfed.protocol.study import Study


def check_secure(n_sites: int, split: str, method: Method | str) -> None:
    """Refuse what secure aggregation cannot carry."""
    if n_sites < LEAST_SITES:
        raise PrivacyError(
            Argument("secure", True),
            f" needs {LEAST_SITES} sites at least and there are {n_sites}: of two, each could tell "
            "the other's part",
            remedy=("Bring more sites", Aside(", or name them in groups"), "."),
        )
    if split == "features":
        raise PrivacyError(
            Argument("secure", True),
            " cannot do split='features': the loadings of each site leave it by themselves",
            remedy=(Pass("secure", False), "."),
        )
    if isinstance(method, Method):
        check_summable(method)


def check_by_site(secure: bool, privacy: object, split: str) -> None:
    """Refuse that single sites tell where their rows lie, where they must not or cannot."""
    if secure or privacy is not None:
        raise PrivacyError(
            Argument("by_site", True),
            " has single sites tell of their rows, which ",
            Argument("secure", True) if secure else "privacy",
            " forbids",
            remedy=(
                Pass("by_site", False),
                ": a site can still compare itself with the result.",
            ),
        )
    if split == "features":
        raise InputError("by_site=True goes with split='samples' only. Pass by_site=False.")


def check_private(
    privacy: object,
    sources: Mapping[str, Source],
    *,
    split: str,
    method: Method | str,
    secure: bool,
) -> None:
    """Refuse what no noise makes private, or not this one."""
    if not isinstance(privacy, Privacy | Published):
        raise InputError(
            f"privacy is a {type(privacy).__name__} and must be None, a Privacy or a value of "
            "eigenfed.privacy.published. Pass Privacy(epsilon=1.0, delta=1e-6), say."
        )
    if split == "features":
        raise PrivacyError(
            "privacy cannot do split='features': vectors with an entry for each row would leave. "
            "Pass split='samples'."
        )
    if any(source.weights is not None for source in sources.values()):
        raise PrivacyError("sample_weight is not possible under privacy. Drop it.")
    if any(source.has_missing for source in sources.values()):
        raise PrivacyError("X holds NaN, which is not possible under privacy. Fill it in first.")
    if isinstance(privacy, Published):
        _check_published(privacy, method, secure)
    else:
        _check_sound(privacy, len(sources), method, secure)


def _check_published(privacy: Published, method: Method | str, secure: bool) -> None:
    if method != "auto" or secure:
        raise InputError(
            f"{type(privacy).__name__} is a method of its own. Pass method='auto' and secure=False."
        )


def _check_sound(privacy: Privacy, n_sites: int, method: Method | str, secure: bool) -> None:
    if isinstance(method, Method):
        _check_private_method(method)
    if privacy.trust != "secure_sum":
        if secure:
            raise InputError(
                Argument("secure", True),
                " requires ",
                Argument("trust", "secure_sum"),
                f" and privacy has {privacy.trust!r}",
                remedy="Change one of them.",
            )
        return
    if n_sites < LEAST_SITES:
        raise PrivacyError(
            "privacy with ",
            Argument("trust", "secure_sum"),
            f" needs {LEAST_SITES} sites at least and there are {n_sites}",
            remedy=(
                "Bring more sites, or ",
                Pass("trust", "central"),
                " where whoever runs this is trusted with all rows.",
            ),
        )
    privacy.check_sites(n_sites, 2 * n_sites // 3 + 1)


def _check_private_method(method: Method) -> None:
    if not method.private:
        names = ["auto", *(name for name, cls in all_methods().items() if cls.private)]
        raise PrivacyError(
            method.as_argument(),
            f" cannot be made private and must be one of {', '.join(map(repr, names))}",
            remedy=(Pass("method", "auto"), "."),
        )
    if method.options:
        raise PrivacyError(
            method.as_argument(),
            " has options that do not apply under privacy",
            remedy=(Pass("method", method.name), "."),
        )


def check_scaled(study: Study) -> None:
    """Refuse to scale by what noised products do not tell."""
    if study.scale and isinstance(study.method, Method) and study.method.name == "power":
        raise PrivacyError(
            Argument("scale", True),
            " under privacy needs ",
            Argument("method", "covariance"),
            remedy=("Scale by public numbers beforehand, or ", Pass("scale", False), "."),
        )
