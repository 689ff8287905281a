"""Stand-ins for torch's control flow functions, such as ``torch.cond``.

When a program calls these in eager, torch passes them to torch.compile; the functions here compute the same.
Invariant: each calls the program's functions with the same arguments as torch does, in the same order.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder, mark_compile_region
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan as torch_scan
from torch._higher_order_ops.while_loop import while_loop as torch_while_loop
from torch.utils import _pytree as pytree

from ..rules.table import Rule, row, stands_in_for
from .tracing import nested_code


def both_branches(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any) -> Any:
    """Both branches as graphs, of which a node runs one; there is no equivalent in plain Python."""
    return NotImplemented


@stands_in_for(torch.cond)
def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Any = ()) -> Any:
    """``torch.cond``: one branch, or a node with both branches."""
    if isinstance(pred, torch.Tensor):
        if pred.numel() != 1:
            raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
        made = both_branches(pred, true_fn, false_fn, operands)
        if made is not NotImplemented:
            return made
    elif not isinstance(pred, (bool, int, float)):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    if pred:
        return true_fn(*operands)
    return false_fn(*operands)


@stands_in_for(torch_while_loop)
def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Any) -> Any:
    """``torch._higher_order_ops.while_loop`` as a Python loop."""
    carried = carried_inputs
    turns = 0
    while cond_fn(*carried):
        carried = body_fn(*carried)
        turns += 1
    if not turns:
        return pytree.tree_map(lambda t: t.clone() if isinstance(t, torch.Tensor) else t, tuple(carried))
    return carried


@stands_in_for(torch_map)
def map_(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """``torch._higher_order_ops.map`` as a Python loop."""
    leaves, spec = pytree.tree_flatten(xs)
    made = [f(pytree.tree_unflatten(list(part), spec), *args) for part in zip(*leaves)]
    flat = [pytree.tree_leaves(one) for one in made]
    stacked = [torch.stack(list(column)) for column in zip(*flat)]
    return pytree.tree_unflatten(stacked, pytree.tree_structure(made[0]))


@stands_in_for(torch_scan)
def scan(
    combine_fn: Callable[..., Any], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> Any:
    """``torch._higher_order_ops.scan`` as a Python loop."""
    leaves, spec = pytree.tree_flatten(xs)
    moved = [torch.movedim(leaf, dim, 0) for leaf in leaves]
    carry, made = init, []
    steps = range(moved[0].shape[0])
    for i in reversed(steps) if reverse else steps:
        carry, one = combine_fn(carry, pytree.tree_unflatten([leaf[i] for leaf in moved], spec))
        made.append(one)
    if reverse:
        made.reverse()
    flat = [pytree.tree_leaves(one) for one in made]
    stacked = [torch.stack(list(column)) for column in zip(*flat)]
    return carry, pytree.tree_unflatten(stacked, pytree.tree_structure(made[0]))


@stands_in_for(invoke_subgraph_placeholder)
def nested_region(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The call of a function under ``torch.compiler.nested_compile_region``: equal kernels are compiled once anyway."""
    return func(*args, **kwargs)


# torch makes a new function for each region.
row(Rule.INLINE, nested_code(nested_code(mark_compile_region.__code__, "wrap"), "inner"),
    reason="it calls the function of the region")
