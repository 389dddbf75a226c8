"""Products of packed genotypes are those of decoded ones, compiled or not, in both precisions."""

import builtins
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from eigenfed.errors import InputError
from eigenfed.linalg import genotype
from eigenfed.linalg.genotype import PLAIN, Kernels, adjoin_tile, load_kernels, multiply_tile
from eigenfed.linalg.genotype_codes import count_codes, decode_rows, pack_mask
from fresh_modules import import_afresh

SIGNS = np.array([1.0, 0.0, 0.0, -1.0])


def decode(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return the codes, variants x people."""
    return np.stack([packed >> np.uint8(s) & 3 for s in (0, 2, 4, 6)], axis=2).reshape(
        len(packed), -1
    )


def check_products(
    kernels: Kernels, dtype: Any, width: int, variants: int, columns: int, tolerance: float
) -> None:
    rng = np.random.default_rng(width + variants)
    packed = rng.integers(0, 256, (variants, width), dtype=np.uint8)
    codes, values = decode(packed), rng.standard_normal((variants, 4)).astype(dtype)
    table = np.take_along_axis(values.astype(np.float64), codes.astype(np.intp), axis=1)
    basis = rng.standard_normal((variants, columns)).astype(dtype)
    found = multiply_tile(packed, values, basis, kernels)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, table.T @ basis, atol=tolerance)
    sided = rng.standard_normal((4 * width, columns)).astype(dtype)
    flags = rng.random(variants) < 0.5
    sums, missing = adjoin_tile(packed, sided, flags, kernels)
    np.testing.assert_allclose(sums, SIGNS[codes] @ sided, atol=tolerance)
    expected = (codes == 1).astype(np.float64) @ sided * flags[:, None]
    np.testing.assert_allclose(missing, expected, atol=tolerance)
    assert not adjoin_tile(packed, sided, np.zeros(variants, np.bool_), kernels)[1].any()


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float64, 1e-12)])
def test_compiled_products_are_those_of_decoded_genotypes(dtype: Any, tolerance: float) -> None:
    # Not those that other tests of this process may have loaded, maybe in another thread.
    kernels = load_kernels.__wrapped__(dtype is np.float32)
    for width, variants, columns in ((1, 1, 1), (7, 33, 5), (8, 64, 16), (29, 130, 19)):
        check_products(kernels, dtype, width, variants, columns, tolerance)


def test_the_kernels_in_python_do_the_same_arithmetic() -> None:
    check_products(PLAIN, np.float64, 9, 37, 9, 1e-12)
    check_products(PLAIN, np.float32, 2, 5, 3, 1e-5)


def test_what_numba_compiles_afresh_is_what_it_has_cached() -> None:
    from eigenfed.linalg.vector_rows import compile_kernel

    # All operations on rows are in this kernel.
    fresh = compile_kernel(PLAIN.add_images, single=False, cache=False)
    check_products(PLAIN._replace(add_images=fresh), np.float64, 8, 40, 8, 1e-12)


def test_operations_compiled_alone_are_those_in_python() -> None:
    from numba import njit

    vector_rows: Any = import_afresh("eigenfed.linalg.vector_rows")
    add_looked_up, add_two = vector_rows.add_looked_up, vector_rows.add_two
    weigh_two = vector_rows.weigh_two
    jit: Any = njit
    compiled = {
        "add_looked_up": jit(lambda a, i, b, c, d, e: add_looked_up(a, i, b, c, d, e)),
        "add_two": jit(lambda a, i, b, j, c, k: add_two(a, i, b, j, c, k)),
        "weigh_two": jit(lambda a, i, b, j, c, d: weigh_two(a, i, b, j, c, d)),
    }
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((256 * genotype.TABLES, genotype.ROW_BYTES // 8))
    places = rng.integers(0, 256, 3 * genotype.TABLES, dtype=np.uint8)
    given: dict[str, tuple[Any, ...]] = {
        "add_looked_up": (1, rows, places, 2, 3),
        "add_two": (1, rows, 4, rows, 7),
        "weigh_two": (1, rows, 4, 0.5, -2.0),
    }
    for name, operation in compiled.items():
        assert callable(getattr(vector_rows, f"_compile_{name}")(*range(6)))
        found, expected = np.ones((2, 2, rows.shape[1]))
        operation(found, *given[name])
        getattr(genotype, name)(expected, *given[name])
        np.testing.assert_allclose(found, expected, atol=1e-14)


def test_mapped_genotypes_may_be_read_only() -> None:
    packed = np.zeros((3, 9), np.uint8)
    packed.flags.writeable = False
    found = multiply_tile(packed, np.ones((3, 4)), np.ones((3, 1)), load_kernels(False))
    assert (found == 3.0).all()


def test_counts_are_those_of_the_codes_of_the_people_asked_for() -> None:
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (11, 21), dtype=np.uint8)
    people = np.sort(rng.choice(84, 40, replace=False))
    codes = decode(packed)[:, people]
    counts = count_codes(packed, pack_mask(people, 21))
    np.testing.assert_array_equal(
        counts, np.stack([(codes == code).sum(axis=1) for code in range(4)], axis=1)
    )
    values = rng.standard_normal((11, 4))
    np.testing.assert_array_equal(
        decode_rows(packed, values, people), np.take_along_axis(values, codes.astype(int), 1).T
    )


def test_without_numba_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "numba":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delitem(sys.modules, "eigenfed.linalg.vector_rows", raising=False)
    monkeypatch.delattr(genotype, "vector_rows", raising=False)
    with pytest.raises(InputError, match=r"eigenfed\[genotypes\]"):
        load_kernels.__wrapped__(True)


@pytest.mark.parametrize("single", [True, False])
def test_sums_over_many_equal_people_keep_their_digits(single: bool) -> None:
    # Two copies of the first variant for everybody; the second is missing for everybody.
    packed = np.array([[0b00000000], [0b01010101]], np.uint8).repeat(40_000, axis=1)
    for value in (0.1, 0.3, 0.7):
        sided = np.full((160_000, 3), value, np.float32 if single else np.float64)
        sums, missing = adjoin_tile(packed, sided, np.array([True, True]), load_kernels(single))
        exact = 160_000 * float(sided[0, 0])
        assert sums.dtype == missing.dtype == np.float64
        np.testing.assert_allclose(sums[0], exact, rtol=100 * np.finfo(sided.dtype).eps)
        # They are added one by one, and those of few people.
        np.testing.assert_allclose(missing[1], exact, rtol=600 * np.finfo(sided.dtype).eps)
