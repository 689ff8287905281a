"""Builtin functions and functions of C modules.

Each builtin is a row of the table of calls: the function and a handler on trackers. A C function without side effects
is constant-folded when its arguments are known; one with a Python equivalent in ``polyfills`` is inlined through that;
a call of a method is left to its receiver's tracker; every other call breaks the graph. Invariant: a function is folded
only if its row says so.
"""
from __future__ import annotations

import _thread
import collections
import inspect
import math
import operator
import random
import sys
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ...guards.source import AttrSource, Source, found_in_bases
from ...rules.table import Decision, Level, Rule, breaks, decide, handles, module, row
from ..base import ObservedException, VariableTracker, realized, type_name, unsupported, wraps_if
from ..bound import BoundMethodVariable
from ..constant import ASKED_IN_C, TEXT_METHODS, ConstantVariable
from ..containers.sequences import SequenceVariable, TupleVariable
from ..containers.spaces import space_at
from ..identity import number_of
from ..numbers.numpy_numbers import as_of_python
from ..numbers.scalars import call_on_scalars
from ..numbers.symbolic_ints import call_on_ints
from ..objects.classes import NO_ATTRIBUTE, ClassVariable, MadeClassVariable
from ..objects.exception_state import TracebackVariable
from ..objects.objects import ObjectVariable
from ..real_object import RealObjectVariable
from ..rule_calls import CALLERS, calls_by
from ..special_results import checked_result, index_of
from ..tensors.arrays import RunningArray
from ..tensors.tensor import TensorVariable, call_in_graph
from ..torch_api.torch_functions import TorchFunctionVariable

if TYPE_CHECKING:
    from ..protocols import Tracer

Handler = Callable[..., VariableTracker]

row(Rule.FOLD,
    ord, chr, hex, bin, oct, str.join, str.format, str.lower, str.upper, int.from_bytes, float.fromhex, bytes.fromhex,
    str.maketrans, object.__repr__, sys.intern, sys.getdefaultencoding,
    reason="it depends on its arguments alone")
module(Rule.FOLD, "math", reason="it depends on its arguments alone")
module(Rule.FOLD, "math.integer", reason="it depends on its arguments alone")  # since 3.15
breaks("print_or_log", print, warnings.warn, warnings.warn_explicit)
breaks("input_output", input, open)
breaks("dynamic_code", exec, eval, compile, locals)
breaks("frame_access", sys._getframe, inspect.currentframe)
breaks("process_control", breakpoint)
breaks("import_statement", __import__)
module(Rule.SKIP, "time", kind="input_output", reason="the clock")


