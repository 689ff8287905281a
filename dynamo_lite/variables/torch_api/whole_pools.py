"""Pooling with a window that is the whole image and whose size is a symbol, as in ``F.avg_pool2d(x, x.shape[2:])``:
torch takes windows as numbers, so that each size would have a graph of its own.

Invariant: the operators give the result of torch's pooling, bit for bit and with the same layout; where that is not
certain, torch's own function is called.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...rules.table import handles
from ...runtime.sized_operators import operators
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..numbers.symbolic_ints import SymbolicIntVariable, int_expression, size_variable
from ..tensors.tensor import TensorVariable, call_in_graph

if TYPE_CHECKING:
    from ..protocols import Tracer

_NAMES = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_MAXIMA: dict[int, Any] = {
    1: torch.adaptive_max_pool1d, 2: torch._C._nn.adaptive_max_pool2d, 3: torch._C._nn.adaptive_max_pool3d}


def largest(tx: Tracer, dims: int, given: dict[str, VariableTracker]) -> VariableTracker | None:
    """``max_pool`` over the last `dims` dimensions, if the window covers them wholly; None where it does not, or may
    not. Adaptive pooling to one element reads the same elements in the same order (ATen/native/cpu)."""
    x = _pooled(tx, dims, given)
    indices = given.get("return_indices", ConstantVariable(False))
    if x is None or not _is_number(given.get("dilation"), 1) or not indices.is_constant() or indices.constant():
        return None
    found = call_in_graph(tx, _MAXIMA[dims], [x, tx.values.from_result((1,) * dims, "size")], {})
    return found.getitem(tx, ConstantVariable(0))


def _mean(tx: Tracer, dims: int, given: dict[str, VariableTracker]) -> VariableTracker | None:
    """``avg_pool`` in the same case. A mean would add up in another order, so the graph calls torch's pooling by an
    operator of the project's own. Transforms don't know that operator: ``jvp`` would take its result for a constant."""
    x = _pooled(tx, dims, given) if not tx.output.parts else None
    if x is None:
        return None
    (operator,) = operators()["avg_pool_whole"]
    return call_in_graph(tx, operator, [x, ConstantVariable(dims)], {})


def _pooled(tx: Tracer, dims: int, given: dict[str, VariableTracker]) -> TensorVariable | None:
    """The tensor, if the window covers its last dimensions wholly and one size of the window is a symbol."""
    x = given.get("input")
    if tx.output.overrides.active() or not isinstance(x, TensorVariable) or x.fake.dim() not in (dims + 1, dims + 2):
        return None
    window = _numbers(tx, given.get("kernel_size"), dims)
    if window is None or not any(isinstance(n, SymbolicIntVariable) for n in window):
        return None
    if not _is_number(given.get("padding"), 0) or not _is_stride(tx, given.get("stride")):
        return None
    plain = x.cls is torch.Tensor and x.fake.is_floating_point() and x.fake.layout is torch.strided
    if not plain or not x.fake.is_contiguous() or not all(n > 1 for n in x.fake.shape[-dims - 1:]):
        return None  # where a dimension has one element, more than one layout is possible
    sizes = [size_variable(n, tx.output) for n in x.fake.shape[-dims:]]
    if [n.example() for n in sizes] != [n.example() for n in window]:
        return None
    equal = all(tx.truth(tx.operators.compare("==", n, w)) for n, w in zip(sizes, window))
    return x if equal and all(n > 0 for n in x.fake.shape) else None


def _numbers(tx: Tracer, value: VariableTracker | None, count: int) -> list[VariableTracker] | None:
    """An argument that is one int for all dimensions, or one int for each; None for any other argument."""
    if value is None:
        return None
    known = value.known_items() is not None and value.python_type() in (tuple, list, torch.Size)
    items = [realized(tx, item) for item in value.iterate(tx)] if known else [value]
    items = items * count if len(items) == 1 else items
    return items if len(items) == count and all(int_expression(n) is not None for n in items) else None


def _is_number(value: VariableTracker | None, number: int) -> bool:
    """Whether an argument is left out, or has this number for each dimension."""
    if value is None:
        return True
    items = value.known_items()
    return all(type(n) is ConstantVariable and type(n.value) is int and n.value == number
               for n in (items if items is not None else [value]))


def _is_stride(tx: Tracer, value: VariableTracker | None) -> bool:
    """Whether an argument is left out, or has strides of at least 1, whose values don't matter for a single window."""
    if value is None or value.is_none() or value.known_items() == []:
        return True
    items = _numbers(tx, value, 1) or _numbers(tx, value, 2) or _numbers(tx, value, 3)
    return items is not None and all(tx.truth(tx.operators.compare(">", n, ConstantVariable(0))) for n in items)


def _takes_windows(
    function: Callable[..., Any], pool: Callable[..., VariableTracker | None], dims: int, names: tuple[str, ...]
) -> None:
    @handles(function)
    def call(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        made = None
        if len(args) <= len(names) and kwargs.keys() <= set(names[len(args):]):
            made = pool(tx, dims, {**dict(zip(names, args)), **kwargs})
        return made if made is not None else call_in_graph(tx, function, list(args), kwargs)


_MEANS: dict[int, Callable[..., Any]] = {
    1: torch.nn.functional.avg_pool1d, 2: torch.nn.functional.avg_pool2d, 3: torch.nn.functional.avg_pool3d}
for _dims, _function in _MEANS.items():
    _takes_windows(_function, _mean, _dims, ("input", "kernel_size", "stride", "padding", "ceil_mode"))
# max_pool1d is in composed_functions. F.max_pool2d calls the first function where no indices are asked for, and the
# first calls the second.
_LARGEST: dict[int, tuple[Callable[..., Any], ...]] = {
    2: (torch.nn.functional._max_pool2d, torch.max_pool2d),  # type: ignore[attr-defined]
    3: (torch.nn.functional._max_pool3d, torch.max_pool3d),  # type: ignore[attr-defined]
}
for _dims, _functions in _LARGEST.items():
    for _function in _functions:
        _takes_windows(_function, largest, _dims, _NAMES)
