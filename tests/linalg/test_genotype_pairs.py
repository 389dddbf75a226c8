"""Products of pairs of variants, counted on bits, are those of decoded genotypes."""

import builtins
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eigenfed.errors import InputError
from eigenfed.linalg.genotype_codes import COPIES, decode_rows, pack_mask
from eigenfed.linalg.genotype_pairs import (
    count_products,
    fill_products,
    load_pair_kernel,
    make_planes,
    multiply_pairs,
)
from fresh_modules import import_afresh


def check_pairs(kernel: Callable[..., Any], n: int, m: int, *, missing: bool) -> None:
    rng = np.random.default_rng(n + m)
    codes = rng.choice([0, 1, 2, 3] if missing else [0, 2, 3], (m, -(-n // 4), 4))
    codes[: m // 3] = np.where(codes[: m // 3] == 1, 2, codes[: m // 3])
    packed = (codes << np.arange(0, 8, 2)).sum(axis=2).astype(np.uint8)
    packed.flags.writeable = False
    people = np.sort(rng.choice(n, max(n - 3, 1), replace=False))
    swapped, mean = rng.random(m) < 0.4, rng.uniform(0.0, 2.0, m)
    values = np.where(swapped[:, None], 2.0 - COPIES, COPIES) - mean[:, None]
    table = np.nan_to_num(decode_rows(packed, values, people), nan=0.0)
    ends = np.minimum(np.arange(m) + 1 + rng.integers(0, 6, m), m)[: m - m // 4]
    expected = [table[:, i] @ table[:, j] for i, end in enumerate(ends) for j in range(i + 1, end)]
    planes = make_planes(packed, pack_mask(people, packed.shape[1]), swapped)
    found = multiply_pairs(planes, mean, ends, len(people), kernel)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-11)


@pytest.mark.parametrize("missing", [False, True])
def test_compiled_sums_are_those_of_decoded_genotypes(missing: bool) -> None:
    # Not the one that other tests of this process may have loaded, maybe in another thread.
    kernel = load_pair_kernel.__wrapped__()
    for n, m in ((1, 2), (5, 9), (512, 12), (513, 12), (1030, 20)):
        check_pairs(kernel, n, m, missing=missing)


@pytest.mark.parametrize("missing", [False, True])
def test_the_kernel_in_python_does_the_same_arithmetic(missing: bool) -> None:
    check_pairs(fill_products, 530, 12, missing=missing)


def test_what_numba_compiles_afresh_is_what_it_has_cached() -> None:
    from eigenfed.linalg.vector_bits import compile_pair_kernel

    check_pairs(compile_pair_kernel(cache=False), 70, 9, missing=True)


def test_products_compiled_alone_are_those_in_python() -> None:
    from numba import njit

    fresh: Any = import_afresh("eigenfed.linalg.vector_bits")
    jit: Any = njit
    count = fresh.count_products
    compiled = jit(lambda one, i, other, j: count(one, i, other, j))
    rows = np.random.default_rng(0).integers(0, 1 << 63, (3, 32), dtype=np.uint64)
    assert compiled(rows, 0, rows, 2) == count_products(rows, 0, rows, 2)
    assert callable(fresh._compile_count_products(rows, 0, rows, 2))


def test_without_numba_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "numba":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    monkeypatch.delitem(sys.modules, "eigenfed.linalg.vector_bits", raising=False)
    with pytest.raises(InputError, match=r"eigenfed\[genotypes\]"):
        load_pair_kernel.__wrapped__()
