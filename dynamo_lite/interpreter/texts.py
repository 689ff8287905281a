"""Texts of values: str(), repr(), format().

Invariant: a text is what CPython would give, or the graph breaks.
"""
from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..variables.base import ObservedException, VariableTracker, realized, type_name, unsupported
from ..variables.constant import ConstantVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import ListVariable, SequenceVariable, TupleVariable
from ..variables.containers.sets import SetVariable
from ..variables.functions.functions import CallableVariable
from ..variables.numbers import size_texts
from ..variables.numbers.scalars import ScalarVariable
from ..variables.objects.objects import ObjectVariable
from ..variables.special_results import checked_result
from ..variables.tensors.learned_elements import known_tensor
from ..variables.tensors.tensor import TensorVariable
from ..variables.texts import TensorTextVariable
from .part import Part

if TYPE_CHECKING:
    from ..variables.protocols import Tracer


_CONVERSIONS: dict[str, Callable[[object], str]] = {"s": str, "r": repr, "a": ascii}


class Texts(Part):
    """str(), repr(), format(); a part of the tracer."""

    def function_text(self, function: VariableTracker) -> str:
        """A function as messages about its call name it (Objects/object.c, _PyObject_FunctionStr)."""
        try:
            name = self.tx.getattr(function, "__qualname__").constant()
        except ObservedException:
            return str(self.to_text(function, "s").constant())
        try:
            module = self.tx.getattr(function, "__module__").constant()
        except ObservedException:
            module = None
        return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"

    def to_text(self, value: VariableTracker, conversion: str) -> VariableTracker:
        """str(value), repr(value) or ascii(value) for conversions s, r, a."""
        value = self.tx.operators.with_number(realized(self.tx, value))
        text = size_texts.text_of(self.tx, value, conversion)
        if text is not None:
            return text
        named = isinstance(value, SetVariable) and value.holder is not None  # by its class, in its text
        if value.is_constant() and not isinstance(value, CallableVariable) and not named:
            value.fix(self.tx)
            return ConstantVariable(self.tx.run_python(_CONVERSIONS[conversion], value.constant()))
        return _text(value, self.tx, conversion)

    def format_value(self, value: VariableTracker, conversion: str, spec: str) -> VariableTracker:
        """The text of ``f"{value!conversion:spec}"``."""
        value = self.tx.operators.with_number(realized(self.tx, value))
        if conversion:
            value = self.to_text(value, conversion)
        text = size_texts.formatted(self.tx, value, spec)
        if text is not None:
            return text
        if value.is_constant():
            value.fix(self.tx)
            return ConstantVariable(self.tx.run_python(format, value.constant(), spec))
        return _formatted(value, self.tx, spec)

    def format_string(
        self, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """template.format(*args, **kwargs)."""
        text = size_texts.filled_in(self.tx, template, args, kwargs)
        if text is not None:
            return text
        plain = [a.constant() if a.is_constant() else self.tx.values.as_plain(a) for a in args]
        named = {k: self.tx.values.as_plain(v) for k, v in kwargs.items()}
        return ConstantVariable(self.tx.run_python(template.format, *plain, **named))

    def fill(self, template: str | bytes, values: VariableTracker) -> VariableTracker:
        """template % values."""
        text = size_texts.filled(self.tx, template, values) if isinstance(template, str) else None
        return text or ConstantVariable(self.tx.run_python(operator.mod, template, self.tx.values.as_plain(values)))

    def join(self, separator: str | bytes, items: Sequence[VariableTracker]) -> VariableTracker | None:
        """separator.join(items) where some of the texts are not read; None for others."""
        return size_texts.joined_by(separator, items) if isinstance(separator, str) else None


@functools.singledispatch
def _text(value: VariableTracker, tx: Tracer, conversion: str) -> VariableTracker:
    """str(), repr() or ascii() of what is no constant, by the tracker's class."""
    unsupported("unsupported_builtin", f"text of {value.describe()}")


@_text.register(TensorVariable)
def _tensor_text(value: TensorVariable, tx: Tracer, conversion: str) -> VariableTracker:
    unsupported("tensor_formatting", f"text of a {value.describe()}")


@_text.register(ScalarVariable)
def _scalar_text(value: ScalarVariable, tx: Tracer, conversion: str) -> VariableTracker:
    value.refuse("text")


@_text.register(ObjectVariable)
def _object_text(value: ObjectVariable, tx: Tracer, conversion: str) -> VariableTracker:
    for name in ("__str__", "__repr__") if conversion == "s" else ("__repr__",):
        method = tx.classes.special(value.cls, name)
        if isinstance(method, types.FunctionType):
            text = tx.classes.call_attribute(value, value.cls, name, method, [], {})
            return checked_result(tx, "__str__" if conversion == "s" else "__repr__", value.cls, text)
        if method not in (object.__str__, None):
            break
    if isinstance(value.content, ConstantVariable):
        return tx.texts.to_text(value.content, conversion)
    content = _written_as(tx, value)
    if content is not None:
        return tx.texts.to_text(content, "a" if conversion == "a" else "r")
    if issubclass(value.cls, BaseException):
        return tx.errors.exception_text(value, conversion)
    unsupported("unsupported_builtin", f"text of {value.describe()}")


@_text.register(SequenceVariable)
@_text.register(DictVariable)
@_text.register(SetVariable)
def _container_text(value: VariableTracker, tx: Tracer, conversion: str) -> VariableTracker:
    if type(value) in _TEXTS and value.python_type() in _CYCLES:
        if value in tx.output.texts_in_progress:
            return ConstantVariable(_CYCLES[value.python_type()])
        tx.output.texts_in_progress.append(value)
        try:
            return size_texts.joined(_TEXTS[type(value)](tx, value, "a" if conversion == "a" else "r"))
        finally:
            tx.output.texts_in_progress.pop()
    if value.contains_tensor() or value.holder is not None:
        unsupported("unsupported_builtin", f"text of {value.describe()}")
    return ConstantVariable(tx.run_python(_CONVERSIONS[conversion], tx.values.as_plain(value)))


@functools.singledispatch
def _formatted(value: VariableTracker, tx: Tracer, spec: str) -> VariableTracker:
    """format(value, spec) of what is no constant, by the tracker's class."""
    cls = value.python_type()
    if spec and tx.classes.lookup(cls, "__format__") is object.__format__:
        tx.raise_error(TypeError, f"unsupported format string passed to {type_name(cls)}.__format__")
    text = tx.texts.to_text(value, "s")  # may be of a subclass, and stays so (object.__format__)
    return tx.texts.format_value(text, "", spec) if spec else text


@_formatted.register(TensorVariable)
def _formatted_tensor(value: TensorVariable, tx: Tracer, spec: str) -> VariableTracker:
    known = known_tensor(tx, value.fake)
    if known is None or known.dim():
        return TensorTextVariable(f"text of a {value.describe()}", tx.root.visits - 1)
    return ConstantVariable(tx.run_python(format, known, spec))


@_formatted.register(TensorTextVariable)
def _formatted_tensor_text(value: TensorTextVariable, tx: Tracer, spec: str) -> VariableTracker:
    return value


@_formatted.register(ObjectVariable)
def _formatted_object(value: ObjectVariable, tx: Tracer, spec: str) -> VariableTracker:
    method = tx.classes.special(value.cls, "__format__")
    if isinstance(method, types.FunctionType):
        text = tx.classes.call_attribute(value, value.cls, "__format__", method, [ConstantVariable(spec)], {})
        return checked_result(tx, "__format__", value.cls, text)
    if isinstance(value.content, ConstantVariable) and spec:  # without one, str() is asked
        return tx.texts.format_value(value.content, "", spec)
    return _formatted.dispatch(VariableTracker)(value, tx, spec)


def _written_as(tx: Tracer, value: ObjectVariable) -> VariableTracker | None:
    """What an instance of a subclass of list, tuple or dict holds, if that is all that its text shows."""
    cls = value.content.python_type() if value.content is not None else None
    own = cls in (list, tuple, dict) and tx.classes.lookup(value.cls, "__repr__") is cls.__dict__["__repr__"]
    return value.content if own else None


_CYCLES: dict[type, str] = {list: "[...]", tuple: "(...)", dict: "{...}", set: "set(...)", frozenset: "frozenset(...)"}


_Parts = list[str | VariableTracker]  # of a text


def _listed(texts: Iterable[VariableTracker]) -> _Parts:
    return [part for text in texts for part in (", ", text)][1:]


def _list_text(tx: Tracer, value: Any, conversion: str) -> _Parts:
    return ["[", *_listed(tx.texts.to_text(item, conversion) for item in value.iterate(tx)), "]"]


def _tuple_text(tx: Tracer, value: Any, conversion: str) -> _Parts:
    texts = [tx.texts.to_text(item, conversion) for item in value.iterate(tx)]
    return ["(", *_listed(texts), ",)" if len(texts) == 1 else ")"]


def _dict_text(tx: Tracer, value: Any, conversion: str) -> _Parts:
    pairs = zip(value.keys(), value.values(tx))
    texts = ((tx.texts.to_text(k, conversion), tx.texts.to_text(v, conversion)) for k, v in pairs)
    return ["{", *[part for key, item in texts for part in (", ", key, ": ", item)][1:], "}"]


def _set_text(tx: Tracer, value: Any, conversion: str) -> _Parts:
    texts = [tx.texts.to_text(member, conversion) for member in value.ordered(tx)]
    cls = (value.holder or value).python_type()  # whose name its text has, but for exactly a set (set_repr)
    if not texts:
        return [f"{type_name(cls)}()"]
    shown: _Parts = ["{", *_listed(texts), "}"]
    return shown if cls is set else [f"{type_name(cls)}(", *shown, ")"]


_TEXTS: dict[type, Callable[[Any, Any, str], _Parts]] = {
    ListVariable: _list_text, TupleVariable: _tuple_text, DictVariable: _dict_text, SetVariable: _set_text,
}
