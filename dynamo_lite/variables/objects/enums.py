"""Members of enums: constants whose class may define methods and operators.

Invariant: methods of the module enum and of classes written in C are computed while tracing, from guarded state of the
member; methods that the program's class defines in Python are evaluated like any other code.
"""
from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

from ...guards.source import ConstSource, DictItemSource, InstanceDictSource, Source, found_in_bases
from ..base import ObservedException, VariableTracker, realized, unsupported, wraps_if
from ..bound import SPECIAL_METHODS
from ..constant import (
    ASKED_IN_C,
    BINARY_METHODS,
    COMPARE_METHODS,
    SCALAR_TYPES,
    TEXT_METHODS,
    UNARY_METHODS,
    ConstantVariable,
    is_constant_value,
)
from ..special_results import checked_result
from .classes import IN_C, NO_ATTRIBUTE, is_data_descriptor, is_generic
from .members import as_length
from .reads import reader_of

if TYPE_CHECKING:
    from ..protocols import Tracer

# The instance attributes that enum's own properties read, and that a program may overwrite.
_BEHIND: dict[Any, str] = {enum.Enum.__dict__[name]: f"_{name}_" for name in ("name", "value")}
_OPERATORS = frozenset({*(name for pair in BINARY_METHODS.values() for name in pair), *UNARY_METHODS.values()})


def is_of_enum(method: Any) -> bool:
    """Whether a function is defined in the module enum."""
    return isinstance(method, types.FunctionType) and method.__globals__ is vars(enum)


