"""Objects other than tensors that define ``__torch_function__``, as arguments of torch's functions.

Which object's method torch calls first, and with which arguments, is found by calling the function on stand-ins: fake
tensors, and objects of classes that are related to one another as the program's are. The method is then inlined like
any other. Invariant: if torch calls no method of a stand-in, the graph breaks.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from ...exc import DynamoLiteError
from ...runtime import signal_handlers
from ..base import VariableTracker, realized, unsupported
from ..containers.sequences import ListVariable, TupleVariable
from ..objects.objects import ObjectVariable
from ..tensors.tensor import fake_of

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
        if isinstance(value, ObjectVariable) and overrides(self.tx, value):
            for made, tracker in self.objects.values():
                if tracker is value:
                    return made
            made = self._class(value.cls)()
            self.objects[id(made)] = (made, value)
            self.first.setdefault(type(made), value)
            return made
        if isinstance(value, (ListVariable, TupleVariable)) and value.python_type() in (list, tuple):
            return value.python_type()(map(self.of, value.items))
        return fx.node.map_arg(value.as_argument(self.tx), fake_of)

    def _class(self, cls: type) -> type:
        """A class with a ``__torch_function__`` of ours, derived from the stand-ins for the bases of `cls`."""
        if cls not in self.classes:
            above = [self._class(base) for base in cls.__bases__ if hasattr(base, "__torch_function__")]
            self.classes[cls] = type(cls.__name__, tuple(above), {"__torch_function__": classmethod(_answer)})
        return self.classes[cls]

    def back(self, value: Any) -> VariableTracker:
        """The tracker of an argument that torch has passed to a stand-in, or of a part of one."""
        tx = self.tx
        if id(value) in self.objects:
            return self.objects[id(value)][1]
        if isinstance(value, torch.Tensor):
            found = tx.output.tensor_of(value)
            if found is None:
                unsupported(_KIND, "__torch_function__ is handed a tensor that the trace has not made")
            return found
        if isinstance(value, (tuple, list)) and type(value) is not torch.Size:
            return tx.values.new_sequence(
                list if isinstance(value, list) else tuple, list(map(self.back, value)))
        if isinstance(value, dict):
            return tx.values.new_dict({self.back(k): self.back(v) for k, v in value.items()})
        for real, stand_in in self.classes.items():
            if value is stand_in:
                return tx.values.from_result(real, "a class")
        return tx.values.from_result(value, "an argument of __torch_function__")


def overrides(tx: Tracer, value: VariableTracker) -> bool:
    """Whether a value is an object whose ``__torch_function__`` torch's functions call first."""
    if not isinstance(value, ObjectVariable) or issubclass(value.cls, torch.Tensor):
        return False
    return tx.classes.lookup(value.cls, "__torch_function__") is not None


def any_overrides(tx: Tracer, args: Iterable[VariableTracker]) -> bool:
    """Whether there is such an object among the arguments of a call, or in a list or tuple among them."""
    for value in args:
        value = realized(tx, value)
        if isinstance(value, (ListVariable, TupleVariable)):
            if any(overrides(tx, item) for item in value.items):
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
    try:
        with tx.output.fake_mode:
            function(*plain, **named)
    except _Asked as asked:
        owner = stand_ins.first[asked.cls]
        handed = list(map(stand_ins.back, asked.received))
    except DynamoLiteError:
        raise
    except Exception as error:
        signal_handlers.pass_on(error)
        unsupported(_KIND, f"{name} with an object that overrides it: {type(error).__name__}")
    else:
        unsupported(_KIND, f"{name} with an object that it does not ask")
    result: VariableTracker = tx.call(tx.getattr(owner, "__torch_function__"), handed, {})
    if result.is_not_implemented():
        unsupported(_KIND, f"__torch_function__ of {owner.describe()} returns NotImplemented")
    return result


