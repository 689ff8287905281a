"""Hooks that the program registers on modules from outside while it runs, and removes again: ``handle =
model.layer.register_forward_hook(f)``, ``handle.remove()``.

A call of the module in the trace calls them, behind those that it had before. Generated code really registers and
removes them, behind the graph and in the program's order, so that handles, the numbers of hooks and what stays
registered are eager's.

Invariant: while hooks of the trace are registered on a module, the trace neither looks into the dicts that hold the
module's hooks and at the class that counts hooks, nor replaces them; and no call of the module begins before a hook is
registered or removed and goes on behind it with the hooks that it had.
"""
from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from ...rules.table import handles
from ..base import VariableTracker, instance_dict, realized, unsupported
from ..tensors.tensor_hooks import HookHandleVariable, Registration, line_of
from .modules import NNModuleVariable

if TYPE_CHECKING:
    from ..protocols import Codegen, Tracer

_KIND = "call_skipped"
# The tables that registering or removing such a hook changes.
_TABLES = {
    nn.Module.register_forward_pre_hook: ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    nn.Module.register_forward_hook: (
        "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
}


class ModuleHookHandleVariable(HookHandleVariable):
    """The handle of a hook on a module.

    Args:
        place: 0 for a hook before forward, 1 for one after it.
    """

    tensor: NNModuleVariable  # type: ignore[assignment]

    def __init__(
        self, method: Any, module: NNModuleVariable, hook: VariableTracker, before: HookHandleVariable | None,
        place: int,
    ) -> None:
        super().__init__(method, module, hook, before)  # type: ignore[arg-type]
        self.place = place
        self.registered = True

    def remove(self, tx: Tracer) -> None:
        _check_place(tx, self.tensor, "RemovableHandle.remove()")
        super().remove(tx)
        if self.registered:
            self.registered = False
            added = tx.output.effects.added_hooks[id(self.tensor.value)][self.place]
            added.pop(next(i for i, hook in enumerate(added) if hook is self.hook))


@dataclasses.dataclass(frozen=True)
class _ModuleRegistration(Registration):
    """The registration of a hook on a module."""

    tx: Any = None

    def emit(self, cg: Codegen) -> None:
        handle = self.args[0]
        assert isinstance(handle, ModuleHookHandleVariable)
        # The program's stores come before deferred calls.
        if handle.tensor.has_written(self.tx, *_TABLES[handle.method]):
            unsupported("side_effect_unsupported", f"other dicts for the hooks of {handle.tensor.describe()}")
        super().emit(cg)


def _check_place(tx: Tracer, module: NNModuleVariable, what: str) -> None:
    """Breaks the graph where a hook can't be registered or removed behind the graph instead."""
    if tx.output.parts or tx.output.examples:
        unsupported(_KIND, f"{what} in a function that torch calls by itself")
    if id(module.value) in tx.output.effects.hooked_calls:
        unsupported(_KIND, f"{what} while {module.describe()} is being called with hooks")


@handles(nn.Module.register_forward_hook)
def _register_forward_hook(
    tx: Tracer, module: VariableTracker, hook: VariableTracker, **options: VariableTracker
) -> VariableTracker:
    return _registered(tx, nn.Module.register_forward_hook, module, hook, options)


@handles(nn.Module.register_forward_pre_hook)
def _register_forward_pre_hook(
    tx: Tracer, module: VariableTracker, hook: VariableTracker, **options: VariableTracker
) -> VariableTracker:
    return _registered(tx, nn.Module.register_forward_pre_hook, module, hook, options)


def _registered(
    tx: Tracer, method: Any, module: VariableTracker, hook: VariableTracker, options: dict[str, VariableTracker]
) -> VariableTracker:
    what, module, tables = f"Module.{method.__name__}()", realized(tx, module), _TABLES[method]
    if not isinstance(module, NNModuleVariable) or module.source is None:
        unsupported(_KIND, f"{what} of a module that the program has just made")
    if any(tx.truth(option) for option in options.values()):
        unsupported(_KIND, f"{what} with options")
    _check_place(tx, module, what)
    own, effects = instance_dict(module.value), tx.output.effects
    if own is None or any(name not in own for name in tables) or module.has_written(tx, *tables):
        unsupported(_KIND, f"{what} of a module whose dicts of hooks have been replaced")
    before = next((call.args[0] for call in reversed(effects.calls) if isinstance(call, Registration)), None)
    place = int(method is nn.Module.register_forward_hook)
    handle = ModuleHookHandleVariable(method, module, realized(tx, hook), before, place)  # type: ignore[arg-type]
    call = _ModuleRegistration(method, [handle], {}, (), line_of(tx), tx=tx)
    effects.add_deferred(call, [RemovableHandle, *(own[name] for name in tables)])
    effects.added_hooks.setdefault(id(module.value), ([], []))[place].append(handle.hook)
    return handle
