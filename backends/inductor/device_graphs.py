"""CUDA graphs: the kernels and library calls of one run, recorded on a device and launched again by one call.

``Recorder`` is what ``replay`` asks of a device; tests have one for the CPU. Memory that is allocated while a run is
recorded comes from a pool of the recording's own and stays its own.

Invariant: after a recording, and after one that has failed, the caller's stream, the allocator and the generator of
random numbers are as before.
"""
from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

Results = tuple[Any, ...]


class Recorder(Protocol):
    """A device that records."""

    def stream(self) -> int | None:
        """What orders the work of the calling thread; None while the caller itself records a graph."""

    def record(self, run: Callable[[], Results]) -> tuple[Callable[[], None], Results]:
        """Calls ``run`` once, without computing anything.

        Returns:
            a function that computes it in the caller's stream, again and again, and what ``run`` has returned: tensors
            whose memory each of these replays writes.

        Raises:
            whatever ``run`` raises; RuntimeError: the device can't record it.
        """


class CudaRecorder:
    """A GPU.

    Args:
        device: its index.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._side: Any = None

    def stream(self) -> int | None:
        if torch._C._cuda_isCurrentStreamCapturing():
            return None
        return int(torch._C._cuda_getCurrentRawStream(self._device))

    def record(self, run: Callable[[], Results]) -> tuple[Callable[[], None], Results]:
        with torch.cuda.device(self._device), _without_collections():
            if self._side is None:
                self._side = torch.cuda.Stream()
            caller = torch.cuda.current_stream()
            self._side.wait_stream(caller)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.stream(self._side):
                # What other threads do meanwhile (copies of a data loader's) is no part of it, and may go on.
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    results = run()
                except BaseException:
                    self._give_up(graph)
                    raise
                try:
                    graph.capture_end()
                except RuntimeError:
                    self._give_up(graph)
                    raise
            caller.wait_stream(self._side)
        return graph.replay, results

    def _give_up(self, graph: Any) -> None:
        """Ends a recording that something has made invalid: torch ends it half way then, so that the allocator goes on
        to see it under way, and the generator refuses to draw."""
        with contextlib.suppress(RuntimeError):  # says again what made it invalid
            graph.capture_end()
        with contextlib.suppress(RuntimeError):  # has ended
            torch._C._cuda_endAllocateToPool(self._device, graph.pool())
        generator = torch.cuda.default_generators[self._device]
        generator.graphsafe_set_state(generator.clone_state())


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Without the garbage collector, which may free what is no part of a recording while it is under way."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
