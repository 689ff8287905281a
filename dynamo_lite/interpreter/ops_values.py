"""Instructions that compute: operators, containers, unpacking, formatting, calls, functions, pattern matching.

Invariant: behind each handler the stack is what CPython's would be; the work on values is the tracer's.
"""
from __future__ import annotations

import itertools
import types
from typing import Any

from ..bytecode.facts import facts
from ..variables import error_texts
from ..variables.base import VariableTracker, realized, type_name, unsupported
from ..variables.cells import CellVariable
from ..variables.constant import ConstantVariable
from ..variables.containers.mappings import DictVariable
from ..variables.containers.pairs import given_pairs
from ..variables.containers.sequences import ListVariable, TupleVariable
from ..variables.containers.sets import SetVariable
from ..variables.functions.functions import NestedFunctionVariable
from ..variables.numbers.ranges import SliceVariable
from ..variables.numbers.size_texts import joined
from ..variables.objects.classes import NO_ATTRIBUTE, ClassVariable
from ..variables.objects.objects import ObjectVariable
from ..variables.texts import TensorTextVariable
from .registry import opcode
from .translator import NULL, Translator


# ---------------------------------------------------------------- operators
@opcode("UNARY_NEGATIVE", "UNARY_INVERT")
def _unary(tx: Translator, i: Any) -> None:
    tx.push(tx.pop().unary(tx, "-" if i.opname == "UNARY_NEGATIVE" else "~"))


@opcode("UNARY_NOT")
def _unary_not(tx: Translator, i: Any) -> None:
    tx.push(ConstantVariable(not tx.truth(tx.pop())))


@opcode("BINARY_OP")
def _binary_op(tx: Translator, i: Any) -> None:
    left, right = tx.pop_many(2)
    symbol = i.argval
    inplace = symbol.endswith("=")
    tx.push(tx.operators.inplace(symbol[:-1], left, right) if inplace else tx.operators.binary(symbol, left, right))


@opcode("COMPARE_OP")
def _compare_op(tx: Translator, i: Any) -> None:
    left, right = tx.pop_many(2)
    tx.push(tx.operators.compare(i.argval, left, right))


@opcode("IS_OP")
def _is_op(tx: Translator, i: Any) -> None:
    left, right = tx.pop_many(2)
    tx.push(ConstantVariable(tx.operators.is_same(left, right) != bool(i.arg)))


@opcode("CONTAINS_OP")
def _contains_op(tx: Translator, i: Any) -> None:
    item, container = tx.pop_many(2)
    tx.push(ConstantVariable(container.contains(tx, item) != bool(i.arg)))


# ---------------------------------------------------------------- containers
def _pop_lazy_many(tx: Translator, n: int) -> list[VariableTracker]:
    values = tx.stack[len(tx.stack) - n :]
    del tx.stack[len(tx.stack) - n :]
    return values


@opcode("BUILD_TUPLE")
def _build_tuple(tx: Translator, i: Any) -> None:
    tx.push(TupleVariable(_pop_lazy_many(tx, i.arg)))


@opcode("BUILD_LIST")
def _build_list(tx: Translator, i: Any) -> None:
    tx.push(ListVariable(_pop_lazy_many(tx, i.arg)))


@opcode("BUILD_SET")
def _build_set(tx: Translator, i: Any) -> None:
    tx.push(SetVariable.of(tx, tx.pop_many(i.arg)))


@opcode("BUILD_MAP")
def _build_map(tx: Translator, i: Any) -> None:
    values = tx.pop_many(2 * i.arg)
    if all(key.is_constant() for key in values[::2]):
        tx.push(tx.values.new_dict(dict(zip(values[::2], values[1::2]))))
        return
    made = tx.values.new_dict({})
    for key, value in zip(values[::2], values[1::2]):
        made.store(tx, key, value)  # an object that occurs twice is hashed twice
    tx.push(made)


@opcode("BUILD_CONST_KEY_MAP")
def _build_const_key_map(tx: Translator, i: Any) -> None:
    keys = tx.pop()
    values = tx.pop_many(i.arg)
    tx.push(tx.values.new_dict(dict(zip(keys.iterate(tx), values))))


@opcode("BUILD_SLICE")
def _build_slice(tx: Translator, i: Any) -> None:
    parts = tx.pop_many(i.arg)
    tx.push(SliceVariable(parts + [ConstantVariable(None)] * (3 - i.arg)))


