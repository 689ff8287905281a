"""What Python's operators, attributes and calls do with trackers (the language reference's data model).

Invariant: a method gives what CPython would give for the real values, or raises what CPython would raise.
"""
from __future__ import annotations

import collections
import functools
import operator
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from ..exc import Unsupported
from ..guards.source import AttrSource, ConstSource
from ..rules.table import decide
from ..rules.trace_rules import is_library
from ..variables.base import MISSING, ObservedException, VariableTracker, realized, type_name, unsupported
from ..variables.bound import BINARY_METHODS, SPECIAL_METHODS, BoundMethodVariable, missing_method
from ..variables.constant import ConstantVariable, is_unique
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import ListVariable, SequenceVariable, TupleVariable
from ..variables.containers.sets import SetVariable
from ..variables.containers.user_keys import UserKey
from ..variables.finalization import SUSPENDED, frame_values, held_by
from ..variables.functions.functions import CallableVariable, FunctionVariable, MethodVariable
from ..variables.identity import IdentityVariable, number_of
from ..variables.numbers.ranges import SliceVariable
from ..variables.numbers.rng import draw_by_numpy
from ..variables.numbers.scalars import ScalarVariable
from ..variables.objects.classes import class_attribute_source, derives, is_changing_data, is_stand_in
from ..variables.objects.objects import ObjectVariable
from ..variables.tensors.size_tables import known_tensor
from ..variables.tensors.tensor import TensorVariable
from ..variables.texts import TensorTextVariable
from .class_checks import ClassChecks
from .construction import Construction
from .errors import Errors
from .iteration import Iteration
from .wrapping import Wrapping

_ACCESSORS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
# Receivers whose methods written in C only compute.
_IMMUTABLE = (torch.Size, range, slice, frozenset, tuple, torch.dtype, torch.device, torch.finfo, torch.iinfo,
    re.Pattern, re.Match)
_OPERATOR_NAMES = {"**": "** or pow()"}
_BUILTIN_CONTENT = (SequenceVariable, DictVariable, SetVariable)


