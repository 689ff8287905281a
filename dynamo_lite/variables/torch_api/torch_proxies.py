"""Objects and tensors whose classes define ``__torch_function__``, as arguments of torch's functions.

Which object's method torch calls first, and with which arguments, is found by calling the function on stand-ins:
tensors without data, and objects of classes that are related to one another as the program's are. The method is then
inlined like any other. Invariant: if torch calls no method of a stand-in, the graph breaks.
"""
from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...exc import DynamoLiteError
from ...guards.source import ConstSource
from ...runtime import signal_handlers
from ...symbols.nodes import hint_of
from ..base import ObservedException, VariableTracker, realized, unsupported
from ..containers.sequences import ListVariable, TupleVariable
from ..functions.functions import FunctionVariable
from ..objects.objects import ObjectVariable
from ..tensors.subclasses import SubclassTensorVariable
from ..tensors.tensor import fake_of, method_by_name

if TYPE_CHECKING:
    from ..protocols import Tracer

_KIND = "tensor_subclass"


class _Asked(Exception):
    """Carries the arguments that torch passes to a stand-in; not an error."""

    def __init__(self, cls: type, received: tuple[Any, ...]) -> None:
        super().__init__()
        self.cls = cls
        self.received = received


def _answer(cls: type, *received: Any) -> Any:
    if cls.__dict__.get("declines") is cls:
        return NotImplemented
    raise _Asked(cls, received)


class _StandIns:
    """Stand-ins for the arguments of one call."""

    def __init__(self, tx: Tracer) -> None:
        self.tx = tx
        self.classes: dict[type, type] = {}  # the stand-in's class by the program's class
        self.objects: dict[int, tuple[Any, VariableTracker]] = {}  # a stand-in and the value it stands for, by its id
        self.first: dict[type, VariableTracker] = {}  # the first value by its stand-in's class

    def of(self, value: VariableTracker) -> Any:
        """The stand-in for a value."""
        value = realized(self.tx, value)
        if overrides(self.tx, value):
            for made, tracker in self.objects.values():
                if tracker is value:
                    return made
            made = self._made(self._class(value.cls))
            self.objects[id(made)] = (made, value)
            self.first.setdefault(type(made), value)
            return made
        if isinstance(value, (ListVariable, TupleVariable)) and value.python_type() in (list, tuple):
            return value.python_type()(map(self.of, value.items))
        return fx.node.map_arg(value.as_argument(self.tx), lambda node: self._without_data(fake_of(node)))

    def _without_data(self, fake: Any) -> Any:
        """The stand-in for a plain tensor or a parameter; a number itself. Fake tensors would not do, as torch does not
        count their class among those that it asks."""
        tracker = self.tx.output.tensor_of(fake) if isinstance(fake, torch.Tensor) else None
        if tracker is None:
            return fake
        for made, known in self.objects.values():
            if known is tracker:
                return made
        shape = tuple(map(hint_of, fake.shape))
        made = torch.empty(shape, dtype=fake.dtype, device="meta")
        if issubclass(tracker.cls, torch.nn.Parameter):
            made = torch.nn.Parameter(made, requires_grad=False)
        self.objects[id(made)] = (made, tracker)
        return made

    def _made(self, cls: type) -> Any:
        # Torch asks before it looks at a tensor, whose sizes therefore don't matter.
        return torch.Tensor._make_subclass(cls, torch.empty(0)) if issubclass(cls, torch.Tensor) else cls()

    def _class(self, cls: type) -> type:
        """A class with a ``__torch_function__`` of ours, derived from the stand-ins for the bases of `cls`."""
        if cls is torch.Tensor:
            return cls
        if cls not in self.classes:
            above = [self._class(base) for base in cls.__bases__ if hasattr(base, "__torch_function__")]
            named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}  # for torch's messages
            self.classes[cls] = type(
                cls.__name__, tuple(above), {"__torch_function__": classmethod(_answer), **named})
        return self.classes[cls]

    def some_declined(self) -> bool:
        """Whether a method has returned NotImplemented."""
        return any("declines" in vars(cls) for cls in self.classes.values())

    def back(self, value: Any) -> VariableTracker:
        """The tracker of an argument that torch has passed to a stand-in, or of a part of one."""
        tx = self.tx
        if id(value) in self.objects:
            return self.objects[id(value)][1]
        for kinds, convert in _PARTS:
            if isinstance(value, kinds) and type(value) is not torch.Size:
                return convert(self, value)
        for real, stand_in in self.classes.items():
            if value is stand_in:
                return tx.values.from_result(real, "a class")
        return tx.values.from_result(value, "an argument of __torch_function__")


