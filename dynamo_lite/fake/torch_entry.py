"""The entry of torch's fake tensor mode, without the packages that torch would import there.

A dispatch reads a few configuration values from ``torch._dynamo``; reference functions are wrapped such that their
first call imports it; the questions of metadata rules about symbols import sympy. Also, before C++ dispatches anything
to the class of a tensor rather than to a mode, it imports ``torch.distributed.tensor`` (see ``fake.meta_kernels``).

Invariant: a dispatch has the same result as torch's own.
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
    """A mode that dispatches calls of Python rules to the class of fake tensors, where no other mode is active."""

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
    """The result of the mode's own dispatch. It bypasses ``__torch_dispatch__``, which logs each TypeError with its
    traceback (see ``fake.quiet``). After an exception, modes may still be on the stack; the caller removes them."""
    made = meta_kernels.run(mode, func, args, kwargs)
    if made is not NotImplemented:
        return made
    torch._C._push_on_torch_dispatch_stack(_to_class)
    try:
        return FakeTensorMode.dispatch(mode, func, types, args, kwargs)
    finally:
        torch._C._pop_torch_dispatch_stack(None)


class _StandIn:
    """Provides what FakeTensorMode and torch.func's gradients read from ``torch._dynamo`` while they run. Any other
    attribute is read from the package itself, which is imported for that purpose, as torch would do."""

    config = types.SimpleNamespace(_custom_ops_profile=None)
    # A program that has torch compile backward passes has imported the package, so no stand-in is used.
    compiled_autograd = types.SimpleNamespace(_disable=contextlib.nullcontext)

    def __getattr__(self, name: str) -> Any:
        # The real package may be imported during a dispatch: its own modules look each other up through torch.
        real = sys.modules.get("torch._dynamo")
        if real is None:
            if name.startswith("__"):
                raise AttributeError(name)
            torch.__dict__.pop("_dynamo", None)
            real = torch.__getattr__("_dynamo")  # imports the package
        return getattr(real, name)


_CONFIG_STAND_IN = _StandIn()


@contextlib.contextmanager
def _stand_in_scope() -> Iterator[None]:
    torch.__dict__["_dynamo"] = _CONFIG_STAND_IN
    try:
        with torch_questions.scope(symbols=False):
            yield
    finally:
        # A real import during the dispatch replaces the attribute; then there is nothing to undo.
        if torch.__dict__.get("_dynamo") is _CONFIG_STAND_IN:
            del torch.__dict__["_dynamo"]


def scope() -> contextlib.AbstractContextManager[None]:
    """A context for the dispatcher, in which ``torch._dynamo.config`` resolves to the few values that it reads, and its
    questions about symbols are answered without sympy."""
    if "_dynamo" in torch.__dict__:
        return torch_questions.scope(symbols=False)
    return _stand_in_scope()


@functools.cache
def unwrap_reference_functions() -> int:
    """Prevents the wrappers of torch's reference implementations from importing ``torch._dynamo``.

    ``torch._disable_dynamo`` imports the package to find the function to call, and stores that on the wrapped function.
    Here the references are reached only from inside a fake dispatch, where there is nothing to disable, so the wrapped
    function itself is stored in advance.

    Returns:
        the number of functions that were marked.
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
    # Many functions occur in several of these.
    spaces: list[dict[Any, Any]] = [*map(vars, modules), *tables]
    candidates = {id(value): value for space in spaces for value in space.values()}
    marked = 0
    for function in candidates.values():
        while isinstance(function, types.FunctionType):
            # `__wrapped__` skips levels, because wrappers copy each other's dicts; the closure is reliable.
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
