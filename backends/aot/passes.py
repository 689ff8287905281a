"""Clean-up passes over an aten graph: reads of written parts, dead code, common subexpressions.

Invariant of every pass: results, side effects, the order of these, and the random numbers drawn stay the same.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from dynamo_lite.backends.aot import ops
from dynamo_lite.backends.aot.functional import UNSAFE_VIEWS
from dynamo_lite.backends.aot.graph import AtenGraph
from dynamo_lite.backends.aot.numbers import refuses_some_integer
from dynamo_lite.backends.aot.written_parts import read_through_writes
from dynamo_lite.runtime import raising, sized_operators

aten = torch.ops.aten
# Namespaces of operators whose schemas declare all their side effects.
_WITHOUT_EFFECTS = frozenset({"aten", "prims", "prim", sized_operators.NAMESPACE})
_UNINITIALIZED = frozenset({
    aten.empty.memory_format, aten.empty_strided.default, aten.empty_like.default, aten.new_empty.default,
    aten.new_empty_strided.default, aten.empty_permuted.default})


def clean(graph: AtenGraph) -> None:
    """Runs all passes, in order."""
    read_through_writes(graph.graph)
    remove_dead_code(graph.graph)
    merge_equal_calls(graph)
    remove_unused_constants(graph)
    graph.graph.lint()


def is_effectful(node: Node) -> bool:
    """Whether a call must be kept even if nobody reads its result."""
    target = node.target
    if node.op != "call_function" or node.meta.get("effect"):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return target not in (operator.getitem, ops.as_strided, ops.as_strided_scatter, ops.copy_strided)
    if is_random(node) or target._schema.is_mutable:
        return True
    return target.namespace not in _WITHOUT_EFFECTS


def may_raise(node: Node) -> bool:
    """Whether a call may raise because of the values of elements, or because of a number that its type can't hold. Such
    a call must be made even if nobody reads its result."""
    return node.op == "call_function" and (_overflows(node) or refuses_some_integer(node) or raising.may_raise(
        node.target, node.args, node.kwargs, lambda a: a.meta.get("val") if isinstance(a, Node) else a))


def _overflows(node: Node) -> bool:
    """Whether some number among the arguments does not fit the integer type of the result."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype.is_floating_point or value.dtype.is_complex or (
            value.dtype is torch.bool):
        return False
    if node.target in (aten.slice.Tensor, aten.slice_scatter.default):
        return False  # an end beyond the last element is valid
    bounds, arguments = torch.iinfo(value.dtype), (*node.args, *node.kwargs.values())
    return any(type(a) in (int, float) and not bounds.min <= a <= bounds.max  # type: ignore[operator]
               for a in arguments)


def keeps_its_place(target: Any) -> bool:
    """Whether calls of this operation must not be reordered: they draw random numbers, or have side effects."""
    if not isinstance(target, torch._ops.OpOverload):
        return target not in (operator.getitem, ops.as_strided, ops.as_strided_scatter, ops.copy_strided)
    if torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable:
        return True
    return target.namespace not in _WITHOUT_EFFECTS


def is_random(node: Node) -> bool:
    """Whether a call draws from a random generator."""
    target = node.target.op if isinstance(node.target, ops.Functionalized) else node.target
    if not isinstance(target, torch._ops.OpOverload):
        return isinstance(target, ops.RandomFill)
    return torch.Tag.nondeterministic_seeded in target.tags and _draws(node)


def _draws(node: Node) -> bool:
    # Some operations carry the tag because of a dropout probability that is usually zero.
    positions: dict[Any, int] = {
        aten._scaled_dot_product_flash_attention_for_cpu.default: 3, aten.scaled_dot_product_attention.default: 4}
    position = positions.get(node.target)
    if position is not None:
        p = node.args[position] if len(node.args) > position else node.kwargs.get("dropout_p", 0.0)
        return bool(p != 0.0)
    return True


def remove_dead_code(graph: Graph) -> None:
    """Removes calls whose results nobody reads, unless they may raise."""
    for node in reversed(list(graph.nodes)):
        if not node.users and node.op == "call_function" and not is_effectful(node) and not may_raise(node):
            graph.erase_node(node)


def merge_equal_calls(graph: AtenGraph) -> None:
    """Merges calls of the same operation on the same values into one, unless both are results of the graph."""
    results = set(graph.values)
    seen: dict[Any, Node] = {}
    for node in list(graph.graph.nodes):
        if node.op != "call_function" or is_effectful(node) or node.target in _UNINITIALIZED:
            continue
        key = (node.target, freeze(node.args), freeze(node.kwargs))
        try:
            first = seen.setdefault(key, node)
        except TypeError:
            continue  # an argument is not hashable: the call is kept
        if first is node:
            continue
        if node in results:
            if first in results:
                continue  # each result has memory of its own
            # If only the later call is a result, the earlier one takes its place.
        if not _same_strides(first, node):
            continue
        node.replace_all_uses_with(first)
        graph.graph.erase_node(node)


def remove_unused_constants(graph: AtenGraph) -> None:
    """Removes constants that no call reads."""
    for node in list(graph.graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.graph.erase_node(node)
    used = {node.target for node in graph.graph.nodes if node.op == "get_attr"}
    graph.constants = {name: value for name, value in graph.constants.items() if name in used}


def root(node: Node) -> Node:
    """The node whose memory a node may share when library calls run the graph: follows views to the tensor that they
    are taken of.
    """
    while node.op == "call_function" and node.args and isinstance(node.args[0], Node) and is_view(node.target):
        node = node.args[0]
    return node


def owner(node: Node) -> Node:
    """The node whose result owns the memory that a node may share: ``root``, or the one of a call's several results
    that views were taken of, as each has memory of its own.
    """
    part, at = None, node
    while at.op == "call_function" and at.args and isinstance(at.args[0], Node) and is_view(at.target):
        part, at = at, at.args[0]
    return part if part is not None and part.target is operator.getitem and at.op == "call_function" else at


def is_view(target: Any) -> bool:
    """Whether a call's result may share memory with its first argument."""
    if target is operator.getitem or target in ops.VIEW_LIKE or target is aten._unsafe_view.default or (
            target in UNSAFE_VIEWS):
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    info = target._schema.arguments[0].alias_info if target._schema.arguments else None
    return info is not None and not info.is_write


def _same_strides(a: Node, b: Node) -> bool:
    x, y = a.meta["val"], b.meta["val"]
    return not isinstance(x, torch.Tensor) or x.stride() == y.stride()


def freeze(value: Any) -> Any:
    """A hashable key that differs for different arguments: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if isinstance(value, (list, tuple)):
        return tuple(map(freeze, value))
    if isinstance(value, dict):
        return tuple((k, freeze(v)) for k, v in value.items())
    if isinstance(value, (bool, int, float, complex)):
        return type(value), repr(value)
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return type(value), str(value.node)  # hashing the symbol itself would specialize it
    return value
