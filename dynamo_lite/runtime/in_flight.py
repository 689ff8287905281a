"""The compiles in flight, and the state that is restored when one is interrupted.

An exception that may occur at any instruction (KeyboardInterrupt, MemoryError, an exception of a signal handler) can
cut off a compile's own clean-up; a child process has none of the threads that compile, but finds locked what they have
locked, such as the modules that they import; and at exit the interpreter stops threads where they are, which torch's
C++ frames do not survive. Invariants: after a compile, torch's modes and the garbage collector are as they were before;
a fork waits for the compiles and imports of other threads; no compile begins once the process ends, and those in
progress are waited for.
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

from .. import log
from . import signal_handlers

LONGEST_WAIT = 10.0  # seconds to wait for compiles of other threads, at exit and before a fork

_changed = threading.Condition()
_threads: dict[int, int] = {}  # number of compiles in progress, by thread identifier
_forking: set[int] = set()  # threads that wait to fork; other threads begin no compile meanwhile
_given_up: set[int] = set()  # threads with compiles for which a fork has waited in vain
_ending = False


def may_begin() -> bool:
    """Whether a compile may begin; not once the process is ending."""
    return not _ending


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """The context of one compile."""
    with _waited_for(), modes_kept(), signal_handlers.isolated():
        yield


@contextlib.contextmanager
def _waited_for() -> Iterator[None]:
    me = threading.get_ident()
    with _changed:
        if me not in _threads:
            _changed.wait_for(lambda: _forking <= {me}, LONGEST_WAIT)
        _threads[me] = _threads.get(me, 0) + 1
    try:
        yield
    finally:
        with _changed:
            _threads[me] -= 1
            if not _threads[me]:
                del _threads[me]
                _given_up.discard(me)
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
    with _waited_for():
        if threading.current_thread() is not threading.main_thread():  # handlers only run in the main thread
            yield
        else:
            with _handlers_deferred():
                yield


@contextlib.contextmanager
def _handlers_deferred() -> Iterator[None]:
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


def _before_fork() -> None:
    """Waits for the compiles of other threads, and keeps them from beginning others until the fork is done."""
    _changed.acquire()
    _forking.add(threading.get_ident())
    if not _changed.wait_for(lambda: _threads.keys() <= _forking | _given_up, LONGEST_WAIT):
        _given_up.update(_threads.keys() - _forking)
        log.artifact("fallbacks").warning(
            "the process forks while another thread compiles, which has not ended in %g s: the child may wait for ever "
            "for what that thread has locked", LONGEST_WAIT)


def _after_fork_in_parent() -> None:
    _forking.discard(threading.get_ident())
    _changed.notify_all()
    _changed.release()


def _after_fork() -> None:
    """Forgets the compiles of threads that do not exist in the child process."""
    global _changed
    _changed = threading.Condition()
    _forking.clear()
    _given_up.clear()
    me = threading.get_ident()
    for thread in [t for t in _threads if t != me]:
        del _threads[thread]


atexit.register(_end)
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork)
