"""Texts for logs: the bytecode before and after a compile, and the nodes of a graph.

Invariant: the texts are for readers only; no decision depends on them.
"""
from __future__ import annotations

import itertools
import types
from typing import Any

import torch
import torch.fx

from .. import exc
from ..bytecode.instructions import decode
from .origins import resume_label


def side_by_side(before: types.CodeType, after: types.CodeType, whole: bool) -> str:
    """The instructions of two code objects in two columns; `whole`: with untruncated operands."""
    left, right = ([f"{i.offset:5} {i.opname:24} {_arg_text(i, 400 if whole else 40)}" for i in decode(c).instructions]
                   for c in (before, after))
    width = max(70, *map(len, left)) if whole else 70
    lines = itertools.zip_longest(["BEFORE", *left], ["AFTER", *right], fillvalue="")
    return "\n".join(f"{a:{width}.{width}} | {b}".rstrip() for a, b in lines)


def _arg_text(instruction: Any, most: int) -> str:
    if instruction.arg is None:
        return ""
    value = instruction.argval
    if isinstance(value, types.CodeType):
        return resume_label(value)
    return exc.one_line(repr(value), most)


def layouts(graph: torch.fx.GraphModule) -> str:
    """Each node's result: its dtype, sizes and strides, and whether the node has side effects."""
    lines = []
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        what = type(value).__name__
        if isinstance(value, torch.Tensor):
            what = f"{value.dtype} {list(value.shape)}, strides {list(value.stride())}"
            what += ", requires gradients" if value.requires_grad else ""
        lines.append(f"  {node.name}: {what}{', has effects' if node.meta.get('impure') else ''}")
    return "\n".join(lines)
