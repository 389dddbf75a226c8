"""Settings of a run that cannot be combined, refused before any site is asked."""

from collections.abc import Mapping

import numpy as np

from eigenfed.data.loci import find_loci
from eigenfed.data.prepared_rows import is_negative, make_count_error
from eigenfed.data.source import Source
from eigenfed.errors import Argument, Aside, InputError, Name, Part, Pass, PrivacyError
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.secagg.identity import LEAST_SITES
from eigenfed.protocol.method import Method, all_methods
from eigenfed.protocol.pca import check_summable
from eigenfed.protocol.study import Study


def check_secure(n_sites: int, split: str, method: Method | str) -> None:
    """Refuse what secure aggregation cannot carry."""
    if n_sites < LEAST_SITES:
        raise PrivacyError(
            Argument("secure", True),
            f" needs {LEAST_SITES} sites at least and has {n_sites}: of two, each could "
            "subtract its own part from the sum",
            remedy=("Bring more sites", Aside(", or name them in groups"), "."),
        )
    if split == "features":
        raise PrivacyError(
            Argument("secure", True),
            " cannot be combined with split='features': the loadings of each site leave it "
            "unmasked",
            remedy=(Pass("secure", False), "."),
        )
    if isinstance(method, Method):
        check_summable(method)


def check_by_site(secure: bool, privacy: object, split: str) -> None:
    """Refuse levels of single sites where those may not or cannot leave."""
    if secure or privacy is not None:
        raise PrivacyError(
            Argument("by_site", True),
            " needs replies of single sites, which ",
            Argument("secure", True) if secure else "privacy",
            " forbids",
            remedy=(
                Pass("by_site", False),
                ": a site can still compare itself with the result.",
            ),
        )
    if split == "features":
        raise InputError("by_site=True requires split='samples'. Pass by_site=False.")


def check_private(
    privacy: object,
    sources: Mapping[str, Source],
    *,
    split: str,
    method: Method | str,
    secure: bool,
) -> None:
    """Refuse what noise cannot make private."""
    if not isinstance(privacy, Privacy | Published):
        raise InputError(
            f"privacy has type {type(privacy).__name__} and must be None, a Privacy or a value of "
            "eigenfed.protocol.published. Pass, for example, Privacy(epsilon=1.0, delta=1e-6)."
        )
    if split == "features":
        raise PrivacyError(
            "privacy cannot be combined with split='features': vectors with an entry for each row "
            "would leave. Pass split='samples'."
        )
    if any(source.weights is not None for source in sources.values()):
        raise PrivacyError("sample_weight cannot be combined with privacy. Drop it.")
    if isinstance(privacy, Published):
        if any(source.has_missing for source in sources.values()):
            raise PrivacyError("X holds NaN, for which the paper has no rule. Impute it first.")
        _check_published(privacy, method, secure)
    else:
        for source in sources.values():
            privacy.frame(source.d)
        _check_terms(privacy, len(sources), method, secure)


def _check_published(privacy: Published, method: Method | str, secure: bool) -> None:
    if method != "auto" or secure:
        raise InputError(
            f"{type(privacy).__name__} is a method of its own. Pass method='auto' and secure=False."
        )


def _check_terms(privacy: Privacy, n_sites: int, method: Method | str, secure: bool) -> None:
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
            f" needs {LEAST_SITES} sites at least and has {n_sites}",
            remedy=(
                "Bring more sites, or ",
                Pass("trust", "central"),
                " if the coordinator is trusted with all rows.",
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


def check_prepared(study: Study, sources: Mapping[str, Source]) -> None:
    """Refuse a preparation that the study or the rows do not allow."""
    conflict = study.step_conflict
    if conflict:
        setting, reason = conflict
        kind = InputError if study.privacy is None else PrivacyError
        raise kind(
            Name("prepare"),
            " cannot be combined with ",
            setting,
            reason,
            remedy="Change one of them.",
        )
    lacking = any((getattr(s.X, "places", np.zeros(1)) < 0).any() for s in sources.values())
    if lacking and not study.filters_variants:
        raise InputError(
            "Some sites lack variants of the manifest, and ",
            Name("prepare"),
            " has no step for variants",
            remedy="Add the step 'matched', which keeps the variants that every site has.",
        )
    if study.filters_variants and any(find_loci(s.X) is None for s in sources.values()):
        raise InputError(
            Name("prepare"),
            f" has the step {study.prepare[0].name!r}, which is for genotypes",
            remedy="Pass .bed files, or drop it.",
        )
    if study.privacy is not None:
        return  # no refusal may depend on the rows; steps are defined for all entries
    for name, source in sources.items():
        if is_negative(source.X, study.prepare):
            raise make_count_error(f"Site {name!r}")


def check_scaled(study: Study) -> None:
    """Refuse to scale where noised products do not give the standard deviations."""
    if study.scale and isinstance(study.method, Method) and study.method.name == "power":
        raise PrivacyError(
            Argument("scale", True),
            " under privacy needs ",
            Argument("method", "covariance"),
            remedy=("Scale by public numbers beforehand, or ", Pass("scale", False), "."),
        )


def check_wire_use(study: Study) -> None:
    """Refuse messages in single precision where a run cannot have them."""
    if study.wire == "float64":
        return
    combined: tuple[tuple[bool, Part, str], ...] = (
        (study.secure, Argument("secure", True), "secure aggregation sums integers"),
        (study.privacy is not None, "privacy", "noise is calibrated to what sites are sent"),
        (
            study.split == "features",
            Argument("split", "features"),
            "its certificate does not count the rounding",
        ),
    )
    for is_given, setting, reason in combined:
        if is_given:
            raise InputError(
                Argument("wire", study.wire),
                " cannot be combined with ",
                setting,
                f": {reason}",
                remedy=(Pass("wire", "float64"), "."),
            )


def check_recordable(privacy: object) -> None:
    """Refuse a transcript where a replay would draw the coordinator's noise a second time."""
    if isinstance(privacy, Privacy) and privacy.trust == "central":
        raise PrivacyError(
            Name("transcript"),
            " cannot be combined with privacy that has ",
            Argument("trust", "central"),
            ": it would hold sums without noise, and a replay would draw other noise for them",
            remedy=(Pass("transcript", None), ", or another trust."),
        )
