"""Sums over sparse rows for 64 labels at once, held in vector registers.

The weights of a block of labels are stored feature-major, one row of 64 lanes per feature. `lane_dot` walks the
non-zeros of a sparse row once and sums rows of weights, `lane_add` adds a multiple of 64 numbers to each of these rows,
and `hinge_lanes` takes a dual step for all lanes. They emit LLVM vector instructions, because the code that numba
derives from loops over ``W[i, j]`` is much slower: one iteration over eurlex57k (10.3 million non-zeros) takes 93 ms
instead of 44 ms, and a dual step, whose loop is not vectorised at all, 440 ns instead of about 50 ns. They take whole
arrays and an index rather than rows of arrays, because numba counts references to each row view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.extending import intrinsic as _intrinsic

from longtail.kernels.types import Float32

LANES = 64
"""Labels that are trained and scored together."""
LINE = 16
"""Lanes in a cache line."""
ALL_LINES = (1 << (LANES // LINE)) - 1

intrinsic: Any = _intrinsic  # calls don't pass the typing context that the definition takes

_I32, _I64, _F32 = ir.IntType(32), ir.IntType(64), ir.FloatType()
_VECTOR = ir.VectorType(_F32, LANES)
_EVEN_FIRST = (*range(0, LANES, 2), *range(1, LANES, 2))
_IN_ORDER = tuple(at for pair in zip(range(LANES // 2), range(LANES // 2, LANES), strict=True) for at in pair)
_FAST = ("reassoc", "contract", "nsz", "arcp")
_Builder = Any
_Value = Any


def _at(b: _Builder, base: _Value, index: _Value, size: int, kind: Any) -> _Value:
    offset = b.mul(index, ir.Constant(_I64, size))
    return b.inttoptr(b.add(base, offset), kind.as_pointer())


def _broadcast(b: _Builder, scalar: _Value, kind: Any = _VECTOR) -> _Value:
    undefined = ir.Constant(kind, ir.Undefined)
    single = b.insert_element(undefined, scalar, ir.Constant(_I32, 0))
    return b.shuffle_vector(single, undefined, ir.Constant(ir.VectorType(_I32, kind.count), [0] * kind.count))


def _fused_add(b: _Builder, total: _Value, factor: _Value, vector: _Value) -> _Value:
    return b.fadd(total, b.fmul(factor, vector, flags=_FAST), flags=_FAST)


def _for_each(
    b: _Builder, start: _Value, end: _Value, initial: _Value | None, body: Callable[[_Value, _Value], _Value]
) -> _Value:
    """Emit ``for k in range(start, end): carried = body(k, carried)`` and return the final value."""
    entry = b.block
    head, inner, after = (b.append_basic_block(name) for name in ("lanes.head", "lanes.body", "lanes.end"))
    b.branch(head)
    b.position_at_end(head)
    k = b.phi(_I64)
    k.add_incoming(start, entry)
    carried = None
    if initial is not None:
        carried = b.phi(_VECTOR)
        carried.add_incoming(initial, entry)
    b.cbranch(b.icmp_signed("<", k, end), inner, after)
    b.position_at_end(inner)
    result = body(k, carried)
    k.add_incoming(b.add(k, ir.Constant(_I64, 1)), b.block)
    if carried is not None:
        carried.add_incoming(result, b.block)
    b.branch(head)
    b.position_at_end(after)
    return carried


def _widen_halves(b: _Builder, halves: _Value, count: int) -> _Value:
    """Convert float16 numbers to float32; rescaling the exponent by a product is right for subnormals too."""
    words, singles = (ir.VectorType(kind, count) if count > 1 else kind for kind in (_I32, _F32))

    def constant(kind: Any, number: float) -> _Value:
        return ir.Constant(kind, [number] * count if count > 1 else number)

    wide = b.zext(halves, words)
    magnitude = b.shl(b.and_(wide, constant(words, 0x7FFF)), constant(words, 13))
    sign = b.shl(b.and_(wide, constant(words, 0x8000)), constant(words, 16))
    sized = b.fmul(b.bitcast(magnitude, singles), constant(singles, 2.0**112))
    return b.bitcast(b.or_(b.bitcast(sized, words), sign), singles)


def _load_lanes(b: _Builder, base: _Value, row: _Value, kind: Any) -> _Value:
    """Load 64 weights as float32: float32, bfloat16, float16 or int8 numbers, as `kind` says.

    bfloat16 numbers, the upper halves of float32 numbers, come in the order of `_EVEN_FIRST`: two neighbours share a
    32-bit word, and extracting them takes one instruction each, while keeping their order would take two.
    """
    if kind == types.float32:
        return b.load(_at(b, base, row, 4 * LANES, _VECTOR), align=4)
    if kind == types.int8:
        numbers = ir.VectorType(ir.IntType(8), LANES)
        return b.sitofp(b.load(_at(b, base, row, LANES, numbers), align=1), _VECTOR)
    if kind == types.int16:
        halves = ir.VectorType(ir.IntType(16), LANES)
        return _widen_halves(b, b.load(_at(b, base, row, 2 * LANES, halves), align=2), LANES)
    words = ir.VectorType(_I32, LANES // 2)
    pairs = b.load(_at(b, base, row, 2 * LANES, words), align=2)
    even = b.shl(pairs, ir.Constant(words, [16] * (LANES // 2)))
    odd = b.and_(pairs, ir.Constant(words, [0xFFFF0000] * (LANES // 2)))
    return b.bitcast(_shuffle(b, even, odd, range(LANES)), _VECTOR)


def _shuffle(b: _Builder, left: _Value, right: _Value, places: Iterable[int]) -> _Value:
    chosen = list(places)
    return b.shuffle_vector(left, right, ir.Constant(ir.VectorType(_I32, len(chosen)), chosen))


def _pointers(context: Any, b: _Builder, signature: Any, args: Any) -> tuple[_Value, ...]:
    """Return the arguments of an intrinsic with arrays replaced by their addresses."""
    return tuple(
        b.ptrtoint(context.make_array(kind)(context, b, arg).data, _I64) if isinstance(kind, types.Array) else arg
        for kind, arg in zip(signature.args, args, strict=True)
    )


def _require(**arrays: tuple[Any, tuple[Any, ...]]) -> None:
    """Raise a TypingError for arrays of another dtype or memory layout: the code below reads raw memory."""
    for name, (given, dtypes) in arrays.items():
        if not isinstance(given, types.Array) or given.layout != "C" or given.dtype not in dtypes:
            raise TypingError(f"{name} must be a C-contiguous array of {' or '.join(map(str, dtypes))}, got {given}")


_SINGLE = (types.float32,)
_WEIGHT = (types.float32, types.uint16, types.int16, types.int8)


def _require_dot(indices: Any, values: Any, weights: Any, total: Any) -> None:
    _require(
        indices=(indices, (types.int32,)), values=(values, _SINGLE), weights=(weights, _WEIGHT), total=(total, _SINGLE)
    )


def _prefetch(b: _Builder, address: _Value) -> None:
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
    read, keep, data = (ir.Constant(_I32, number) for number in (0, 3, 1))
    b.call(b.module.declare_intrinsic("llvm.prefetch", [byte], kind), [b.inttoptr(address, byte), read, keep, data])


@intrinsic
def fetch(typingctx: Any, array: Any, index: Any) -> tuple[Any, Any]:
    """Prefetch the cache line of ``array[index]``."""

    def emit(context: Any, b: _Builder, signature: Any, args: Any) -> Any:
        start, at = _pointers(context, b, signature, args)
        _prefetch(b, b.add(start, b.mul(at, ir.Constant(_I64, array.dtype.bitwidth // 8))))
        return context.get_dummy_value()

    return types.void(array, types.int64), emit


@intrinsic
def lane_dot(
    typingctx: Any, indices: Any, values: Any, start: Any, end: Any, weights: Any, first: Any, total: Any, place: Any
) -> tuple[Any, Any]:
    """Add ``sum(values[k] * weights[first + indices[k]])`` over k from `start` to `end` to 64 numbers of `total`.

    Parameters
    ----------
    indices : ndarray of int32
    values : ndarray of float32
    start, end : int
    weights : C-contiguous ndarray of float32, bfloat16 (uint16), float16 (int16) or int8, shape (rows, 64)
    first : int
    total : C-contiguous ndarray of float32
    place : int
        Flat index of the first of the 64 numbers in `total`.
    """
    whole = types.int64
    _require_dot(indices, values, weights, total)
    return types.void(indices, values, whole, whole, weights, whole, total, whole), _emit_dot(weights)


@intrinsic
def lane_dot_then(
    typingctx: Any,
    indices: Any,
    values: Any,
    start: Any,
    end: Any,
    weights: Any,
    first: Any,
    total: Any,
    place: Any,
    then: Any,
) -> tuple[Any, Any]:
    """Do what `lane_dot` does, and prefetch the rows ``weights[then + indices[k]]``, which are needed next.

    For a single row this hides most of the memory latency.
    """
    whole = types.int64
    _require_dot(indices, values, weights, total)
    return types.void(indices, values, whole, whole, weights, whole, total, whole, whole), _emit_dot(weights)


def _emit_dot(weights: Any) -> Any:
    kind = weights.dtype
    width = kind.bitwidth // 8

    def emit(context: Any, b: _Builder, signature: Any, args: Any) -> Any:
        indices, values, start, end, weights, first, total, place, *then = _pointers(context, b, signature, args)
        panel = _row(b, weights, first, width)

        def body(k: _Value, carried: _Value) -> _Value:
            row = b.zext(b.load(_at(b, indices, k, 4, _I32)), _I64)
            if then:
                next_row = _row(b, weights, b.add(then[0], row), width)
                for line in range(0, width * LANES, 4 * LINE):
                    _prefetch(b, b.add(next_row, ir.Constant(_I64, line)))
            factor = _broadcast(b, b.load(_at(b, values, k, 4, _F32)))
            return _fused_add(b, carried, factor, _load_lanes(b, panel, row, kind))

        sums = _at(b, total, place, 4, _VECTOR)
        initial = b.load(sums, align=4)
        if kind == types.uint16:
            initial = _shuffle(b, initial, initial, _EVEN_FIRST)
        result = _for_each(b, start, end, initial, body)
        if kind == types.uint16:
            result = _shuffle(b, result, result, _IN_ORDER)
        b.store(result, sums, align=4)
        return context.get_dummy_value()

    return emit


@intrinsic
def lane_add(
    typingctx: Any, indices: Any, values: Any, start: Any, end: Any, weights: Any, change: Any, lines: Any
) -> tuple[Any, Any]:
    """Add ``values[k] * change`` to ``weights[indices[k]]`` for k from `start` to `end`; all float32.

    Bit i of `lines` is set where lanes 16 i to 16 i + 15 of `change`, one cache line, have a non-zero.
    """

    def emit(context: Any, b: _Builder, signature: Any, args: Any) -> Any:
        indices, values, start, end, weights, change, lines = _pointers(context, b, signature, args)

        def add(first: int, count: int) -> None:
            kind = ir.VectorType(_F32, count * LINE)
            offset = ir.Constant(_I64, 4 * LINE * first)
            step = b.load(b.inttoptr(b.add(change, offset), kind.as_pointer()), align=4)
            shifted = b.add(weights, offset)

            def body(k: _Value, carried: _Value) -> None:
                row = b.zext(b.load(_at(b, indices, k, 4, _I32)), _I64)
                factor = _broadcast(b, b.load(_at(b, values, k, 4, _F32)), kind)
                place = _at(b, shifted, row, 4 * LANES, kind)
                b.store(_fused_add(b, b.load(place, align=4), factor, step), place, align=4)

            _for_each(b, start, end, None, body)

        # All 64 lanes at once, or only the cache lines that change.
        with b.if_else(b.icmp_signed("==", lines, ir.Constant(_I64, ALL_LINES))) as (all_of_them, some):
            with all_of_them:
                add(0, LANES // LINE)
            with some:
                for line in range(LANES // LINE):
                    bit = b.and_(lines, ir.Constant(_I64, 1 << line))
                    with b.if_then(b.icmp_signed("!=", bit, ir.Constant(_I64, 0))):
                        add(line, 1)
        return context.get_dummy_value()

    _require(
        indices=(indices, (types.int32,)),
        values=(values, _SINGLE),
        weights=(weights, _SINGLE),
        change=(change, _SINGLE),
    )
    return types.void(indices, values, types.int64, types.int64, weights, change, types.int64), emit


def _load(b: _Builder, base: _Value, offset: int, kind: Any) -> _Value:
    return b.load(b.inttoptr(b.add(base, ir.Constant(_I64, offset)), kind.as_pointer()), align=1)


def _store(b: _Builder, base: _Value, offset: int, value: _Value) -> None:
    b.store(value, b.inttoptr(b.add(base, ir.Constant(_I64, offset)), value.type.as_pointer()), align=1)


def _row(b: _Builder, base: _Value, row: _Value, width: int) -> _Value:
    return b.add(base, b.mul(row, ir.Constant(_I64, width * LANES)))


def _larger(b: _Builder, left: _Value, right: _Value) -> _Value:
    return b.select(b.fcmp_ordered(">", left, right), left, right)


def _largest_lane(b: _Builder, vector: _Value) -> _Value:
    """Return the largest lane, by folding the vector in halves until one lane is left."""
    width = vector.type.count
    while width > 1:
        width //= 2
        low, high = (
            b.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_I32, width), list(range(at, at + width))))
            for at in (0, width)
        )
        vector = _larger(b, low, high)
    return b.extract_element(vector, ir.Constant(_I32, 0))


@intrinsic
def lane_scores(
    typingctx: Any,
    indices: Any,
    values: Any,
    start: Any,
    end: Any,
    weights: Any,
    scale: Any,
    bias: Any,
    bias_weights: Any,
    scores: Any,
) -> tuple[Any, Any]:
    """Set `scores` to ``scale * sum(values[k] * weights[indices[k]]) + bias * bias_weights`` and return the largest."""
    dot = _emit_dot(weights)

    def emit(context: Any, b: _Builder, signature: Any, args: Any) -> Any:
        *_, scale, bias, bias_weights, scores = _pointers(context, b, signature, args)
        _store(b, scores, 0, ir.Constant(_VECTOR, [0.0] * LANES))
        kinds, whole, zero = signature.args, types.int64, ir.Constant(_I64, 0)
        inner = types.void(*kinds[:5], whole, kinds[8], whole)
        dot(context, b, inner, [*args[:5], zero, args[8], zero])
        scaled = b.fmul(_load(b, scores, 0, _VECTOR), _broadcast(b, scale), flags=_FAST)
        result = _fused_add(b, scaled, _broadcast(b, bias), _load(b, bias_weights, 0, _VECTOR))
        _store(b, scores, 0, result)
        return _largest_lane(b, result)

    _require(bias_weights=(bias_weights, _SINGLE))
    _require_dot(indices, values, weights, scores)
    single, whole = types.float32, types.int64
    return single(indices, values, whole, whole, weights, single, single, bias_weights, scores), emit


@intrinsic
def hinge_lanes(
    typingctx: Any,
    scores: Any,
    dual: Any,
    sign: Any,
    slot: Any,
    square: Any,
    diagonal: Any,
    bound: Any,
    tol: Any,
    change: Any,
) -> tuple[Any, Any]:
    """Take the coordinate step of one row in the dual of either hinge loss, for 64 labels.

    Parameters
    ----------
    scores : contiguous ndarray of float32, shape (64,)
    dual, sign : C-contiguous ndarrays of float32 and int8, shape (slots, 64)
        Dual variables; 1 for the labels of a row, -1 for the others.
    slot : int
        Index of the row in both.
    square : float32
        Squared length of the row.
    diagonal, bound : ndarrays of float32, shape (2, 64)
        Diagonal and upper bound of the dual for negative (row 0) and positive labels (row 1).
    tol : float32
        Dual variables whose gradient is at most this large are not changed.
    change : contiguous ndarray of float32, shape (64,)
        Set to the change of sign * dual; `dual` itself is not changed.

    Returns
    -------
    (lines, most)
        Bit i of `lines` is set where any of lanes 16 i to 16 i + 15 changes; `most` is the largest dual variable after
        the step.
    """

    def emit(context: Any, b: _Builder, signature: Any, args: Any) -> Any:
        scores, dual, sign, slot, square, diagonal, bound, tol, change = _pointers(context, b, signature, args)
        dual, sign = _row(b, dual, slot, 4), _row(b, sign, slot, 1)
        wide, bytes_ = ir.VectorType(_F32, LINE), ir.VectorType(ir.IntType(8), LINE)
        q, least = _broadcast(b, square, wide), _broadcast(b, tol, wide)

        def constant(number: float) -> _Value:
            return ir.Constant(wide, [number] * LINE)

        most = constant(0.0)
        lines = ir.Constant(_I64, 0)
        for line in range(LANES // LINE):
            at = 4 * LINE * line
            y = b.sitofp(_load(b, sign, LINE * line, bytes_), wide)
            # Diagonal and upper bound of each lane, by the sign of its label.
            positive = b.fcmp_ordered(">", y, constant(0.0))
            diag, upper = (
                b.select(positive, _load(b, base, 4 * LANES + at, wide), _load(b, base, at, wide))
                for base in (diagonal, bound)
            )
            old = _load(b, dual, at, wide)
            # Gradient of the dual, then the projected Newton step to [0, upper]; lanes within the tolerance stay.
            margin = b.fmul(y, _load(b, scores, at, wide), flags=_FAST)
            gradient = b.fadd(b.fsub(margin, constant(1.0)), b.fmul(diag, old, flags=_FAST), flags=_FAST)
            size = _larger(b, gradient, b.fsub(constant(0.0), gradient))
            new = _larger(b, b.fsub(old, b.fdiv(gradient, b.fadd(q, diag))), constant(0.0))
            new = b.select(b.fcmp_ordered("<", new, upper), new, upper)
            new = b.select(b.fcmp_ordered(">", size, least), new, old)
            moved = b.fmul(b.fsub(new, old), y)
            _store(b, change, at, moved)
            most = _larger(b, most, new)
            # Mark the cache line if any of its lanes changed.
            bits = b.bitcast(b.fcmp_unordered("!=", moved, constant(0.0)), ir.IntType(LINE))
            any_moved = b.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(LINE), 0))
            lines = b.or_(lines, b.shl(b.zext(any_moved, _I64), ir.Constant(_I64, line)))
        return context.make_tuple(b, signature.return_type, (lines, _largest_lane(b, most)))

    arrays = {"scores": scores, "dual": dual, "diagonal": diagonal, "bound": bound, "change": change}
    _require(sign=(sign, (types.int8,)), **{name: (given, _SINGLE) for name, given in arrays.items()})
    result: Any = types.Tuple([types.int64, types.float32])  # type: ignore[no-untyped-call]
    single = types.float32
    return result(scores, dual, sign, types.int64, single, diagonal, bound, single, change), emit


@intrinsic
def lane_commit(
    typingctx: Any, dual: Any, sign: Any, slot: Any, bias_weights: Any, bias: Any, change: Any, scale: Any
) -> tuple[Any, Any]:
    """Apply the step in `change`: ``dual[slot] += sign[slot] * change``, ``bias_weights += bias * change``.

    Afterwards `change` is multiplied by `scale`, for `lane_add`.
    """

    def emit(context: Any, b: _Builder, signature: Any, args: Any) -> Any:
        dual, sign, slot, bias_weights, bias, change, scale = _pointers(context, b, signature, args)
        dual, sign = _row(b, dual, slot, 4), _row(b, sign, slot, 1)
        step = _load(b, change, 0, _VECTOR)
        y = b.sitofp(_load(b, sign, 0, ir.VectorType(ir.IntType(8), LANES)), _VECTOR)
        _store(b, dual, 0, _fused_add(b, _load(b, dual, 0, _VECTOR), y, step))
        _store(b, bias_weights, 0, _fused_add(b, _load(b, bias_weights, 0, _VECTOR), _broadcast(b, bias), step))
        _store(b, change, 0, b.fmul(step, _broadcast(b, scale), flags=_FAST))
        return context.get_dummy_value()

    _require(
        dual=(dual, _SINGLE), sign=(sign, (types.int8,)), bias_weights=(bias_weights, _SINGLE), change=(change, _SINGLE)
    )
    single = types.float32
    return types.void(dual, sign, types.int64, bias_weights, single, change, single), emit


@intrinsic
def widen(typingctx: Any, weight: Any) -> tuple[Any, Any]:
    """Convert a stored weight to float32: bfloat16 (uint16), float16 (int16) or int8."""

    def emit(context: Any, b: _Builder, signature: Any, args: Any) -> Any:
        if signature.args[0] == types.float32:
            return args[0]
        if signature.args[0] == types.int8:
            return b.sitofp(args[0], _F32)
        if signature.args[0] == types.int16:
            return _widen_halves(b, args[0], 1)
        return b.bitcast(b.shl(b.zext(args[0], _I32), ir.Constant(_I32, 16)), _F32)

    return types.float32(weight), emit


def to_bfloat16(values: Float32) -> npt.NDArray[np.uint16]:
    """Round float32 numbers to bfloat16, stored as uint16; to nearest, ties to even.

    Examples
    --------
    >>> from_bfloat16(to_bfloat16(np.array([1.0, -0.1], np.float32)))
    array([ 1.        , -0.10009766], dtype=float32)
    """
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def from_bfloat16(halves: npt.NDArray[np.uint16]) -> Float32:
    """Convert the result of `to_bfloat16` back to float32."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def widened(values: npt.NDArray[Any]) -> Float32:
    """Return stored weights, bfloat16 (as uint16), float16 (as int16), int8 or float32, as float32."""
    if values.dtype == np.uint16:
        return from_bfloat16(values)
    if values.dtype == np.int16:
        return values.view(np.float16).astype(np.float32)
    return np.asarray(values, np.float32)
