"""Operations on rows of 64 bytes for numba, which compiles a loop over a row to scalar code.

Each operation is one function of `eigenfed.linalg.genotype` in LLVM's vector instructions: a row is
one vector, which LLVM splits into the registers of the processor. Importing this module needs
numba.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import boolean, float32, float64, njit, types, uint8
from numba.extending import intrinsic, overload, register_jitable

from eigenfed.linalg import genotype

_INDEX = ir.IntType(64)
_TABLE_ROWS = 256


class _Rows:
    """The rows of an array argument, as vectors."""

    def __init__(self, context: Any, builder: Any, kind: Any, value: Any) -> None:
        self._builder = builder
        self._data = context.make_array(kind)(context, builder, value=value).data
        self._bytes = kind.dtype.bitwidth // 8
        self._lanes = genotype.ROW_BYTES // self._bytes
        self._vector = ir.VectorType(context.get_data_type(kind.dtype), self._lanes)

    def _point(self, row: Any) -> Any:
        offset = self._builder.mul(row, ir.Constant(_INDEX, self._lanes))
        return self._builder.bitcast(
            self._builder.gep(self._data, [offset]), self._vector.as_pointer()
        )

    def load(self, row: Any) -> Any:
        value = self._builder.load(self._point(row))
        value.align = self._bytes
        return value

    def store(self, value: Any, row: Any) -> None:
        self._builder.store(value, self._point(row)).align = self._bytes

    def spread(self, number: Any) -> Any:
        """Return a vector with the same number in every lane."""
        empty = ir.Constant(self._vector, ir.Undefined)
        one = self._builder.insert_element(empty, number, ir.Constant(ir.IntType(32), 0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), self._lanes), [0] * self._lanes)
        return self._builder.shuffle_vector(one, empty, everywhere)


def _build_add_looked_up(
    typing: Any, total: Any, i: Any, tables: Any, index: Any, start: Any, step: Any
) -> Any:
    """Compile `genotype.add_looked_up`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = _Rows(context, builder, signature.args[0], args[0])
        rows = _Rows(context, builder, signature.args[2], args[2])
        places = context.make_array(signature.args[3])(context, builder, value=args[3]).data
        found = []
        for table in range(genotype.TABLES):
            offset = builder.add(args[4], builder.mul(args[5], ir.Constant(_INDEX, table)))
            place = builder.zext(builder.load(builder.gep(places, [offset])), _INDEX)
            first = ir.Constant(_INDEX, _TABLE_ROWS * table)
            found.append(rows.load(builder.add(place, first)))
        while len(found) > 1:
            found = [builder.fadd(*found[k : k + 2]) for k in range(0, len(found), 2)]
        target.store(builder.fadd(target.load(args[1]), found[0]), args[1])
        return context.get_dummy_value()

    place = types.int64
    return types.void(total, place, tables, index, place, place), generate


def _build_add_two(typing: Any, total: Any, i: Any, first: Any, j: Any, second: Any, k: Any) -> Any:
    """Compile `genotype.add_two`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = _Rows(context, builder, signature.args[2], args[2]).load(args[3])
        other = _Rows(context, builder, signature.args[4], args[4]).load(args[5])
        target = _Rows(context, builder, signature.args[0], args[0])
        target.store(builder.fadd(one, other), args[1])
        return context.get_dummy_value()

    return types.void(total, types.int64, first, types.int64, second, types.int64), generate


def _build_weigh_two(typing: Any, total: Any, i: Any, rows: Any, j: Any, a: Any, b: Any) -> Any:
    """Compile `genotype.weigh_two`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source = _Rows(context, builder, signature.args[2], args[2])
        following = builder.add(args[3], ir.Constant(_INDEX, 1))
        one = builder.fmul(source.spread(args[4]), source.load(args[3]))
        other = builder.fmul(source.spread(args[5]), source.load(following))
        target = _Rows(context, builder, signature.args[0], args[0])
        target.store(builder.fadd(one, other), args[1])
        return context.get_dummy_value()

    return types.void(total, types.int64, rows, types.int64, a, b), generate


add_looked_up: Any = intrinsic(_build_add_looked_up)
add_two: Any = intrinsic(_build_add_two)
weigh_two: Any = intrinsic(_build_weigh_two)


# numba wants functions with the same arguments, without annotations.
@overload(genotype.add_looked_up)
def _compile_add_looked_up(total, i, tables, index, start, step):  # type: ignore[no-untyped-def]
    return lambda total, i, tables, index, start, step: add_looked_up(
        total, i, tables, index, start, step
    )


@overload(genotype.add_two)
def _compile_add_two(total, i, first, j, second, k):  # type: ignore[no-untyped-def]
    return lambda total, i, first, j, second, k: add_two(total, i, first, j, second, k)


@overload(genotype.weigh_two)
def _compile_weigh_two(total, i, rows, j, a, b):  # type: ignore[no-untyped-def]
    return lambda total, i, rows, j, a, b: weigh_two(total, i, rows, j, a, b)


for _helper in (genotype.fill_table, genotype.transpose_group):
    register_jitable(_helper)


def compile_kernel(
    kernel: Callable[..., None], *, single: bool, cache: bool = True
) -> Callable[..., None]:
    """Compile a kernel for one precision, or load it from numba's cache on disk.

    Parameters
    ----------
    kernel : callable
        Of `eigenfed.linalg.genotype`.
    single : bool
        Whether it works in single precision.
    cache : bool, default=True
        Whether the result is cached on disk.
    """
    rows = (float32 if single else float64)[:, ::1]
    second = boolean[::1] if kernel is genotype.add_missing else rows
    mapped = types.Array(uint8, 2, "C", readonly=True)
    signature = types.void(mapped, second, rows, rows)
    compiled: Callable[..., None] = njit(signature, nogil=True, cache=cache)(kernel)
    return compiled
