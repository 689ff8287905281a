"""Sizes of fake tensors as indices.

Invariant: integers stay integers, and of torch's symbolic numbers only those of ``symbols.nodes`` are sizes.
"""

from __future__ import annotations

from typing import Any

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
