"""Sizes of tensors that only the running graph knows, and what the program says of them.

Under ``config.capture_dynamic_output_shape_ops``, ``nonzero``, masks as indices and their relatives are nodes of the
graph whose results have a symbol for a size (``fake.running_sizes``). Behind such a node stands one that reads the size
and checks its limits. What is said of numbers out of tensors and of comparisons stands in ``numbers.running_sizes``.

Invariant: a check stands before all that relies on it; where one fails, the frame runs again in plain Python.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from ...exc import Unsupported
from ...fake.running_sizes import LEAST
from ...runtime.running_sizes import size_within
from ...symbols import integers as ints
from ...symbols.environment import Undecidable
from ...symbols.nodes import IntNode, symbolic_int
from ..numbers.running_sizes import as_sizes, ensure_least

if TYPE_CHECKING:
    from ..protocols import Tracer


def define_sizes(tx: Tracer, defined: list[ints.Expr], result: Any) -> None:
    """Puts the nodes in the graph that read the sizes which an operation has defined.

    Args:
        defined: the sizes' symbols.
        result: what the operation gives, fake tensors that the graph has nodes for.

    Raises:
        Unsupported: no tensor has such a size.
    """
    output = tx.output
    tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
    for expr in defined:
        (symbol,) = ints.symbols_of(expr)
        place = next(((t, dim) for t in tensors for dim, n in enumerate(t.shape) if _is_symbol(n, symbol)), None)
        tracker = output.tensor_of(place[0]) if place is not None else None
        if place is None or tracker is None:
            raise Unsupported("dynamic_output_shape", "a size that elements decide, which no result has")
        limits = output.symbols.env.limits(symbol)
        node = output.create_node(
            tx, "call_function", size_within, (tracker.node, place[1], *limits), {},
            symbolic_int(output.symbols.env, expr), False, counted=False)
        node.meta["raises"] = True
        output.symbols.define(tx, expr, node)
        output.assume(tx.root_visit())
    if output.symbols.any_running:
        _check_sizes(tx, result)


def _check_sizes(tx: Tracer, result: Any) -> None:
    """Takes for granted that sizes of a result which only the running graph knows are no special case."""
    env = tx.output.symbols.env
    for tensor in pytree.tree_leaves(result):
        for size in tensor.shape if isinstance(tensor, torch.Tensor) and tensor._has_symbolic_sizes_strides else ():
            if isinstance(size, torch.SymInt) and env.is_running(size.node.expr):
                ensure_least(tx, size.node.expr, LEAST)


def _is_about_numbers(tx: Tracer, error: Unsupported) -> bool:
    """Whether an operation has failed since it wants to know a number that only the running graph knows."""
    if isinstance(error, Undecidable):
        return True
    return type(error) is Unsupported and error.kind == "data_dependent_guard" and tx.output.scalars.asked


def with_sizes(tx: Tracer, arguments: tuple[Any, Any], run: Callable[[tuple[Any, Any]], Any]) -> tuple[Any, Any, Any]:
    """Runs an operation; if it wants to know numbers out of tensors, again with these as sizes, of which it is taken
    for granted that they are not negative; or if that is not enough, that they are no special case of a size.

    Args:
        arguments: positional and named ones, of the graph.
        run: runs it on fake tensors.

    Returns:
        the arguments that it takes, and what it gives.
    """
    try:
        return *arguments, run(arguments)
    except Unsupported as first:
        if tx.output.fake_mode.effects_seen or not _is_about_numbers(tx, first):
            raise
        error = first
    last = next(iter(reversed(tx.output.graph.nodes)))
    for least in (0, LEAST):
        made = as_sizes(tx, arguments, least)
        if made is None:
            break
        try:
            return *made, run(made)
        except Unsupported as again:
            if not _is_about_numbers(tx, again):
                raise
            error = again
    for node in reversed(list(tx.output.graph.nodes)):
        if node is last:
            break
        if not node.users:
            tx.output.graph.erase_node(node)
    raise error


def _is_symbol(size: Any, symbol: ints.Sym) -> bool:
    if not isinstance(size, torch.SymInt) or not isinstance(size.node, IntNode):
        return False
    return bool(size.node.expr == ints.atom(symbol))


