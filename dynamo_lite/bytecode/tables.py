"""Reads and writes the two compressed tables of a code object: exception handlers and source positions.

Formats: CPython's Objects/exception_handling_notes.txt and Objects/locations.md. Offsets are in code units (two bytes).
Invariant: ``parse_exception_table(encode_exception_table(t)) == t``, and what ``encode_locations`` writes,
``code.co_positions()`` reads back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class ExceptionEntry(NamedTuple):
    """What is done with an exception raised in code units ``start <= unit < end``.

    The stack is cut to `depth`, lasti is pushed if asked, the exception is pushed, and control goes to `target`.
    """

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


# (lineno, end_lineno, col_offset, end_col_offset), as from code.co_positions()
RawPositions = tuple[int | None, int | None, int | None, int | None]
NO_POSITIONS: RawPositions = (None, None, None, None)


def parse_exception_table(table: bytes) -> list[ExceptionEntry]:
    """The ranges of ``co_exceptiontable``, in code units (Objects/exception_handling_notes.txt)."""
    entries: list[ExceptionEntry] = []
    values: list[int] = []
    i, size = 0, len(table)
    while i < size:
        byte = table[i]
        i += 1
        value = byte & 63
        while byte & 64:
            byte = table[i]
            i += 1
            value = (value << 6) | (byte & 63)
        values.append(value)
        if len(values) == 4:
            start, length, target, depth_lasti = values
            entries.append(ExceptionEntry(start, start + length, target, depth_lasti >> 1, bool(depth_lasti & 1)))
            values = []
    return entries


def _append_big_endian(out: bytearray, value: int, first_bit: int) -> None:
    groups = [value & 63]
    value >>= 6
    while value:
        groups.append(value & 63)
        value >>= 6
    for position in range(len(groups) - 1, -1, -1):
        out.append(groups[position] | (64 if position else 0) | first_bit)
        first_bit = 0


def encode_exception_table(entries: Iterable[ExceptionEntry]) -> bytes:
    """The reverse of ``parse_exception_table``."""
    out = bytearray()
    for start, end, target, depth, lasti in entries:
        _append_big_endian(out, start, 128)
        _append_big_endian(out, end - start, 0)
        _append_big_endian(out, target, 0)
        _append_big_endian(out, depth << 1 | lasti, 0)
    return bytes(out)


def _append_varint(out: bytearray, value: int) -> None:
    while value >= 64:
        out.append(64 | (value & 63))
        value >>= 6
    out.append(value)


def _append_signed_varint(out: bytearray, value: int) -> None:
    _append_varint(out, (-value << 1) | 1 if value < 0 else value << 1)


_NONE, _LONG, _NO_COLUMN, _ONE_LINE = 15, 14, 13, 10


def encode_locations(runs: Sequence[tuple[int, RawPositions]], firstlineno: int) -> bytes:
    """The line table for runs of (number of code units, positions); neighbours with equal positions are merged."""
    out = bytearray()
    previous_line = firstlineno
    i, total = 0, len(runs)
    while i < total:
        units, positions = runs[i]
        i += 1
        while i < total and runs[i][1] == positions:
            units += runs[i][0]
            i += 1
        while units > 0:
            chunk = min(units, 8)
            units -= chunk
            previous_line = _append_location(out, chunk - 1, positions, previous_line)
    return bytes(out)


def _append_location(out: bytearray, length: int, positions: RawPositions, previous_line: int) -> int:
    line, end_line, column, end_column = positions
    if line is None:
        out.append(128 | _NONE << 3 | length)
        return previous_line
    delta = line - previous_line
    if column is None or end_column is None or end_line is None:
        out.append(128 | _NO_COLUMN << 3 | length)
        _append_signed_varint(out, delta)
    elif delta == 0 and end_line == line and column < 80 and 0 <= end_column - column < 16:
        out.append(128 | (column >> 3) << 3 | length)
        out.append((column & 7) << 4 | (end_column - column))
    elif 0 <= delta < 3 and end_line == line and column < 128 and end_column < 128:
        out.append(128 | (_ONE_LINE + delta) << 3 | length)
        out.append(column)
        out.append(end_column)
    else:
        out.append(128 | _LONG << 3 | length)
        _append_signed_varint(out, delta)
        _append_varint(out, end_line - line)
        _append_varint(out, column + 1)
        _append_varint(out, end_column + 1)
    return line
