"""Counts over rows of bits for numba, which has no population count of its own.

`eigenfed.linalg.genotype_pairs.count_products` in LLVM's vector instructions, 64 bytes at a time.
Importing this module needs numba.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import float64, int64, njit, types, uint64
from numba.core import cgutils as untyped_cgutils
from numba.extending import intrinsic, overload

from eigenfed.linalg import genotype_pairs

cgutils: Any = untyped_cgutils
_LANES = 8
_WORD = ir.IntType(64)
_VECTOR = ir.VectorType(_WORD, _LANES)
_WORD_BYTES = 8


def _build_count_products(typing: Any, one: Any, i: Any, other: Any, j: Any) -> Any:
    """Compile `genotype_pairs.count_products`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = context.make_array(signature.args[0])(context, builder, value=args[0])
        second = context.make_array(signature.args[2])(context, builder, value=args[2])
        words = cgutils.unpack_tuple(builder, first.shape, 2)[1]
        half = builder.udiv(words, ir.Constant(_WORD, 2))
        mine = builder.gep(first.data, [builder.mul(args[1], words)])
        theirs = builder.gep(second.data, [builder.mul(args[3], words)])
        kind = ir.FunctionType(_VECTOR, [_VECTOR])
        count = cgutils.get_or_insert_function(builder.module, kind, f"llvm.ctpop.v{_LANES}i64")

        def load(row: Any, offset: Any) -> Any:
            place = builder.bitcast(builder.gep(row, [offset]), _VECTOR.as_pointer())
            value = builder.load(place)
            value.align = _WORD_BYTES
            return value

        total = cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0] * _LANES))
        rounds = builder.udiv(half, ir.Constant(_WORD, _LANES))
        with cgutils.for_range(builder, rounds) as loop:
            near = builder.mul(loop.index, ir.Constant(_WORD, _LANES))
            far = builder.add(near, half)
            both = builder.and_(load(mine, near), load(theirs, near))
            differing = builder.and_(both, builder.xor(load(mine, far), load(theirs, far)))
            minus = builder.call(count, [differing])
            value = builder.sub(builder.call(count, [both]), builder.add(minus, minus))
            builder.store(builder.add(builder.load(total), value), total)
        found = ir.Constant(_WORD, 0)
        lanes = builder.load(total)
        for lane in range(_LANES):
            place = ir.Constant(ir.IntType(32), lane)
            found = builder.add(found, builder.extract_element(lanes, place))
        return found

    return types.int64(one, types.int64, other, types.int64), generate


count_products: Any = intrinsic(_build_count_products)


# numba wants a function with the same arguments, without annotations.
@overload(genotype_pairs.count_products)
def _compile_count_products(one, i, other, j):  # type: ignore[no-untyped-def]
    return lambda one, i, other, j: count_products(one, i, other, j)


def compile_pair_kernel(*, cache: bool = True) -> Callable[..., None]:
    """Compile `genotype_pairs.fill_products`, or load it from numba's cache on disk.

    Parameters
    ----------
    cache : bool, default=True
        Whether the result is cached on disk.
    """
    bits, places, numbers = uint64[:, ::1], int64[::1], float64[::1]
    signature = types.void(bits, bits, places, places, numbers, places, int64, numbers)
    kernel = genotype_pairs.fill_products
    compiled: Callable[..., None] = njit(signature, nogil=True, cache=cache)(kernel)
    return compiled
