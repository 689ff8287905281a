"""Torch function modes that the program enters: ``with Mode(): ...``, where ``Mode`` has a ``__torch_function__``.

The program's modes are a stack of trackers. The arguments that torch would pass to the innermost mode are found by
calling torch with a mode of our own, on fake tensors. Then the mode's method is inlined, with the mode off the stack,
as in torch. Invariant: a graph never ends while a mode is on; a program that would break the graph there breaks before
it enters the mode.
"""
from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from ...exc import DynamoLiteError
from ...guards.source import ComputedSource, ConstSource
from ...rules.table import handles
from ..base import VariableTracker, realized, unsupported
from ..constant import ConstantVariable
from ..functions.functions import FunctionVariable
from ..tensors.subclasses import SubclassTensorVariable
from ..tensors.tensor import TensorVariable, fake_of, method_by_name
from .modes import DeviceScopeVariable
from .modules import OpaqueVariable
from .open_mode import OpenMode

if TYPE_CHECKING:
    from ..protocols import Tracer

_KIND = "unsupported_context_manager"
_mode_at = torch._C._get_function_stack_at
# Exceptions that torch's functions raise for arguments that they refuse, in C++ and in Python, or warnings as errors.
_REFUSALS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, Warning,
)


class _Asked(Exception):
    """Carries the arguments that torch passes to a mode; not an error."""

    def __init__(self, received: tuple[Any, ...]) -> None:
        super().__init__()
        self.received = received


class _Probe(TorchFunctionMode):
    def __torch_function__(self, *received: Any) -> Any:
        raise _Asked(received)


class FunctionMode(OpenMode):
    """A mode that the program has entered; torch does not know of it.

    Args:
        mode: the program's object.
        visit: the number of the root frame's instruction that has entered it.
    """

    def __init__(self, mode: VariableTracker, visit: int) -> None:
        super().__init__(visit)
        self.mode = mode

    def describe(self) -> str:
        return f"the torch function mode {self.mode.describe()}"