@opcode("BUILD_STRING")
def _build_string(tx: Translator, i: Any) -> None:
    parts = tx.pop_many(i.arg)
    unread = next((part for part in parts if isinstance(part, TensorTextVariable)), None)
    tx.push(unread or joined(parts))


def convert_list_to_tuple(tx: Translator, i: Any) -> None:
    """[list] -> [tuple], as in ``(*a, b)``"""
    items = tx.pop()
    assert isinstance(items, ListVariable)
    tx.push(TupleVariable(list(items.items)))


@opcode("LIST_APPEND")
def _list_append(tx: Translator, i: Any) -> None:
    value = tx.pop_lazy()
    target = tx.peek(i.arg)
    assert isinstance(target, ListVariable)
    tx.output.effects.mutate(target)
    target.items.append(value)


@opcode("LIST_EXTEND")
def _list_extend(tx: Translator, i: Any) -> None:
    items = tx.pop()
    _check_iterable(tx, items, None)
    tx.call_method(tx.peek(i.arg), "extend", [items])


@opcode("SET_ADD")
def _set_add(tx: Translator, i: Any) -> None:
    value = tx.pop()
    tx.call_method(tx.peek(i.arg), "add", [value])


@opcode("SET_UPDATE")
def _set_update(tx: Translator, i: Any) -> None:
    items = tx.pop()
    tx.call_method(tx.peek(i.arg), "update", [items])


@opcode("MAP_ADD")
def _map_add(tx: Translator, i: Any) -> None:
    key, value = tx.pop_many(2)
    target = tx.peek(i.arg)
    assert isinstance(target, DictVariable)
    target.store(tx, key, value)


@opcode("DICT_UPDATE")
def _dict_update(tx: Translator, i: Any) -> None:
    other = tx.pop()
    if tx.operators.dict_content(other) is None and not tx.has_attribute(other, "keys"):
        tx.raise_error(TypeError, error_texts.no_mapping(other.python_type()))
    tx.call_method(tx.peek(i.arg), "update", [other])


def _called(tx: Translator, i: Any) -> VariableTracker:
    """The callable that receives the keywords that an instruction collects."""
    return tx.peek(i.arg + (2 if facts.NULL_FIRST else 3))


@opcode("DICT_MERGE")
def _dict_merge(tx: Translator, i: Any) -> None:
    other = tx.pop()
    target = tx.peek(i.arg)
    assert isinstance(target, DictVariable)
    content = tx.operators.dict_content(other)
    if content is None and not tx.has_attribute(other, "keys"):
        called = tx.texts.function_text(_called(tx, i))
        tx.raise_error(TypeError, error_texts.unpacked("mapping", called, other.python_type()))
    pairs = given_pairs(tx, other) if content is None else list(zip(content.keys(), content.values(tx)))
    for key, value in pairs:
        if target.lookup(tx, key) is not None:
            called = tx.texts.function_text(_called(tx, i))
            tx.raise_error(TypeError, f"{called} got multiple values for keyword argument {key.constant()!r}")
        target.store(tx, key, value)


@opcode("UNPACK_SEQUENCE")
def _unpack_sequence(tx: Translator, i: Any) -> None:
    values = _unpack(tx, tx.pop(), i.arg)
    tx.stack.extend(reversed(values))


def _unpack(tx: Translator, value: VariableTracker, count: int) -> list[VariableTracker]:
    values: list[VariableTracker] = []
    _check_unpackable(tx, value)
    for element in value.iterate(tx):
        if len(values) == count:
            kind = value.python_type()
            length = len(list(value.iterate(tx))) if kind in (list, tuple, dict) else None
            tx.raise_error(ValueError, error_texts.too_many(count, kind, length))
        values.append(element)
    if len(values) < count:
        tx.raise_error(ValueError, f"not enough values to unpack (expected {count}, got {len(values)})")
    return values


def _check_unpackable(tx: Translator, value: VariableTracker) -> None:
    cls = value.python_type()
    if not any(hasattr(cls, name) for name in ("__iter__", "__getitem__")):
        if tx.classes.lookup(cls, "__iter__") is None and tx.classes.lookup(cls, "__getitem__") is None:
            tx.raise_error(TypeError, f"cannot unpack non-iterable {type_name(cls)} object")


