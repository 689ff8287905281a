"""Triton as a target: see ``inductor.target``. Nothing here needs Triton."""
from __future__ import annotations

from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.codegen.triton.expressions import computes
from dynamo_lite.backends.inductor.codegen.triton.source import write_source
from dynamo_lite.backends.inductor.scheduler.arrangement import BLOCKS
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target import Sources, Target

aten = torch.ops.aten

# Their lowerings are templates of the C++ target; here the library computes them.
_PRODUCTS = frozenset({
    aten.linear.default, aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default,
    aten.convolution.default})


def _write_for_gpu(kernels: Sequence[Kernel]) -> Sources:
    return Sources(*write_source(kernels, gpu=True))


def _write(kernels: Sequence[Kernel]) -> Sources:
    return Sources(*write_source(kernels))


TRITON = Target("triton", BLOCKS, _write, _PRODUCTS, computes, launches=True)
"""Kernels in Triton for CPU tensors."""
CUDA = Target("cuda", BLOCKS, _write_for_gpu, _PRODUCTS, computes, device="cuda", reports=False, launches=True)
"""Kernels in Triton for CUDA tensors."""
