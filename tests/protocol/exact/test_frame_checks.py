"""A site believes neither the mean nor the scale that a request brings."""

import numpy as np
import pytest

from eigenfed.errors import InputError
from eigenfed.protocol.exact.frame_checks import check_scale, find_genotype_scale
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.operations import Terms
from eigenfed.protocol.study import Study

MEAN = np.array([0.2, 1.0, 2.0, 0.0])


def terms_of(narrow: bool = False) -> Terms:
    return Terms(Study(("a", "b"), 2, Krylov(), scale="genotype"), 9, len(MEAN), narrow=narrow)


def test_the_scale_of_genotypes_follows_from_the_mean() -> None:
    scale = find_genotype_scale(MEAN)
    np.testing.assert_allclose(scale, [np.sqrt(2 * 0.1 * 0.9), np.sqrt(0.5), 1.0, 1.0])
    check_scale(terms_of(), scale, MEAN)
    rounded = scale.astype(np.float32).astype(np.float64)
    check_scale(terms_of(narrow=True), rounded, MEAN.astype(np.float32).astype(np.float64))
    with pytest.raises(InputError, match="follows from the mean"):
        check_scale(terms_of(), rounded, MEAN)
    for place in range(len(MEAN)):
        for factor in (1e-6, 1.01, 1e6):
            other = scale.copy()
            other[place] *= factor
            with pytest.raises(InputError, match="follows from the mean"):
                check_scale(terms_of(), other, MEAN)


@pytest.mark.parametrize("value", [-1e-3, 2.001, 1e6])
def test_a_mean_that_no_genotypes_have_is_refused(value: float) -> None:
    mean = MEAN.copy()
    mean[1] = value
    with pytest.raises(InputError, match="from 0 to 2"):
        check_scale(terms_of(), find_genotype_scale(mean), mean)


@pytest.mark.parametrize(
    "other", [{"center": False}, {"center": "site"}, {"split": "features"}, {"prepare": ["log1p"]}]
)
def test_a_study_of_genotypes_is_centred_and_not_prepared(other: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Study(("a", "b"), 2, scale="genotype", **other)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="scale of a study"):
        Study(("a", "b"), 2, scale="other")


def test_a_study_of_genotypes_is_single_unless_it_is_rigorous() -> None:
    assert Study(("a",), 2, scale="genotype").is_single
    assert not Study(("a",), 2, scale="genotype", certify="rigorous").is_single
    assert not Study(("a",), 2, scale=True).is_single
    study = Study(("a",), 2, scale="genotype")
    assert Study.from_bytes(study.to_bytes()) == study
