"""Sizes of fake tensors as indices.

Invariant: integers stay integers, and of torch's symbolic numbers only those of ``symbols.nodes`` are sizes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from dynamo_lite.backends.inductor.ir.index import Index
from dynamo_lite.symbols.nodes import IntNode


def index_of(x: Any) -> Index:
    """The index that an int or a ``torch.SymInt`` is.

    Raises:
        NotImplementedError: it is a number that only the running graph knows.
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
    """What the trace knows of the symbols among fake tensors and numbers; None where there are none."""
    for value in values:
        strided = isinstance(value, torch.Tensor) and value.layout is torch.strided
        for n in (*value.shape, *value.stride()) if strided else (value,):
            if isinstance(n, torch.SymInt) and isinstance(n.node, IntNode):
                return n.node.env
    return None
