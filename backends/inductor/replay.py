"""Runs calls of a compiled graph by recordings: ``mode="reduce-overhead"`` on a GPU.

A call costs the time of its launches: microseconds each, hundreds of times. A recording (``device_graphs``) is one
launch. There is one for each way in which the graph is called: a stream, sizes, and the addresses of inputs that are
read where they are (``ReplayPlan.fixed``), so that weights updated in place are seen and other weights are never read.
The first such call runs without a recording, which loads kernels and libraries; the second records.

A recording has memory of its own for what it computes, and every replay overwrites it. Small results are copied. Others
are views of that memory, and while the program, or autograd, holds one of them the recording is not replayed: another
one is made, and if ``PER_CALL`` of them are in use, calls run without.

Invariant: results have eager's values for as long as anybody holds them, unless a stream other than the call's reads
them after the last reference to them is gone.
"""
from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dynamo_lite import config, log
from dynamo_lite.backends import metrics
from dynamo_lite.backends.inductor import _runtime
from dynamo_lite.backends.inductor.device_graphs import Recorder
from dynamo_lite.backends.inductor.replay_plan import ReplayPlan
from dynamo_lite.runtime.storage_extent import storage_extent

Call = Callable[..., tuple[Any, ...]]
PER_CALL = 4
"""Recordings per way of calling: a loop that holds the last result while it computes the next needs two, and so does a
backward pass, one for each of its forward pass's."""
SMALL = 1 << 20
"""Results of up to this many bytes are copied, in no more time than the copy's launch: microseconds at 3 TB/s."""
_ALIGNED = 16  # bytes; the alignment that kernels are specialized for (``codegen.triton.launch``)
_SEEN = 256  # number of ways of calling that are remembered until they occur again


def replayed(call: Call, plan: ReplayPlan, recorder: Recorder) -> Call:
    """The function of a compiled graph, with its calls recorded and replayed.

    Args:
        call: the function.
        plan: the program's plan, which has no refusal.
        recorder: the device's recorder.
    """
    replays = _Replays(call, plan, recorder)

    def run(*inputs: Any) -> tuple[Any, ...]:
        return replays.run(inputs)

    return run


def report_refusal(refusal: str) -> None:
    """Logs, once for each reason, that a graph's calls are not recorded."""
    metrics.count_fallback(f"no CUDA graph: {refusal}")
    if log.first_time("fallbacks", ("no CUDA graph", refusal)):
        log.artifact("fallbacks").info("calls of a graph are not recorded as a CUDA graph: %s", refusal)


