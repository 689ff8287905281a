"""Follows the program's use of ``torch.compiler.set_stance`` and ``torch.compiler.reset``.

Both act on ``torch._dynamo``, which a program may import at any time and which these calls import at the latest. This
module intercepts the import. From then on, the stance is followed, and torch's ``reset`` resets dynamo_lite as well.
Invariant: nothing here imports ``torch._dynamo``, and torch's functions behave as before.
"""
from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from . import stance

_NAME = "torch._dynamo"
_reset: Callable[[], None] | None = None


def follow(reset: Callable[[], None]) -> None:
    """Follows torch's compiler from now on.

    Args:
        reset: called when the program resets torch's compiler.
    """
    global _reset
    _reset = reset
    if _NAME in sys.modules and hasattr(sys.modules[_NAME], "reset"):
        _attach()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds ``torch._dynamo`` as Python does, with a loader that notifies this module after the import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NAME:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is importlib.machinery.SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
        _attach()


def _attach() -> None:
    """Follows the stance and ``reset`` of the ``torch._dynamo`` that has been imported."""
    decorators = sys.modules.get("torch._dynamo.decorators")
    setter = getattr(decorators, "_set_stance", None)
    if setter is not None and getattr(setter, "__wrapped__", None) is None:
        decorators._set_stance = _followed(setter)  # type: ignore[union-attr]
    now = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    if now is not None:
        stance.follow(now.stance, now.backend)
    _plant()


def _followed(setter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(setter)
    def set_stance(new: Any) -> Any:
        before = setter(new)
        if getattr(new, "skip_guard_eval_unsafe", False):
            warnings.warn("dynamo_lite checks all guards: skip_guard_eval_unsafe has no effect", stacklevel=4)
        stance.follow(new.stance, new.backend)
        return before

    return set_stance


class _Planted(str):
    """An entry of the set in which ``torch._dynamo`` records its warnings, and which torch's ``reset`` clears."""

    __slots__ = ("__weakref__",)


def _plant() -> None:
    warned = getattr(sys.modules.get("torch._dynamo.utils"), "warn_once_cache", None)
    if isinstance(warned, set):
        planted = _Planted("dynamo_lite")
        warned.add(planted)
        weakref.finalize(planted, _was_reset).atexit = False


def _was_reset() -> None:
    if _reset is not None and not sys.is_finalizing():
        _plant()
        _reset()