class Protocols(Wrapping, Errors, Construction, Iteration, ClassChecks):
    """Python's protocols; a part of the translator."""

    special_methods = SPECIAL_METHODS

    # -- calls
    def call(
        self, function: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """function(*args, **kwargs)."""
        function = realized(self, function)
        return realized(
            self,
            function.call(self, [realized(self, a) for a in args], {k: realized(self, v) for k, v in kwargs.items()}),
        )

    def call_method(
        self, owner: VariableTracker, name: str, args: list[VariableTracker],
        kwargs: dict[str, VariableTracker] | None = None
    ) -> VariableTracker:
        """owner.name(*args, **kwargs)."""
        args = [realized(self, a) for a in args]
        named = {k: realized(self, v) for k, v in (kwargs or {}).items()}
        return realized(self, realized(self, owner).call_method(self, name, args, named))

    def call_special(self, owner: VariableTracker, name: str, *args: VariableTracker) -> VariableTracker:
        """type(owner).name(owner, *args), TypeError if the type has no such method."""
        method = self.class_lookup(owner.python_type(), name)
        if method is None:
            self.raise_error(TypeError, missing_method(name, owner.python_type()))
        if isinstance(method, types.FunctionType):
            return self.call_class_attribute(owner, owner.python_type(), name, method, list(args), {})
        unsupported("unsupported_method", f"{name} of {owner.describe()}")

    def checked_call(self, handler: Callable[..., VariableTracker], /, *args: Any, **kwargs: Any) -> VariableTracker:
        """Calls a handler of ours with the program's arguments; a mismatch is the program's TypeError."""
        try:
            return handler(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                # Raised by the call itself. Eager words the message in its own way, so it is eager's to raise.
                raise Unsupported("unsupported_builtin", f"{getattr(handler, '__name__', handler)}: {error}") from error
            raise

    def bind_function(self, function: VariableTracker, owner: VariableTracker) -> VariableTracker:
        """function.__get__(owner)."""
        if not isinstance(function, CallableVariable) or isinstance(function, MethodVariable):
            unsupported("unsupported_method", f"{function.describe()}.__get__()")
        return function if owner.is_none() else MethodVariable(function, owner)

    def builtin_method(self, owner: VariableTracker, name: str) -> VariableTracker:
        """A method of a builtin object, not called yet."""
        return BoundMethodVariable(owner, name)

    def call_opaque(
        self, owner: VariableTracker, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """A call of an object whose class is written in C."""
        real = getattr(owner, "value", None)
        if isinstance(real, _ACCESSORS) and owner.source is not None:
            # Immutable, and so described by what pickling gives.
            self.guard(owner.source, "is", real)
            reduced: Any = real.__reduce__()
            cls, given = reduced
            named: dict[str, Any] = {}
            if isinstance(cls, functools.partial):
                named, cls = cls.keywords, type(real)
            parts = [self.from_result(g, "part") for g in given]
            keywords = {k: self.from_result(v, "part") for k, v in named.items()}
            return self.call(self.call(self.library_function(decide(cls).calls), parts, keywords), args, kwargs)
        drawn = draw_by_numpy(self, owner, args, kwargs)
        if drawn is not None:
            return drawn
        unsupported("call_skipped", f"calling {owner.describe()}, an object written in C")

    def call_unbound(
        self, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """``list.append(x, y)``, ``torch.Tensor.add(x, y)``: a method taken from its class."""
        owner, rest = args[0], args[1:]
        name = method.__name__
        content = getattr(owner, "content", None)
        kept_apart = getattr(content or owner, "cls", None) is collections.OrderedDict
        if kept_apart and method.__objclass__ is dict and name in vars(collections.OrderedDict):
            unsupported("unsupported_method", f"dict.{name}() of {owner.describe()}, which keeps an order of its own")
        if isinstance(owner, ObjectVariable):
            return self.call_native_method(owner, name, method, rest, kwargs)
        if content is None and not issubclass(owner.python_type(), method.__objclass__):
            self.raise_error(TypeError,
                f"descriptor {name!r} for {method.__objclass__.__name__!r} objects doesn't apply")
        if isinstance(owner, _BUILTIN_CONTENT) and name.startswith("__"):
            return BoundMethodVariable(owner, name).call(self, rest, kwargs)
        return self.call_method(owner, name, rest, kwargs)

    def call_method_of_value(
        self, owner: Any, method: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """A bound method written in C, of an object that is a constant."""
        name = getattr(method, "__name__", "")
        if isinstance(owner, (str, bytes, int, float, complex)):
            return self.call_method(self.from_result(owner, "receiver"), name, args, kwargs)
        if isinstance(owner, torch.device) and name in ("__enter__", "__exit__"):
            unsupported("unsupported_context_manager", f"torch.device.{name}() by itself")
        if isinstance(owner, _IMMUTABLE):
            plain, named = [self.as_plain(a) for a in args], {k: self.as_plain(v) for k, v in kwargs.items()}
            return self.from_result(self.run_python(method, *plain, **named), f"{type(owner).__name__}.{name}()")
        unsupported("call_skipped", f"{name}() of a {type(owner).__qualname__}")

    # -- attributes
    def getattr(self, owner: VariableTracker, name: str) -> VariableTracker:
        """owner.name."""
        return realized(self, realized(self, owner).getattr(self, name))

    def has_attribute(self, owner: VariableTracker, name: str) -> bool:
        """hasattr(owner, name)."""
        try:
            self.getattr(owner, name)
        except ObservedException as error:
            if issubclass(error.value.python_type(), AttributeError):
                return False
            raise
        except Unsupported as error:
            # The attribute is there, but its value can't be followed: the answer is known all the same.
            if error.kind == "unsupported_attribute" and isinstance(owner, TensorVariable):
                return True
            raise
        return True

    def class_lookup(self, cls: type, name: str, default: Any = None, data: bool = False) -> Any:
        """What `cls` or a base of it defines under a name, guarded; `default` if none does.

        Args:
            data: whether the caller guards a plain value by itself (``is_changing_data``) if it reads it, and has asked
                for what the trace has set.
        """
        if not data and self.output.effects.class_attribute(cls, name) is not None:
            what = f"{cls.__qualname__}.{name} is set, and then looked up by the interpreter"
            unsupported("side_effect_unsupported", what)
        for base in cls.__mro__:
            if name in base.__dict__:
                value = base.__dict__[name]
                if data and is_changing_data(self, cls, name, value):
                    self.guard(class_attribute_source(cls, name), "type_is", type(value))
                else:
                    self._guard_class(cls, name, value)
                return value
        self._guard_class(cls, name, MISSING)
        return default

    def _guard_class(self, cls: type, name: str, value: Any) -> None:
        if is_stand_in(cls):
            for base in cls.__mro__:
                if is_stand_in(base) and name not in base.__dict__:
                    continue
                if is_stand_in(base):
                    return
                self._guard_class(base, name, next((b.__dict__[name] for b in base.__mro__ if name in b.__dict__),
                                                   MISSING))
                if name in base.__dict__:
                    return
            return
        # Classes written in C do not change.
        if cls.__flags__ & (1 << 9):
            if isinstance(value, SUSPENDED):
                unsupported("unsupported_attribute", f"{cls.__qualname__}.{name}, whose life guards would prolong")
            self.output.guards.class_attribute(cls, name, value)

    def guard_mro(self, cls: type) -> None:
        """Requires that a class has the bases that it has."""
        if is_stand_in(cls):
            for base in cls.__mro__:
                if not is_stand_in(base):
                    self.guard_mro(base)
        elif cls.__flags__ & (1 << 9) and not is_library(cls.__module__):
            self.guard(AttrSource(ConstSource(cls, cls.__qualname__), "__mro__"), "is", cls.__mro__)

    def class_getattr(self, owner: VariableTracker, cls: type, name: str) -> VariableTracker:
        """An attribute that a builtin object has from its class."""
        attribute = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), MISSING)
        if cls.__flags__ & (1 << 9):
            self.class_lookup(cls, name)
        if attribute is MISSING:
            self.raise_error(AttributeError, f"{type_name(cls)!r} object has no attribute {name!r}")
        if isinstance(attribute, types.FunctionType):
            return MethodVariable(self.library_function(attribute), owner)
        if isinstance(attribute, classmethod) and isinstance(attribute.__func__, types.FunctionType):
            return MethodVariable(self.library_function(attribute.__func__), self.from_result(cls, "class"))
        if isinstance(attribute, staticmethod) and isinstance(attribute.__func__, types.FunctionType):
            return self.library_function(attribute.__func__)
        if isinstance(attribute, property) and isinstance(attribute.fget, types.FunctionType):
            return self.call(self.library_function(attribute.fget), [owner], {})
        if isinstance(attribute, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return BoundMethodVariable(owner, name)
        if isinstance(attribute, (types.GetSetDescriptorType, types.MemberDescriptorType, property)):
            unsupported("unsupported_attribute", f"{owner.describe()}.{name}")
        if isinstance(attribute, types.ClassMethodDescriptorType) or name == "__new__":
            return self.from_result(getattr(cls, name), f"{cls.__name__}.{name}")
        return self.from_result(attribute, f"{cls.__name__}.{name}")

    # -- operators
    def binary(
        self, op: str, left: VariableTracker, right: VariableTracker, shown: str | None = None
    ) -> VariableTracker:
        """left op right (Objects/abstract.c, binary_op1); `shown` is the operator in messages."""
        left, right = realized(self, left), realized(self, right)
        left_type, right_type = left.python_type(), right.python_type()
        attempts: list[tuple[VariableTracker, VariableTracker, bool]] = [(left, right, False)]
        if left_type is not right_type or not isinstance(left, ObjectVariable):
            reflected = (right, left, True)
            overrides = left_type is not right_type and derives(self, right_type, left_type)
            if overrides and isinstance(left, ObjectVariable):
                # A class of Python's that inherits the reflected method does not override it (slot_nb_add and the
                # like).
                name = BINARY_METHODS[op][1]
                overrides = self.class_lookup(right_type, name) is not self.class_lookup(left_type, name)
            attempts = [reflected, *attempts] if overrides or _tensor_first(left, right) else [*attempts, reflected]
        for owner, other, swapped in attempts:
            result = owner.binary(self, op, content_beside(owner, other), swapped)
            if result is not None:
                return result
        concatenated = next((c for c in _CONCATENATED if issubclass(left_type, c)), None) if op == "+" else None
        if concatenated is not None:
            kind = concatenated.__name__
            said = f'can only concatenate {kind} (not "{type_name(right_type)}") to {kind}'
            if concatenated is bytes:
                said = f"can't concat {type_name(right_type)} to {type_name(left_type)}"
            self.raise_error(TypeError, said)
        if op == "*" and issubclass(left_type, _CONCATENATED):
            self.raise_error(TypeError, f"can't multiply sequence by non-int of type {type_name(right_type)!r}")
        if op == "*" and issubclass(right_type, _CONCATENATED):
            self.raise_error(TypeError, f"can't multiply sequence by non-int of type {type_name(left_type)!r}")
        self.raise_error(
            TypeError,
            f"unsupported operand type(s) for {shown or _OPERATOR_NAMES.get(op, op)}: "
            f"{type_name(left_type)!r} and {type_name(right_type)!r}",
        )

    def inplace(self, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
        """left op= right."""
        left, right = realized(self, left), realized(self, right)
        result = left.inplace(self, op, content_beside(left, right) if op != "+" else right)
        return result if result is not None else self.binary(op, left, right, f"{op}=")

    _SWAPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}

    def compare(self, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
        """left op right for a comparison (Objects/object.c, do_richcompare)."""
        left, right = realized(self, left), realized(self, right)
        left_type, right_type = left.python_type(), right.python_type()
        attempts = [(left, right, op), (right, left, self._SWAPPED[op])]
        if (left_type is not right_type and derives(self, right_type, left_type)) or _tensor_first(left, right):
            attempts.reverse()
        for owner, other, symbol in attempts:
            result = owner.compare(self, symbol, content_beside(owner, other))
            if result is not None:
                return result
        if op in ("==", "!="):
            return ConstantVariable(self.is_same(left, right) == (op == "=="))
        kinds = f"{type_name(left_type)!r} and {type_name(right_type)!r}"
        self.raise_error(TypeError, f"{op!r} not supported between instances of {kinds}")

    def same_or_equal(self, left: VariableTracker, right: VariableTracker) -> bool:
        """``left is right or left == right``, the comparison of containers."""
        left, right = realized(self, left), realized(self, right)
        if left is right:
            return True
        if left.same_object(right) is True and not isinstance(left, (FunctionVariable,)):
            return True
        return self.truth(self.compare("==", left, right))

    def is_same(self, left: VariableTracker, right: VariableTracker) -> bool:
        """left is right, guarded where guards on structure do not decide it."""
        left, right = realized(self, left), realized(self, right)
        same = left.same_object(right)
        if isinstance(left, ConstantVariable) and isinstance(right, ConstantVariable):
            same = self._same_constant(left, right, same)
        if same is None and left.python_type() is not right.python_type():
            same = False
        if same is None:
            unsupported("unsupported_operator", f"`is` between {left.describe()} and {right.describe()}")
        pair = (left.source, right.source)
        with_identity = (TensorVariable, ObjectVariable, *_BUILTIN_CONTENT)
        if left is not right and None not in pair and isinstance(left, with_identity):
            if isinstance(right, type(left)):
                self.guard(pair[0], "tensor_same" if same else "not_same", pair[1])  # type: ignore[arg-type]
        for value in (left, right):
            if isinstance(value, FunctionVariable) and value.source is not None:
                self.guard(value.source, "is", value.real)
        return same

    def _same_constant(self, left: ConstantVariable, right: ConstantVariable, same: bool | None) -> bool | None:
        """`is` between numbers or texts: equal ones from outside may be one object now and two at the next call."""
        if same is False or left is right or is_unique(left.value):
            return same
        if left.source is not None and right.source is not None:
            same = left.value is right.value
            if left.source != right.source:
                self.guard(left.source, "tensor_same" if same else "not_same", right.source)
        else:
            for value in (left, right):
                if value.source is not None and same:
                    self.guard(value.source, "is", value.real)
        return same

    def truth(self, value: VariableTracker) -> bool:
        """bool(value)."""
        return realized(self, value).truth(self)

    def as_index(self, key: VariableTracker, owner: str = "") -> Any:
        """An index or slice as Python has it; `owner` is the kind of sequence that is asked."""
        key = realized(self, key)
        if isinstance(key, SliceVariable):
            return slice(*(None if p.is_none() else self.as_index(p) for p in key.parts))
        if key.is_constant() and isinstance(key.constant(), (int, slice)):
            return key.constant()
        if isinstance(key, TensorVariable):
            return self.as_index(key.call_method(self, "__index__", [], {}))
        if isinstance(key, ScalarVariable):
            key.refuse("an index")
        content = key.content if isinstance(key, ObjectVariable) else None
        if content is not None and content.is_constant() and isinstance(content.constant(), int):
            return content.constant()
        if isinstance(key, ObjectVariable) and self.class_lookup(key.cls, "__index__") is not None:
            index = self.call_method(key, "__index__", [])
            if not issubclass(index.python_type(), int):
                self.raise_error(TypeError, f"__index__ returned non-int (type {index.python_type().__name__})")
            return self.as_index(index)
        kind = key.python_type().__name__
        if owner:
            self.raise_error(TypeError, f"{owner} indices must be integers or slices, not {kind}")
        self.raise_error(TypeError, f"{kind!r} object cannot be interpreted as an integer")

    # -- text
    def to_text(self, value: VariableTracker, conversion: str) -> VariableTracker:
        """str(value), repr(value) or ascii(value) for conversions s, r, a."""
        value = self.with_number(realized(self, value))
        convert = {"s": str, "r": repr, "a": ascii}[conversion]
        if isinstance(value, TensorVariable):
            unsupported("tensor_formatting", f"text of a {value.describe()}")
        if isinstance(value, ScalarVariable):
            value.refuse("text")
        if value.is_constant() and not isinstance(value, CallableVariable):
            value.fix(self)
            return ConstantVariable(self.run_python(convert, value.constant()))
        if isinstance(value, ObjectVariable):
            for name in ("__str__", "__repr__") if conversion == "s" else ("__repr__",):
                method = self.class_lookup(value.cls, name)
                if isinstance(method, types.FunctionType):
                    return self.call_class_attribute(value, value.cls, name, method, [], {})
                if method not in (object.__str__, None):
                    break
            if isinstance(value.content, ConstantVariable):
                return self.to_text(value.content, conversion)
            if issubclass(value.cls, BaseException):
                return self.exception_text(value, conversion)
        if type(value) in _TEXTS and value.python_type() in (list, tuple, dict, set):
            if value in self.output.texts_in_progress:
                return ConstantVariable(_CYCLES[value.python_type()])
            self.output.texts_in_progress.append(value)
            try:
                return self._container_text(value, conversion)
            finally:
                self.output.texts_in_progress.pop()
        if not value.contains_tensor() and isinstance(value, _BUILTIN_CONTENT):
            return ConstantVariable(self.run_python(convert, self.as_plain(value)))
        unsupported("unsupported_builtin", f"text of {value.describe()}")

    def _container_text(self, value: VariableTracker, conversion: str) -> VariableTracker:
        """repr() of a list, tuple, dict or set."""
        return ConstantVariable(_TEXTS[type(value)](self, value, "a" if conversion == "a" else "r"))

    def format_value(self, value: VariableTracker, conversion: str, spec: str) -> VariableTracker:
        """The text of ``f"{value!conversion:spec}"``."""
        value = self.with_number(realized(self, value))
        if conversion:
            value = self.to_text(value, conversion)
        if isinstance(value, TensorVariable):
            known = known_tensor(self, value.fake)
            if known is None or known.dim():
                return TensorTextVariable(f"text of a {value.describe()}", self.root.visits - 1)
            return ConstantVariable(self.run_python(format, known, spec))
        if isinstance(value, TensorTextVariable):
            return value
        if value.is_constant():
            value.fix(self)
            return ConstantVariable(self.run_python(format, value.constant(), spec))
        if isinstance(value, ObjectVariable):
            method = self.class_lookup(value.cls, "__format__")
            if isinstance(method, types.FunctionType):
                return self.call_class_attribute(value, value.cls, "__format__", method, [ConstantVariable(spec)], {})
            if isinstance(value.content, ConstantVariable):
                if spec or self.class_lookup(value.cls, "__str__") is type(value.content.value).__str__:
                    return self.format_value(value.content, "", spec)
        text = self.to_text(value, "s")
        return ConstantVariable(self.run_python(format, text.constant(), spec))

    def format_string(
        self, template: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        """template.format(*args, **kwargs)."""
        plain = [a.constant() if a.is_constant() else self.as_plain(a) for a in args]
        named = {k: self.as_plain(v) for k, v in kwargs.items()}
        return ConstantVariable(self.run_python(template.format, *plain, **named))

    # -- odds and ends
    def dict_content(self, value: VariableTracker) -> DictVariable | None:
        """The entries of a dict or of an object that is one; None for other values."""
        value = realized(self, value)
        if isinstance(value, ObjectVariable) and isinstance(value.content, DictVariable):
            ordered = value.content.cls is collections.OrderedDict
            asked = ("__iter__", "keys", "__getitem__") if ordered else ("__iter__",)
            own = [self.class_lookup(value.cls, name) for name in asked]
            return None if any(isinstance(method, types.FunctionType) for method in own) else value.content
        return value if isinstance(value, DictVariable) else None

    def hash_key(self, value: VariableTracker) -> Any:
        """What stands for the value as a key, guarded; TypeError in the program if it is unhashable."""
        value = realized(self, value)
        value.guard_hash(self)
        if isinstance(value, ObjectVariable):
            hasher = self.class_lookup(value.cls, "__hash__")
            if isinstance(hasher, types.FunctionType):
                return UserKey(self, value, self.call_method(value, "__hash__", []).constant())
        try:
            return value.hash_key()
        except TypeError as error:
            self.raise_error(TypeError, str(error))

    def is_held(self, value: VariableTracker) -> bool:
        """Whether the program holds an object besides what it has just handed over."""
        frame: Any = self
        frames: list[VariableTracker] = []
        while frame is not None:
            frames += frame_values(frame)
            frame = frame.parent
        if any(held is value for held in frames):
            return True
        effects = self.output.effects
        return id(value) in held_by(effects, [*frames, *effects.outside_values()])

    def with_number(self, value: VariableTracker) -> VariableTracker:
        """A value whose number is needed, where it is an id."""
        return value.number(self) if isinstance(value, IdentityVariable) else value

    def identity_number(self, value: VariableTracker) -> VariableTracker:
        """id(value): the number where the object itself is guarded, else something that only compares."""
        if isinstance(value, FunctionVariable) and value.source is not None:
            self.guard(value.source, "is", value.real)
            return number_of(self, value.real)
        return IdentityVariable(value)


# Sequences written in C whose own concatenation is asked last.
_CONCATENATED = (list, tuple, str, bytes, collections.deque)
_CYCLES: dict[type, str] = {list: "[...]", tuple: "(...)", dict: "{...}", set: "set(...)"}


def _list_text(tx: Any, value: Any, conversion: str) -> str:
    return "[" + ", ".join(tx.to_text(item, conversion).constant() for item in value.iterate(tx)) + "]"


def _tuple_text(tx: Any, value: Any, conversion: str) -> str:
    texts = [tx.to_text(item, conversion).constant() for item in value.iterate(tx)]
    return f"({texts[0]},)" if len(texts) == 1 else "(" + ", ".join(texts) + ")"


def _dict_text(tx: Any, value: Any, conversion: str) -> str:
    pairs = zip(value.keys(), value.values(tx))
    texts = [(tx.to_text(k, conversion).constant(), tx.to_text(v, conversion).constant()) for k, v in pairs]
    return "{" + ", ".join(f"{key}: {item}" for key, item in texts) + "}"


def _set_text(tx: Any, value: Any, conversion: str) -> str:
    texts = [tx.to_text(member, conversion).constant() for member in value.ordered(tx)]
    return "{" + ", ".join(texts) + "}" if texts else "set()"


_TEXTS: dict[type, Callable[[Any, Any, str], str]] = {
    ListVariable: _list_text, TupleVariable: _tuple_text, DictVariable: _dict_text, SetVariable: _set_text,
}


def content_beside(owner: VariableTracker, other: VariableTracker) -> VariableTracker:
    """An operand as a builtin container's own operators see it: what an object holds that is one, too."""
    content = getattr(other, "content", None)
    return content if isinstance(owner, _BUILTIN_CONTENT) and isinstance(content, _BUILTIN_CONTENT) else other


def _tensor_first(left: VariableTracker, right: VariableTracker) -> bool:
    return isinstance(right, TensorVariable) and not isinstance(left, (TensorVariable, ObjectVariable))
