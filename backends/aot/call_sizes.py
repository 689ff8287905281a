"""Sizes of a call: of a graph with symbolic sizes, the few numbers that are read of each call's inputs, from which its
other sizes and strides are computed while it runs.

Invariant: what is kept here is data, without symbols: a number is an int, or a formula over the numbers that are read.
"""
from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from dynamo_lite.symbols.integers import Index, Sym, symbols_of
from dynamo_lite.symbols.nodes import FloatNode, IntNode

_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclasses.dataclass(frozen=True, slots=True)
class SizePlace:
    """Where a number is read.

    Attributes:
        input: the index of the graph's input.
        kind: "int": it is the input itself; "size" or "stride" of the tensor that the input is.
        dim: of which dimension.
    """

    input: int
    kind: str
    dim: int

    def read(self, inputs: Sequence[Any]) -> Any:
        """The number, of a call's inputs or of the fake tensors that stand for them."""
        value = inputs[self.input]
        return value if self.kind == "int" else value.shape[self.dim] if self.kind == "size" else value.stride(self.dim)


@dataclasses.dataclass(frozen=True, slots=True)
class SizeFormula:
    """A number that depends on a call's sizes: Python source over ``n``, the numbers that are read."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class FloatFormula:
    """A float that depends on a call's sizes: a function of numbers and formulas."""

    function: Callable[..., float]
    args: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CallSizes:
    """What is read of a call's inputs.

    Attributes:
        places: of the numbers.
        symbols: names of the graph's symbols, each with its formula.
    """

    places: tuple[SizePlace, ...] = ()
    symbols: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.places)

    def of(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """The numbers of a call."""
        return tuple([place.read(inputs) for place in self.places])

    def formulas(self, value: Any) -> Any:
        """A value with formulas in place of symbolic numbers, in lists, tuples and dicts too."""
        if isinstance(value, torch.SymInt):
            return self._formula(value.node)
        if isinstance(value, torch.SymFloat):
            return self._float_formula(value.node)
        if isinstance(value, (tuple, list)):
            return (list if isinstance(value, list) else tuple)(map(self.formulas, value))
        if isinstance(value, dict):
            return {name: self.formulas(part) for name, part in value.items()}
        return value

    def _float_formula(self, node: FloatNode) -> float | FloatFormula:
        if node.function == "constant":
            return node.hint
        args = (self._float_formula(a) if isinstance(a, FloatNode) else self._formula(a) for a in node.args)
        return FloatFormula(node.function, tuple(args))

    def _formula(self, node: IntNode) -> int | SizeFormula:
        expr = node.expr
        if isinstance(expr, int):
            return expr
        known = dict(self.symbols)
        parts = {s.name: (of.name, step) for s, (of, step) in node.env.parts.items()}

        def text(name: str) -> str:
            found = known.get(name)
            if found is None:
                whole, step = parts[name]
                found = f"({text(whole)} // {step})"
            return found

        return SizeFormula(_NAME.sub(lambda match: text(match.group()), str(expr)))


def sizes_of(inputs: Sequence[Any]) -> CallSizes:
    """What has to be read of a graph's inputs, which are fake tensors and numbers, to know all of its symbols."""
    places: list[SizePlace] = []
    symbols: dict[str, str] = {}
    for place in _places(inputs):
        number = place.read(inputs)
        if isinstance(number, torch.SymInt) and isinstance(number.node, IntNode):
            found = solved(number.node.expr, f"n[{len(places)}]")
            if found is not None and found[0] not in symbols:
                symbols[found[0]] = found[1]
                places.append(place)
    return CallSizes(tuple(places), tuple(symbols.items()))


def missing_sizes(inputs: list[Any], examples: list[Any], values: list[Any]) -> list[SizePlace]:
    """Where the symbols are found among a graph's inputs that are needed for a part's values and do not follow from the
    part's own inputs: a size ``s0 // 4`` of an intermediate does not tell ``s0``.

    Args:
        inputs: the graph's, fake tensors and numbers.
        examples: the part's.
        values: what the part computes.
    """
    sizes = sizes_of(inputs)
    if not sizes:
        return []
    known = {name for name, _ in sizes_of(examples).symbols}
    needed = {symbol.name for value in pytree.tree_leaves([values, examples]) for symbol in _symbols_in(value)}
    return [place for place, (name, _) in zip(sizes.places, sizes.symbols) if name in needed - known]


def _symbols_in(value: Any) -> set[Sym]:
    numbers = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else (value,)
    return {symbol for n in numbers if isinstance(n, torch.SymInt) and isinstance(n.node, IntNode)
            for symbol in symbols_of(n.node.expr)}


def _places(inputs: Sequence[Any]) -> Iterator[SizePlace]:
    for at, value in enumerate(inputs):
        if isinstance(value, torch.SymInt):
            yield SizePlace(at, "int", 0)
    for kind in ("size", "stride"):
        for at, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides:
                yield from (SizePlace(at, kind, dim) for dim in range(value.dim()))


def solved(x: Index, place: str) -> tuple[str, str] | None:
    """A symbol that a number has alone, and its formula where the number is found at a place."""
    if isinstance(x, int) or len(x.terms) != 1:
        return None
    ((monomial, k),) = x.terms.items()
    if len(monomial) != 1 or not isinstance(monomial[0], Sym):
        return None
    text = f"({place} - {x.const})" if x.const else place
    return monomial[0].name, text if k == 1 else f"({text} // {k})"


def has_symbols(inputs: Sequence[Any]) -> bool:
    """Whether some of a graph's inputs are symbolic integers, or have symbolic sizes."""
    return any(isinstance(value, torch.SymInt) or isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides
               for value in inputs)


def has_formulas(value: Any) -> bool:
    """Whether a formula is among the fields of a record, or the items of a list, tuple or dict."""
    if isinstance(value, (SizeFormula, FloatFormula)):
        return True
    if dataclasses.is_dataclass(value):
        return any(has_formulas(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, (tuple, list)):
        return any(map(has_formulas, value))
    if isinstance(value, dict):
        return any(map(has_formulas, value.values()))
    return False


def at_sizes(value: Any, sizes: Sequence[int]) -> Any:
    """A value with numbers in place of formulas, as :meth:`CallSizes.formulas` has put them in.

    Args:
        sizes: what :meth:`CallSizes.of` has read of the call.
    """
    if isinstance(value, SizeFormula):
        return _function(value.text)(sizes)
    if isinstance(value, FloatFormula):
        return value.function(*at_sizes(value.args, sizes))
    if isinstance(value, (tuple, list)):
        return type(value)([at_sizes(part, sizes) for part in value])
    if isinstance(value, dict):
        return {name: at_sizes(part, sizes) for name, part in value.items()}
    return value


@functools.lru_cache(maxsize=4096)
def _function(text: str) -> Callable[[Sequence[int]], int]:
    function: Callable[[Sequence[int]], int] = eval(f"lambda n: {text}", {"__builtins__": {}})
    return function


def fix(inputs: Sequence[Any], why: str) -> None:
    """From now on, the symbols of a graph's inputs have the values of the call that is traced.

    Raises:
        Frozen: the graph's guards have been made.
    """
    for place in _places(inputs):
        number = place.read(inputs)
        if isinstance(number, torch.SymInt) and isinstance(number.node, IntNode):
            number.node.env.fix(number.node.expr, why)


