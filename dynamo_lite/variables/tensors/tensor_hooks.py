"""Hooks that the program registers on tensors while it runs: ``y.register_hook(fn)``, ``y.retain_grad()``.

Autograd calls a hook with the gradient of the tensor that it was registered on, after the graph has run. So generated
code registers the program's own function on the tensor itself, behind the graph, which has the tensor among its
results; the backend ends autograd's node there. What the hook reads and changes, it reads and changes when eager would.

Invariant: between the place in the program where a hook is registered and the end of the graph, nothing gives the
tensor another history, and nothing runs a backward pass.
"""
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from ...rules.table import handles
from ..base import VariableTracker, realized, unsupported
from ..constant import ConstantVariable
from ..deferred_calls import DeferredCall
from .subclasses import refuse_subclasses
from .tensor import TensorVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_KIND = "autograd_in_graph"


class HookHandleVariable(VariableTracker):
    """The handle of a hook that generated code registers.

    Args:
        method: the method of tensors that registers it.
        tensor: the tensor.
        hook: the program's function.
        before: the handle of the hook that was registered before this one.
    """

    has_identity = True

    def __init__(
        self, method: Any, tensor: TensorVariable, hook: VariableTracker, before: HookHandleVariable | None
    ) -> None:
        super().__init__()
        self.method = method
        self.tensor = tensor
        self.hook = hook
        self.before = before

    def python_type(self) -> type:
        return RemovableHandle

    def describe(self) -> str:
        return f"the handle of a hook on {self.tensor.describe()}"

    def truth(self, tx: Tracer) -> bool:
        return True

    def getattr(self, tx: Tracer, name: str) -> VariableTracker:
        if name in ("remove", "__enter__", "__exit__"):
            return tx.builtin_method(self, name)
        unsupported(_KIND, f"{name} of {self.describe()}")

    def call_method(
        self, tx: Tracer, name: str, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        if name == "__enter__" and not args and not kwargs:
            return self
        if name == "__exit__" and len(args) == 3 and not kwargs:
            name, args = "remove", []
        if name != "remove" or args or kwargs:
            unsupported(_KIND, f"{name}() of {self.describe()}")
        self.remove(tx)
        return ConstantVariable(None)

    def remove(self, tx: Tracer) -> None:
        """handle.remove()"""
        tx.output.effects.add_call(_call(tx, RemovableHandle.remove, [self]))

    def reconstruct(self, cg: Codegen) -> None:
        def make() -> None:
            cg.call_function(self.method, [self.tensor, self.hook], {})

        if self.before is not None:
            cg.push(self.before)  # hooks run in the order in which they were registered
            cg.emit.pop()
        cg.build_new(self, make, lambda: None)


@dataclasses.dataclass(frozen=True)
class Registration(DeferredCall):
    """The registration of a hook, whose handle something else may have needed, and so have made, before."""

    def emit(self, cg: Codegen) -> None:
        cg.emit.set_line(self.line)
        cg.push(self.args[0])
        cg.emit.pop()


def _call(
    tx: Tracer, function: Any, args: list[VariableTracker], hooks: VariableTracker | None = None
) -> DeferredCall:
    return DeferredCall(function, args, {}, (), line_of(tx), hooks)


def line_of(tx: Tracer) -> int | None:
    """The line of the captured frame that is being evaluated."""
    frame = tx
    while frame.parent is not None:
        frame = frame.parent
    return frame.current.positions[0]


def _check_place(tx: Tracer, tensor: TensorVariable, what: str) -> None:
    """Breaks the graph where generated code behind it can't register a hook as the program does."""
    if tx.output.parts or tx.output.examples or torch._C._are_functorch_transforms_active():
        unsupported(_KIND, f"{what} in a function that torch calls by itself")
    tx.output.overrides.refuse_later(what)
    if tensor.alternatives:
        unsupported(_KIND, f"{what} of one of several tensors")
    refuse_subclasses([tensor], what)


@handles(Tensor.register_hook, of_tensor=True)
def _register_hook(tx: Tracer, tensor: TensorVariable, hook: VariableTracker) -> VariableTracker:
    _check_place(tx, tensor, "Tensor.register_hook()")
    if not tensor.fake.requires_grad:
        tx.raise_error(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
    return _registered(tx, Tensor.register_hook, tensor, hook)


@handles(Tensor.register_post_accumulate_grad_hook, of_tensor=True)
def _register_post_accumulate_hook(
    tx: Tracer, tensor: TensorVariable, hook: VariableTracker
) -> VariableTracker:
    _check_place(tx, tensor, "Tensor.register_post_accumulate_grad_hook()")
    if not tensor.fake.requires_grad:
        tx.raise_error(RuntimeError, "cannot register a hook on a tensor that doesn't require gradient")
    if not tx.getattr(tensor, "is_leaf").constant():
        tx.raise_error(RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors")
    return _registered(tx, Tensor.register_post_accumulate_grad_hook, tensor, hook)


def _registered(tx: Tracer, method: Any, tensor: TensorVariable, hook: VariableTracker) -> HookHandleVariable:
    output = tx.output
    before = next((call.args[0] for call in reversed(output.effects.calls) if isinstance(call, Registration)), None)
    handle = HookHandleVariable(method, tensor, realized(tx, hook), before)  # type: ignore[arg-type]
    output.effects.add_deferred(Registration(method, [handle], {}, (), line_of(tx), tensor), [RemovableHandle])
    tensor.node.meta["hooked"] = True  # tells a backend that differentiates: its node is to make nothing else
    return handle


@handles(Tensor.retain_grad, of_tensor=True)
def _retain_grad(tx: Tracer, tensor: TensorVariable) -> VariableTracker:
    _check_place(tx, tensor, "Tensor.retain_grad()")
    if not tensor.fake.requires_grad:
        tx.raise_error(RuntimeError, "can't retain_grad on Tensor that has requires_grad=False")
    if not tx.getattr(tensor, "is_leaf").constant():
        tx.output.effects.add_call(_call(tx, Tensor.retain_grad, [tensor], tensor))
    return ConstantVariable(None)
