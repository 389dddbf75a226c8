"""Machine code for products of sparse rows, made by LLVM.

It is `eigenfed.linalg.sparse_products.add_products` with a vector for what an entry contributes to
all directions, compiled for this processor within a twentieth of a second. numba would make scalar
code of the loops over directions, and takes ten times as long to load. Importing this module needs
llvmlite.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt
from llvmlite import ir

_PLACE, _LANE, _NUMBER = ir.IntType(64), ir.IntType(32), ir.DoubleType()
_NUMBER_BYTES = 8
_NAME = "add_products"
_COUNTS, _POINTERS = 2, 9
"""Arguments of the function: numbers of rows and the step of weights, and then all arrays."""


class CompiledProducts:
    """`sparse_products.add_products`, compiled for a number of directions.

    Parameters
    ----------
    lanes : int
        Number of directions.
    places : dtype
        Type of the columns' numbers, int32 or int64; row starts are int64.
    """

    def __init__(self, lanes: int, places: npt.DTypeLike) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
        )
        code = _Code(lanes, ir.IntType(8 * np.dtype(places).itemsize)).write()
        # The machine code is freed with its engine.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(code), target)
        self._engine.finalize_object()
        kinds = [ctypes.c_int64] * _COUNTS + [ctypes.c_void_p] * _POINTERS
        self._run = ctypes.CFUNCTYPE(None, *kinds)(self._engine.get_function_address(_NAME))

    def __call__(
        self,
        starts: npt.NDArray[Any],
        stops: npt.NDArray[Any],
        columns: npt.NDArray[Any],
        entries: npt.NDArray[Any],
        weights: npt.NDArray[Any],
        step: int,
        basis: npt.NDArray[Any],
        shift: npt.NDArray[Any],
        sided: npt.NDArray[Any],
        total: npt.NDArray[Any],
        pieces: list[slice],
    ) -> None:
        """Do what `sparse_products.add_products` does, with arrays in C order; no lock is held."""
        part = total if len(pieces) == 1 else np.empty_like(total)
        arrays = starts, stops, columns, entries, weights, basis, shift, sided, part
        first, last, held, values, heavy, given, less, here, found = (a.ctypes.data for a in arrays)
        by_start, by_weight, by_row = starts.itemsize, step * weights.itemsize, sided.strides[0]
        run = self._run
        for piece in pieces:
            if part is not total:
                part.fill(0.0)
            i = piece.start
            rows = first + i * by_start, last + i * by_start, held, values, heavy + i * by_weight
            run(piece.stop - i, step, *rows, given, less, here + i * by_row, found)
            if part is not total:
                total += part


class _Code:
    """Writes the function in LLVM's language.

    Nothing is contracted or reordered: each product is rounded before it is added, and they are
    added in the order of the entries, as scipy does.
    """

    def __init__(self, lanes: int, column: ir.IntType) -> None:
        self._lanes, self._vector = lanes, ir.VectorType(_NUMBER, lanes)
        kinds = [_PLACE] * _COUNTS + [_PLACE.as_pointer()] * 2 + [column.as_pointer()]
        kinds += [_NUMBER.as_pointer()] * (_COUNTS + _POINTERS - len(kinds))
        self._module = ir.Module()
        self._function = ir.Function(self._module, ir.FunctionType(ir.VoidType(), kinds), _NAME)
        self._code = ir.IRBuilder(self._function.append_basic_block())

    def write(self) -> str:
        n, step, starts, stops, columns, entries, *others = self._function.args
        weights, basis, shift, sided, total = others
        code = self._code
        zero = ir.Constant(_PLACE, 0)
        nothing = ir.Constant(self._vector, [0.0] * self._lanes)
        shifts = self._load_row(shift, zero)

        def read_entry(place: Any) -> tuple[Any, Any]:
            column = self._load(columns, place)
            column = column if column.type == _PLACE else code.sext(column, _PLACE)
            return column, self._repeat(self._load(entries, place))

        def gather(place: Any, found: Any) -> Any:
            column, entry = read_entry(place)
            return code.fadd(found, code.fmul(entry, self._load_row(basis, column)))

        def multiply_row(i: Any, carried: Any) -> Any:
            start, stop = self._load(starts, i), self._load(stops, i)
            found = self._loop(start, stop, nothing, gather)
            weight = self._repeat(self._load(weights, code.mul(i, step)))
            row = code.fmul(code.fsub(found, shifts), weight)
            self._store_row(row, sided, i)

            def scatter(place: Any, carried: Any) -> Any:
                column, entry = read_entry(place)
                added = code.fadd(self._load_row(total, column), code.fmul(entry, row))
                self._store_row(added, total, column)
                return carried

            self._loop(start, stop, zero, scatter)
            return carried

        self._loop(zero, n, zero, multiply_row)
        code.ret_void()
        return str(self._module)

    def _loop(self, start: Any, stop: Any, value: Any, step: Callable[[Any, Any], Any]) -> Any:
        """Write a loop over places that carries a value, and return its last one."""
        code, before = self._code, self._code.block
        head, body, after = (self._function.append_basic_block() for _ in range(3))
        code.branch(head)
        code.position_at_end(head)
        place, carried = code.phi(_PLACE), code.phi(value.type)
        place.add_incoming(start, before)
        carried.add_incoming(value, before)
        code.cbranch(code.icmp_signed("<", place, stop), body, after)
        code.position_at_end(body)
        carried.add_incoming(step(place, carried), code.block)
        place.add_incoming(code.add(place, ir.Constant(_PLACE, 1)), code.block)
        code.branch(head)
        code.position_at_end(after)
        return carried

    def _load(self, numbers: Any, place: Any) -> Any:
        return self._code.load(self._code.gep(numbers, [place]))

    def _repeat(self, number: Any) -> Any:
        """Return a vector with the number in every lane."""
        empty = ir.Constant(self._vector, ir.Undefined)
        one = self._code.insert_element(empty, number, ir.Constant(_LANE, 0))
        first = ir.Constant(ir.VectorType(_LANE, self._lanes), [0] * self._lanes)
        return self._code.shuffle_vector(one, empty, first)

    def _point(self, rows: Any, row: Any) -> Any:
        offset = self._code.mul(row, ir.Constant(_PLACE, self._lanes))
        return self._code.bitcast(self._code.gep(rows, [offset]), self._vector.as_pointer())

    def _load_row(self, rows: Any, row: Any) -> Any:
        value = self._code.load(self._point(rows, row))
        value.align = _NUMBER_BYTES
        return value

    def _store_row(self, value: Any, rows: Any, row: Any) -> None:
        self._code.store(value, self._point(rows, row)).align = _NUMBER_BYTES
