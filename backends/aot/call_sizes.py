"""Sizes of a call: for a graph with symbolic sizes, the few numbers that are read from each call's inputs, and from
which all other sizes and strides are computed at run time.

Invariant: the records here are data without symbols: a number is an int, or a formula over the numbers that are read.
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
    """The place in a call's inputs where a number is read.

    Attributes:
        input: index of the graph's input.
        kind: "int", if the input itself is the number; "size" or "stride" of the tensor that the input is.
        dim: the tensor's dimension.
    """

    input: int
    kind: str
    dim: int

    def read(self, inputs: Sequence[Any]) -> Any:
        """The number, read from a call's inputs or from the fake tensors that represent them."""
        value = inputs[self.input]
        return value if self.kind == "int" else value.shape[self.dim] if self.kind == "size" else value.stride(self.dim)


@dataclasses.dataclass(frozen=True, slots=True)
class SizeFormula:
    """A number that depends on a call's sizes: Python source over ``n``, the sequence of the numbers that are read."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class FloatFormula:
    """A float that depends on a call's sizes: a function of numbers and formulas."""

    function: Callable[..., float]
    args: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class CallSizes:
    """The numbers that are read from a call's inputs.

    Attributes:
        places: the places of the numbers.
        symbols: names of the graph's symbols, each with its formula over the numbers.
    """

    places: tuple[SizePlace, ...] = ()
    symbols: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.places)

    def of(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """The numbers of a call."""
        return tuple([place.read(inputs) for place in self.places])

    def formulas(self, value: Any) -> Any:
        """A value with symbolic numbers replaced by formulas, also inside of lists, tuples and dicts."""
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
        """The formula of a symbolic integer; an integer if the expression is constant."""
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
    """The numbers to read from a graph's inputs (fake tensors and numbers) in order to compute all of its symbols."""
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
    """The places in a graph's inputs from which to read the symbols that a part of the graph needs and that do not
    follow from the part's own inputs: the size ``s0 // 4`` of an intermediate does not determine ``s0``.

    Args:
        inputs: the graph's inputs, fake tensors and numbers.
        examples: the part's inputs.
        values: the values that the part computes.
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
    """If a number is linear in one symbol: the symbol's name and its formula, given the number at ``place``."""
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
    """A value with formulas (:meth:`CallSizes.formulas`) replaced by the numbers of one call.

    Args:
        sizes: the numbers that :meth:`CallSizes.of` has read from the call.
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
    """Specializes the symbols of a graph's inputs to the values of the traced call.

    Raises:
        Frozen: it is too late, the graph's guards have been made.
    """
    for place in _places(inputs):
        number = place.read(inputs)
        if isinstance(number, torch.SymInt) and isinstance(number.node, IntNode):
            number.node.env.fix(number.node.expr, why)


