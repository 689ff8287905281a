"""Compiles in flight, and what is restored when one is interrupted.

An exception that may come at any instruction (KeyboardInterrupt, MemoryError, what a signal handler raises) can cut off
what a compile does to tidy up, a fork leaves the compiles of other threads undone, and the interpreter's end stops
threads where they are, which torch's C++ frames do not survive. Invariant: torch's modes and the garbage collector are
after a compile as they were before; no compile begins once the process ends, and those that go on are waited for.
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

LONGEST_WAIT = 10.0  # seconds at the end of the process, for compilers that other threads wait for

_changed = threading.Condition()
_threads: dict[int, int] = {}  # compiles that go on, by thread
_ending = False


def may_begin() -> bool:
    """Whether the process is not about to end."""
    return not _ending


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """One compile."""
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
    """torch's modes are afterwards as before, whatever was cut off inside."""
    depth = _depth()
    try:
        yield
    finally:
        _put_back(depth)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Handlers of signals run at the end. Meant for imports: one that a KeyboardInterrupt cuts off leaves parts of a
    package behind, which the next import takes for whole (sympy then recurses without end)."""
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread alone
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
    torch._C._set_grad_enabled(grad)


def _end() -> None:
    """Waits for the compiles of other threads, daemons that is. What they call later runs in plain Python."""
    global _ending
    _ending = True
    with _changed:
        _changed.wait_for(lambda: not _threads.keys() - {threading.get_ident()}, LONGEST_WAIT)


def _after_fork() -> None:
    """The compiles of threads that the child does not have."""
    global _changed
    _changed = threading.Condition()
    me = threading.get_ident()
    for thread in [t for t in _threads if t != me]:
        del _threads[thread]


atexit.register(_end)
os.register_at_fork(after_in_child=_after_fork)
