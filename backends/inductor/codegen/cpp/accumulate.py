"""Writes the accumulators of a reduction in C++: the initial value, the update, the combination of partial results.

An accumulator has one copy or ``COPIES``, so that additions need not wait for each other. Each copy is a scalar or a
vector. The lanes of a vector are combined at the end (a reduction along the vector loop) or are separate results (a
reduction along serial loops). Long sums are cascades of short sums, as in eager, so that rounding errors do not
accumulate.

Invariant: an inactive lane changes no accumulator.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.codegen.cpp.expressions import VALUE, const_text
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, positions_ascend

# Copies of an accumulator whose body is light.
COPIES = 4
# Position that stands for no element, for each type of positions.
_NOWHERE = {"i64": "0x7fffffffffffffffl", "i32": "0x7fffffff"}


def are_positions_short(statement: Accumulate) -> bool:
    """Whether positions in vectors have 32 bits: if they are known to fit and the values are no wider, so that a vector
    has as many lanes as without positions."""
    terms = ix.affine_terms(statement.position)
    if terms is None or statement.value.dtype.itemsize > 4:
        return False
    strides, farthest = terms
    for v, stride in strides.items():
        farthest = ix.add(farthest, ix.mul(stride, ix.add(v.size, -1)))
    signs = [stride for stride in (*strides.values(), terms[1]) if not isinstance(stride, int) or stride < 0]
    return not signs and isinstance(farthest, int) and farthest < int(_NOWHERE["i32"], 16)


def start(kind: str, dtype: torch.dtype) -> str:
    """The neutral element of a reduction of this kind, as a scalar."""
    if kind in ("max", "min", "argmax", "argmin"):
        sign = -1 if kind in ("max", "argmax") else 1
        if dtype.is_floating_point:
            return const_text(sign * math.inf, dtype)
        info = torch.iinfo(dtype)
        return const_text(info.min if sign < 0 else info.max, dtype)
    return const_text({"sum": 0, "prod": 1, "any": False, "all": True}[kind], dtype)


def _squared(statement: Accumulate) -> Node | None:
    """The node whose squares a statement sums up; None if it is no sum of squares."""
    value = statement.value
    if statement.kind != "sum" or not value.dtype.is_floating_point or value.op != "mul":
        return None
    return value.args[0] if value.args[0] is value.args[1] else None


class Accumulator:
    """Writes the code of one ``Accumulate``.

    Attributes:
        name: the prefix of its C++ names; ``result`` is the name of the finished value.
        along: whether the vector loop is reduced, so that lanes are combined at the end.
        lanes: whether the accumulator is a vector.
        copies: number of copies, 1 or 4.
        positions: whether it is an argmax or argmin, whose result is a position.
        place: the C++ type of positions, "i64" or "i32".
        ascending: whether elements come in the order of their positions; if not, positions of equal elements are
            compared.
        cascade: whether it is a long sum of floats, which is computed as a cascade.
        square: the node whose squares are summed, if it is such a sum; ``take`` then gets that node's value, as the
            processor squares and adds in one operation. Since neither the square nor the sum is ever negative, results
            are infinite or NaN in the same cases as when each is rounded by itself.
    """

    def __init__(
        self, statement: Accumulate, name: str, along: bool, lanes: bool, copies: int, long: bool,
        loops: Sequence[ix.Var],
    ):
        self.statement = statement
        self.kind = statement.kind
        self.dtype = statement.value.dtype
        self.name = name
        self.along = along
        self.lanes = lanes
        self.copies = copies
        self.positions = self.kind.startswith("arg")
        self.place = "i32" if lanes and self.positions and are_positions_short(statement) else "i64"
        self.ascending = positions_ascend(statement, loops)
        self.cascade = long and self.kind == "sum" and self.dtype.is_floating_point
        self.square = _squared(statement)
        self.scalar = VALUE[self.dtype]
        self.result = f"{name}_result"

    # ------------------------------------------------------------ pieces
    @property
    def type(self) -> str:
        if not self.lanes:
            return self.scalar
        return f"vec<{'i32' if self.dtype is torch.bool else self.scalar}, L>"

    def initial(self) -> str:
        """The neutral element, as a scalar or a vector."""
        value = start(self.kind, self.dtype)
        return f"bc<L>({value})" if self.lanes else value

    def join(self, a: str, b: str) -> str:
        """``a`` and ``b`` combined, scalars or vectors."""
        if self.kind in ("sum", "prod"):
            return f"{a} {'+' if self.kind == 'sum' else '*'} {b}"
        if self.kind in ("any", "all"):
            return f"mask_{'or' if self.kind == 'any' else 'and'}({a}, {b})"
        return f"{self.kind}_({a}, {b})"

    def better(self, a: str, b: str) -> str:
        """Whether ``a`` beats ``b`` in an argmax or argmin: NaN beats any number, an equal value does not."""
        sign = ">" if self.kind == "argmax" else "<"
        if not self.dtype.is_floating_point:
            return f"{a} {sign} {b}"
        return f"mask_or({a} {sign} {b}, mask_and({a} != {a}, {b} == {b}))"

    def _first(self, a: str, at: str, b: str, there: str) -> str:
        """Whether ``a`` beats ``b``, or ties with it (both may be NaN) and its position ``at`` is before ``there``."""
        return f"mask_or({self.better(a, b)}, mask_and(mask_not({self.better(b, a)}), {at} < {there}))"

    # ------------------------------------------------------------ the loop
    def declare(self) -> list[str]:
        """The declarations before the loops."""
        values = ", ".join([self.initial()] * self.copies)
        lines = [f"{self.type} {self.name}[{self.copies}] = {{{values}}};"]
        if self.positions:
            at = f"bc<L>({_NOWHERE[self.place]})" if self.lanes else _NOWHERE[self.place]
            kind = f"vec<{self.place}, L>" if self.lanes else self.place
            lines.append(f"{kind} {self.name}_at[{self.copies}] = {{{', '.join([at] * self.copies)}}};")
        if self.cascade:
            lines.append(f"cascade<{self.type}> {self.name}_sum;")
        return lines

    def take(self, value: str, position: str, slot: str) -> str:
        """Accumulates the value of one iteration, or of ``L`` iterations, of which ``m`` are active."""
        target = f"{self.name}[{slot}]"
        if self.positions:
            at = f"{self.name}_at[{slot}]"
            # The first element is taken even if its value is the worst possible one: its position replaces _NOWHERE.
            test = f"mask_or({self.better(value, target)}, {at} == {_NOWHERE[self.place]})"
            if not self.ascending:
                test = self._first(value, position, target, at)
            if self.along:
                test = f"keep(m, mask_for<vec<{self.place}, L>>({test}), vec<{self.place}, L>{{}})"
            return (
                f"{{ const auto take = {test}; {target} = sel(take, {value}, {target}); "
                f"{at} = sel(take, {position}, {at}); }}"
            )
        joined = self.join(target, value) if self.square is None else f"plus_square({target}, {value})"
        return f"{target} = keep(m, {joined}, {target});" if self.along else f"{target} = {joined};"

    def end_of_chunk(self) -> list[str]:
        """The code after one piece of a long sum: the cascade takes the sum of the copies, which begin anew."""
        if not self.cascade:
            return []
        clear = " ".join(f"{self.name}[{k}] = {self.initial()};" for k in range(self.copies))
        return [f"{self.name}_sum.add({self._joined_copies()});", clear]

    def _joined_copies(self) -> str:
        parts = [f"{self.name}[{k}]" for k in range(self.copies)]
        if self.copies == 1:
            return parts[0]
        return self.join(f"({self.join(parts[0], parts[1])})", f"({self.join(parts[2], parts[3])})")

    # ------------------------------------------------------------ the result
    def finish(self) -> list[str]:
        """The code behind the loops, which computes the finished value."""
        if self.positions:
            return self._finish_positions()
        value = f"{self.name}_sum.total()" if self.cascade else self._joined_copies()
        if not self.along:
            return [f"const auto {self.result} = {value};"]
        if self.dtype is torch.bool:
            sign = "|" if self.kind == "any" else "&"
            return [f"const bool {self.result} = fold({value}, [](auto a, auto b) {{ return a {sign} b; }}) != 0;"]
        fold = f"fold({value}, [](auto a, auto b) {{ return decltype(a)({self.join('a', 'b')}); }})"
        return [f"const {self.scalar} {self.result} = {fold};"]

    def _finish_positions(self) -> list[str]:
        lines = []
        value, at = f"{self.name}[0]", f"{self.name}_at[0]"
        for k in range(1, self.copies):
            other, there = f"{self.name}[{k}]", f"{self.name}_at[{k}]"
            lines.append(
                f"{{ const auto take = {self._first(other, there, value, at)}; "
                f"{value} = sel(take, {other}, {value}); {at} = sel(take, {there}, {at}); }}"
            )
        if not self.along:
            at = at if self.place == "i64" else f"to<i64>({at})"
            return [*lines, f"const auto {self.result} = {at};", f"const auto {self.name}_best = {value};"]
        kind = self.scalar
        better = f"[]({kind} a, {kind} b) {{ return {self.better('a', 'b')}; }}"
        return [
            *lines,
            f"{kind} {self.name}_best;",
            f"const i64 {self.result} = fold_position({value}, {at}, {better}, {self.name}_best);",
        ]

    # ------------------------------------------------------------ parts
    def declare_parts(self) -> list[str]:
        """Declares a partial result for each part. They begin as the neutral element, which a part without elements
        leaves as it is."""
        lines = [f"{self.scalar} {self.name}_part[parts];"]
        clear = f"{self.name}_part[t] = {start(self.kind, self.dtype)};"
        if self.positions:
            lines.append(f"i64 {self.name}_part_at[parts];")
            clear += f" {self.name}_part_at[t] = {_NOWHERE['i64']};"
        return [*lines, f"for (int t = 0; t < parts; ++t) {{ {clear} }}"]

    def save_part(self) -> list[str]:
        """The code at the end of a part, which saves its result."""
        if self.positions:
            at = self.result
            if self.place == "i32":
                at = f"{at} == {_NOWHERE['i32']} ? {_NOWHERE['i64']} : {at}"
            return [f"{self.name}_part[part] = {self.name}_best;", f"{self.name}_part_at[part] = {at};"]
        return [f"{self.name}_part[part] = {self.result};"]

    def join_parts(self) -> list[str]:
        """Combines the parts' results to the finished value: neighboring parts, then neighboring pairs, and so on, so
        that few roundings follow one another; of a position, the smallest one of the best values."""
        part, best = f"{self.name}_part", f"{self.name}_best"
        if not self.positions:
            joined = self.join(f"{part}[t]", f"{part}[t + step]")
            pairs = "for (int step = 1; step < parts; step *= 2) for (int t = 0; t < parts; t += 2 * step)"
            return [f"{pairs} {part}[t] = {joined};", f"const {self.scalar} {self.result} = {part}[0];"]
        # A part without elements has the position _NOWHERE, which is beyond all others, and the worst value.
        test = self._first(f"{part}[t]", f"{part}_at[t]", best, self.result)
        return [
            f"{self.scalar} {best} = {part}[0];",
            f"i64 {self.result} = {part}_at[0];",
            f"for (int t = 1; t < parts; ++t) if ({test}) {best} = {part}[t], {self.result} = {part}_at[t];",
        ]
