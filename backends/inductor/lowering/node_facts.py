"""Properties of aten nodes: their results' device, whether loops can handle the results, whether they are outputs."""
from __future__ import annotations

import torch
import torch.utils._pytree as pytree

from dynamo_lite.backends.inductor.ir.ops import ANY

REINTERPRETS = frozenset({torch.ops.aten.view_as_real.default, torch.ops.aten.view_as_complex.default})
"""Operators that read memory as numbers of another dtype; they are lowered for complex tensors, too."""


def is_supported(value: torch.Tensor, device: str, complex_too: bool = False) -> bool:
    """Whether generated loops can handle a tensor: its device, layout and dtype."""
    fits = value.dtype in ANY or complex_too and value.dtype in (torch.complex64, torch.complex128)
    return value.device.type == device and value.layout is torch.strided and fits and not value.is_quantized


def device_of(node: torch.fx.Node) -> torch.device:
    """The device of the node's first result that is a tensor; the CPU if there is none."""
    for value in pytree.tree_leaves(node.meta.get("val")):
        if isinstance(value, torch.Tensor):
            return value.device
    return torch.device("cpu")


def leaves_graph(node: torch.fx.Node) -> bool:
    """Whether the first operand of an operation, or its result, is an output of the graph."""
    operands = [a for a in node.args[:1] if isinstance(a, torch.fx.Node)]
    return any(user.op == "output" for n in (node, *operands) for user in n.users)
