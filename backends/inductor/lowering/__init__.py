"""Lowerings: from aten operators to the loop IR, one module by family of operators.

``lower`` is the door; ``register_lowering`` adds an operator. Importing the package registers all families.

May import `lowering_registry`, `ir`, `program` and `aot`; knows nothing of kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir.nodes import Node
from dynamo_lite.backends.inductor.lowering import (
    activations,
    convolution,
    creation,
    derivatives,
    indexing,
    inner_products,
    joining,
    losses,
    normalization,
    pointwise,
    pooling,
    pooling_training,
    products,
    reduction,
    scans,
    scattering,
    special,
    upsampling,
    views,
    windows,
)
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.lowered_graph import LoweredGraph
from dynamo_lite.backends.inductor.lowering_registry import LOWERINGS, register_lowering

__all__ = [
    "LOWERINGS",
    "LoweredGraph",
    "activations",
    "convolution",
    "creation",
    "derivatives",
    "indexing",
    "inner_products",
    "joining",
    "losses",
    "lower",
    "normalization",
    "pointwise",
    "pooling",
    "pooling_training",
    "products",
    "reduction",
    "register_lowering",
    "scans",
    "scattering",
    "special",
    "upsampling",
    "views",
    "windows",
]


def lower(
    graph: torch.fx.Graph, constants: Mapping[str, torch.Tensor] | None = None, library: Set[Any] = frozenset(),
    computes: Callable[[Node], bool] | None = None, device: str = "cpu",
) -> LoweredGraph:
    """The aten graph (``aot.graph``) as loop nests, library calls and views.

    Args:
        library, computes: what the target leaves to the library, and can compute (``Target``).
        device: the type of the device whose tensors loops read and write.
    """
    return GraphLowering(graph, constants or {}, library, computes, device).run()
