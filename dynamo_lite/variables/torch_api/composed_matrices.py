"""Matrix functions that C++ composes of operators, asking on the way for elements, or for sizes as numbers: ``cov``,
``corrcoef`` and ``fill_diagonal_``. The graph calls these operators.

Invariant: as in ``composed_functions``, the operators give the function's result with the same layout, and the function
itself is called for arguments that it refuses or warns about.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...rules.table import handles
from ..base import VariableTracker
from ..constant import ConstantVariable
from ..numbers.symbolic_ints import SymbolicIntVariable, size_variable
from ..tensors.tensor import TensorVariable, call_in_graph, record

if TYPE_CHECKING:
    from ..protocols import Tracer


def _covariance(tx: Tracer, x: VariableTracker, correction: int) -> VariableTracker | None:
    """``cov`` without weights (ATen/native/Correlation.cpp); None where it would warn of too few observations, and for
    other arguments that this does not cover."""
    if not isinstance(x, TensorVariable) or tx.output.overrides.active() or x.fake.dim() not in (1, 2):
        return None
    if x.fake.dtype is torch.bool or x.fake.layout is not torch.strided or not x.fake.shape[-1] > max(correction, 0):
        return None
    rows: VariableTracker = x if x.fake.dim() == 2 else tx.call_method(x, "unsqueeze", [ConstantVariable(0)])
    options = {"dtype": tx.values.from_result(torch.int64, "a type of tensors"),
               "device": tx.values.from_result(x.fake.device, "a device")}
    count = call_in_graph(tx, torch.scalar_tensor, [size_variable(x.fake.shape[-1], tx.output)], options)
    mean = tx.call_method(tx.call_method(rows, "sum", [ConstantVariable(1)]), "div", [count])
    rows = tx.call_method(rows, "sub", [tx.call_method(mean, "unsqueeze", [ConstantVariable(1)])])
    products = tx.call_method(rows, "mm", [tx.call_method(tx.call_method(rows, "t", []), "conj", [])])
    free = tx.call_method(count, "sub", [ConstantVariable(correction)])
    return tx.call_method(tx.call_method(products, "div", [free]), "squeeze", [])


@handles(torch.cov, torch.Tensor.cov, of_tensor=True)
def _cov(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    correction = kwargs.get("correction", ConstantVariable(1))
    weights = [kwargs[name] for name in ("fweights", "aweights") if name in kwargs]
    made = None
    if len(args) == 1 and kwargs.keys() <= {"correction", "fweights", "aweights"} and all(
            w.is_none() for w in weights) and type(correction) is ConstantVariable and type(correction.value) is int:
        made = _covariance(tx, args[0], correction.value)
    return made if made is not None else call_in_graph(tx, torch.cov, list(args), kwargs)


@handles(torch.corrcoef, torch.Tensor.corrcoef, of_tensor=True)
def _corrcoef(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """ATen/native/Correlation.cpp: covariances divided by the standard deviations of both rows."""
    x: Any = args[0] if len(args) == 1 and not kwargs else None
    real = isinstance(x, TensorVariable) and not x.fake.is_complex()
    c: Any = _covariance(tx, x, 1) if real else None
    if c is None:
        return call_in_graph(tx, torch.corrcoef, list(args), kwargs)
    if not c.fake.dim():
        return tx.call_method(c, "div", [c])
    deviations = tx.call_method(tx.call_method(c, "diag", []), "sqrt", [])
    for shape in ((-1, 1), (1, -1)):
        c = tx.call_method(c, "div", [tx.call_method(deviations, "view", [*map(ConstantVariable, shape)])])
    return tx.call_method(c, "clip", [ConstantVariable(-1), ConstantVariable(1)])


@handles(torch.Tensor.fill_diagonal_, of_tensor=True)
def _fill_diagonal(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """ATen/native/Fill.cpp: fills the view of the diagonal, and with `wrap`, in a matrix that has more rows than
    columns, also the elements below where the diagonal starts again."""
    given: dict[str, Any] = {**dict(zip(("self", "fill_value", "wrap"), args)), **kwargs}
    x, value = given.get("self"), given.get("fill_value", ConstantVariable(None))
    wrap = given.get("wrap", ConstantVariable(False))
    known = len(args) + len(kwargs) == len(given) and given.keys() <= {"self", "fill_value", "wrap"}
    if not known or not isinstance(x, TensorVariable) or tx.output.overrides.active() or not (
            x.fake._has_symbolic_sizes_strides and _is_number(value) and type(wrap) is ConstantVariable):
        return record(tx, "call_method", "fill_diagonal_", list(args), kwargs)
    size = x.fake.shape
    if x.fake.dim() < 2 or x.fake.dim() > 2 and not all(n == size[0] for n in size[1:]) or type(wrap.value) is not bool:
        return record(tx, "call_method", "fill_diagonal_", list(args), kwargs)
    diagonal: Any = tx.call_method(x, "diagonal", [])
    while diagonal.fake.dim() > 1:
        diagonal = tx.call_method(diagonal, "diagonal", [*map(ConstantVariable, (0, 0, -1))])
    tx.call_method(diagonal, "fill_", [value])
    if wrap.value and x.fake.dim() == 2 and size[0] > size[1] + 1:
        further = _further_down(tx, x)
        tx.call_method(further, "fill_", [value])
    return x


def _further_down(tx: Tracer, x: TensorVariable) -> VariableTracker:
    """The elements of a tall matrix in which the diagonal starts again below the first one, as one strided view."""
    (height, width), (row, column) = x.fake.shape, x.fake.stride()
    step = width + 1
    count, stride, first = (
        size_variable(n, tx.output) for n in ((height * width + step - 1) // step - width, row + column, step))
    # Of the rows below, as an offset would count from the start of the storage, where the matrix need not begin.
    below = tx.call_method(x, "narrow", [ConstantVariable(0), first, size_variable(height - step, tx.output)])
    return tx.call_method(
        below, "as_strided", [tx.values.new_sequence(tuple, [count]), tx.values.new_sequence(tuple, [stride])])


def _is_number(value: VariableTracker) -> bool:
    return isinstance(value, SymbolicIntVariable) or (
        type(value) is ConstantVariable and type(value.value) in (int, float, bool))