class Overrides:
    """The program's modes, innermost last, and their handling of calls of torch's functions."""

    def __init__(self) -> None:
        self.modes: list[FunctionMode] = []
        self.around = 0  # how many of them the program has entered before the frame; torch knows of these
        self.off = 0  # nesting depth of contexts that switch all modes off
        self.plain = 0  # nesting depth of contexts in which no argument's own __torch_function__ is called
        self._popped: FunctionMode | None = None

    def active(self) -> bool:
        """Whether calls of torch's functions go to a mode first."""
        return bool(self.modes) and not self.off

    @contextlib.contextmanager
    def plainly(self) -> Iterator[None]:
        """Inside the context, no argument's own ``__torch_function__`` is called."""
        self.plain += 1
        try:
            yield
        finally:
            self.plain -= 1

    def enter_around(self, tx: Tracer, modes: list[Any]) -> None:
        """Begins with the modes that are on around the frame. Guards on torch's state require their classes."""
        for place, mode in enumerate(modes):
            where = ComputedSource(ConstSource(place, str(place)), _mode_at, f"torch function mode {place}")
            self.modes.append(FunctionMode(tx.values.wrap_at(mode, where), 0))
        self.around = len(modes)

    def refuse_later(self, what: str) -> None:
        """Breaks the graph for what runs behind it, such as a backward pass: the modes around would see it then."""
        if self.around:
            unsupported(_KIND, f"{what} under a torch function mode from outside")

    def push(self, tx: Tracer, mode: VariableTracker) -> None:
        """Enters a mode."""
        again = self._popped
        entry = again if again is not None and again.mode is mode else FunctionMode(mode, tx.root_visit())
        self.modes.append(entry)
        tx.output.open_modes.append(entry)
        tx.output.effects.advance(mode)

    def pop(self, tx: Tracer) -> VariableTracker:
        """Leaves the innermost mode."""
        if not self.modes or tx.output.open_modes[-1:] != self.modes[-1:]:
            unsupported(_KIND, "a torch function mode is left out of order")
        entry = self._popped = self.modes.pop()
        tx.output.open_modes.pop()
        tx.output.effects.advance(entry.mode)
        return entry.mode

    @contextlib.contextmanager
    def _without_innermost(self) -> Iterator[VariableTracker]:
        entry = self.modes.pop()
        try:
            yield entry.mode
        finally:
            self.modes.append(entry)

    def call(
        self, tx: Tracer, function: Callable[..., Any], args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker | None:
        """The innermost mode's result for ``function(*args, **kwargs)``; None where torch does not call the mode."""
        if any(isinstance(mode, DeviceScopeVariable) for mode in tx.output.open_modes):
            unsupported(_KIND, "with torch.device(...) together with torch function modes")
        plain = fx.node.map_arg(tuple(a.as_argument(tx) for a in args), fake_of)
        named = fx.node.map_arg({k: a.as_argument(tx) for k, a in kwargs.items()}, fake_of)
        try:
            with tx.output.fake_mode, _Probe():
                function(*plain, **named)
        except _Asked as asked:
            received = asked.received
        except DynamoLiteError:
            raise
        except _REFUSALS:
            # No mode sees this call. The caller records it, fails as the probe did, and reports the error.
            return None
        else:
            return None
        if isinstance(function, types.FunctionType) and function is not method_by_name and received[0] is not function:
            # The function does not call the mode itself; functions that it calls do so, perhaps more than one.
            own = FunctionVariable(function, ConstSource(function, function.__qualname__))
            return tx.call(own, args, kwargs)
        given = [*args, *kwargs.values()]
        handed = [tx.values.from_result(received[0], "a function of torch"),
                  *(self._tracker(tx, part, given) for part in received[1:])]
        with self._without_innermost() as mode:
            mode = realized(tx, mode)
            result: VariableTracker = tx.call(mode.getattr(tx, "__torch_function__"), handed, {})
        if result.is_not_implemented():
            unsupported(_KIND, f"{mode.describe()}.__torch_function__ returns NotImplemented")
        return result

    def _tracker(self, tx: Tracer, value: Any, given: list[VariableTracker]) -> VariableTracker:
        if isinstance(value, torch.Tensor):
            found = tx.output.tensor_of(value)
            if found is None:
                unsupported(_KIND, "a torch function mode is handed a tensor that the trace has not made")
            return found
        if type(value) is tuple or isinstance(value, list):  # in a graph, lists are of an immutable class of their own
            return tx.values.new_sequence(
                list if isinstance(value, list) else tuple, [self._tracker(tx, item, given) for item in value])
        if isinstance(value, dict):
            return tx.values.new_dict(
                {tx.values.from_result(k, "argument"): self._tracker(tx, v, given) for k, v in value.items()})
        if isinstance(value, slice):
            return tx.call(tx.values.from_result(slice, "slice"), [
                self._tracker(tx, part, given) for part in (value.start, value.stop, value.step)], {})
        return tx.values.from_result(value, "an argument of __torch_function__")


class TensorGetterVariable(OpaqueVariable):
    """``torch.Tensor.shape.__get__`` and its like: the function that a mode gets if the program reads an attribute."""

    def call(self, tx: Tracer, args: list[VariableTracker], kwargs: dict[str, VariableTracker]) -> VariableTracker:
        name = self.value.__self__.__name__
        if self.value.__name__ != "__get__" or not args or not isinstance(args[0], TensorVariable):
            unsupported("unsupported_attribute", f"{self.value.__name__} of Tensor.{name}")
        tensor = args[0]
        return tensor.computed(tx, name) if isinstance(tensor, SubclassTensorVariable) else tensor.getattr(tx, name)


class DisabledOverridesVariable(OpenMode, VariableTracker):
    """``torch._C.DisableTorchFunction()``, inside of which no ``__torch_function__`` is called, or
    ``DisableTorchFunctionSubclass()``, which leaves those of modes on."""

    has_identity = True

    def __init__(self, cls: type, visit: int) -> None:
        VariableTracker.__init__(self)
        OpenMode.__init__(self, visit)
        self.cls = cls

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"torch._C.{self.cls.__name__}()"

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        return tx.builtin_method(self, name)

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        modes = tx.output.open_modes
        if name == "__enter__":
            modes.append(self)
        elif name == "__exit__" and modes and modes[-1] is self:
            modes.pop()
        else:
            unsupported(_KIND, f"{self.describe()}.{name}()")
        step = 1 if name == "__enter__" else -1
        tx.output.overrides.plain += step
        if self.cls is torch._C.DisableTorchFunction:
            tx.output.overrides.off += step
        tx.output.effects.advance(self)
        return ConstantVariable(None)


@handles(torch._C._push_on_torch_function_stack)
def _push(tx: Tracer, mode: VariableTracker) -> VariableTracker:
    tx.output.overrides.push(tx, mode)
    return ConstantVariable(None)


@handles(torch._C._pop_torch_function_stack)
def _pop(tx: Tracer) -> VariableTracker:
    return tx.output.overrides.pop(tx)


@handles(torch._C._len_torch_function_stack)
def _length(tx: Tracer) -> VariableTracker:
    return ConstantVariable(torch._C._len_torch_function_stack() + len(tx.output.overrides.modes))


@handles(torch._C._get_function_stack_at)
def _at(tx: Tracer, index: VariableTracker) -> VariableTracker:
    position = index.constant() - torch._C._len_torch_function_stack()
    if position < 0:
        unsupported(_KIND, "a look at the torch function modes around the captured function")
    return tx.output.overrides.modes[position].mode


@handles(torch._C._is_torch_function_mode_enabled)
def _any_mode(tx: Tracer) -> VariableTracker:
    return ConstantVariable(tx.output.overrides.active() or bool(torch._C._len_torch_function_stack()))
