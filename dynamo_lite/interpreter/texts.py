"""Texts of values: str(), repr(), format().

Invariant: a text is what CPython would give, or the graph breaks.
"""
from __future__ import annotations

import functools
import operator
import re
import string
import types
from _string import formatter_field_name_split as split_field
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..variables.base import ObservedException, VariableTracker, realized, type_name, unsupported
from ..variables.constant import TEXT_METHODS, ConstantVariable
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


_Parts = list[str | VariableTracker]  # the parts of a text
_CONTAINERS = (SequenceVariable, SetVariable, DictVariable)
_PLAIN_CONVERSION = re.compile("%([sra])")
_CONVERSIONS: dict[str, Callable[[object], str]] = {"s": str, "r": repr, "a": ascii}


def _escaped(text: str) -> str:
    """The result of ascii() for a value with this text as its repr()."""
    return text.encode("ascii", "backslashreplace").decode("ascii")


class Texts(Part):
    """str(), repr(), format(); a part of the tracer."""

    def function_text(self, function: VariableTracker) -> str:
        """The name of a function in messages about its call (Objects/object.c, _PyObject_FunctionStr)."""
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
        text = self._own_text(value, conversion)
        if text is not None:
            return text
        named = isinstance(value, SetVariable) and value.holder is not None  # by its class, in its text
        foldable = value.is_constant() and not isinstance(value, CallableVariable)
        if foldable and not named and not (isinstance(value, _CONTAINERS) and value.asks_own(self.tx, "__repr__")):
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
        text = value.call_own(self.tx, "__format__", ConstantVariable(spec))
        if text is not None:
            return checked_result(self.tx, "__format__", value.python_type(), text)
        if value.is_constant() and not spec:  # without a spec, classes written in C call str()
            return self.to_text(value, "s")
        if value.is_constant() and not isinstance(value, _CONTAINERS):
            value.fix(self.tx)
            return ConstantVariable(self.tx.run_python(format, value.constant(), spec))
        return _formatted(value, self.tx, spec)

    def _own_text(self, value: VariableTracker, conversion: str) -> VariableTracker | None:
        """The text of a constant whose class computes it in Python code."""
        cls = value.python_type() if value.is_constant() else None
        for name in ("__str__", "__repr__") if conversion == "s" else ("__repr__",):
            text = value.call_own(self.tx, name) if cls is not None else None
            if cls is not None and text is not None:
                text = checked_result(self.tx, "__str__" if conversion == "s" else "__repr__", cls, text)
                return text if conversion != "a" else ConstantVariable(_escaped(text.constant()))
            if cls is None or name == "__str__" and self.tx.classes.lookup(cls, name) is not object.__str__:
                break
        return None

    def is_made_by_classes(self, value: VariableTracker, seen: tuple[VariableTracker, ...] = ()) -> bool:
        """Whether the text of a constant, or of a constant in a container, is computed by Python code of its class."""
        value = realized(self.tx, value)
        if any(value is known for known in seen):
            return False  # a container that contains itself
        content = self.tx.operators.dict_content(value)
        parts = value.known_items() if content is None else [*content.keys(), *content.values(self.tx)]
        if isinstance(value, SetVariable):
            parts = list(value.members.values())
        return value.asks_own(self.tx, *TEXT_METHODS) or any(
            self.is_made_by_classes(part, (*seen, value)) for part in parts or ())

    def format_string(
        self, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """template.format(*args, **kwargs)."""
        text = size_texts.filled_in(self.tx, template, args, kwargs)
        if text is not None:
            return text
        own = any(map(self.is_made_by_classes, (*args, *kwargs.values())))
        parts = _fields(self.tx, template, args, kwargs) if own or _reads_attributes(template) else None
        if parts is not None:
            return size_texts.joined(parts)
        if own:
            unsupported("unsupported_builtin", f"str.format() of {template!r:.40}, with a text that its class makes")
        plain = [self.tx.values.as_plain(a) for a in args]
        named = {k: self.tx.values.as_plain(v) for k, v in kwargs.items()}
        return ConstantVariable(self.tx.run_python(template.format, *plain, **named))

    def fill(self, template: str | bytes, values: VariableTracker) -> VariableTracker:
        """template % values."""
        text = size_texts.filled(self.tx, template, values) if isinstance(template, str) else None
        if text is None and self.is_made_by_classes(values):
            parts = _conversions(self.tx, template, values)
            if parts is None:
                unsupported("unsupported_builtin", f"{template!r:.40} % ..., with a text that its class makes")
            return size_texts.joined(parts)
        return text or ConstantVariable(self.tx.run_python(operator.mod, template, self.tx.values.as_plain(values)))

    def join(self, separator: str | bytes, items: Sequence[VariableTracker]) -> VariableTracker | None:
        """separator.join(items) if some of the texts are still unknown; None otherwise."""
        return size_texts.joined_by(separator, items) if isinstance(separator, str) else None


def _reads_attributes(template: str) -> bool:
    """Whether a template of str.format() shows attributes or items of its arguments."""
    try:
        return any({".", "["} & {*(field or "")} for _, field, _, _ in string.Formatter().parse(template))
    except ValueError:
        return False


def _fields(
    tx: Tracer, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> _Parts | None:
    """The parts of ``template.format(*args, **kwargs)``; None where a field is malformed, numbered both ways, or has
    fields in its format."""
    parts: _Parts = []
    given: dict[Any, VariableTracker] = {**dict(enumerate(args)), **kwargs}
    try:
        fields = list(string.Formatter().parse(template))
        names = [split_field(field or "") for _, field, _, _ in fields]
    except ValueError:
        return None
    numbers = [first for (_, field, _, _), (first, _) in zip(fields, names) if field is not None]
    if "" in numbers and any(isinstance(first, int) for first in numbers):
        return None
    unnamed = iter(range(len(args)))
    for (text, field, spec, conversion), (first, rest) in zip(fields, names):
        parts.append(text)
        if field is None:
            continue
        first = next(unnamed, None) if first == "" else first
        if "{" in (spec or "") or first not in given or conversion not in (None, *_CONVERSIONS):
            return None
        value = given[first]
        for is_attribute, key in rest:
            value = tx.getattr(value, key) if is_attribute else realized(tx, value.getitem(tx, ConstantVariable(key)))
        parts.append(tx.texts.format_value(value, conversion or "", spec or ""))
    return parts


def _conversions(tx: Tracer, template: str | bytes, values: VariableTracker) -> _Parts | None:
    """The parts of ``template % values`` where each value is shown as it is; None for others."""
    given = values.known_items() if values.python_type() is tuple else [values]
    if not isinstance(template, str) or given is None or isinstance(values, DictVariable):
        return None
    texts = _PLAIN_CONVERSION.split(template)  # and the conversions between them
    if any("%" in text.replace("%%", "") for text in texts[::2]) or len(texts) != 2 * len(given) + 1:
        return None
    parts: _Parts = [texts[0].replace("%%", "%")]
    for value, conversion, text in zip(given, texts[1::2], texts[2::2]):
        parts += [tx.texts.to_text(value, conversion), text.replace("%%", "%")]
    return parts


@functools.singledispatch
def _text(value: VariableTracker, tx: Tracer, conversion: str) -> VariableTracker:
    """str(), repr() or ascii() of a value that isn't a constant, by the tracker's class."""
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
    if value.contains_tensor() or value.holder is not None or tx.texts.is_made_by_classes(value):
        unsupported("unsupported_builtin", f"text of {value.describe()}")
    return ConstantVariable(tx.run_python(_CONVERSIONS[conversion], tx.values.as_plain(value)))


@functools.singledispatch
def _formatted(value: VariableTracker, tx: Tracer, spec: str) -> VariableTracker:
    """format(value, spec) of a value that isn't a constant, by the tracker's class."""
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
    if isinstance(value.content, ConstantVariable) and spec:  # without a spec, str() is called
        return tx.texts.format_value(value.content, "", spec)
    return _formatted.dispatch(VariableTracker)(value, tx, spec)


def _written_as(tx: Tracer, value: ObjectVariable) -> VariableTracker | None:
    """The content of an instance of a subclass of list, tuple or dict, if its text shows nothing else."""
    cls = value.content.python_type() if value.content is not None else None
    own = cls in (list, tuple, dict) and tx.classes.lookup(value.cls, "__repr__") is cls.__dict__["__repr__"]
    return value.content if own else None


_CYCLES: dict[type, str] = {list: "[...]", tuple: "(...)", dict: "{...}", set: "set(...)", frozenset: "frozenset(...)"}


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