@opcode("UNPACK_EX")
def _unpack_ex(tx: Translator, i: Any) -> None:
    before, after = i.arg & 0xFF, i.arg >> 8
    value = tx.pop()
    _check_unpackable(tx, value)
    iterator = tx.iteration.get_iter(value)
    values = list(itertools.islice(tx.iteration.steps(iterator), before))
    if len(values) == before:
        values += tx.iteration.listed(iterator)
    elif not after:
        tx.raise_error(ValueError, f"not enough values to unpack (expected at least {before}, got {len(values)})")
    if len(values) < before + after:
        tx.raise_error(ValueError,
            f"not enough values to unpack (expected at least {before + after}, got {len(values)})")
    middle = values[before : len(values) - after]
    tail = values[len(values) - after :]
    tx.stack.extend(reversed([*values[:before], ListVariable(middle), *tail]))


@opcode("FORMAT_VALUE")
def _format_value(tx: Translator, i: Any) -> None:
    spec = tx.pop().constant() if i.arg & 0x04 else ""
    conversion = ("", "s", "r", "a")[i.arg & 0x03]
    tx.push(tx.texts.format_value(tx.pop(), conversion, spec))


# ---------------------------------------------------------------- calls and functions
@opcode("KW_NAMES")
def _kw_names(tx: Translator, i: Any) -> None:
    tx.keyword_names = i.argval


@opcode("CALL")
def _call(tx: Translator, i: Any) -> None:
    names, tx.keyword_names = tx.keyword_names, ()
    call(tx, i.arg, names)


def call(tx: Translator, count: int, names: tuple[str, ...]) -> None:
    """Calls the function below `count` arguments, which has a NULL or its first argument beside it on the stack;
    `names` are the keywords of the last arguments."""
    args = tx.pop_many(count)
    second = tx.pop_lazy()
    first = tx.pop_lazy()
    if first is NULL:
        function = second
    elif second is NULL:
        function = first
    else:
        function, args = first, [realized(tx, second), *args]
    function = realized(tx, function)
    positional = args[: len(args) - len(names)]
    keywords = dict(zip(names, args[len(args) - len(names) :]))
    tx.push(tx.call(function, positional, keywords))


@opcode("CALL_FUNCTION_EX")
def _call_function_ex(tx: Translator, i: Any) -> None:
    call_spread(tx, tx.pop() if i.arg & 1 else None)


def call_spread(tx: Translator, mapping: VariableTracker | None) -> None:
    """CALL_FUNCTION_EX: calls the function below the argument sequence; `mapping`: the operand of ``**``."""
    keywords: dict[str, VariableTracker] = {}
    if mapping is not None:
        mapping = realized(tx, mapping)
        content = tx.operators.dict_content(mapping)
        if content is None:
            content = DictVariable({})
            DictVariable._update(content, tx, mapping)
        for key, value in zip(content.keys(), content.values(tx)):
            if not isinstance(key.constant(), str):
                tx.raise_error(TypeError, "keywords must be strings")
            keywords[key.constant()] = value
    items = tx.pop()
    function = tx.pop_lazy()
    if function is NULL:
        function = tx.pop_lazy()
    elif tx.stack and tx.stack[-1] is NULL and facts.NULL_FIRST:
        tx.pop_lazy()
    function = realized(tx, function)
    if isinstance(items, (ConstantVariable, ObjectVariable)):
        _check_iterable(tx, items, function)
    args = tx.iteration.listed(items, tuple)
    tx.push(tx.call(function, args, keywords))


def _check_iterable(tx: Translator, items: VariableTracker, function: VariableTracker | None) -> None:
    """Raises TypeError if the operand of ``*`` is not iterable; `function`: the function called, None in a list."""
    if isinstance(items, (ConstantVariable, ObjectVariable)):
        cls = items.python_type()
        if all(tx.classes.lookup(cls, name, NO_ATTRIBUTE) is NO_ATTRIBUTE for name in ("__iter__", "__getitem__")):
            if function is None:
                tx.raise_error(TypeError, f"Value after * must be an iterable, not {type_name(cls)}")
            tx.raise_error(TypeError, error_texts.unpacked("iterable", tx.texts.function_text(function), cls))


def new_function(tx: Translator, code: types.CodeType) -> NestedFunctionVariable:
    """A new function with the frame's globals; its defaults, closure and annotations are still to be set."""
    return NestedFunctionVariable(code, tx.globals, code.co_qualname, [], {}, [], None)


