"""The entry of torch's fake tensor mode, without the packages that torch would import there.

A dispatch reads a handful of configuration values from ``torch._dynamo``; reference functions are wrapped so that their
first call imports it; what rules ask about symbols is sympy's. And before C++ hands anything to the class of a tensor,
rather than to a mode, it imports ``torch.distributed.tensor`` (see ``fake.meta_kernels``).

Invariant: a dispatch gives what torch's own would.
"""
from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from dynamo_lite.fake import meta_kernels
from dynamo_lite.symbols import torch_questions


class _ToClass(TorchDispatchMode):
    """Takes what rules in Python call to the class of fake tensors, where there is no other mode to take it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Keeps TorchDispatchMode.__init_subclass__ from importing torch._dynamo with the first call.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if FakeTensor in types and not torch._C._len_torch_dispatch_stack():
            return FakeTensor.__torch_dispatch__(func, types, args, kwargs or {})
        return func(*args, **kwargs or {})


_to_class = _ToClass()


def dispatch(mode: FakeTensorMode, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """What the mode's own dispatch gives. It begins behind ``__torch_dispatch__``, which logs each TypeError with its
    traceback (see ``fake.quiet``). An exception may leave modes behind; the caller takes them off."""
    made = meta_kernels.run(mode, func, args, kwargs)
    if made is not NotImplemented:
        return made
    torch._C._push_on_torch_dispatch_stack(_to_class)
    try:
        return FakeTensorMode.dispatch(mode, func, types, args, kwargs)
    finally:
        torch._C._pop_torch_dispatch_stack(None)


class _StandIn:
    """What FakeTensorMode and torch.func's gradients read from ``torch._dynamo`` while they run; anything else is read
    from the package itself, which is imported for it as torch would."""

    config = types.SimpleNamespace(_custom_ops_profile=None)
    # Whoever has torch compile backward passes has imported the package.
    compiled_autograd = types.SimpleNamespace(_disable=contextlib.nullcontext)

    def __getattr__(self, name: str) -> Any:
        # Somebody may import the real package during a dispatch: its own modules look each other up through torch.
        real = sys.modules.get("torch._dynamo")
        if real is None:
            if name.startswith("__"):
                raise AttributeError(name)
            torch.__dict__.pop("_dynamo", None)
            real = torch.__getattr__("_dynamo")  # which imports it
        return getattr(real, name)


_CONFIG_STAND_IN = _StandIn()


@contextlib.contextmanager
def _stand_in_scope() -> Iterator[None]:
    torch.__dict__["_dynamo"] = _CONFIG_STAND_IN
    try:
        with torch_questions.scope(symbols=False):
            yield
    finally:
        # A real import during the dispatch replaces the attribute; then there is nothing to take back.
        if torch.__dict__.get("_dynamo") is _CONFIG_STAND_IN:
            del torch.__dict__["_dynamo"]


def scope() -> contextlib.AbstractContextManager[None]:
    """While the dispatcher runs, ``torch._dynamo.config`` resolves to the few values it reads, and what it asks about
    symbols is answered without sympy."""
    if "_dynamo" in torch.__dict__:
        return torch_questions.scope(symbols=False)
    return _stand_in_scope()


@functools.cache
def unwrap_reference_functions() -> int:
    """Spares torch's reference implementations their wrapper's import of ``torch._dynamo``.

    ``torch._disable_dynamo`` remembers on the wrapped function what to call; until then it imports. The references are
    only reached here from inside a fake dispatch, where there is nothing to disable, so the function itself is the
    answer.

    Returns:
        how many functions were marked.
    """
    import torch._decomp
    import torch._refs
    import torch._refs.fft
    import torch._refs.linalg
    import torch._refs.nn.functional
    import torch._refs.special

    refs = torch._refs
    modules = (refs, refs.nn.functional, refs.special, refs.linalg, refs.fft, torch._decomp.decompositions)
    tables = (torch._decomp.decomposition_table, torch._decomp.meta_table)
    # Many stand in several of these.
    spaces: list[dict[Any, Any]] = [*map(vars, modules), *tables]
    candidates = {id(value): value for space in spaces for value in space.values()}
    marked = 0
    for function in candidates.values():
        while isinstance(function, types.FunctionType):
            # `__wrapped__` skips levels where wrappers copy each other's dictionaries; the closure tells the truth.
            code, cells = function.__code__, function.__closure__
            if not cells or "fn" not in code.co_freevars:
                break
            inner = cells[code.co_freevars.index("fn")].cell_contents
            if code.co_filename == torch._compile.__file__ and isinstance(inner, types.FunctionType):
                if getattr(inner, "__dynamo_disable", None) is None:
                    inner.__dict__["__dynamo_disable"] = inner
                    marked += 1
            function = inner
    return marked
