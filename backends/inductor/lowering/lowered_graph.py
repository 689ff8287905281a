"""Lowered graphs: what lowering hands to the scheduler.

Invariant: every name that an operation reads is an input, a constant, or written by an earlier operation.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Union

import torch

from dynamo_lite.backends.inductor import program as prog
from dynamo_lite.backends.inductor.ir.loops import Buffer, LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Builder

Operation = Union[LoopNest, prog.ExternCall, prog.View, prog.CopyInto]


@dataclasses.dataclass(slots=True)
class LoweredGraph:
    """A graph as operations over named buffers.

    Attributes:
        builder: made the nodes of the loop nests.
        inputs, constants, outputs: of the program.
        buffers: every name that the operations use.
        operations: in an order that is correct as it stands.
        symbols: what the integer inputs are, by input.
        metrics: how many operators were lowered, and how many are library calls.
        faults: what kernels may report, by number - 1.
    """

    builder: Builder
    inputs: tuple[str, ...]
    constants: dict[str, torch.Tensor]
    buffers: dict[str, Buffer]
    operations: list[Operation]
    outputs: tuple[Union[str, prog.Literal], ...]
    symbols: dict[str, Any]
    metrics: dict[str, int]
    faults: list[tuple[type[Exception], str]] = dataclasses.field(default_factory=list)
