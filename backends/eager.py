"""The backend that runs the captured graph as it is, in order to tell a fault of the capture from a fault of a
compiler.

Invariant: the graph's own code runs, unchanged.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dynamo_lite.backends.registry import register_backend

if TYPE_CHECKING:
    import torch.fx


@register_backend
def eager(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Runs the graph's own Python code."""
    return gm.forward
