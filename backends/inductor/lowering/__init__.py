"""Lowerings: translate aten operators into the loop IR, one module for each family of operators.

``lower`` is the entry point; ``register_lowering`` adds an operator. Importing the package registers all families.

May import `lowering_registry`, `target_info`, `gpu_info`, `ir`, `device_random`, `program` and `aot`; knows nothing of
kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dynamo_lite.backends.inductor.lowering import (
    activations,
    convolution,
    creation,
    derivatives,
    group_norm,
    indexing,
    inner_products,
    joining,
    losses,
    normalization,
    padding,
    patches,
    pointwise,
    pooling,
    pooling_training,
    products,
    random,
    reduction,
    reinterpretation,
    scans,
    scattering,
    special,
    upsampling,
    views,
    windows,
)
from dynamo_lite.backends.inductor.lowering.abilities import ALL, Abilities
from dynamo_lite.backends.inductor.lowering.graph import GraphLowering
from dynamo_lite.backends.inductor.lowering.lowered_graph import LoweredGraph
from dynamo_lite.backends.inductor.lowering_registry import LOWERINGS, register_lowering

__all__ = [
    "Abilities",
    "LOWERINGS",
    "LoweredGraph",
    "activations",
    "convolution",
    "creation",
    "derivatives",
    "group_norm",
    "indexing",
    "inner_products",
    "joining",
    "losses",
    "lower",
    "normalization",
    "padding",
    "patches",
    "pointwise",
    "pooling",
    "pooling_training",
    "products",
    "random",
    "reduction",
    "reinterpretation",
    "register_lowering",
    "scans",
    "scattering",
    "special",
    "upsampling",
    "views",
    "windows",
]


def lower(
    graph: torch.fx.Graph, constants: Mapping[str, torch.Tensor] | None = None, abilities: Abilities = ALL
) -> LoweredGraph:
    """Translates an aten graph (``aot.graph``) into loop nests, library calls and views.

    Args:
        graph: the aten graph.
        constants: the tensors that the graph's ``get_attr`` nodes name.
        abilities: what the target's kernels can compute.
    """
    return GraphLowering(graph, constants or {}, abilities).run()
