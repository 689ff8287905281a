"""Triton as a target: see ``inductor.target``. Nothing here needs Triton."""
from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from dynamo_lite.backends.inductor.codegen.triton.blocks import MAX_ROW
from dynamo_lite.backends.inductor.codegen.triton.expressions import computes, computes_on_gpu
from dynamo_lite.backends.inductor.codegen.triton.source import write_source
from dynamo_lite.backends.inductor.gpu_info import TYPICAL, GpuInfo
from dynamo_lite.backends.inductor.ir.ops import HALF
from dynamo_lite.backends.inductor.scheduler.arrangement import BLOCKS, BLOCKS_OR_LIBRARY
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.backends.inductor.target import PRODUCTS, Abilities, Products, Sources, Target, Tuning

aten = torch.ops.aten

# Their lowerings are templates of the C++ target alone.
_CONVOLUTIONS = frozenset({aten.convolution.default})
# The smallest sizes are 2: a product of a single line or column is limited by memory bandwidth, and a sum of one
# product needs no loop.
_IN_BLOCKS = Products(frozenset({torch.float32}) | HALF, 2, 2, 2, False)

# Indexed writes that combine a value with the element's earlier value by an operation other than addition.
_JOINING = frozenset({aten.scatter_reduce.two, aten.scatter.reduce, aten.scatter.value_reduce})
_ADDING = frozenset({
    aten.scatter_add.default, aten.index_add.default, aten.index_put.default, aten._unsafe_index_put.default,
    aten.embedding_dense_backward.default, aten.max_pool2d_with_indices_backward.default})
_SETTING = frozenset({aten.scatter.src, aten.scatter.value, aten.index_copy.default})
_ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)
_SCANS = frozenset({
    aten.cumsum.default, aten.cumprod.default, aten.cummax.default, aten.cummin.default, aten.logcumsumexp.default})


def _leaves(node: torch.fx.Node, info: GpuInfo) -> bool:
    """Whether a node is left to the library: indexed writes in which threads may collide, if they must be deterministic
    or if there is no atomic addition; and scans of a few long rows. One block would scan each such row, leaving most of
    the device idle, whereas the library splits rows."""
    if node.target in _SCANS:
        return _is_narrow(node.args[0].meta["val"], node.args[1], info)  # type: ignore[union-attr, arg-type]
    if node.target not in _ADDING and node.target not in _SETTING:
        return False
    if torch.are_deterministic_algorithms_enabled():
        return True
    return node.target in _ADDING and node.meta["val"].dtype not in _ATOMIC


def _is_narrow(x: torch.Tensor, dim: int, info: GpuInfo) -> bool:
    known = [n for n in x.shape if isinstance(n, int)]
    if len(known) < x.dim() or x.dim() == 0:
        return False
    return x.shape[dim] > MAX_ROW and x.numel() // x.shape[dim] * info.idle < info.programs


@functools.cache
def triton_target(gpu: bool, tuning: Tuning, info: GpuInfo = TYPICAL) -> Target:
    """Kernels in Triton: for CUDA tensors, or for CPU tensors in its interpreter.

    Args:
        tuning: which products are templates', and what is measured.
        info: the GPU for which kernels are made.
    """
    library = _CONVOLUTIONS if tuning.products in ("template", "measured") else _CONVOLUTIONS | PRODUCTS
    write = functools.partial(_write, gpu=gpu, tuning=tuning, info=info)
    arrangement = BLOCKS_OR_LIBRARY if gpu and tuning.products == "measured" else BLOCKS
    if not gpu:
        abilities = Abilities(library, computes=computes, products=_IN_BLOCKS, online_softmax=True)
        return Target("triton", arrangement, write, abilities, launches=True)
    leaves = functools.partial(_leaves, info=info)
    abilities = Abilities(library | _JOINING, leaves, computes_on_gpu, "cuda", info, _IN_BLOCKS,
                          random=tuning.random == "kernels", online_softmax=tuning.products != "library")
    return Target("cuda", arrangement, write, abilities, reports=False, launches=True)


def _write(kernels: Sequence[Kernel], gpu: bool, tuning: Tuning, info: GpuInfo) -> Sources:
    precision = "tf32" if gpu and torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
    return Sources(*write_source(kernels, gpu, tuning, info, precision))
