"""Python's operators, attribute access and calls on trackers (the language reference's data model).

Invariant: a method gives what CPython would give for the real values, or raises what CPython would raise.
"""
from __future__ import annotations

import collections
import sys
import types
from typing import Any

from ..variables import error_texts
from ..variables.base import ObservedException, VariableTracker, realized, type_name, unsupported
from ..variables.constant import BINARY_METHODS, ConstantVariable, is_unique
from ..variables.containers.mappings import DictVariable
from ..variables.containers.sequences import SequenceVariable
from ..variables.containers.sets import SetVariable
from ..variables.containers.user_keys import UserKey
from ..variables.finalization import frame_values, held_by
from ..variables.functions.functions import FunctionVariable
from ..variables.identity import IdentityVariable, number_of
from ..variables.numbers.scalars import ScalarVariable
from ..variables.objects.classes import NO_ATTRIBUTE, derives
from ..variables.objects.enums import EnumVariable
from ..variables.objects.objects import ObjectVariable
from ..variables.tensors.tensor import TensorVariable
from .part import Part

_OPERATOR_NAMES = {"**": "** or pow()"}
BUILTIN_CONTENT = (SequenceVariable, DictVariable, SetVariable)


class Operators(Part):
    """Operators, comparisons, keys and identity; a part of the tracer."""

    def binary(
        self, op: str, left: VariableTracker, right: VariableTracker, shown: str | None = None
    ) -> VariableTracker:
        """left op right (Objects/abstract.c, binary_op1); `shown` is the operator in messages."""
        left, right = realized(self.tx, left), realized(self.tx, right)
        left_type, right_type = left.python_type(), right.python_type()
        attempts: list[tuple[VariableTracker, VariableTracker, bool]] = [(left, right, False)]
        if left_type is not right_type or not isinstance(left, ObjectVariable):
            reflected = (right, left, True)
            overrides = left_type is not right_type and derives(self.tx, right_type, left_type)
            if overrides:
                # A class that inherits both methods has the operator of its base; between classes of Python's, the
                # reflected one alone counts (slot_nb_add and the like).
                names = BINARY_METHODS[op][1 if isinstance(left, ObjectVariable) else 0:]
                lookup = self.tx.classes.lookup
                overrides = any(
                    lookup(right_type, n, NO_ATTRIBUTE) is not lookup(left_type, n, NO_ATTRIBUTE) for n in names)
            beside = _tensor_first(left, right) or _is_wider_number(left, right)
            first = overrides or beside and not left.asks_own(self.tx, BINARY_METHODS[op][0])
            attempts = [reflected, *attempts] if first else [*attempts, reflected]
        for owner, other, swapped in attempts:
            formats = op == "%" and owner is left and issubclass(left_type, (str, bytes))
            result = owner.binary(self.tx, op, other if formats else content_beside(owner, other), swapped)
            if result is not None:
                return result
        sequence = next((s for s in (left, right) if issubclass(s.python_type(), _CONCATENATED)), None)
        inplace = shown is not None and op == "*"
        tried = inplace and isinstance(left, ObjectVariable)  # only its class's sequence slots count
        if op == "*" and sequence is not None and (sequence is left or not tried):
            return self._repeated(sequence, right if sequence is left else left, inplace and sequence is left)
        concatenated = next((c for c in _CONCATENATED if issubclass(left_type, c)), None) if op == "+" else None
        if concatenated is not None:
            kind = concatenated.__name__
            said = f'can only concatenate {kind} (not "{type_name(right_type)}") to {kind}'
            if concatenated is bytes:
                said = f"can't concat {type_name(right_type)} to {type_name(left_type)}"
            self.tx.raise_error(TypeError, said)
        self.tx.raise_error(
            TypeError,
            f"unsupported operand type(s) for {shown or _OPERATOR_NAMES.get(op, op)}: "
            f"{type_name(left_type)!r} and {type_name(right_type)!r}",
        )

    def _repeated(self, sequence: VariableTracker, times: VariableTracker, inplace: bool) -> VariableTracker:
        """sequence * times with the result of ``times.__index__``, since neither value's own operator accepts the other
        (Objects/abstract.c, sequence_repeat); `inplace`: sequence *= times."""
        cls = times.python_type()
        if self.tx.classes.lookup(cls, "__index__", NO_ATTRIBUTE) is NO_ATTRIBUTE:
            self.tx.raise_error(TypeError, f"can't multiply sequence by non-int of type {type_name(cls)!r}")
        number = ConstantVariable(self.as_index(times))
        made = sequence.inplace(self.tx, "*", number) if inplace else None
        made = made if made is not None else sequence.binary(self.tx, "*", number, False)
        return made if made is not None else unsupported("unsupported_operator", f"{sequence.describe()} * {number}")

    def inplace(self, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
        """left op= right."""
        left, right = realized(self.tx, left), realized(self.tx, right)
        result = left.inplace(self.tx, op, content_beside(left, right) if op != "+" else right)
        return result if result is not None else self.binary(op, left, right, f"{op}=")

    _SWAPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}

    def compare(self, op: str, left: VariableTracker, right: VariableTracker) -> VariableTracker:
        """left op right for a comparison (Objects/object.c, do_richcompare)."""
        left, right = realized(self.tx, left), realized(self.tx, right)
        left_type, right_type = left.python_type(), right.python_type()
        attempts = [(left, right, op), (right, left, self._SWAPPED[op])]
        derived = left_type is not right_type and derives(self.tx, right_type, left_type)
        beside = _tensor_first(left, right) or _is_wider_number(left, right)
        if derived or beside and left.own_comparison(self.tx, op) is None:
            attempts.reverse()
        for owner, other, symbol in attempts:
            result = owner.compare(self.tx, symbol, self._beside(owner, other))
            if result is not None:
                return result
        if op in ("==", "!="):
            return ConstantVariable(self.is_same(left, right) == (op == "=="))
        kinds = f"{type_name(left_type)!r} and {type_name(right_type)!r}"
        self.tx.raise_error(TypeError, f"{op!r} not supported between instances of {kinds}")

    def _beside(self, owner: VariableTracker, other: VariableTracker) -> VariableTracker:
        """`other` as an operand of `owner`'s comparisons: a number of the graph can't be compared with enum members."""
        number = isinstance(owner, ScalarVariable) and isinstance(other, EnumVariable)
        if not number or not issubclass(other.python_type(), (int, float)):
            return content_beside(owner, other)
        other.check_plain(self.tx, texts=False)
        cls = int if issubclass(other.python_type(), int) else float
        return ConstantVariable(self.tx.run_python(getattr(cls, f"__{cls.__name__}__"), other.constant()))

    def same_or_equal(self, left: VariableTracker, right: VariableTracker) -> bool:
        """``left is right or left == right``, the comparison of containers."""
        left, right = realized(self.tx, left), realized(self.tx, right)
        if left is right:
            return True
        # The identity of numbers that change is unknown and not needed: their comparison is guarded.
        with_symbols = left.is_symbolic or right.is_symbolic
        if not with_symbols and left.same_object(right) is True and not isinstance(left, (FunctionVariable,)):
            return True
        return self.tx.truth(self.compare("==", left, right))

    def is_same(self, left: VariableTracker, right: VariableTracker) -> bool:
        """left is right, with a guard where the structure's guards don't decide it."""
        left, right = realized(self.tx, left), realized(self.tx, right)
        same = left.same_object(right)
        if isinstance(left, ConstantVariable) and isinstance(right, ConstantVariable):
            same = self._same_constant(left, right, same)
        if same is None and left.python_type() is not right.python_type():
            same = False
        if same is None:
            unsupported("unsupported_operator", f"`is` between {left.describe()} and {right.describe()}")
        pair = (left.source, right.source)
        with_identity = (TensorVariable, ObjectVariable, *BUILTIN_CONTENT)
        if left is not right and None not in pair and isinstance(left, with_identity):
            if isinstance(right, type(left)):
                self.tx.guard(pair[0], "tensor_same" if same else "not_same", pair[1])  # type: ignore[arg-type]
        for value in (left, right):
            if isinstance(value, FunctionVariable) and value.source is not None:
                self.tx.guard(value.source, "is", value.real)
        return same

    def _same_constant(self, left: ConstantVariable, right: ConstantVariable, same: bool | None) -> bool | None:
        """`is` between numbers or strings: equal inputs may be one object now and two objects at the next call."""
        if same is False or left is right or is_unique(left.value):
            return same
        if left.source is not None and right.source is not None:
            same = left.value is right.value
            if left.source != right.source:
                self.tx.guard(left.source, "tensor_same" if same else "not_same", right.source)
        else:
            for value in (left, right):
                if value.source is not None and same:
                    self.tx.guard(value.source, "is", value.real)
        return same

    def as_index(self, key: VariableTracker, owner: str = "") -> Any:
        """An index or slice as a Python value; `owner` is the kind of sequence that is indexed."""
        key = realized(self.tx, key)
        index = key.as_index(self.tx)
        if index is not None:
            return index
        kind = key.python_type().__name__
        if owner:
            self.tx.raise_error(TypeError, f"{owner} indices must be integers or slices, not {kind}")
        self.tx.raise_error(TypeError, f"{kind!r} object cannot be interpreted as an integer")

    def dict_content(self, value: VariableTracker) -> DictVariable | None:
        """The entries of a dict or of an object that is one; None for other values."""
        value = realized(self.tx, value)
        if isinstance(value, ObjectVariable) and isinstance(value.content, DictVariable):
            ordered = value.content.cls is collections.OrderedDict
            asked = ("__iter__", "keys", "__getitem__") if ordered else ("__iter__",)
            own = [self.tx.classes.lookup(value.cls, name) for name in asked]
            return None if any(isinstance(method, types.FunctionType) for method in own) else value.content
        return value if isinstance(value, DictVariable) else None

    def hash_key(self, value: VariableTracker, place: str = "dict key") -> Any:
        """The hash key that represents the value as a "dict key" or "set element", guarded; raises TypeError in the
        program if the value is unhashable."""
        value = realized(self.tx, value)
        value.guard_hash(self.tx)
        if isinstance(value, ObjectVariable):
            hasher = self.tx.classes.lookup(value.cls, "__hash__")
            if isinstance(hasher, types.FunctionType):
                return UserKey(self.tx, value, self._hash_of(value, place))
        elif value.own_method(self.tx, "__hash__") is not None or value.own_method(self.tx, "__eq__") is not None:
            if self.tx.classes.lookup(value.python_type(), "__hash__") is None:
                said = f"unhashable type: {value.python_type().__name__!r}"
                self.tx.raise_error(TypeError, error_texts.unhashable(said, value.python_type(), place))
            return UserKey(self.tx, value, self.hash_of(value))
        try:
            return value.hash_key()
        except TypeError as error:
            self.tx.raise_error(TypeError, error_texts.unhashable(str(error), value.python_type(), place))

    def hash_of(self, value: VariableTracker) -> int:
        """hash(value) of a constant."""
        said = value.call_own(self.tx, "__hash__")
        if said is not None:
            return self.as_hash(said)
        value.fix(self.tx)
        return int(self.tx.run_python(hash, value.constant()))

    def as_hash(self, said: VariableTracker) -> int:
        """The hash that hash() computes from the result of ``__hash__`` (Objects/typeobject.c, slot_tp_hash)."""
        if not issubclass(said.python_type(), int):
            self.tx.raise_error(TypeError, "__hash__ method should return an integer")
        number = said.constant()
        if not -sys.maxsize - 1 <= number <= sys.maxsize:
            number = int.__hash__(number)
        return -2 if number == -1 else int(number)

    def _hash_of(self, value: ObjectVariable, place: str) -> int:
        """The result of a user-defined class's ``__hash__``."""
        try:
            return self.tx.call_method(value, "__hash__", []).constant()
        except ObservedException as error:
            if error.value.python_type() is TypeError and error_texts.unhashable("", value.cls, place):
                unsupported("exception_handling", "a TypeError of __hash__, which is raised with another text")
            raise

    def is_held(self, value: VariableTracker) -> bool:
        """Whether the program holds a reference to an object besides the one that it has just passed."""
        frames = self.frames_values()
        if any(held is value for held in frames):
            return True
        effects = self.tx.output.effects
        return id(value) in held_by(effects, [*frames, *effects.outside_values()])

    def frames_values(self) -> list[VariableTracker]:
        """The values that this frame and its callers in the trace hold."""
        frame: Any = self.tx
        found: list[VariableTracker] = []
        while frame is not None:
            found += frame_values(frame)
            frame = frame.parent
        return found

    def with_number(self, value: VariableTracker) -> VariableTracker:
        """A value whose number is needed; an id is converted to its number."""
        return value.number(self.tx) if isinstance(value, IdentityVariable) else value

    def identity_number(self, value: VariableTracker) -> VariableTracker:
        """id(value): the number if the object's identity is guarded, else a value that can only be compared."""
        if isinstance(value, FunctionVariable) and value.source is not None:
            self.tx.guard(value.source, "is", value.real)
            return number_of(self.tx, value.real)
        return IdentityVariable(value)


