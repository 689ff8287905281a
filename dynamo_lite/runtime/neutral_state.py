"""The state in which the compiler runs operations of its own: probes, whose answers are cached for the whole process,
and the passes of a backend, which compute constants with torch.

The program that is being compiled may have autocast on, be in inference mode, have a default device, or have torch's
Python dispatcher or hooks on saved tensors at work. None of these is to decide what a probe finds, or on which device
a constant lies.

Invariant: inside, torch computes as it does in a new thread, but for the default dtype and other settings of the whole
process; what runs there names the dtypes of the tensors that it makes. Afterwards the thread's state is as before.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator
from typing import ParamSpec, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

from dynamo_lite.runtime.saved_tensor_hooks import saved_tensor_hooks_suspended

_Arguments = ParamSpec("_Arguments")
_Answer = TypeVar("_Answer", bound=Hashable | None)


@contextlib.contextmanager
def neutral_state() -> Iterator[None]:
    """A context without modes (default devices among them), autocast, inference mode, functorch's transforms and hooks
    on saved tensors."""
    with (saved_tensor_hooks_suspended(), _disable_current_modes(), torch._C.DisableTorchFunction(),
          torch._C._DisableFuncTorch(), torch._C._DisablePythonDispatcher(), torch._C._DisableAutocast(),
          torch.inference_mode(False)):
        yield


def probe(function: Callable[_Arguments, _Answer]) -> Callable[_Arguments, _Answer]:
    """Decorates a function that finds a fact of this process by running operations: the answer is cached for each
    choice of its arguments, and found in the neutral state."""

    @functools.cache
    def found(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Answer:
        with neutral_state():
            return function(*args, **kwargs)

    return functools.update_wrapper(found, function)  # type: ignore[return-value]
