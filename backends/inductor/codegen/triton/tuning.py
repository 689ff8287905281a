"""The choice among several forms of a kernel: measured at the first call, and stored by kernel and device.

A form is a function that launches the kernel, see ``ALTERNATIVES`` in ``source``. Each is measured on the call's own
tensors, except that writes go to copies. The result is stored in the cache folder under a digest of the forms' text,
the device's name, the versions of torch and Triton, and the call's sizes, of which symbolic ones are rounded up to
powers of two. Other processes need not measure again.

Invariant: whichever form runs, and while all are measured, a call writes what the default form writes, once. If forms
can't be measured, as while a CUDA graph is being recorded, the default form runs, and no choice is made.
"""
from __future__ import annotations

import dataclasses
import functools
import importlib
import statistics
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from dynamo_lite import log
from dynamo_lite.backends.inductor import kept_choices

FORM = "_form"
"""Part of the names of a kernel's competing forms, except for the first form."""
_SUFFIX = ".form"
Launch = Callable[..., None]


class Clock(Protocol):
    """A clock that measures kernels."""

    def name(self) -> str:
        """Identifies the device and everything that decides its speed, so that results are valid for this name."""

    def ready(self) -> bool:
        """Whether the clock can measure now."""

    def measure(self, run: Callable[[], None]) -> float:
        """The duration of a run on the device, in seconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class CudaClock:
    """Measures with CUDA events around each run. Before it, the L2 cache is flushed, as other kernels would do.

    Attributes:
        device: the index of the device.
        seconds: approximate duration of the measurement of each form.
    """

    device: int
    seconds: float = 0.02

    def name(self) -> str:
        properties = torch.cuda.get_device_properties(self.device)
        capability = f"{properties.major}.{properties.minor}"
        return f"{properties.name} {capability} {properties.multi_processor_count} {torch.version.cuda}"

    def ready(self) -> bool:
        return not torch.cuda.is_current_stream_capturing()

    def measure(self, run: Callable[[], None]) -> float:
        properties = torch.cuda.get_device_properties(self.device)
        flush = torch.empty(2 * properties.L2_cache_size, dtype=torch.int8, device=f"cuda:{self.device}")
        run()  # the first run loads the kernel
        once = self._once(run, flush)
        repeats = min(max(int(self.seconds / max(once, 1e-6)), 3), 100)
        return statistics.median(self._once(run, flush) for _ in range(repeats))

    @staticmethod
    def _once(run: Callable[[], None], flush: torch.Tensor) -> float:
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        flush.zero_()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


@dataclasses.dataclass(slots=True)
class Chooser:
    """Chooses among the forms of one kernel.

    Attributes:
        digest: a digest of the forms' text.
        names, forms: the names of the launching functions, and the functions; the default form comes first.
        written: indices of the arguments that the kernel writes, counted after the stream.
        sizes: number of arguments at the end that are sizes.
        clock: measures the forms.
    """

    digest: str
    names: Sequence[str]
    forms: Sequence[Launch]
    written: frozenset[int]
    sizes: int
    clock: Clock
    chosen: dict[tuple[int, ...], Launch] = dataclasses.field(default_factory=dict)

    def launcher(self) -> Launch:
        """The function that launches the kernel: directly in the chosen form, if that is known already."""
        if not self.sizes:
            kept = self._kept(self._key(()))
            if kept is not None:
                return kept
        return functools.partial(_launch, self)

    def choose(self, shape: tuple[int, ...], stream: int, args: tuple[Any, ...]) -> Launch:
        """The form to use for a call's sizes."""
        key = self._key(shape)
        found = self._kept(key)
        if found is None:
            if not self.clock.ready():
                return self.forms[0]
            found = self._measured(key, stream, args)
        self.chosen[shape] = found
        return found

    def _measured(self, key: str, stream: int, args: tuple[Any, ...]) -> Launch:
        times: dict[str, float] = {}
        failed: dict[str, str] = {}
        for name, form in zip(self.names, self.forms):
            try:
                given = [_copy(a) if at in self.written else a for at, a in enumerate(args)]
                times[name] = self.clock.measure(functools.partial(form, stream, *given))
            except Exception as error:  # raised by Triton, e.g. if out of shared memory or registers
                failed[name] = f"{type(error).__name__}: {error}"
        best = min(times, key=lambda name: times[name], default=self.names[0])
        told = [f"{name} {1e6 * t:.1f} us" for name, t in sorted(times.items(), key=lambda pair: pair[1])]
        told += [f"{name}: {why}" for name, why in failed.items()]
        log.artifact("tuning").info("%s: %s", best, "; ".join(told))
        if times:
            kept_choices.write(key, _SUFFIX, {"form": self.names.index(best)})
        return self.forms[self.names.index(best)]

    def _key(self, shape: tuple[int, ...]) -> str:
        return kept_choices.key_of(self.digest, repr(shape), self.clock.name(), torch.__version__, _triton_version())

    def _kept(self, key: str) -> Launch | None:
        kept = kept_choices.read(key, _SUFFIX)
        if kept is None:
            return None
        try:
            return self.forms[kept["form"]]
        except (TypeError, KeyError, IndexError) as error:
            log.artifact("cache").info("a kept choice of a kernel's form is of another kind: %s", error)
            return None


def _launch(chooser: Chooser, stream: int, *args: Any) -> None:
    shape = tuple((n - 1).bit_length() for n in args[len(args) - chooser.sizes:]) if chooser.sizes else ()
    found = chooser.chosen.get(shape) or chooser.choose(shape, stream, args)
    found(stream, *args)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor with the same layout, which may be overwritten."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


@functools.cache
def _triton_version() -> str:
    return str(importlib.import_module("triton").__version__)