# Sequences written in C whose own concatenation is tried last.
_CONCATENATED = (list, tuple, str, bytes, collections.deque)

def content_beside(owner: VariableTracker, other: VariableTracker) -> VariableTracker:
    """An operand as a builtin's own operators see it: for an instance of a builtin's subclass, its builtin content."""
    content = other.content
    alike = any(isinstance(owner, kind) and isinstance(content, kind) for kind in (BUILTIN_CONTENT, ConstantVariable))
    alike |= isinstance(owner, ScalarVariable) and isinstance(content, ConstantVariable)
    return content if alike and content is not None else other


def _tensor_first(left: VariableTracker, right: VariableTracker) -> bool:
    return isinstance(right, TensorVariable) and not isinstance(left, (TensorVariable, ObjectVariable))


def _is_wider_number(left: VariableTracker, right: VariableTracker) -> bool:
    """Whether `left` is a number and `right` an object whose class derives from a wider number type. The operators of
    the number return NotImplemented for such an object (CONVERT_BINOP in Objects/longobject.c, CONVERT_TO_DOUBLE in
    Objects/floatobject.c), so that only the object's operators count."""
    if not isinstance(right, ObjectVariable) or isinstance(left, ObjectVariable):
        return False
    left_type, right_type = left.python_type(), right.python_type()
    return issubclass(left_type, int) and issubclass(right_type, (float, complex)) or (
        issubclass(left_type, float) and issubclass(right_type, complex))
