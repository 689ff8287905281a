"""What lowering asks of a target: which operators its kernels compute, on which device, and how it wants reductions.

Invariant: whatever is left out is computed by library calls, with the same results.
"""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Set
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir.nodes import Node


@dataclasses.dataclass(frozen=True, slots=True)
class Abilities:
    """Attributes:
        library: operators that have a lowering, which needs what the target has not: templates of products.
        leaves: whether a call is the library's, for what only its operands or torch's state say.
        computes: whether kernels can compute a node of the loop IR; None: they compute all.
        device: the type of the device whose tensors kernels read and write; what others hold is the library's.
        programs: a reduction that fewer blocks than this would compute is made in parts; 0: none is.
    """

    library: Set[Any] = frozenset()
    leaves: Callable[[torch.fx.Node], bool] | None = None
    computes: Callable[[Node], bool] | None = None
    device: str = "cpu"
    programs: int = 0


ALL = Abilities()
"""All operators, on the CPU."""
