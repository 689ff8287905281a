"""Runs the program's signal handlers in the right state of torch while a compile is in progress.

CPython runs a handler between two instructions of whatever the main thread executes. During a compile this may be
within a fake tensor mode, below autograd, or while torch only creates tensors without memory; the handler's tensors
would be fake, and its gradients lost. Therefore handlers run in the state that torch had before the compile. An
exception of a handler, such as that of a time limit, leaves a compile like a fault of the compiler's own. But it
belongs to the program and must reach it: code that treats an exception as a fault, or as a reason to fall back, calls
``pass_on`` first.

Invariants: after a compile, `signal.getsignal` returns the handler from before, or one that a handler has set; an
exception of a handler is recognized by a handler's frame in its traceback, not by its type.
"""
from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

import torch

_EVERY: frozenset[int] = frozenset(signal.valid_signals())
_runs = 0


def runs() -> int:
    """Number of times that a handler has run during a compile of the main thread since the process began."""
    return _runs


class Outside:
    """The state of torch outside a compile, recorded when the object is created, for the current thread."""

    def __init__(self) -> None:
        self._keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        self._functions = torch._C._len_torch_function_stack()
        self._subclasses = torch._C._is_torch_function_enabled()
        self._dispatch = torch._C._len_torch_dispatch_stack()
        self._grad, self._inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """A context in which operations run in the recorded state; afterwards the current state is restored."""
        grad, changes = torch.is_grad_enabled(), torch.is_inference_mode_enabled() != self._inference
        dispatch = [torch._C._pop_torch_dispatch_stack(None)
                    for _ in range(torch._C._len_torch_dispatch_stack() - self._dispatch)]
        functions = [torch._C._pop_torch_function_stack()
                     for _ in range(torch._C._len_torch_function_stack() - self._functions)]
        try:
            with contextlib.ExitStack() as entered:
                if changes:
                    entered.enter_context(torch.inference_mode(self._inference))
                entered.enter_context(torch._C._ForceDispatchKeyGuard(*self._keys))
                if self._subclasses:
                    entered.enter_context(torch._C._EnableTorchFunction())
                torch._C._set_grad_enabled(self._grad)
                yield
        finally:
            torch._C._set_grad_enabled(grad)
            for mode in reversed(functions):
                torch._C._push_on_torch_function_stack(mode)
            for mode in reversed(dispatch):
                torch._C._push_on_torch_dispatch_stack(mode)


class _Isolated:
    """A handler that runs outside the compile during which it replaces the program's handler.

    Args:
        handler: the program's handler.
        outside: the state of torch to run it in.
    """

    def __init__(self, handler: Callable[[int, Any], Any], outside: Outside) -> None:
        self.handler = handler
        self.outside: Outside | None = outside

    def __call__(self, number: int, frame: Any) -> Any:
        if self.outside is None:  # the compile is over, but the program has kept this object
            return self.handler(number, frame)
        global _runs
        _runs += 1
        with self.outside.entered():
            return self.handler(number, frame)


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """A context in which handlers written in Python run in torch's state at the beginning of the context."""
    if threading.current_thread() is not threading.main_thread():  # handlers only run in the main thread
        yield
        return
    outside: Outside | None = None
    installed: dict[int, tuple[Any, _Isolated]] = {}
    try:
        for number in _EVERY:
            before = signal.getsignal(number)
            if callable(before) and before is not signal.default_int_handler:
                handler = before.handler if isinstance(before, _Isolated) else before
                outside = outside or Outside()
                installed[number] = before, _Isolated(handler, outside)
                signal.signal(number, installed[number][1])
        yield
    finally:
        for number, (before, replacement) in installed.items():
            replacement.outside = None
            if signal.getsignal(number) is replacement:
                signal.signal(number, before)


def pass_on(error: BaseException) -> None:
    """Raises an exception again if a signal handler raised it, or raised one of its causes (which is raised then).

    Args:
        error: the exception that is being handled.
    """
    handlers: set[tuple[str, str, int]] | None = None
    known: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in known:
        known.add(id(cause))
        entry = cause.__traceback__
        while entry is not None:
            handlers = _handlers() if handlers is None else handlers
            if _place(entry.tb_frame.f_code) in handlers:
                raise cause
            entry = entry.tb_next
        cause = cause.__cause__ or cause.__context__


def _handlers() -> set[tuple[str, str, int]]:
    """The places (file, name, first line) of the handlers that are written in Python."""
    return {_place(code) for number in _EVERY for code in _codes(signal.getsignal(number))}


def _codes(handler: Any) -> Iterator[CodeType]:
    while isinstance(handler, functools.partial | _Isolated):
        handler = handler.handler if isinstance(handler, _Isolated) else handler.func
    if not callable(handler):
        return  # SIG_DFL, SIG_IGN, or a handler that C code has installed
    for function in (handler, type(handler).__call__):
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, CodeType):
            yield code


def _place(code: CodeType) -> tuple[str, str, int]:
    # By place, as a handler may have been compiled itself: it then runs in a code object of dynamo_lite.
    return code.co_filename, code.co_name, code.co_firstlineno