class BuiltinVariable(RealObjectVariable):
    """A function written in C that is not torch's."""

    def describe(self) -> str:
        module = getattr(self.value, "__module__", None)
        name = getattr(self.value, "__qualname__", repr(self.value))
        return name if module in (None, "builtins") else f"{module}.{name}"

    def as_argument(self, tx: Tracer) -> Any:
        return self.value

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        if op not in ("==", "!=") or not isinstance(other, BuiltinVariable):
            return None
        return ConstantVariable((self.value == other.value) == (op == "=="))  # bound methods are new at each access

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        if tx.output.symbols.any:
            number = call_on_ints(tx, self.value, as_of_python(self.value, args), kwargs)
            if number is not None:
                return number
        if tx.output.scalars.met:
            number = call_on_scalars(tx, self.value, as_of_python(self.value, args), kwargs)
            if number is not None:
                return number
        decision = decide(self.value)
        made = CALLERS[decision.rule](tx, self, decision, args, kwargs) if decision.rule in CALLERS else None
        return made if made is not None else self._by_receiver(tx, args, kwargs)

    def _by_receiver(
        self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """Evaluates the call through the tracker of the object whose method this is."""
        if isinstance(self.value, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            return tx.call_unbound(self.value, args, kwargs)
        bound = getattr(self.value, "__self__", None)
        if isinstance(bound, type) and self.value.__name__ == "__new__" and args:
            return tx.construction.new_object(args[0], args[1:], kwargs)
        if isinstance(bound, random.Random):
            unsupported("rng_state", f"random.{self.value.__name__}(), Python's random numbers")
        if bound is not None and not isinstance(bound, (types.ModuleType, type)):
            return tx.call_method_of_value(bound, self.value, args, kwargs)
        unsupported("call_skipped", f"{self.describe()}()")


# ---------------------------------------------------------------- by rule
@calls_by(Rule.HANDLED)
def _handled(
    tx: Tracer, called: VariableTracker, decision: Decision, args: list[VariableTracker],
    kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    bound = decision.level is Level.METHOD
    owner = [tx.values.from_result(called.value.__self__, "the owner of a method")] if bound else []
    return tx.checked_call(decision.calls, tx, *owner, *args, **kwargs)


@calls_by(Rule.FOLD)
def _folded(
    tx: Tracer, called: VariableTracker, decision: Decision, args: list[VariableTracker],
    kwargs: dict[str, VariableTracker]
) -> VariableTracker | None:
    given = (*args, *kwargs.values())
    if any(a.contains_tensor() for a in given):
        return None
    if any(a.asks_own(tx, *ASKED_IN_C, *TEXT_METHODS) for a in given):
        unsupported("unsupported_builtin", f"{called.describe()}() of a value whose class defines special methods")
    plain = [tx.values.as_plain(a) for a in args]
    named = {k: tx.values.as_plain(v) for k, v in kwargs.items()}
    return tx.values.from_result(tx.run_python(called.value, *plain, **named), called.describe())


@calls_by(Rule.SKIP)
def _skipped(
    tx: Tracer, called: VariableTracker, decision: Decision, args: list[VariableTracker],
    kwargs: dict[str, VariableTracker]
) -> NoReturn:
    name = called.value.__qualname__ if isinstance(called, ClassVariable) else called.describe()
    by_user = f": {decision.reason}" if decision.level is Level.USER and decision.reason else ""
    unsupported(decision.kind, f"{name}(){by_user}")


# ---------------------------------------------------------------- wrapping
_WRITTEN_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
                 types.MethodWrapperType, types.ClassMethodDescriptorType)


@wraps_if(lambda value: issubclass(type(value), _WRITTEN_IN_C), rank=3)
def _wrap_builtin(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return BuiltinVariable(value, source)


_CONTAINERS = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict)


@wraps_if(lambda v: type(v) is types.BuiltinMethodType and type(v.__self__) in _CONTAINERS, rank=1)
def _wrap_container_method(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    """``items.append``: each read makes a new object, so a guard on its identity would always fail."""
    tx.guard(source, "type_is", types.BuiltinMethodType)
    tx.guard(AttrSource(source, "__name__"), "const", value.__name__)
    method = BoundMethodVariable(tx.values.wrap_now(value.__self__, AttrSource(source, "__self__")), value.__name__)
    method.source = source
    return method


def _is_bound_to_object(value: Any) -> bool:
    """Whether a bound method written in C is evaluated through its object's tracker, as the object's class defines
    it."""
    if not issubclass(type(value), (types.BuiltinMethodType, types.MethodWrapperType)):
        return False
    owner, cls = value.__self__, type(value.__self__)
    if owner is None or issubclass(cls, (type, types.ModuleType)) or decide(value).rule is not Rule.RECEIVER:
        return False
    found = found_in_bases(cls, value.__name__, None)
    unbound = types.MethodDescriptorType, types.WrapperDescriptorType
    return type(found) in unbound and found.__get__(owner, cls) == value


@wraps_if(_is_bound_to_object, rank=2)
def _wrap_method_of_object(tx: Tracer, value: Any, source: Source) -> VariableTracker:
    """A bound method of an object, which is new at each read; a guard on its identity would keep the object alive."""
    owner = realized(tx, tx.values.wrap_at(value.__self__, AttrSource(source, "__self__")))
    method: VariableTracker = tx.getattr(owner, value.__name__)
    tx.guard(source, "type_is", type(value))
    tx.guard(AttrSource(source, "__name__"), "const", value.__name__)
    method.source = source
    return method


# ---------------------------------------------------------------- values and their types
@handles(len)
def _len(tx: Tracer, value: VariableTracker) -> VariableTracker:
    return value.length(tx)


@handles(isinstance)
def _isinstance(tx: Tracer, value: VariableTracker, classes: VariableTracker) -> VariableTracker:
    return ConstantVariable(tx.checks.is_instance(value, classes))


@handles(issubclass)
def _issubclass(tx: Tracer, cls: VariableTracker, classes: VariableTracker) -> VariableTracker:
    if not isinstance(cls, ClassVariable):
        tx.raise_error(TypeError, "issubclass() arg 1 must be a class")
    tx.classes.guard_mro(cls.value)
    plain = tx.values.as_plain(classes)
    if isinstance(plain, tuple) and all(isinstance(candidate, type) for candidate in plain):
        return ConstantVariable(any(tx.checks.is_subclass(cls.value, candidate) for candidate in plain))
    return ConstantVariable(tx.checks.is_subclass(cls.value, plain))


@handles(callable)
def _callable(tx: Tracer, value: VariableTracker) -> VariableTracker:
    if isinstance(value, ObjectVariable):
        return ConstantVariable(tx.classes.lookup(value.cls, "__call__", NO_ATTRIBUTE) is not NO_ATTRIBUTE)
    if isinstance(value, (ConstantVariable, SequenceVariable, TensorVariable)):
        value.own_method(tx, "__call__")
        has_value = isinstance(value, ConstantVariable) and not value.is_symbolic
        return ConstantVariable(callable(value.constant()) if has_value else False)
    return ConstantVariable(tx.classes.lookup(value.python_type(), "__call__") is not None)


@handles(id)
def _id(tx: Tracer, value: VariableTracker) -> VariableTracker:
    if value.is_constant() and isinstance(value, (ClassVariable, BuiltinVariable, TorchFunctionVariable)):
        return number_of(tx, value.constant())
    if value.source is None and not isinstance(value, ConstantVariable) and not tx.operators.is_held(value):
        unsupported("unsupported_builtin", f"id() of {value.describe()}, which may be gone before another is made")
    return tx.operators.identity_number(value)


@handles(_thread.get_ident)
def _thread_number(tx: Tracer) -> VariableTracker:
    number = _thread.get_ident()
    tx.guard_result(_thread.get_ident, (), number)
    return ConstantVariable(number)


@handles(hash)
def _hash(tx: Tracer, value: VariableTracker) -> VariableTracker:
    of_parts = value.own_method(tx, "__hash__") is None and value.asks_own(tx, "__hash__")
    if value.is_constant() and not of_parts:
        return ConstantVariable(tx.operators.hash_of(value))
    if isinstance(value, ObjectVariable) and isinstance(tx.classes.lookup(value.cls, "__hash__"), types.FunctionType):
        return ConstantVariable(tx.operators.as_hash(tx.call_method(value, "__hash__", [])))
    content = value.content if isinstance(value, ObjectVariable) else None
    if isinstance(content, (ConstantVariable, TupleVariable)):
        if tx.classes.lookup(value.python_type(), "__hash__") is content.python_type().__hash__:
            return _hash(tx, content)
    if isinstance(value, TupleVariable) and value.python_type().__hash__ is tuple.__hash__:
        return ConstantVariable(tx.run_python(hash, tuple(_hash(tx, item).constant() for item in value.iterate(tx))))
    unsupported("unsupported_builtin", f"hash() of {value.describe()}")


# ---------------------------------------------------------------- attributes
@handles(getattr)
def _getattr(
    tx: Tracer, value: VariableTracker, name: VariableTracker, default: VariableTracker | None = None
) -> VariableTracker:
    if default is None:
        return tx.getattr(value, name.constant())
    try:
        return tx.getattr(value, name.constant())
    except ObservedException as error:
        if issubclass(error.value.python_type(), AttributeError):
            return default
        raise


@handles(hasattr)
def _hasattr(tx: Tracer, value: VariableTracker, name: VariableTracker) -> VariableTracker:
    return ConstantVariable(tx.has_attribute(value, name.constant()))


@handles(setattr)
def _setattr(tx: Tracer, value: VariableTracker, name: VariableTracker, new: VariableTracker) -> VariableTracker:
    value.setattr(tx, name.constant(), new)
    return ConstantVariable(None)


@handles(delattr)
def _delattr(tx: Tracer, value: VariableTracker, name: VariableTracker) -> VariableTracker:
    value.delattr(tx, name.constant())
    return ConstantVariable(None)


@handles(globals)
def _globals(tx: Tracer) -> VariableTracker:
    return space_at(tx, *tx.globals)


@handles(vars)
def _vars(tx: Tracer, *args: VariableTracker) -> VariableTracker:
    if len(args) != 1:
        unsupported("dynamic_code", "vars()")
    try:
        return tx.getattr(args[0], "__dict__")
    except ObservedException as error:
        if issubclass(error.value.python_type(), AttributeError):
            tx.raise_error(TypeError, "vars() argument must have __dict__ attribute")
        raise


# ---------------------------------------------------------------- numbers
_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
    "lshift": "<<", "rshift": ">>", "and_": "&", "or_": "|", "xor": "^", "concat": "+",
}
_INPLACE = {
    "iadd": "+", "isub": "-", "imul": "*", "itruediv": "/", "ifloordiv": "//", "imod": "%", "ipow": "**",
    "imatmul": "@",
    "ilshift": "<<", "irshift": ">>", "iand": "&", "ior": "|", "ixor": "^", "iconcat": "+",
}
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
_UNARY = {"neg": "-", "pos": "+", "invert": "~", "inv": "~"}


def _register_operators() -> None:
    def binary(symbol: str) -> Handler:
        return lambda tx, a, b: tx.operators.binary(symbol, a, b)

    def inplace(symbol: str) -> Handler:
        return lambda tx, a, b: tx.operators.inplace(symbol, a, b)

    def compare(symbol: str) -> Handler:
        return lambda tx, a, b: tx.operators.compare(symbol, a, b)

    def unary(symbol: str) -> Handler:
        return lambda tx, a: a.unary(tx, symbol)

    for table, make in ((_OPERATORS, binary), (_INPLACE, inplace), (_COMPARISONS, compare), (_UNARY, unary)):
        for name, symbol in table.items():
            handles(getattr(operator, name))(make(symbol))
    handles(operator.getitem)(lambda tx, a, key: a.getitem(tx, key))
    handles(operator.setitem)(lambda tx, a, key, value: a.setitem(tx, key, value) or ConstantVariable(None))
    handles(operator.delitem)(lambda tx, a, key: a.delitem(tx, key) or ConstantVariable(None))
    handles(operator.contains)(lambda tx, a, item: ConstantVariable(a.contains(tx, item)))
    handles(operator.truth)(lambda tx, a: ConstantVariable(tx.truth(a)))
    handles(operator.not_)(lambda tx, a: ConstantVariable(not tx.truth(a)))
    handles(operator.is_)(lambda tx, a, b: ConstantVariable(tx.operators.is_same(a, b)))
    handles(operator.is_not)(lambda tx, a, b: ConstantVariable(not tx.operators.is_same(a, b)))


_register_operators()


@handles(abs)
def _abs(tx: Tracer, value: VariableTracker) -> VariableTracker:
    if isinstance(value, TensorVariable):
        return call_in_graph(tx, abs, [value], {})
    if isinstance(value, RunningArray):
        return value.call_numpy(tx, operator.abs, [value], {})
    if value.is_constant() and value.own_method(tx, "__abs__") is None:
        return ConstantVariable(tx.run_python(abs, value.constant()))
    return tx.call_special(value, "__abs__")


@handles(round)
def _round(tx: Tracer, number: VariableTracker, ndigits: VariableTracker | None = None) -> VariableTracker:
    if isinstance(number, TensorVariable):
        return tx.call_method(number, "__round__" if ndigits is None else "round", [] if ndigits is None else [ndigits])
    if isinstance(number, ObjectVariable) or number.own_method(tx, "__round__") is not None:
        return tx.call_special(number, "__round__", *([ndigits] if ndigits is not None else []))
    args = [number.constant()] + ([tx.values.as_plain(ndigits)] if ndigits is not None else [])
    return ConstantVariable(tx.run_python(round, *args))


@handles(pow)
def _pow(
    tx: Tracer, base: VariableTracker, exp: VariableTracker, mod: VariableTracker | None = None
) -> VariableTracker:
    if mod is not None and (isinstance(base, ObjectVariable) or base.own_method(tx, "__pow__") is not None):
        return tx.call_special(base, "__pow__", exp, mod)
    if mod is None:
        return tx.operators.binary("**", base, exp)
    return ConstantVariable(tx.run_python(pow, *map(tx.values.as_plain, (base, exp, mod))))


@handles(divmod)
def _divmod(tx: Tracer, a: VariableTracker, b: VariableTracker) -> VariableTracker:
    own = a.own_method(tx, "__divmod__") or b.own_method(tx, "__rdivmod__")
    if isinstance(a, ObjectVariable) or isinstance(b, ObjectVariable) or own is not None:
        return _divmod_of_objects(tx, a, b)
    if a.contains_tensor() or b.contains_tensor():
        unsupported("unsupported_builtin", f"divmod() of {a.describe()} and {b.describe()}")
    if isinstance(a, ConstantVariable) and isinstance(b, ConstantVariable) and not (a.is_symbolic or b.is_symbolic):
        return tx.values.from_result(tx.run_python(divmod, a.constant(), b.constant()), "divmod()")
    return tx.values.new_tuple([tx.operators.binary("//", a, b), tx.operators.binary("%", a, b)])


def _divmod_of_objects(tx: Tracer, a: VariableTracker, b: VariableTracker) -> VariableTracker:
    for owner, other, name in ((a, b, "__divmod__"), (b, a, "__rdivmod__")):
        if isinstance(tx.classes.special(owner.python_type(), name), types.FunctionType):
            result = tx.call_special(owner, name, other)
            if not result.is_not_implemented():
                return result
    unsupported("unsupported_builtin", f"divmod() of {a.describe()} and {b.describe()}")


def _rounding(function: Any, name: str) -> Handler:
    def handler(tx: Tracer, value: VariableTracker) -> VariableTracker:
        if isinstance(value, ObjectVariable) and tx.classes.special(value.cls, name) is not None:
            return tx.call_special(value, name)
        if value.own_method(tx, name) is not None:
            return tx.call_special(value, name)
        if isinstance(value, ObjectVariable) and tx.classes.special(value.cls, "__float__") is not None:
            value = checked_result(tx, "__float__", value.cls, tx.call_special(value, "__float__"))
        if value.contains_tensor():
            unsupported("unsupported_builtin", f"math.{function.__name__}() of {value.describe()}")
        return tx.values.from_result(tx.run_python(function, tx.values.as_plain(value)), f"math.{function.__name__}")

    return handler


for _function, _method in ((math.floor, "__floor__"), (math.ceil, "__ceil__"), (math.trunc, "__trunc__")):
    handles(_function)(_rounding(_function, _method))


@handles(operator.call)
def _call(
    tx: Tracer, function: VariableTracker, /, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    return tx.call(function, list(args), kwargs)


# ---------------------------------------------------------------- text
@handles(repr)
def _repr(tx: Tracer, value: VariableTracker) -> VariableTracker:
    return tx.texts.to_text(value, "r")


@handles(object.__str__)
def _object_str(tx: Tracer, owner: VariableTracker) -> VariableTracker:
    return tx.texts.to_text(owner, "r")


@handles(ascii)
def _ascii(tx: Tracer, value: VariableTracker) -> VariableTracker:
    return ConstantVariable(ascii(_Text(tx.texts.to_text(value, "r").constant())))


class _Text:
    """An object with a given repr()."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@handles(format)
def _format(tx: Tracer, value: VariableTracker, spec: VariableTracker | None = None) -> VariableTracker:
    return tx.texts.format_value(value, "", spec.constant() if spec is not None else "")


@handles(object.__new__)
def _object_new(tx: Tracer, cls: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    return tx.construction.new_object(cls, list(args), kwargs)


@handles(object.__setattr__)
def _object_setattr(
    tx: Tracer, owner: VariableTracker, name: VariableTracker, value: VariableTracker
) -> VariableTracker:
    if not isinstance(owner, ObjectVariable):
        unsupported("side_effect_unsupported", f"object.__setattr__ of {owner.describe()}")
    owner.generic_setattr(tx, name.constant(), value)
    return ConstantVariable(None)


@handles(object.__getattribute__)
def _object_getattribute(tx: Tracer, owner: VariableTracker, name: VariableTracker) -> VariableTracker:
    if not isinstance(owner, ObjectVariable):
        return tx.getattr(owner, name.constant())
    value = owner.generic_getattr(tx, name.constant())
    if value is None:
        tx.raise_error(AttributeError, f"{owner.cls.__name__!r} object has no attribute {name.constant()!r}")
    return value


@handles(object.__delattr__)
def _object_delattr(tx: Tracer, owner: VariableTracker, name: VariableTracker) -> VariableTracker:
    if not isinstance(owner, ObjectVariable):
        unsupported("side_effect_unsupported", f"object.__delattr__ of {owner.describe()}")
    owner.generic_delattr(tx, name.constant())
    return ConstantVariable(None)


@handles(sys.getrecursionlimit)
def _recursion_limit(tx: Tracer) -> VariableTracker:
    tx.guard_result(sys.getrecursionlimit, (), sys.getrecursionlimit())
    return ConstantVariable(sys.getrecursionlimit())


@handles(sys.exception)
def _exception(tx: Tracer) -> VariableTracker:
    current = tx.errors.current_exception()
    return ConstantVariable(None) if current is None else current


@handles(sys.exc_info)
def _exc_info(tx: Tracer) -> VariableTracker:
    current = tx.errors.current_exception()
    if current is None:
        return tx.values.new_tuple([ConstantVariable(None)] * 3)
    cls = tx.values.from_result(current.python_type(), "class")
    return tx.values.new_tuple([cls, current, TracebackVariable(current)])


@handles(object.__init__)
def _object_init(
    tx: Tracer, owner: VariableTracker, *args: VariableTracker, **kwargs: VariableTracker
) -> VariableTracker:
    if args or kwargs:
        cls, takes = owner.python_type(), "takes exactly one argument (the instance to initialize)"
        if tx.classes.lookup(cls, "__init__") is not object.__init__:
            tx.raise_error(TypeError, f"object.__init__() {takes}")
        if tx.classes.lookup(cls, "__new__") is object.__new__:
            tx.raise_error(TypeError, f"{type_name(cls)}.__init__() {takes}")
    return ConstantVariable(None)


@handles(object.__eq__)
def _object_eq(tx: Tracer, owner: VariableTracker, other: VariableTracker) -> VariableTracker:
    return ConstantVariable(True if tx.operators.is_same(owner, other) else NotImplemented)


@handles(object.__ne__)
def _object_ne(tx: Tracer, owner: VariableTracker, other: VariableTracker) -> VariableTracker:
    equal = owner.compare(tx, "==", other)
    return ConstantVariable(NotImplemented if equal is None else not tx.truth(equal))


@handles(operator.index)
def _index(tx: Tracer, value: VariableTracker) -> VariableTracker:
    if isinstance(value, ObjectVariable):
        index = index_of(tx, value)
        return index if index is not None else ConstantVariable(tx.operators.as_index(value))  # as_index raises
    if isinstance(value, TensorVariable):
        return value.call_method(tx, "__index__", [], {})
    if value.own_method(tx, "__index__") is not None:
        return ConstantVariable(tx.operators.as_index(value))
    return ConstantVariable(tx.run_python(operator.index, tx.values.as_plain(value)))


@handles(collections.namedtuple)
def _named_tuple(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    given = {**kwargs}
    given.setdefault("module", ConstantVariable(tx.globals[0].get("__name__", "__main__")))
    plain = [tx.values.as_plain(a) for a in args]
    made = tx.run_python(collections.namedtuple, *plain, **{k: tx.values.as_plain(v) for k, v in given.items()})
    variable = MadeClassVariable(made, lambda cg: cg.call_function(collections.namedtuple, list(args), given))
    return tx.output.effects.track(made, variable)