def set_function_part(tx: Translator, function: NestedFunctionVariable, flag: int, value: VariableTracker) -> None:
    """Sets one part of a new function: defaults (1), keyword-only defaults (2), annotations (4), closure (8) or
    ``__annotate__`` (16)."""
    if flag == 1:
        function.own_defaults = list(value.iterate(tx))
    elif flag == 2:
        assert isinstance(value, DictVariable)
        named = zip(value.keys(), value.values(tx))
        function.own_keyword_defaults = {key.constant(): default for key, default in named}
    elif flag == 4:
        if isinstance(value, TupleVariable):
            flat = list(value.iterate(tx))
            value = tx.values.new_dict(dict(zip(flat[::2], flat[1::2])))
        function.annotations = value
    elif flag == 8:
        function.closure = [c for c in value.iterate(tx) if isinstance(c, CellVariable)]
    elif flag == 16:
        function.annotate = value
    else:
        unsupported("unsupported_opcode", f"part {flag} of a function")


# ---------------------------------------------------------------- pattern matching
@opcode("GET_LEN")
def _get_len(tx: Translator, i: Any) -> None:
    tx.push(tx.wrap_top().length(tx))


# Include/object.h: Py_TPFLAGS_SEQUENCE, Py_TPFLAGS_MAPPING
_SEQUENCE, _MAPPING = 1 << 5, 1 << 6


@opcode("MATCH_SEQUENCE", "MATCH_MAPPING")
def _match_kind(tx: Translator, i: Any) -> None:
    cls = tx.wrap_top().python_type()
    if i.opname == "MATCH_MAPPING":
        matches = bool(cls.__flags__ & _MAPPING)
    else:
        matches = bool(cls.__flags__ & _SEQUENCE)
    tx.push(ConstantVariable(matches))


@opcode("MATCH_KEYS")
def _match_keys(tx: Translator, i: Any) -> None:
    keys, subject = tx.pop(), tx.pop()
    tx.push(subject)
    tx.push(keys)
    values: list[VariableTracker] = []
    seen: set[Any] = set()
    for key in keys.iterate(tx):
        hashed = tx.operators.hash_key(key)
        if hashed in seen:
            tx.raise_error(ValueError, f"mapping pattern checks duplicate key ({key.constant()!r})")
        seen.add(hashed)
        if not subject.contains(tx, key):
            tx.push(ConstantVariable(None))
            return
        values.append(subject.getitem(tx, key))
    tx.push(TupleVariable(values))


@opcode("MATCH_CLASS")
def _match_class(tx: Translator, i: Any) -> None:
    names, cls, subject = tx.pop(), tx.pop(), tx.pop()
    attributes = [n.constant() for n in names.iterate(tx)]
    if not tx.checks.is_instance(subject, cls):
        tx.push(ConstantVariable(None))
        return
    values: list[VariableTracker] = []
    if i.arg:
        positional = _match_args(tx, cls)
        if positional is None:
            if i.arg > 1:
                tx.raise_error(TypeError,
                    f"{cls.constant().__name__}() accepts 1 positional sub-pattern ({i.arg} given)")
            values.append(subject)
        else:
            if len(positional) < i.arg:
                tx.raise_error(
                    TypeError,
                    f"{cls.constant().__name__}() accepts {len(positional)} positional sub-patterns ({i.arg} given)",
                )
            attributes = [*positional[: i.arg], *attributes]
    for position, name in enumerate(attributes):
        if name in attributes[:position]:
            tx.raise_error(TypeError, f"{cls.constant().__name__}() got multiple sub-patterns for attribute {name!r}")
        found = tx.attribute_or_none(subject, name)
        if found is None:
            tx.push(ConstantVariable(None))
            return
        values.append(found)
    tx.push(TupleVariable(values))


# Classes whose single positional pattern is the subject itself (Python/ceval.c, match_class).
_MATCH_SELF = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


def _match_args(tx: Translator, cls: VariableTracker) -> tuple[str, ...] | None:
    assert isinstance(cls, ClassVariable)
    names = tx.classes.lookup(cls.value, "__match_args__")
    if names is not None:
        if type(names) is not tuple:
            tx.raise_error(TypeError,
                f"{cls.value.__name__}.__match_args__ must be a tuple (got {type(names).__name__})")
        for name in names:
            if type(name) is not str:
                tx.raise_error(TypeError, f"__match_args__ elements must be strings (got {type(name).__name__})")
        return names
    return None if issubclass(cls.value, _MATCH_SELF) else ()
