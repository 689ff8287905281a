"""Decides whether the library or our loops compute a convolution under ``mode="max-autotune"``, by measured times that
are kept. In other modes our loops compute every convolution that they can.

The library's implementation is eager's (mostly oneDNN's), the one that torch chooses for the current number of threads;
it is measured on one thread. An epilogue is fused with our loops, but is another pass over memory after the library's.

Invariant: a decision changes no more than the last bits of a result.
"""
from __future__ import annotations

import ctypes
import dataclasses
import functools
import math

import torch

from dynamo_lite import log
from dynamo_lite.backends.inductor.codegen.cpp.contraction import library_of
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_source
from dynamo_lite.backends.inductor.codegen.cpp.library_times import (
    LARGEST,
    Times,
    entry_alone,
    is_faster,
    kept_or_measured,
    numbers_of,
    one_thread,
    shared,
    timed,
)
from dynamo_lite.backends.inductor.ir.contraction import Contraction, number, volume
from dynamo_lite.backends.inductor.scheduler.threads import share_work
from dynamo_lite.backends.inductor.target import Convolution
from dynamo_lite.backends.inductor.target_info import TargetInfo
from dynamo_lite.runtime.neutral_state import neutral_state

_SUFFIX = ".convolution"


@dataclasses.dataclass(frozen=True, slots=True)
class ConvolutionTimes:
    """Decides for the convolutions of one target.

    Attributes:
        info: description of the processor.
        threads: number of threads that compute a convolution.
    """

    info: TargetInfo
    threads: int

    def is_for_library(self, convolution: Convolution, contraction: Contraction, follows: bool) -> bool:
        """Whether the library computes a convolution faster than our loops.

        Args:
            convolution: its sizes.
            contraction: the same convolution as our loops compute it.
            follows: whether there are operations on the result that would be fused with our loops.
        """
        results = math.prod(number(volume(v)) for v in (contraction.batch, contraction.rows, contraction.columns))
        if not self.info.outweighs_a_call(results * number(contraction.depth)):
            return False
        times = _times(convolution, _alone(contraction), self.info, self.threads)
        if times is None:
            return False
        chosen = is_faster(self.info, self.threads, times, results, follows)
        ours, library = shared(self.info, self.threads, times, results, follows)
        log.artifact("tuning").info(
            "convolution of %s with %s: %s; ours %.0f us, the library's %.0f us", list(convolution.input),
            list(convolution.weight), "the library" if chosen else "ours", ours / 1e3, library / 1e3)
        return chosen


def _alone(contraction: Contraction) -> Contraction:
    """The same contraction with operands in buffers of its own, so that equal ones compare equal whatever buffers they
    read."""
    left = dataclasses.replace(contraction.left, buffer="left", offset=0)
    right = dataclasses.replace(contraction.right, buffer="right", offset=0)
    return dataclasses.replace(contraction, left=left, right=right)


@functools.lru_cache(maxsize=4096)
def _times(convolution: Convolution, contraction: Contraction, info: TargetInfo, threads: int) -> Times | None:
    """The kept times of a convolution, or else those measured now; None if it can't be measured."""
    source = library_source(library_of(contraction), info.simd)
    sharing = share_work(contraction, 1, info)
    # Which implementation the library chooses depends on whether there are several threads.
    around = (info.processor.key(), info.simd, source, repr(convolution), repr(contraction), repr(sharing),
              str(threads > 1))
    return kept_or_measured(_SUFFIX, around, lambda: _measured(convolution, contraction, info))


def _measured(convolution: Convolution, contraction: Contraction, info: TargetInfo) -> Times | None:
    """Measures a convolution; None, and a log entry except for operands that are too large, if that is not possible."""
    results = math.prod(number(volume(v)) for v in (contraction.batch, contraction.rows, contraction.columns))
    if max(math.prod(convolution.input), math.prod(convolution.weight), results) > LARGEST:
        return None
    entry = entry_alone(library_of(contraction), info)
    if entry is None:
        return None
    sharing = share_work(contraction, 1, info)
    with neutral_state(), torch.inference_mode():
        make = functools.partial(torch.empty, dtype=torch.float32)
        weight, image = (make(n).fill_(0.5) for n in (convolution.weight, convolution.input))
        room, result = make(number(sharing.elements)), make(results)
        numbers = numbers_of(contraction, sharing, info)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (weight, image, result, room)]
        stride, padding, dilation = map(list, (convolution.stride, convolution.padding, convolution.dilation))
        nothing, groups = [0] * len(stride), convolution.groups
        way = torch._C._select_conv_backend(image, weight, None, stride, padding, dilation, False, nothing, groups)
        if way == torch._C._ConvBackend.Mkldnn and len(stride) == 2:  # type: ignore[attr-defined]
            # This implementation is called by its name, as torch might choose another one for one thread.
            library = functools.partial(torch.ops.aten.mkldnn_convolution.default, image, weight, None, padding, stride,
                                        dilation, groups)
        else:
            library = functools.partial(torch.convolution, image, weight, None, stride, padding, dilation, False,
                                        nothing, groups)
        with one_thread() as alone:
            if not alone:
                log.artifact("tuning").info("convolutions are ours: one thread of the library can't be measured")
                return None
            return timed(lambda: entry(numbers, *pointers), library)
