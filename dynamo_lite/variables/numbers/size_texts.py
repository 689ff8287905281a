"""Strings made from sizes and other numbers from outside, such as the message of a check: ``f"got {x.shape[0]} rows"``.

Invariant: a string that nobody reads depends on no number; a string that leaves the frame is made from the numbers of
the call; code that reads a string while tracing fixes its numbers. Formatting that may raise depending on a number's
value (``%c``) is not deferred.
"""
from __future__ import annotations

import operator
import re
import string
from typing import TYPE_CHECKING, Any

import torch

from ..base import VariableTracker, realized
from ..constant import MIRRORED, ConstantVariable
from ..containers.sequences import TupleVariable
from .symbolic_ints import OutsideNumber, SymbolicIntVariable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..protocols import Codegen, Tracer

_CONVERSIONS = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?([a-zA-Z])")
_OF_INTS = "diuxXo"  # these conversions raise for an infinite float


class SizeTextVariable(ConstantVariable):
    """A str that no code has read yet.

    Args:
        parts: literal strings, and calls of functions that make a string from immutable values.
    """

    is_symbolic = True

    def __init__(self, parts: list[str | Made]) -> None:
        VariableTracker.__init__(self)
        self.parts = parts

    @property
    def value(self) -> Any:
        """The string. Asking for it fixes the numbers in it."""
        return "".join(part if isinstance(part, str) else part.text() for part in self.parts)

    def describe(self) -> str:
        return "text of a size"

    def python_type(self) -> type:
        return str

    def is_none(self) -> bool:
        return False

    def same_object(self, other: VariableTracker) -> bool | None:
        return True if other is self else super().same_object(other)

    def truth(self, tx: Tracer) -> bool:
        return any(isinstance(part, str) and part for part in self.parts) or super().truth(tx)

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return ConstantVariable(self.value).getattr(tx, name)

    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        if op == "+" and other.python_type() is str and isinstance(other, ConstantVariable):
            return joined([other, self] if reflected else [self, other])
        return ConstantVariable(self.value).binary(tx, op, other, reflected)

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if other is self:
            other = ConstantVariable(self.value)
        if isinstance(other, SizeTextVariable):
            return other.compare(tx, MIRRORED[op], ConstantVariable(self.value))
        return ConstantVariable(self.value).compare(tx, op, other)

    def reconstruct(self, cg: Codegen) -> None:
        for place, part in enumerate(self.parts):
            if isinstance(part, str):
                cg.emit.load_const(part)
            else:
                cg.call_function(part.function, part.args, part.kwargs)
            if place:
                cg.emit.binary("+")


class Made:
    """A part of a string: the result of calling a function on numbers."""

    def __init__(
        self, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker] | None = None
    ) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs or {}

    def text(self) -> str:
        """The part's string in this call. Asking for it fixes its numbers."""
        made = self.function(*(a.constant() for a in self.args), **{k: v.constant() for k, v in self.kwargs.items()})
        assert isinstance(made, str)
        return made

    def try_now(self, tx: Tracer) -> None:
        """Calls the function on the values of this call, so that the program gets an exception that does not depend on
        a number's value (such as that for a malformed format)."""
        tx.run_python(self.function, *map(_now, self.args), **{k: _now(v) for k, v in self.kwargs.items()})


def joined(texts: Sequence[str | VariableTracker]) -> ConstantVariable:
    """The concatenation of strings."""
    parts: list[str | Made] = []
    for text in texts:
        given = text.parts if isinstance(text, SizeTextVariable) else [
            text if isinstance(text, str) else text.constant()]
        for part in given:
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
    if all(isinstance(part, str) for part in parts):
        return ConstantVariable("".join(map(str, parts)))
    return SizeTextVariable([part for part in parts if part != ""])


def text_of(tx: Tracer, value: VariableTracker, conversion: str) -> VariableTracker | None:
    """str(value), repr(value) or ascii(value) for the conversions s, r and a; None where the value is known, or where
    it is not of a kind that this module handles."""
    if isinstance(value, SizeTextVariable):
        return value if conversion == "s" else SizeTextVariable([Made(repr if conversion == "r" else ascii, [value])])
    if _is_open_number(value):
        return SizeTextVariable([Made(str, [value])])
    if type(value) is not TupleVariable or not _are_simple(tx, [value]):
        return None
    items: list[str | VariableTracker] = []
    for item in value.iterate(tx):
        text = text_of(tx, item, "a" if conversion == "a" else "r")
        items += [", " if items else "", text if text is not None else repr(item.constant())]
    if value.python_type() is torch.Size:
        return joined(["torch.Size([", *items, "])"])
    return joined(["(", *items, ",)" if len(value.items) == 1 else ")"])


