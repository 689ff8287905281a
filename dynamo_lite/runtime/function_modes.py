"""Torch function modes that the program has entered around a captured function.

The trace asks the modes itself, so neither it nor the code that it makes runs under them: an operation of a graph would
reach them a second time.

Invariant: outside of a compile and of generated code, the modes are on as the program has entered them, in its order.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import DeviceContext

from .._guards import hide_modes, show_modes


def modes_around() -> list[Any]:
    """The modes that are on in this thread, innermost last."""
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def followed_modes() -> list[Any]:
    """The modes around a function that a trace has to ask; default devices, which stay on, are none of these."""
    modes = modes_around()
    return [] if any(isinstance(mode, DeviceContext) for mode in modes) else modes


def take_off() -> list[Any]:
    """Leaves all modes, and returns them for :func:`put_on`."""
    return [torch._C._pop_torch_function_stack() for _ in range(torch._C._len_torch_function_stack())]


def put_on(modes: list[Any]) -> None:
    """Enters modes that :func:`take_off` has left."""
    for mode in reversed(modes):
        torch._C._push_on_torch_function_stack(mode)


@contextlib.contextmanager
def off() -> Iterator[None]:
    """A context in which no mode is on."""
    modes = take_off()
    try:
        yield
    finally:
        put_on(modes)


@contextlib.contextmanager
def off_in_trace() -> Iterator[None]:
    """Inside of :func:`hidden`, a context in which no mode is on, and the trace can ask modes of its own."""
    with off(), torch._C._EnableTorchFunction():
        yield


@contextlib.contextmanager
def hidden() -> Iterator[None]:
    """A context in which the modes around are on, so that guards see them, and are not called."""
    hides = bool(followed_modes()) and hide_modes()
    try:
        yield
    finally:
        show_modes(hides)


class WithoutModes:
    """A compiled graph that is called with no mode on.

    Args:
        run: the graph.
    """

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def __call__(self, *args: Any) -> Any:
        with off():
            return self._run(*args)
