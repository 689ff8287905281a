"""Global state of torch that a graph runs under, for all devices: autocast, and the random number generators.

Invariant: a GPU's state is read only where there may be work on one, and reading never initializes the GPU.
"""
from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

Casting = tuple[tuple[bool, torch.dtype], ...]

_DEVICES = ("cpu", "cuda")

casts = torch._C._is_any_autocast_enabled
"""Whether autocast is on for some device."""


def casting() -> Casting:
    """For each device: whether autocast is on, and the dtype that it casts to."""
    return tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES)


def set_casting(state: Casting) -> None:
    """Restores autocast's state."""
    for device, (enabled, dtype) in zip(_DEVICES, state):
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


@contextlib.contextmanager
def casting_as(state: Casting) -> Iterator[None]:
    """Context manager: autocast's state is ``state`` inside."""
    with torch.autocast("cpu", state[0][1], enabled=state[0][0]):  # empties the cache of casts at its end
        before = casting()
        set_casting(state)
        try:
            yield
        finally:
            set_casting(before)


def random_states() -> tuple[torch.Tensor, ...]:
    """The states of the generators: the CPU's, and those of all GPUs if CUDA is initialized."""
    devices = torch.cuda.default_generators if torch.cuda.is_initialized() else ()
    return tuple(generator.get_state() for generator in (torch.default_generator, *devices))


def set_random_states(states: Sequence[torch.Tensor]) -> None:
    """Restores the states of the generators."""
    for generator, state in zip((torch.default_generator, *torch.cuda.default_generators), states):
        generator.set_state(state)


def same_random_states(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    """Whether two lists of states are equal, so that nothing has been drawn in between."""
    return len(a) == len(b) and all(map(torch.equal, a, b))
