"""Reductions in Triton: accumulation piece by piece, and the combination of a block's lanes.

Invariant: as in eager, NaN is both the maximum and the minimum of all values, and among equal elements the first is
selected. Lanes that do not exist change nothing.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.codegen.triton.expressions import VALUE, const_text
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, positions_ascend

_NOWHERE = "9223372036854775807"  # stands for the position if there is no element


class Reduction:
    """The text of one ``Accumulate``.

    Attributes:
        acc: the accumulator's name among the kernel's results; ``result`` is the name of the finished value.
        positions: whether the reduction finds the position of an element.
        ascending: whether pieces come in the order of their positions; if not, positions of equal elements are
            compared.
    """

    def __init__(self, statement: Accumulate, name: str, rows: bool, loops: Sequence[ix.Var]) -> None:
        self.acc = statement.acc
        self.kind = statement.kind
        self.dtype = statement.value.dtype
        self.name = name
        self.result = f"{name}_result"
        self.positions = self.kind.startswith("arg")
        self.ascending = positions_ascend(statement, loops)
        self._axis = "1, True" if rows else "0, False"
        self._dim = "1, keep_dims=True" if rows else "0"

    def _start(self) -> str:
        """The neutral element of the reduction."""
        if self.kind in ("any", "all"):
            return f"tl.full((), {int(self.kind == 'all')}, tl.int32)"
        if self.kind in ("sum", "prod"):
            return const_text(int(self.kind == "prod"), self.dtype)
        sign = -1 if self.kind in ("max", "argmax") else 1
        if self.dtype.is_floating_point:
            return const_text(sign * math.inf, self.dtype)
        info = torch.iinfo(self.dtype)
        return const_text(info.min if sign < 0 else info.max, self.dtype)

    def _as(self, value: str) -> str:
        return f"{value}.to(tl.int32)" if self.kind in ("any", "all") else value

    def _better(self, a: str, b: str) -> str:
        sign = ">" if self.kind == "argmax" else "<"
        if not self.dtype.is_floating_point:
            return f"({a} {sign} {b})"
        return f"(({a} {sign} {b}) | (({a} != {a}) & ({b} == {b})))"

    # ------------------------------------------------------------ a row at once
    def whole(self, value: str, position: str, mask: str) -> list[str]:
        """The statements for a row that the block holds as a whole."""
        value = self._as(value)
        if mask:
            value = f"tl.where({mask}, {value}, {self._start()})"
        if not self.positions:
            return [f"{self.result} = {self._joined(value)}"]
        lines = [f"{self.name} = {value}", f"{self.name}_at = {position}.to(tl.int64)"]
        if mask:
            lines.append(f"{self.name}_at = tl.where({mask}, {self.name}_at, {_NOWHERE})")
        return [*lines, *self.finish()]

    # ------------------------------------------------------------ piece by piece
    def declare(self, shape: str) -> list[str]:
        lines = [f"{self.name} = {self._start().replace('()', shape, 1)}"]
        if self.positions:
            lines.append(f"{self.name}_at = tl.full({shape}, {_NOWHERE}, tl.int64)")
        return lines

    def take(self, value: str, position: str, mask: str) -> list[str]:
        """The statements that accumulate a piece of a row."""
        name, value = self.name, self._as(value)
        if self.positions:
            test = f"{self._better(value, name)} | ({name}_at == {_NOWHERE})"
            if not self.ascending:
                earlier = f"({self._better(name, value)} == 0) & ({position} < {name}_at)"
                test = f"{self._better(value, name)} | ({earlier})"
            return [
                f"{name}_take = ({test})" + (f" & {mask}" if mask else ""),
                f"{name} = tl.where({name}_take, {value}, {name})",
                f"{name}_at = tl.where({name}_take, {position}, {name}_at)"]
        signs = {"sum": "+", "prod": "*", "any": "|", "all": "&"}
        if self.kind in signs:
            joined = f"{name} {signs[self.kind]} {value}"
        else:
            nan = ", propagate_nan=tl.PropagateNan.ALL" if self.dtype.is_floating_point else ""
            joined = f"tl.{self.kind}imum({name}, {value}{nan})"
        return [f"{name} = tl.where({mask}, {joined}, {name})" if mask else f"{name} = {joined}"]

    def finish(self) -> list[str]:
        """The statements that compute the finished value after all pieces."""
        name = self.name
        if not self.positions:
            return [f"{self.result} = {self._joined(name)}"]
        best = f"{name}_best"
        hit = f"{name} == {best}"
        if self.dtype.is_floating_point:
            hit = f"tl.where({best} == {best}, {hit}, {name} != {name})"
        return [
            f"{best} = {self._extreme(self.kind[3:], name)}",
            f"{self.result} = tl.min(tl.where({hit}, {name}_at, {_NOWHERE}), {self._dim})"]

    def _extreme(self, kind: str, value: str) -> str:
        if self.dtype.is_floating_point:
            return f"{'largest' if kind == 'max' else 'least'}({value}, {self._axis})"
        return f"tl.{kind}({value}, {self._dim}).to({VALUE[self.dtype]})"

    def _joined(self, value: str) -> str:
        if self.kind == "sum":
            return f"tl.sum({value}, {self._dim}).to({VALUE[self.dtype]})"
        if self.kind == "prod":
            axis, _, keep = self._dim.partition(", ")
            return f"tl.reduce({value}, {', '.join([axis, 'times', *filter(None, [keep])])})"
        if self.kind in ("any", "all"):
            return f"tl.{'max' if self.kind == 'any' else 'min'}({value}, {self._dim}) != 0"
        return self._extreme(self.kind, value)
