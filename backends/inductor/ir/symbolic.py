"""Conversion of fake tensors' sizes to indices.

Invariant: an int stays an int, and of torch's symbolic numbers only those of ``symbols.nodes`` are accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir.index import Index
from dynamo_lite.symbols.nodes import IntNode


def index_of(x: Any) -> Index:
    """The index for an int or a ``torch.SymInt``.

    Raises:
        NotImplementedError: the number is known only when the graph runs.
    """
    if type(x) is int:
        return x
    node = getattr(x, "node", None)
    if node is None:
        return int(x)
    if not isinstance(node, IntNode):
        raise NotImplementedError("a size that only the running graph knows")
    return node.expr


def environment_of(values: Iterable[Any]) -> Any:
    """The trace's environment, which holds what is known of its symbols. It is found through the first symbolic number
    among fake tensors' sizes and strides and plain numbers; None if there is none."""
    for value in values:
        strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
        for n in (*value.shape, *value.stride()) if strided else (value,):
            if isinstance(n, torch.SymInt) and isinstance(n.node, IntNode):
                return n.node.env
    return None