class _Replays:
    """The recordings of one graph, and the choice of the one to replay for a call."""

    def __init__(self, call: Call, plan: ReplayPlan, recorder: Recorder) -> None:
        self._call, self._plan, self._recorder = call, plan, recorder
        self._recordings: dict[Any, list[_Recording]] = {}
        self._seen: collections.OrderedDict[Any, bytes] = collections.OrderedDict()
        self._count = 0
        self._gave_up = False
        # Only one thread at a time may fill a recording's memory and launch it; others run without instead of waiting.
        self._busy = threading.Lock()

    def run(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        values: Any = inputs[0] if self._plan.boxed else inputs
        stream = None if self._gave_up else self._recorder.stream()
        if stream is not None and self._busy.acquire(blocking=False):
            try:
                recording = self._recording(self._key(stream, values), values)
                if recording is not None:
                    results = recording.replay(values)
                    if self._plan.boxed:
                        values.clear()
                    return results
            finally:
                self._busy.release()
        return self._call(*inputs)

    def _key(self, stream: int, values: Sequence[Any]) -> Any:
        plan = self._plan
        return (stream, _runtime.data_pointers(values, plan.fixed), *[values[at] for at in plan.numbers],
                *[(values[at].shape, values[at].stride()) for at in plan.layouts])

    def _recording(self, key: Any, values: Sequence[Any]) -> _Recording | None:
        """The recording for a call, made if this is the second call of its kind; None: the call runs without."""
        known = self._recordings.get(key)
        if known is None:
            # A first call loads the kernels for these alignments, since loading one can't be recorded.
            aligned = bytes(values[at].data_ptr() % _ALIGNED for at in self._plan.copied)
            if self._seen.pop(key, None) != aligned:
                self._seen[key] = aligned
                if len(self._seen) > _SEEN:
                    self._seen.popitem(last=False)
                return None
        else:
            for recording in known:
                if recording.serves(values):
                    return recording
            if len(known) >= PER_CALL:
                report_refusal("the results of its last calls are still in use, or its inputs are results of other "
                               "graphs at changing places")
                return None
        if self._count >= config.cuda_graph_limit:
            report_refusal(f"it is called in more ways, with other sizes, weights or streams, than "
                           f"config.cuda_graph_limit, {config.cuda_graph_limit}")
            return None
        return self._record(key, values)

    def _record(self, key: Any, values: Sequence[Any]) -> _Recording | None:
        """Records a call; None if that fails, and then the graph is never recorded again."""
        try:
            with log.phase("cuda_graph"):
                made = _Recording(self._call, self._plan, self._recorder, values)
        except _NotRecorded as reason:
            self._gave_up = True
            report_refusal(str(reason))
            return None
        self._count += 1
        self._recordings.setdefault(key, []).append(made)
        log.count("cuda_graphs")
        return made


class _NotRecorded(Exception):
    """Says why a call can't be recorded, in words."""


_places: set[int] = set()
"""Addresses of large results of recordings. The same addresses occur again, so recordings that take these results as
inputs read them where they are."""


class _Recording:
    """One recorded call.

    Args:
        call, plan, recorder: those of the graph.
        values: the inputs of the call.
    """

    def __init__(self, call: Call, plan: ReplayPlan, recorder: Recorder, values: Sequence[Any]) -> None:
        self._written = plan.written
        self._near = tuple(at for at in plan.copied if values[at].nbytes > SMALL and values[at].data_ptr() in _places)
        self._near_pointers = _runtime.data_pointers(values, self._near)
        copied = [at for at in plan.copied if at not in self._near]
        inputs = list(values)
        # The inputs that are copied, and the dimensions of each along which all elements share memory.
        self._sources = [(at, _repeated(values[at])) for at in copied]
        self._targets: list[torch.Tensor] = []
        for at, repeated in self._sources:
            inputs[at] = _room_for(values[at])
            self._targets.append(_once(inputs[at], repeated))
        given = list(inputs)
        self._memory = _Memory()
        try:
            self._replay, results = recorder.record(lambda: call(given) if plan.boxed else call(*given))
            self._makers = _makers(results, inputs, (*plan.fixed, *plan.copied), self._memory)
        except RuntimeError as error:
            raise _NotRecorded(f"recording it failed: {error}") from error
        _places.update(self._memory.addresses)

    def __del__(self) -> None:
        memory = getattr(self, "_memory", None)
        if memory is not None:
            _places.difference_update(memory.addresses)

    def serves(self, values: Sequence[Any]) -> bool:
        """Whether it can compute a call with these inputs, and nobody holds results of its last replay."""
        return self._near_pointers == _runtime.data_pointers(values, self._near) and self._memory.is_unused()

    def replay(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Computes a call by replaying; returns its results."""
        if self._targets:
            with torch.no_grad():
                torch._foreach_copy_(self._targets, [_once(values[at], repeated) for at, repeated in self._sources])
        self._replay()
        if self._written:
            torch._C._increment_version(tuple([values[at] for at in self._written]))
        bases: dict[int, torch.Tensor] = {}
        return tuple([make(values, bases) for make in self._makers])


# ---------------------------------------------------------------- inputs
def _room_for(value: torch.Tensor) -> torch.Tensor:
    """Memory for a copy of an input, with the same layout and alignment."""
    extra = value.data_ptr() % _ALIGNED // value.dtype.itemsize
    extent = storage_extent(value.shape, value.stride())
    flat = torch.empty(extent + extra, dtype=value.dtype, device=value.device)
    return flat.as_strided(value.shape, value.stride(), extra)


def _repeated(value: torch.Tensor) -> tuple[int, ...]:
    """The dimensions of stride 0, along which all elements share memory. Elements that share memory in other ways are
    copied several times, to the same place."""
    return tuple(dim for dim, n in enumerate(value.shape) if n > 1 and value.stride(dim) == 0)


def _once(value: torch.Tensor, repeated: tuple[int, ...]) -> torch.Tensor:
    for dim in repeated:
        value = value.narrow(dim, 0, 1)
    return value


# ---------------------------------------------------------------- results
class _Memory:
    """The memory that a recording's results are views of.

    Attributes:
        addresses: addresses of large results in it.
    """

    def __init__(self) -> None:
        self._storages: dict[int, tuple[Any, list[torch.Tensor]]] = {}
        self.addresses: set[int] = set()

    def keep(self, result: torch.Tensor) -> torch.Tensor:
        """Registers a result; returns it as a tensor that is not a view of another for autograd."""
        kept, storage = result.data, result.untyped_storage()
        self._storages.setdefault(storage._cdata, (storage, []))[1].append(kept)
        self.addresses.add(kept.data_ptr())
        return kept

    def is_unused(self) -> bool:
        """Whether nobody else holds a tensor in this memory."""
        # One more reference than there are tensors: the storage object that is kept here.
        return all(torch._C._storage_Use_Count(cdata) <= len(tensors) + 1
                   for cdata, (_, tensors) in self._storages.items())


# Makes a result after a replay, from the call's inputs and the tensors that several results of the call are views of.
Maker = Callable[[Sequence[Any], dict[int, torch.Tensor]], Any]


def _makers(results: Sequence[Any], inputs: Sequence[Any], tensors: Sequence[int], memory: _Memory) -> list[Maker]:
    """The functions that make each result after a replay.

    Args:
        results: the results of the recorded call.
        inputs: its inputs.
        tensors: indices of the inputs that are tensors.
    """
    given = {inputs[at].untyped_storage()._cdata: at for at in tensors}
    places = [r.untyped_storage()._cdata if isinstance(r, torch.Tensor) else None for r in results]
    makers: list[Maker] = []
    shared: dict[int, torch.Tensor] = {}
    for result, place in zip(results, places):
        same = next((at for at, value in enumerate(inputs) if value is result), None)
        if place is None:
            makers.append(_constant(result))
        elif same is not None:
            makers.append(_input(same))
        elif place in given:
            makers.append(_view_of_input(result, given[place], inputs[given[place]]))
        elif result.is_conj() or result.is_neg():
            raise _NotRecorded("a result is a conjugate or negative view")
        elif places.count(place) > 1:
            base = shared.get(place)
            if base is None:
                base = _whole(result)
                base = shared[place] = base.data if base.nbytes <= SMALL else memory.keep(base)
            if base.dtype is not result.dtype:
                raise _NotRecorded("results of several types share memory")
            makers.append(_view_of_shared(result, place, base))
        elif result.nbytes <= SMALL:
            makers.append(_copy_of(result.data))
        else:
            makers.append(_look_at(memory.keep(result)))
    return makers


def _whole(result: torch.Tensor) -> torch.Tensor:
    """A flat tensor of a result's whole memory."""
    return result.as_strided((result.untyped_storage().nbytes() // result.dtype.itemsize,), (1,), 0)


def _constant(value: Any) -> Maker:
    return lambda values, bases: value


def _input(at: int) -> Maker:
    return lambda values, bases: values[at]


def _view_of_input(result: torch.Tensor, at: int, recorded: torch.Tensor) -> Maker:
    size, stride, offset = result.shape, result.stride(), result.storage_offset() - recorded.storage_offset()
    return lambda values, bases: values[at].as_strided(size, stride, values[at].storage_offset() + offset)


def _view_of_shared(result: torch.Tensor, place: int, kept: torch.Tensor) -> Maker:
    size, stride, offset = result.shape, result.stride(), result.storage_offset()

    def make(values: Sequence[Any], bases: dict[int, torch.Tensor]) -> torch.Tensor:
        base = bases.get(place)
        if base is None:
            base = bases[place] = kept.clone() if kept.nbytes <= SMALL else kept.data
        return base.as_strided(size, stride, offset)

    return make


def _copy_of(kept: torch.Tensor) -> Maker:
    size, stride, dtype, device = kept.shape, kept.stride(), kept.dtype, kept.device
    return lambda values, bases: torch.empty_strided(size, stride, dtype=dtype, device=device).copy_(kept)


def _look_at(kept: torch.Tensor) -> Maker:
    return lambda values, bases: kept.data
