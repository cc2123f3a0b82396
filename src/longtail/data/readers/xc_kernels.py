"""Kernels of the XC text format: from bytes to arrays and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from longtail.kernels.jit import kernel, kernel_with
from longtail.kernels.types import Float32, Int32, Int64, UInt8

OK, BAD_LABEL, LABEL_RANGE, BAD_FEATURE, FEATURE_RANGE, TOO_LARGE, EXTRA_ROW = range(7)
POSITION, ROW, FEATURES, LABELS, PLACE, UNSORTED_FEATURES, UNSORTED_LABELS, UNSURE, STATE_SIZE = range(9)

_POWERS = np.array([float(f"1e{exponent}") for exponent in range(66)])
_EXACT = np.uint64(1 << 53)
_SPACE, _TAB, _NEWLINE, _RETURN, _COMMA, _COLON, _DOT, _MINUS, _PLUS = 32, 9, 10, 13, 44, 58, 46, 45, 43
_SMALL_E, _BIG_E, _ZERO = 101, 69, 48
_MAX_DIGITS = 18


@kernel_with(inline="always")
def _is_digit(byte: Any) -> Any:
    return np.uint8(byte - _ZERO) <= 9


@kernel_with(inline="always")
def _is_separator(byte: Any) -> Any:
    return byte in (_SPACE, _NEWLINE, _TAB, _RETURN)


@kernel_with(error_model="numpy")
def _scaled(mantissa: Any, exponent: Any) -> Any:
    """Return mantissa * 10**exponent, and whether it rounds to the same float32 as the exact product.

    A mantissa below 2**53 times or divided by a power of ten up to 22 is one correctly rounded operation. Any other
    product has a relative error below 2**-50, and is certain if that whole interval rounds to one float32.
    """
    value = np.float64(mantissa)
    value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
    if mantissa < _EXACT and -22 <= exponent <= 22:
        return value, True
    return value, np.float32(value * (1 - 2.0**-50)) == np.float32(value * (1 + 2.0**-50))


@kernel_with(error_model="numpy")
def _number(text: Any, i: Any) -> Any:
    """Read a decimal number at `i`; return the value, the position after it (-1 if there is none) and if it is certain.

    The first 19 significant digits make up the mantissa; further ones only count for the exponent.
    """
    negative = text[i] == _MINUS
    if negative or text[i] == _PLUS:
        i += 1
    mantissa, digits, exponent, cut = np.uint64(0), 0, 0, False
    start = i
    while _is_digit(text[i]):
        if digits < 19:
            mantissa = mantissa * np.uint64(10) + np.uint64(text[i] - _ZERO)
            digits += mantissa != 0
        else:
            exponent += 1
            cut = True
        i += 1
    seen = i - start
    if text[i] == _DOT:
        i += 1
        start = i
        while _is_digit(text[i]):
            if digits < 19:
                mantissa = mantissa * np.uint64(10) + np.uint64(text[i] - _ZERO)
                digits += mantissa != 0
                exponent -= 1
            else:
                cut = True
            i += 1
        seen += i - start
    if seen == 0:
        return 0.0, np.int64(-1), True
    # Exponent: e or E, a sign, digits
    if text[i] == _SMALL_E or text[i] == _BIG_E:
        i += 1
        down = text[i] == _MINUS
        if down or text[i] == _PLUS:
            i += 1
        power: Any = 0
        start = i
        while _is_digit(text[i]):
            if power < 1 << 40:
                power = power * 10 + np.int64(text[i] - _ZERO)
            i += 1
        if i == start:
            return 0.0, np.int64(-1), True
        exponent += -power if down else power
    if mantissa == 0 or digits + exponent <= -46:  # below half of the smallest float32
        value, sure = 0.0, True
    elif digits + exponent >= 40:
        value, sure = np.inf, True
    else:
        value, sure = _scaled(mantissa, exponent)
        if cut:
            sure = np.float32(value * (1 - 2.0**-50)) == np.float32(value * (1 + 2.0**-50))
    return (-value if negative else value), np.int64(i), sure


@kernel_with(error_model="numpy")
def _parse_labels(text: Any, i: Any, n_labels: Any, y_indices: Any, y_used: Any, state: Any) -> Any:
    """Parse the label ids of a row; return the status, the position after them and the number of labels so far."""
    first, last = y_used, np.int64(-1)
    while _is_digit(text[i]):
        start, label = i, np.int64(0)
        while _is_digit(text[i]):
            label = label * 10 + np.int64(text[i] - _ZERO)
            i += 1
        if text[i] == _COLON and y_used == first:  # a feature: this row has no labels
            return OK, start, y_used
        state[PLACE] = start
        more = text[i] == _COMMA
        if (more and not _is_digit(text[i + 1])) or not (more or _is_separator(text[i])):
            return BAD_LABEL, i, y_used
        if label >= n_labels or i - start > _MAX_DIGITS:
            return LABEL_RANGE, i, y_used
        if label <= last:
            state[UNSORTED_LABELS] = 1
        last = label
        y_indices[y_used] = label
        y_used += 1
        if not more:
            break
        i += 1
    return OK, i, y_used


@kernel_with(error_model="numpy")
def _parse_features(
    text: Any, i: Any, n_features: Any, x_indices: Any, x_data: Any, x_used: Any, unsure: Any, state: Any
) -> Any:
    """Parse the features of a row and its newline; return as `_parse_labels` does."""
    last = np.int64(-1)
    while True:
        while text[i] == _SPACE or text[i] == _TAB:
            i += 1
        if text[i] == _RETURN and text[i + 1] == _NEWLINE:
            i += 1
        if text[i] == _NEWLINE:
            return OK, i + 1, x_used
        start, feature = i, np.int64(0)
        while _is_digit(text[i]):
            feature = feature * 10 + np.int64(text[i] - _ZERO)
            i += 1
        state[PLACE] = start
        if text[i] != _COLON or i == start:
            return BAD_FEATURE, i, x_used
        place = i + 1
        value, i, sure = _number(text, place)
        if i < 0 or not _is_separator(text[i]):
            return BAD_FEATURE, i, x_used
        if feature >= n_features or place - start > _MAX_DIGITS:
            return FEATURE_RANGE, i, x_used
        single = np.float32(value)
        if not sure:  # Python reads it later
            unsure[2 * state[UNSURE]] = x_used
            unsure[2 * state[UNSURE] + 1] = place
            state[UNSURE] += 1
            single = np.float32(0)
        elif not np.isfinite(single):
            return TOO_LARGE, i, x_used
        if feature <= last:
            state[UNSORTED_FEATURES] = 1
        last = feature
        x_indices[x_used] = feature
        x_data[x_used] = single
        x_used += 1


@kernel_with(error_model="numpy")
def parse_rows(
    text: UInt8,
    end: int,
    n_rows: int,
    n_features: int,
    n_labels: int,
    x_indptr: Int64,
    x_indices: Int32,
    x_data: Float32,
    y_indptr: Int64,
    y_indices: Int32,
    unsure: Int64,
    state: Int64,
) -> Any:
    """Parse the lines of ``text[state[POSITION]:end]`` and append their rows to the arrays; return the status.

    The last byte before `end` is a newline, which ends every inner loop. Values whose float32 is not certain are left
    0 and listed in `unsure` as pairs of entry and place in the text. The caller makes every array large enough.
    """
    i, row, x_used, y_used = state[POSITION], state[ROW], state[FEATURES], state[LABELS]
    while i < end:
        if row == n_rows:  # only white space may follow
            while i < end and _is_separator(text[i]):
                i += 1
            state[POSITION] = i
            state[PLACE] = i
            return EXTRA_ROW if i < end else OK
        status, i, y_used = _parse_labels(text, i, n_labels, y_indices, y_used, state)
        if status != OK:
            return status
        status, i, x_used = _parse_features(text, i, n_features, x_indices, x_data, x_used, unsure, state)
        if status != OK:
            return status
        row += 1
        x_indptr[row] = x_used
        y_indptr[row] = y_used
        state[POSITION], state[ROW], state[FEATURES], state[LABELS] = i, row, x_used, y_used
    return OK


@kernel
def order_rows(indptr: Int64, indices: Int32, data: Float32, first: int, last: int, found: Int64) -> None:
    """Sort the indices of rows first to last - 1, and their values unless `data` is empty (shell sort).

    The first row with a repeated index, and that index, are written to `found`.
    """
    carry = data.size > 0
    for row in range(first, last):
        begin, end = indptr[row], indptr[row + 1]
        ordered = True
        for j in range(begin + 1, end):
            if indices[j] <= indices[j - 1]:
                ordered = False
                break
        if ordered:
            continue
        gap: Any = np.int64(1)
        while gap < (end - begin) // 3:
            gap = 3 * gap + 1
        while gap > 0:
            for j in range(begin + gap, end):
                index = indices[j]
                value = data[j] if carry else np.float32(0)
                k = j
                while k >= begin + gap and indices[k - gap] > index:
                    indices[k] = indices[k - gap]
                    if carry:
                        data[k] = data[k - gap]
                    k -= gap
                indices[k] = index
                if carry:
                    data[k] = value
            gap //= 3
        for j in range(begin + 1, end):
            if indices[j] == indices[j - 1]:
                found[0], found[1] = row, indices[j]
                return


@kernel
def _put_integer(out: Any, at: Any, number: Any) -> Any:
    """Write a non-negative integer in decimal; return the position after it."""
    size, rest = 1, number // 10
    while rest > 0:
        size += 1
        rest //= 10
    for place in range(at + size - 1, at - 1, -1):
        out[place] = _ZERO + number % 10
        number //= 10
    return at + size


@kernel_with(error_model="numpy")
def _put_number(out: Any, at: Any, single: Any) -> Any:
    """Write the fewest digits from which `_number` reads the same float32; return the position after them."""
    if np.signbit(single):
        out[at] = _MINUS
        at += 1
    size = np.abs(np.float64(single))
    if size == 0:
        out[at] = _ZERO
        return at + 1
    # Try more and more digits until the number is read back as it was
    leading: Any = np.int64(np.floor(np.log10(size)))
    mantissa: Any = np.int64(0)
    scale: Any = np.int64(0)
    for digits in range(1, 11):
        scale = digits - 1 - leading
        mantissa = np.int64(np.rint(size * _POWERS[scale] if scale >= 0 else size / _POWERS[-scale]))
        value, sure = _scaled(np.uint64(mantissa), -scale)
        if sure and np.float32(value) == np.abs(single):
            break
    while mantissa % 10 == 0:
        mantissa //= 10
        scale -= 1
    # Write it as an integer if it is one of at most nine digits
    digits, rest = 1, mantissa // 10
    while rest > 0:
        digits += 1
        rest //= 10
    leading = digits - 1 - scale
    if leading <= 8 and scale <= 0:
        at = _put_integer(out, at, mantissa)
        for _ in range(-scale):
            out[at] = _ZERO
            at += 1
        return at
    # Else as a decimal fraction, with an exponent if it is very small or large; digits are written from the last
    exponent: Any = np.int64(0)
    if leading < -4 or leading > 8:
        exponent = leading
        scale = digits - 1
    width: Any = max(scale + 1, digits)
    after = at + width + (scale > 0)
    at = after
    for place in range(width):
        if place == scale and scale > 0:
            at -= 1
            out[at] = _DOT
        at -= 1
        out[at] = _ZERO + mantissa % 10
        mantissa //= 10
    at = after
    if exponent != 0:
        out[at] = _SMALL_E
        at += 1
        if exponent < 0:
            out[at] = _MINUS
            at += 1
        at = _put_integer(out, at, np.abs(exponent))
    return at


@kernel
def format_rows(
    x_indptr: Int64,
    x_indices: Int32,
    x_data: Float32,
    y_indptr: Int64,
    y_indices: Int32,
    first: int,
    last: int,
    out: UInt8,
) -> int:
    """Write rows first to last - 1 as lines into `out`, which is large enough; return the number of bytes."""
    at = 0
    for row in range(first, last):
        for j in range(y_indptr[row], y_indptr[row + 1]):
            if j > y_indptr[row]:
                out[at] = _COMMA
                at += 1
            at = _put_integer(out, at, np.int64(y_indices[j]))
        for j in range(x_indptr[row], x_indptr[row + 1]):
            out[at] = _SPACE
            at = _put_integer(out, at + 1, np.int64(x_indices[j]))
            out[at] = _COLON
            at = _put_number(out, at + 1, x_data[j])
        out[at] = _NEWLINE
        at += 1
    return at
