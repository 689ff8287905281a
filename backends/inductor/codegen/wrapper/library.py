"""Makes a program of library calls alone: a graph runs by it when there is no compiler, and it is the simplest example
of a program.

Invariant: the steps are the graph's calls, one each, in order.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from dynamo_lite.backends.aot.graph import AtenGraph
from dynamo_lite.backends.aot.origin import user_line
from dynamo_lite.backends.inductor.ir.symbolic import index_of
from dynamo_lite.backends.inductor.program import (
    BufferRef,
    BufferSpec,
    CopyInto,
    Expr,
    ExternCall,
    Program,
    SizeRef,
    Step,
)

_COPY = torch.ops.aten.copy_.default


def library_program(aten: AtenGraph) -> Program:
    """A program in which each call of the graph is a library operation, in order."""
    buffers: dict[str, BufferSpec] = {}
    steps: list[Step] = []
    for node in aten.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            buffers[node.name] = spec_of(node.name, value)
        if node.op != "call_function":
            continue
        if node.target is _COPY:
            steps.append(CopyInto(node.args[0].name, node.args[1].name))
        elif node.target is not operator.getitem or not _has_parts(node.args[0]):
            steps.append(extern_call(node))
    inputs = tuple(node.name for node in aten.placeholders)
    symbols = {n.name: index_of(n.meta["val"]) for n in aten.placeholders if isinstance(n.meta["val"], torch.SymInt)}
    constants = {node.name: aten.constants[node.target] for node in aten.graph.nodes if node.op == "get_attr"}
    return Program(inputs, constants, symbols, buffers, steps, tuple(node.name for node in aten.values))


def spec_of(name: str, value: torch.Tensor) -> BufferSpec:
    """The layout that a node's metadata promises for its value."""
    size, stride = (tuple(map(expression, dims)) for dims in (value.shape, value.stride()))
    return BufferSpec(name, size, stride, value.dtype, value.device)


def expression(n: Any) -> Expr:
    """A size of a fake tensor in the form in which programs hold it."""
    return index_of(n)


def extern_call(node: Node) -> ExternCall:
    """A node as a library call. If there are several results, those that are read get the names of their ``getitem``
    nodes."""
    args, kwargs = torch.fx.node.map_aggregate((node.args, node.kwargs), _argument)
    outputs: tuple[str | None, ...] = (node.name,) if isinstance(node.meta["val"], torch.Tensor) else ()
    unpack = _has_parts(node)
    if unpack:
        names: dict[Any, str] = {user.args[1]: user.name for user in node.users}
        outputs = tuple(names.get(i) for i in range(len(node.meta["val"])))
    return ExternCall(node.target, tuple(args), dict(kwargs), outputs, describe(node), unpack)


def _argument(value: Any) -> Any:
    if isinstance(value, Node):
        return BufferRef(value.name)
    return SizeRef(index_of(value)) if isinstance(value, torch.SymInt) else value


def describe(node: Node) -> str:
    """The operation and the user's line that it comes from, for comments."""
    name = str(node.target).removeprefix("aten.").removesuffix(".default")
    name = name if isinstance(node.target, torch._ops.OpOverload) else getattr(node.target, "__name__", name)
    line = user_line(node)
    return f"{name}  # {line}" if line else name


def _has_parts(node: Any) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))
