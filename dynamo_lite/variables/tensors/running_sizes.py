"""Sizes of tensors that only the running graph knows, and the checks of these sizes.

Under ``config.capture_dynamic_output_shape_ops``, ``nonzero``, indexing with masks and their relatives are nodes of the
graph whose results have a symbol for a size (``fake.running_sizes``). Such a node is followed by one that reads the
size and checks its limits. Numbers out of tensors, and comparisons, are the subject of ``numbers.running_sizes``.

Invariant: a check comes before all nodes that rely on it; where one fails, the frame runs again in plain Python.
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
    """Adds the nodes to the graph that read the sizes which an operation has defined.

    Args:
        defined: the symbols of the sizes.
        result: the operation's result: fake tensors for which the graph has nodes.

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
    """Takes for granted that sizes of a result that only the running graph knows are at least ``LEAST``."""
    env = tx.output.symbols.env
    for tensor in pytree.tree_leaves(result):
        for size in tensor.shape if isinstance(tensor, torch.Tensor) and tensor._has_symbolic_sizes_strides else ():
            if isinstance(size, torch.SymInt) and env.is_running(size.node.expr):
                ensure_least(tx, size.node.expr, LEAST)


def _is_about_numbers(tx: Tracer, error: Unsupported) -> bool:
    """Whether an operation has failed because it needs a number that only the running graph knows."""
    if isinstance(error, Undecidable):
        return True
    return type(error) is Unsupported and error.kind == "data_dependent_guard" and tx.output.scalars.asked


def with_sizes(tx: Tracer, arguments: tuple[Any, Any], run: Callable[[tuple[Any, Any]], Any]) -> tuple[Any, Any, Any]:
    """Runs an operation. If that fails because the operation needs the values of numbers out of tensors, runs it again
    with sizes (symbols) in their place, which are taken to be at least 0, and then, if necessary, at least ``LEAST``.

    Args:
        arguments: positional and named arguments, as nodes of the graph.
        run: runs the operation on fake tensors.

    Returns:
        the positional and the named arguments with which it has succeeded, and its result.
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