def _tensor_back(stand_ins: _StandIns, value: torch.Tensor) -> VariableTracker:
    found = stand_ins.tx.output.tensor_of(value)
    if found is None:
        unsupported(_KIND, "__torch_function__ is handed a tensor that the trace has not made")
    return found


def _sequence_back(stand_ins: _StandIns, value: Any) -> VariableTracker:
    made: VariableTracker = stand_ins.tx.values.new_sequence(
        list if isinstance(value, list) else tuple, list(map(stand_ins.back, value)))
    return made


def _slice_back(stand_ins: _StandIns, value: slice) -> VariableTracker:
    tx = stand_ins.tx
    parts = list(map(stand_ins.back, (value.start, value.stop, value.step)))
    made: VariableTracker = tx.call(tx.values.from_result(slice, "slice"), parts, {})
    return made


def _dict_back(stand_ins: _StandIns, value: dict[Any, Any]) -> VariableTracker:
    made: VariableTracker = stand_ins.tx.values.new_dict(
        {stand_ins.back(k): stand_ins.back(v) for k, v in value.items()})
    return made


# How a part of the arguments that torch hands over becomes a tracker, by its kind.
_PARTS: tuple[tuple[Any, Callable[[_StandIns, Any], VariableTracker]], ...] = (
    (torch.Tensor, _tensor_back), ((tuple, list), _sequence_back), (slice, _slice_back), (dict, _dict_back))


def overrides(tx: Tracer, value: VariableTracker) -> bool:
    """Whether a value is an object whose ``__torch_function__`` torch's functions call first."""
    if isinstance(value, SubclassTensorVariable):
        return value.asks(tx)
    if not isinstance(value, ObjectVariable) or tx.output.overrides.plain:
        return False
    return tx.classes.lookup(value.cls, "__torch_function__") is not None


def any_overrides(tx: Tracer, args: Iterable[VariableTracker]) -> bool:
    """Whether there is such an object among the arguments of a call, or in a list or tuple among them."""
    for value in args:
        value = realized(tx, value)
        if isinstance(value, (ListVariable, TupleVariable)):
            if any(overrides(tx, realized(tx, item)) for item in value.items):
                return True
        elif overrides(tx, value):
            return True
    return False


def call_override(
    tx: Tracer, function: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
) -> VariableTracker:
    """``function(*args, **kwargs)`` where an argument overrides the function."""
    name = getattr(function, "__name__", str(function))
    if tx.output.overrides.active():
        unsupported(_KIND, f"{name} with objects that override it, under a torch function mode")
    stand_ins = _StandIns(tx)
    plain = [stand_ins.of(a) for a in args]
    named = {key: stand_ins.of(value) for key, value in kwargs.items()}
    while True:
        cls, received = _first_asked(tx, stand_ins, name, function, plain, named)
        if isinstance(function, types.FunctionType) and function is not method_by_name and received[0] is not function:
            # The function does not ask itself; functions that it calls do so, perhaps more than one.
            return tx.call(FunctionVariable(function, ConstSource(function, function.__qualname__)), args, kwargs)
        handed = list(map(stand_ins.back, received))
        result: VariableTracker = tx.call(tx.getattr(stand_ins.first[cls], "__torch_function__"), handed, {})
        if not result.is_not_implemented():
            return result
        type.__setattr__(cls, "declines", cls)


def _first_asked(
    tx: Tracer, stand_ins: _StandIns, name: str, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[type, tuple[Any, ...]]:
    """The first class of stand-ins that torch asks and that has not declined yet, and what torch hands to it. Where all
    have declined, the TypeError is raised in the program."""
    try:
        with tx.output.fake_mode:
            function(*args, **kwargs)
    except _Asked as asked:
        return asked.cls, asked.received
    except DynamoLiteError:
        raise
    except TypeError as error:
        if stand_ins.some_declined():
            tx.raise_error(TypeError, str(error))
        unsupported(_KIND, f"{name} with an object that overrides it: {type(error).__name__}")
    except Exception as error:
        signal_handlers.pass_on(error)
        unsupported(_KIND, f"{name} with an object that overrides it: {type(error).__name__}")
    if stand_ins.some_declined():  # a comparison by identity, which Python falls back to
        tx.raise_error(TypeError, f"all operands of {name} have declined")
    unsupported(_KIND, f"{name} with an object that it does not ask")


def call_operator(
    tx: Tracer, function: Callable[..., Any], args: list[VariableTracker]
) -> VariableTracker | None:
    """The result of an operator that an operand overrides; None for NotImplemented, which the operators of tensors make
    of each TypeError (torch/csrc/autograd/python_variable_methods.cpp, TypeError_to_NotImplemented_)."""
    try:
        return call_override(tx, function, args, {})
    except ObservedException as error:
        if not issubclass(error.value.python_type(), TypeError):
            raise
        return None
