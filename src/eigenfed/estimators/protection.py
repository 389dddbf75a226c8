"""What secure sums and privacy can do, and what is refused: checked before anything leaves."""

from collections.abc import Mapping

from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.identity import LEAST_SITES
from eigenfed.privacy.published import Published
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.pca import Method, check_summable
from eigenfed.protocol.private import METHODS as PRIVATE_METHODS


def check_secure(n_sites: int, split: str, method: Method) -> None:
    """Refuse what cannot be summed where nobody can open it."""
    if n_sites < LEAST_SITES:
        raise InputError(
            f"secure=True needs {LEAST_SITES} sites at least and there are {n_sites}: of two, "
            "each could tell the other's part. Bring more sites, or name them in groups."
        )
    if split == "features":
        raise InputError(
            "secure=True cannot do split='features': the loadings of each site leave it by "
            "themselves. Pass secure=False."
        )
    check_summable(method)


def check_by_site(secure: bool, privacy: object, split: str) -> None:
    """Refuse that single sites tell where their rows lie, where they must not or cannot."""
    if secure or privacy is not None:
        name = "secure=True" if secure else "privacy"
        raise InputError(
            f"by_site=True has single sites tell of their rows, which {name} forbids. Pass "
            "by_site=False: a site can still compare itself with the result."
        )
    if split == "features":
        raise InputError("by_site=True goes with split='samples' only. Pass by_site=False.")


def check_private(
    privacy: object, sources: Mapping[str, Source], *, split: str, method: Method, secure: bool
) -> None:
    """Refuse what no noise makes private, or not this one."""
    if not isinstance(privacy, Privacy | Published):
        raise InputError(
            f"privacy is a {type(privacy).__name__} and must be None, a Privacy or a value of "
            "eigenfed.privacy.published. Pass Privacy(epsilon=1.0, delta=1e-6), say."
        )
    if split == "features":
        raise InputError(
            "privacy cannot do split='features': vectors with an entry for each row would leave. "
            "Pass split='samples'."
        )
    if any(source.weights is not None for source in sources.values()):
        raise InputError("sample_weight is not possible under privacy. Drop it.")
    if any(source.has_missing for source in sources.values()):
        raise InputError("X holds NaN, which is not possible under privacy. Fill it in first.")
    if isinstance(privacy, Published):
        _check_published(privacy, method, secure)
    else:
        _check_sound(privacy, len(sources), method, secure)


def _check_published(privacy: Published, method: Method, secure: bool) -> None:
    if method != "auto" or secure:
        raise InputError(
            f"{type(privacy).__name__} is a method of its own. Pass method='auto' and secure=False."
        )


def _check_sound(privacy: Privacy, n_sites: int, method: Method, secure: bool) -> None:
    if method not in PRIVATE_METHODS:
        raise InputError(
            f"method={method!r} cannot be made private and must be one of "
            f"{', '.join(map(repr, PRIVATE_METHODS))}. Pass method='auto'."
        )
    if privacy.trust != "secure_sum":
        if secure:
            raise InputError(
                f"secure=True goes with trust='secure_sum' and privacy has {privacy.trust!r}. "
                "Change one of them."
            )
        return
    if n_sites < LEAST_SITES:
        raise InputError(
            f"privacy with trust='secure_sum' needs {LEAST_SITES} sites at least and there are "
            f"{n_sites}. Bring more sites, or pass trust='central' where whoever runs this is "
            "trusted with all rows."
        )
    most = n_sites - (2 * n_sites // 3 + 1)
    if privacy.tolerate > most:
        raise InputError(
            f"tolerate={privacy.tolerate} must be at most {most} with {n_sites} sites: a sum needs "
            "more than two thirds of them. Lower it."
        )
