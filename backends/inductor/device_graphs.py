"""CUDA graphs: records the kernels and library calls of one run on a device, and launches all of them again by one
call.

``Recorder`` is the interface by which ``replay`` uses a device; tests have an implementation for the CPU. Memory that
is allocated while a run is recorded comes from a pool that belongs to the recording, and stays allocated.

Invariant: after a recording, including one that has failed, the caller's stream, the allocator and the random number
generator are in the state that they had before.
"""
from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

Results = tuple[Any, ...]


class Recorder(Protocol):
    """A device that can record runs."""

    def stream(self) -> int | None:
        """An identity of the stream that the calling thread uses; None while the caller itself records a graph."""

    def record(self, run: Callable[[], Results]) -> tuple[Callable[[], None], Results]:
        """Records one call of ``run``, which computes nothing meanwhile.

        Returns:
            a function that replays the run in the caller's stream, any number of times; and the result of ``run``, with
            tensors whose memory each replay writes.

        Raises:
            whatever ``run`` raises; RuntimeError: the device can't record it.
        """


class CudaRecorder:
    """A GPU that records CUDA graphs.

    Args:
        device: index of the GPU.
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
                # Thread-local: work of other threads (a data loader's copies) is neither recorded nor an error.
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
        """Ends a recording that has become invalid. torch then ends it only in part: the allocator would go on as if it
        were under way, and the generator would refuse to draw."""
        with contextlib.suppress(RuntimeError):  # the error that made it invalid, once more
            graph.capture_end()
        with contextlib.suppress(RuntimeError):  # it has ended already
            torch._C._cuda_endAllocateToPool(self._device, graph.pool())
        generator = torch.cuda.default_generators[self._device]
        generator.graphsafe_set_state(generator.clone_state())


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Turns off the garbage collector, which might free unrelated memory in the middle of a recording."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
