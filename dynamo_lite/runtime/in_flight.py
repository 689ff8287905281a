"""The compiles in flight, and the state that is restored when one is interrupted.

An exception that may occur at any instruction (KeyboardInterrupt, MemoryError, an exception of a signal handler) can
cut off a compile's own clean-up; a fork leaves the compiles of other threads unfinished; and at exit the interpreter
stops threads where they are, which torch's C++ frames do not survive. Invariants: after a compile, torch's modes and
the garbage collector are as they were before; no compile begins once the process ends, and those in progress are waited
for.
"""
from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import torch

from . import signal_handlers

LONGEST_WAIT = 10.0  # seconds to wait at exit for compiles of other threads

_changed = threading.Condition()
_threads: dict[int, int] = {}  # number of compiles in progress, by thread identifier
_ending = False


def may_begin() -> bool:
    """Whether a compile may begin; not once the process is ending."""
    return not _ending


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """The context of one compile."""
    me = threading.get_ident()
    with _changed:
        _threads[me] = _threads.get(me, 0) + 1
    try:
        with modes_kept(), signal_handlers.isolated():
            yield
    finally:
        with _changed:
            _threads[me] -= 1
            if not _threads[me]:
                del _threads[me]
                _changed.notify_all()


@contextlib.contextmanager
def modes_kept() -> Iterator[None]:
    """A context after which torch's modes are as before, even if clean-up inside was cut off."""
    depth = _depth()
    try:
        yield
    finally:
        _put_back(depth)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """A context that defers signal handlers to its end. It is meant for imports: one that a KeyboardInterrupt cuts off
    leaves a partly initialized package, which the next import takes for complete (sympy then recurses without end)."""
    if threading.current_thread() is not threading.main_thread():  # handlers only run in the main thread
        yield
        return
    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    arrived: list[tuple[int, Any]] = []
    deferred: dict[int, Any] = {}
    try:
        for number, handler in handlers.items():
            if callable(handler):
                deferred[number] = handler
                signal.signal(number, lambda number, frame: arrived.append((number, frame)))
        yield
    finally:
        for number, handler in deferred.items():
            signal.signal(number, handler)
        for number, frame in arrived:
            deferred[number](number, frame)


def _depth() -> tuple[int, int, bool]:
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), torch.is_grad_enabled()


def _put_back(depth: tuple[int, int, bool]) -> None:
    dispatch, function, grad = depth
    while torch._C._len_torch_dispatch_stack() > dispatch:
        torch._C._pop_torch_dispatch_stack(None)
    while torch._C._len_torch_function_stack() > function:
        torch._C._pop_torch_function_stack()
    if torch.is_grad_enabled() != grad:
        with torch._C.DisableTorchFunction():  # a mode of the program's is not to see it
            torch._C._set_grad_enabled(grad)


def _end() -> None:
    """Waits at exit for the compiles of other threads (daemon threads). Their later calls run in plain Python."""
    global _ending
    _ending = True
    with _changed:
        _changed.wait_for(lambda: not _threads.keys() - {threading.get_ident()}, LONGEST_WAIT)


def _after_fork() -> None:
    """Forgets the compiles of threads that do not exist in the child process."""
    global _changed
    _changed = threading.Condition()
    me = threading.get_ident()
    for thread in [t for t in _threads if t != me]:
        del _threads[thread]


atexit.register(_end)
os.register_at_fork(after_in_child=_after_fork)