class EnumVariable(ConstantVariable):
    """A member of an enum: a constant whose class may have methods and properties of the user's."""

    def describe(self) -> str:
        return f"constant {self._name()}"

    def _name(self) -> str:
        """The member's name, read without running code of its class."""
        return f"{type(self.value).__qualname__}.{self.value.__dict__.get('_name_')}"

    def _place(self) -> Source:
        return ConstSource(self.value, self._name())

    # -- methods that its class defines
    def own_method(self, tx: Tracer, name: str) -> Any:
        method = tx.classes.lookup(type(self.value), name, NO_ATTRIBUTE)
        if method is None or method is NO_ATTRIBUTE or isinstance(method, IN_C):
            return None
        return None if is_of_enum(method) and self._is_known(tx, name) else method

    def _is_known(self, tx: Tracer, name: str) -> bool:
        """Whether the result of enum's own method depends only on state that :meth:`fix` guards."""
        if name == "__repr__":
            return is_constant_value(self.value.__dict__.get("_value_")) and _shows_values_plainly(tx, type(self.value))
        if name in _OPERATORS or name == "__contains__":
            return makes_members_plainly(tx, type(self.value))
        return name != "__format__" or not self.asks_own(tx, *TEXT_METHODS[:2])

    def asks_own(self, tx: Tracer, *names: str) -> bool:
        return any(self.own_method(tx, name) is not None for name in names)

    def check_plain(self, tx: Tracer, texts: bool = True) -> None:
        for name in (*ASKED_IN_C, *TEXT_METHODS) if texts else ASKED_IN_C:
            if self.own_method(tx, name) is not None:
                unsupported("unsupported_builtin", f"a function in C on {self.describe()}, whose class defines {name}")
        self.fix(tx)

    def as_argument(self, tx: Tracer) -> Any:
        self.check_plain(tx, texts=False)
        return super().as_argument(tx)

    def fix(self, tx: Tracer) -> None:
        """Guards the state on which enum's own methods depend."""
        where = InstanceDictSource(self._place())
        for name in _BEHIND.values():
            held = self.value.__dict__.get(name)
            if type(held) in SCALAR_TYPES:  # specializes symbolic numbers, too
                tx.guard(DictItemSource(where, name), "is" if held is None or type(held) is bool else "const", held)
            elif name in self.value.__dict__:
                tx.values.wrap_now(held, DictItemSource(where, name))

    # -- attributes
    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        cls = type(self.value)
        custom = tx.classes.lookup(cls, "__getattribute__")
        if not isinstance(custom, types.FunctionType) and not is_generic(custom, "__getattribute__"):
            unsupported("unsupported_attribute", f"{self.describe()}.{name}, which code in C looks up in its own way")
        try:
            looked_up = self.call_own(tx, "__getattribute__", ConstantVariable(name))
            return looked_up if looked_up is not None else self.generic_getattr(tx, name)
        except ObservedException as error:
            if not issubclass(error.value.python_type(), AttributeError):
                raise
            found = self.call_own(tx, "__getattr__", ConstantVariable(name))
            if found is None:
                raise
            return found

    def generic_getattr(self, tx: Tracer, name: str) -> VariableTracker:
        """object.__getattribute__(self, name)."""
        cls = type(self.value)
        attribute = tx.classes.lookup(cls, name, NO_ATTRIBUTE)
        own = self.value.__dict__
        where = InstanceDictSource(self._place())
        if type(attribute) in (types.DynamicClassAttribute, enum.property):
            behind = _BEHIND.get(attribute)
            if behind in own:
                return tx.values.wrap_now(own[behind], DictItemSource(where, behind))
            if isinstance(attribute.fget, types.FunctionType):
                return tx.call(tx.values.wrap_class_part(attribute.fget, ConstSource(attribute, name)), [self], {})
        elif attribute is NO_ATTRIBUTE or not (isinstance(attribute, property) or is_data_descriptor(tx, attribute)):
            if name in own:
                return tx.values.wrap_now(own[name], DictItemSource(where, name))
            tx.guard(where, "dict_lacks", name)
        if name == "__dict__" and isinstance(attribute, IN_C):
            unsupported("unsupported_attribute", f"{self.describe()}.__dict__")
        if attribute is NO_ATTRIBUTE or isinstance(attribute, (*IN_C, types.DynamicClassAttribute)):
            value = tx.run_python(object.__getattribute__, self.value, name)
            return tx.values.from_result(value, f"{self.describe()}.{name}")
        found = reader_of(attribute)(tx, self, cls, name, attribute)
        assert found is not None  # None stands for an empty slot, which enum members lack
        return realized(tx, found)

    # -- operators
    def binary(self, tx: Tracer, op: str, other: VariableTracker, reflected: bool) -> VariableTracker | None:
        name = BINARY_METHODS[op][reflected]
        if self.own_method(tx, name) is not None:
            twice = reflected and other.python_type() is type(self.value)  # Python calls the left one's method only
            return None if twice else self._answer(tx, name, other)
        for operand in (self, other):
            if isinstance(operand, EnumVariable) and isinstance(operand.value, enum.Flag):
                operand.fix(tx)
        return super().binary(tx, op, other, reflected)

    def inplace(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        return self._answer(tx, "__i" + BINARY_METHODS[op][0][2:], other)

    def compare(self, tx: Tracer, op: str, other: VariableTracker) -> VariableTracker | None:
        name = self.own_comparison(tx, op)
        if name is None:
            return super().compare(tx, op, other)
        made = self._answer(tx, name, other)
        inverted = made is not None and name != COMPARE_METHODS[op]
        return ConstantVariable(not tx.truth(made)) if inverted and made is not None else made

    def own_comparison(self, tx: Tracer, op: str) -> str | None:
        name = COMPARE_METHODS[op]
        if self.own_method(tx, name) is not None:
            return name
        by_equality = op == "!=" and tx.classes.lookup(type(self.value), name) is object.__ne__
        return "__eq__" if by_equality and self.own_method(tx, "__eq__") is not None else None

    def _answer(self, tx: Tracer, name: str, other: VariableTracker) -> VariableTracker | None:
        """The result of the program's own operator method; None for NotImplemented, and where the class has none."""
        made = self.call_own(tx, name, other)
        return None if made is None or made.is_not_implemented() else made

    def unary(self, tx: Tracer, op: str) -> VariableTracker:
        made = self.call_own(tx, UNARY_METHODS[op])
        if made is not None:
            return made
        self.fix(tx)
        return super().unary(tx, op)

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            made = self.call_own(tx, name)
            if made is not None:
                cls = type(self.value)
                return tx.truth(checked_result(tx, name, cls, made) if name == "__bool__" else as_length(tx, made))
            if tx.classes.lookup(type(self.value), name, NO_ATTRIBUTE) is not NO_ATTRIBUTE:
                break
        if isinstance(self.value, enum.Flag):
            self.fix(tx)
        return super().truth(tx)

    def guard_hash(self, tx: Tracer) -> None:
        self.asks_own(tx, "__hash__", "__eq__")

    def hash_key(self) -> Any:
        for name in ("__hash__", "__eq__"):
            method = found_in_bases(type(self.value), name, None)
            if method is not None and not isinstance(method, IN_C) and not is_of_enum(method):
                unsupported("unsupported_value", f"{self.describe()} as a key, whose class defines {name}")
        return super().hash_key()

    def as_index(self, tx: Tracer) -> Any:
        made = None if isinstance(self.value, int) else self.call_own(tx, "__index__")
        if made is None:
            return super().as_index(tx)
        return tx.operators.as_index(checked_result(tx, "__index__", type(self.value), made))

    # -- container protocol and calls
    def length(self, tx: Tracer) -> VariableTracker:
        made = self.call_own(tx, "__len__")
        if made is not None:
            return as_length(tx, made)
        self.fix(tx)
        return super().length(tx)

    def getitem(self, tx: Tracer, key: VariableTracker) -> VariableTracker:
        made = self.call_own(tx, "__getitem__", key)
        return made if made is not None else super().getitem(tx, key)

    def contains(self, tx: Tracer, item: VariableTracker) -> bool:
        made = self.call_own(tx, "__contains__", item)
        if made is not None:
            return tx.truth(made)
        self.fix(tx)
        if isinstance(item, EnumVariable):
            item.fix(tx)
        if tx.classes.lookup(type(self.value), "__contains__", NO_ATTRIBUTE) is NO_ATTRIBUTE:
            return VariableTracker.contains(self, tx, item)
        return super().contains(tx, item)

    def iterator(self, tx: Tracer) -> VariableTracker:
        made = self.call_own(tx, "__iter__")
        if made is not None:
            return made
        self.fix(tx)
        method = tx.classes.lookup(type(self.value), "__iter__", NO_ATTRIBUTE)
        if is_of_enum(method):  # Flag.__iter__
            return tx.values.new_list([constant_variable(v) for v in method(self.value)]).iterator(tx)
        if method is NO_ATTRIBUTE and self.asks_own(tx, "__getitem__"):
            unsupported("unsupported_iteration", f"iterating over {self.describe()} by its __getitem__")
        return super().iterator(tx)

    def reversed(self, tx: Tracer) -> VariableTracker:
        made = self.call_own(tx, "__reversed__")
        if made is not None:
            return made
        if self.asks_own(tx, "__len__", "__getitem__"):
            unsupported("unsupported_iteration", f"reversed() of {self.describe()} by its __getitem__")
        return super().reversed(tx)

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        method = self.own_method(tx, "__call__")
        if method is None:
            return super().call(tx, args, kwargs)
        return tx.classes.call_attribute(self, type(self.value), "__call__", method, args, kwargs)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        cls = type(self.value)
        attribute = tx.classes.lookup(cls, name, NO_ATTRIBUTE)
        known = is_of_enum(attribute) and self.own_method(tx, name) is None
        plainly = not isinstance(tx.classes.lookup(cls, "__getattribute__"), types.FunctionType)
        if not plainly or not (known or isinstance(attribute, IN_C)):
            return tx.call(self.getattr(tx, name), args, kwargs)
        through = _CALL_BACK.get(attribute) if isinstance(attribute, IN_C) else None
        if through is not None:
            return tx.checked_call(through, tx, self, *args, **kwargs)
        self.fix(tx)
        return super().call_method(tx, name, args, kwargs)


def _through_text(tx: Tracer, owner: VariableTracker, spec: VariableTracker) -> VariableTracker:
    """``__format__`` of a builtin, which calls ``__str__`` where the format specification is empty."""
    return tx.texts.format_value(owner, "", spec.constant())


# Methods written in C that call other methods of the object's class.
_CALL_BACK: dict[Any, Any] = {
    object.__str__: lambda tx, o: tx.texts.to_text(o, "r"),
    object.__ne__: SPECIAL_METHODS["__ne__"],
    **{cls.__dict__["__format__"]: _through_text for cls in (object, int, float, str, complex)},
    object.__getattribute__: lambda tx, o, name: o.generic_getattr(tx, name.constant()),
}


def _shows_values_plainly(tx: Tracer, cls: type) -> bool:
    """Whether code of the module enum or code in C makes the text of a member's value."""
    shown = tx.classes.lookup(cls, "_value_repr_")
    return shown is None or isinstance(shown, IN_C) or is_of_enum(shown)


def makes_members_plainly(tx: Tracer, cls: type) -> bool:
    """Whether enum finds members and distinguishes them from other values without calling methods of the program's."""
    missing = tx.classes.lookup(cls, "_missing_")
    if not isinstance(missing, classmethod) or not is_of_enum(missing.__func__):
        return False
    meta = type(cls)
    asked = ("__call__", "__getattribute__", "__instancecheck__") if meta is not enum.EnumMeta else ()
    return all(isinstance(method, IN_C) or is_of_enum(method) for method in (
        tx.classes.lookup(meta, name) for name in asked))


def constant_variable(value: Any, source: Source | None = None) -> ConstantVariable:
    """The tracker of a constant."""
    return EnumVariable(value, source) if isinstance(value, enum.Enum) else ConstantVariable(value, source)


@wraps_if(lambda value: issubclass(type(value), enum.Enum), rank=10)
def _wrap_enum(tx: Tracer, value: enum.Enum, source: Source) -> VariableTracker:
    tx.guard(source, "is", value)
    return EnumVariable(value, source)
