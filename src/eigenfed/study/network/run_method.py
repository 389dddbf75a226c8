"""The method of a run between machines, chosen before anything is known of the rows."""

from eigenfed.estimators.setting_conflicts import check_scaled
from eigenfed.protocol.component_count import count_per_request
from eigenfed.protocol.method import Shape
from eigenfed.protocol.method_registry import choose_method
from eigenfed.protocol.study import Study
from eigenfed.study.config import StudyFile

_ROWS_ASSUMED = 10_000
"""Rows of the largest site, where the study does not give it."""


def choose_run_method(file: StudyFile, sites: int) -> tuple[Study, str]:
    """Return a study with the method of a run, and the reason for it.

    Parameters
    ----------
    file : StudyFile
        With a list of features.
    sites : int
        Number of sites that take part.
    """
    study, expected = file.study, file.expected
    rows = expected.rows if expected is not None and expected.rows else {}
    largest = max(rows.values(), default=_ROWS_ASSUMED)
    d = study.width(len(file.features))
    shape = Shape(
        rows=largest,
        features=d,
        components=count_per_request(study.components, min(largest * sites, d)),
        sites=sites,
        secure=study.masked,
        certify=study.certify,
    )
    if study.privacy is not None:
        check_scaled(study)
    method, reason = choose_method(study, shape)
    return study.with_method(method), reason