def formatted(tx: Tracer, value: VariableTracker, spec: str) -> VariableTracker | None:
    """format(value, spec) of a number or string; None in the cases of :func:`text_of`, or if it may raise."""
    if not spec:
        return text_of(tx, value, "s")
    if not (_is_open_number(value) or isinstance(value, SizeTextVariable)) or spec.endswith("c"):
        return None
    return _put_off(tx, format, [value, ConstantVariable(spec)], {})


def filled(tx: Tracer, template: str, values: VariableTracker) -> VariableTracker | None:
    """``template % values``; None where everything is known, or where an error may depend on the numbers."""
    whole = type(values) is TupleVariable and values.python_type() is tuple
    given = list(values.iterate(tx)) if whole else [values]
    left = template.replace("%%", "")
    letters = _CONVERSIONS.findall(left)
    if not _are_simple(tx, given) or "c" in letters or len(letters) != left.count("%"):
        return None
    if any(letter in _OF_INTS and v.python_type() is float for letter, v in zip(letters, given)):
        return None
    return _put_off(tx, operator.mod, [ConstantVariable(template), values], {})


def filled_in(
    tx: Tracer, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    """``template.format(*args, **kwargs)``; None in the cases of :func:`filled`."""
    args, kwargs = [realized(tx, a) for a in args], {k: realized(tx, v) for k, v in kwargs.items()}
    if not _are_simple(tx, [*args, *kwargs.values()]):
        return None
    try:
        fields = [(field, spec or "") for _, field, spec, _ in string.Formatter().parse(template) if field is not None]
    except ValueError:
        return None
    if any("{" in spec or spec.endswith("c") or not (not field or field.isalnum()) for field, spec in fields):
        return None
    return _put_off(tx, str.format, [ConstantVariable(template), *args], kwargs)


def joined_by(separator: str, items: Sequence[VariableTracker]) -> VariableTracker | None:
    """``separator.join(items)``; None where all items are known, or where one is not a string."""
    if not any(isinstance(i, SizeTextVariable) for i in items):
        return None
    if any(i.python_type() is not str or not isinstance(i, ConstantVariable) for i in items):
        return None
    texts: list[str | VariableTracker] = []
    for item in items:
        texts += [separator, item] if texts else [item]
    return joined(texts)


def _put_off(
    tx: Tracer, function: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    made = Made(function, args, kwargs)
    made.try_now(tx)
    return SizeTextVariable([made])


def _is_open_number(value: VariableTracker) -> bool:
    """Whether it is a number that is not known while tracing, and that the generated code can load."""
    if isinstance(value, SymbolicIntVariable):
        return not isinstance(value.expr, int) and not value.is_running()
    return isinstance(value, OutsideNumber)


def _is_open(value: VariableTracker) -> bool:
    if type(value) is TupleVariable:
        return any(map(_is_open, value.items))
    return _is_open_number(value) or isinstance(value, SizeTextVariable)


def _are_simple(tx: Tracer, values: Sequence[VariableTracker]) -> bool:
    """Whether all values are immutable values of builtin types, and some of them are not known."""
    for value in values:
        if type(value) is TupleVariable:
            list(value.iterate(tx))  # realizes the items
    return all(map(_is_simple, values)) and any(map(_is_open, values))


def _is_simple(value: VariableTracker) -> bool:
    if type(value) is TupleVariable:
        return value.python_type() in (tuple, torch.Size) and all(map(_is_simple, value.items))
    return type(value) is ConstantVariable or _is_open_number(value) or isinstance(
        value, (SymbolicIntVariable, SizeTextVariable)) and value.is_constant()


def _now(value: VariableTracker) -> Any:
    """The value in this call. Callers must not let the trace depend on it."""
    if isinstance(value, TupleVariable):
        return value.python_type()(_now(item) for item in value.items)
    if isinstance(value, OutsideNumber):
        return value.now
    if isinstance(value, SizeTextVariable):
        return ""  # any string will do
    return value.example() if isinstance(value, SymbolicIntVariable) else value.constant()
