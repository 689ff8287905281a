"""Lowered graphs: the result of lowering, and the input of the scheduler.

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
        builder: the builder that made the nodes of the loop nests.
        inputs, constants, outputs: inputs, constants and outputs of the program.
        buffers: all buffers that the operations use, by name.
        operations: the operations, in a correct order of execution.
        symbols: the expressions that the integer inputs stand for, by the input's name.
        metrics: number of operators that were lowered ("lowered"), and number of library calls ("library").
        faults: exception type and message of each error that kernels may report; error number ``n`` is at ``n - 1``.
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
