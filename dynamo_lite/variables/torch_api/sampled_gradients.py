"""``torch.gradient`` of tensors with symbolic sizes: C++ asks for sizes as numbers there, so the graph calls the
operators that C++ composes it of.

Invariant: the operators are those of ATen/native/ReduceOps.cpp (``gradient_helper_float``), in the same order, so that
the results are the function's. The function itself is called for arguments for which it raises, and for coordinates
that are tensors.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...rules.table import handles
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..tensors.tensor import TensorVariable, call_in_graph

if TYPE_CHECKING:
    from ..protocols import Tracer


@handles(torch.gradient)
def _gradient(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    x = realized(tx, args[0]) if len(args) == 1 else None
    if isinstance(x, TensorVariable) and x.fake._has_symbolic_sizes_strides and not tx.output.overrides.active():
        asked = _asked(tx, x, dict(kwargs))
        if asked is not None:
            steps, order = asked
            return tx.values.new_tuple([_along(tx, x, dim, step, order) for dim, step in steps])
    return call_in_graph(tx, torch.gradient, list(args), kwargs)


def _asked(
    tx: Tracer, x: TensorVariable, given: dict[str, VariableTracker]
) -> tuple[list[tuple[int, Any]], int] | None:
    """The dimensions, each with the distance between its samples, and the edge order; None where eager raises, or where
    C++ uses another algorithm."""
    if not given.keys() <= {"spacing", "dim", "edge_order"} or not x.fake.is_floating_point():
        return None
    spacing, dims = (_numbers(tx, given.get(name)) for name in ("spacing", "dim"))
    order = _numbers(tx, given.get("edge_order")) or [1]
    if spacing is None or dims is None or len(order) != 1 or type(order[0]) is not int or order[0] not in (1, 2):
        return None
    dims = dims or list(range(x.fake.dim()))
    if not spacing or realized(tx, given["spacing"]).python_type() not in (tuple, list):
        spacing = (spacing or [1.0]) * len(dims)
    if len(spacing) != len(dims) or not all(type(d) is int and -x.fake.dim() <= d < x.fake.dim() for d in dims):
        return None
    dims = [d % x.fake.dim() for d in dims]
    if len(set(dims)) < len(dims) or not all(x.fake.shape[d] > order[0] for d in dims):
        return None
    return list(zip(dims, spacing)), order[0]


def _numbers(tx: Tracer, value: VariableTracker | None) -> list[Any] | None:
    """A known number, or a sequence of them, as a list; empty if the argument is missing or None; None for any other
    argument."""
    value = None if value is None else realized(tx, value)
    if value is None or value.is_none():
        return []
    content: Any = value
    items = content.items if value.python_type() in (tuple, list) else [value]
    found = [realized(tx, item) for item in items]
    if not found or not all(type(item) is ConstantVariable and type(item.value) in (int, float) for item in found):
        return None
    return [item.value for item in found]


def _along(tx: Tracer, x: TensorVariable, dim: int, step: Any, order: int) -> VariableTracker:
    def part(start: int, end: int | None) -> VariableTracker:
        bounds = [ConstantVariable(n) for n in (dim, start, end)]
        return call_in_graph(tx, torch.ops.aten.slice.Tensor, [x, *bounds], {})

    def by(op: str, a: VariableTracker, b: Any) -> VariableTracker:
        return tx.operators.binary(op, a, b if isinstance(b, VariableTracker) else ConstantVariable(b))

    center = by("/", by("-", part(2, None), part(0, -2)), step)
    if order == 1:
        first = by("-", part(1, 2), part(0, 1))
        last = by("-", part(-1, None), part(-2, -1))
    else:
        first = by("-", by("+", by("*", part(0, 1), -1.5), by("*", part(1, 2), 2)), by("*", part(2, 3), 0.5))
        last = by("+", by("-", by("*", part(-3, -2), 0.5), by("*", part(-2, -1), 2)), by("*", part(-1, None), 1.5))
    parts = tx.values.new_list([by("/", first, step), by("/", center, 2), by("/", last, step)])
    return call_in_graph(tx, torch.cat, [parts, ConstantVariable(dim)], {})
