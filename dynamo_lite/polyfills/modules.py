"""nn.Module's call with hooks, for the hooks that most programs have.

Invariant: the same as ``torch.nn.Module._call_impl`` for hooks that take the positional arguments only, where no hook
is about gradients or is called when forward raises.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

Hooks = tuple[Callable[..., Any], ...]


def call_with_hooks(module: Any, before: Hooks, after: Hooks, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    for hook in before:
        changed = hook(module, args)
        if changed is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    result = module.forward(*args, **kwargs)
    for hook in after:
        changed = hook(module, args, result)
        if changed is not None:
            result = changed
    return result
