"""Torch functions that C++ composes of other operators, where the choice of operators depends on more than sizes and
dtypes, or where C++ asks for sizes as numbers: the graph calls these operators.

Invariant: the operators give the function's result with the same layout. The function itself is called for arguments
for which it raises, and where torch function modes are active, as a mode has to see one call.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ...rules.table import handles
from ..base import VariableTracker, realized
from ..constant import ConstantVariable
from ..tensors.tensor import TensorVariable, call_in_graph
from . import whole_pools

if TYPE_CHECKING:
    from ..protocols import Tracer


def _is_sized_by_symbols(x: VariableTracker) -> bool:
    return isinstance(x, TensorVariable) and bool(x.fake._has_symbolic_sizes_strides)


def _number(value: VariableTracker | None, default: int) -> int | None:
    """The value of an argument that is an int, or a sequence of one int; None for any other argument."""
    content: Any = value
    if value is not None and value.python_type() in (tuple, list) and len(content.items) == 1:
        value = content.items[0]
    if value is None or value.is_none():
        return default
    if not isinstance(value, ConstantVariable) or value.is_symbolic or type(value.value) is not int:
        return None
    return value.value


def _windows(given: dict[str, VariableTracker]) -> tuple[int, int, int, int] | None:
    """Kernel size, stride, padding and dilation as ints; None where one is not an int, or where eager refuses them."""
    kernel = _number(given.get("kernel_size"), 0)
    stride = _number(given.get("stride"), kernel or 0)
    padding, dilation = _number(given.get("padding"), 0), _number(given.get("dilation"), 1)
    if kernel is None or stride is None or padding is None or dilation is None:
        return None
    if min(kernel, stride, dilation) < 1 or not 0 <= padding <= kernel // 2:
        return None
    return kernel, stride, padding, dilation


def _pool_by_two_dimensions(tx: Tracer, given: dict[str, VariableTracker]) -> VariableTracker | None:
    """``max_pool1d`` as a pooling in two dimensions, one of which has one element (ATen/native/Pooling.cpp); None where
    eager does not do it so.

    This is also done for sizes that do not change: C++ takes a fake tensor for a tensor of a subclass, and therefore
    another path than in eager, whose result has other strides.
    """
    x, windows = given.get("input"), _windows(given)
    if windows is None or not isinstance(x, TensorVariable) or x.fake.dim() not in (2, 3):
        return None
    if not x.fake.is_floating_point() or x.fake.layout is not torch.strided:
        return None
    kernel, stride, padding, dilation = windows
    if not all(n > 0 for n in x.fake.shape) or x.fake.shape[-1] + 2 * padding <= dilation * (kernel - 1):
        return None
    made: VariableTracker = x
    if x.fake.device.type == "cpu" and not (x.fake.requires_grad and torch.is_grad_enabled()):
        made = tx.call_method(x, "contiguous", [])  # the one-dimensional kernel gives a contiguous result
    made = tx.call_method(made, "unsqueeze", [ConstantVariable(-2)])
    pairs = ((1, kernel), (1, stride), (0, padding), (1, dilation))
    arguments = [tx.values.from_result(pair, "window") for pair in pairs]
    ceil = given.get("ceil_mode", ConstantVariable(False))
    made = call_in_graph(tx, torch.nn.functional.max_pool2d, [made, *arguments, ceil], {})
    return tx.call_method(made, "squeeze", [ConstantVariable(-2)])


def _pools(function: Callable[..., Any]) -> None:
    names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")

    @handles(function)
    def call(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
        made = None
        if not tx.output.overrides.active() and len(args) <= len(names) and kwargs.keys() <= set(names[len(args):]):
            given = {**dict(zip(names, args)), **kwargs}
            made = whole_pools.largest(tx, 1, given)
            made = made if made is not None else _pool_by_two_dimensions(tx, given)
        return made if made is not None else call_in_graph(tx, function, list(args), kwargs)


# The function that F.max_pool1d calls where no indices are asked for, and the function that this one calls.
for _function in (torch.nn.functional._max_pool1d, torch.max_pool1d):  # type: ignore[attr-defined]
    _pools(_function)


@handles(torch.vander)
def _vander(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """ATen/native/LinearAlgebra.cpp: powers in ascending or descending order. For its gradient eager raises."""
    given = {**dict(zip(("x", "N", "increasing"), args)), **kwargs}
    x, rest = given.get("x"), given.keys() - {"x", "N"}
    if rest or tx.output.overrides.active() or not isinstance(x, TensorVariable) or not _is_sized_by_symbols(x) or (
            x.fake.dim() != 1 or x.fake.requires_grad and torch.is_grad_enabled()):
        return call_in_graph(tx, torch.vander, list(args), kwargs)
    count = given.get("N", ConstantVariable(None))
    count = x.length(tx) if count.is_none() else count
    made = call_in_graph(tx, torch.linalg.vander, [x], {"N": count})
    return tx.call_method(made, "flip", [ConstantVariable(-1)])


def _interleaved(tx: Tracer, x: TensorVariable, dims: int, at: int) -> VariableTracker:
    """A tensor with a dimension of one element in front of each of its own (`at` 1) or behind it (`at` 0)."""
    made: VariableTracker = x
    for _ in range(dims - x.fake.dim()):
        made = tx.call_method(made, "unsqueeze", [ConstantVariable(0)])
    for dim in reversed(range(dims)):
        made = tx.call_method(made, "unsqueeze", [ConstantVariable(dim + 1 - at)])
    return made


@handles(torch.kron, torch.Tensor.kron, of_tensor=True)
def _kron(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """ATen/native/LinearAlgebra.cpp, ``KronImpl``: products of all pairs of elements, as a block matrix."""
    if len(args) != 2 or kwargs or not any(map(_is_sized_by_symbols, args)) or tx.output.overrides.active():
        return call_in_graph(tx, torch.kron, list(args), kwargs)
    a, b = args
    if not isinstance(a, TensorVariable) or not isinstance(b, TensorVariable) or not a.fake.dim() or not b.fake.dim():
        return call_in_graph(tx, torch.kron, list(args), kwargs)
    dims = max(a.fake.dim(), b.fake.dim())
    products = call_in_graph(tx, torch.mul, [_interleaved(tx, a, dims, 0), _interleaved(tx, b, dims, 1)], {})
    for dim in range(dims):
        products = tx.call_method(products, "flatten", [ConstantVariable(dim), ConstantVariable(dim + 1)])
    return products


@handles(torch.take_along_dim, torch.Tensor.take_along_dim, of_tensor=True)
def _take_along_dim(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """ATen/native/TensorAdvancedIndexing.cpp: where all sizes but that of `dim` are equal, nothing is broadcast."""
    given = {**dict(zip(("input", "indices", "dim"), args)), **kwargs}
    x, indices, dim = given.get("input"), given.get("indices"), given.get("dim")
    symbols = any(t is not None and _is_sized_by_symbols(t) for t in (x, indices)) and not tx.output.overrides.active()
    if symbols and isinstance(x, TensorVariable) and isinstance(indices, TensorVariable) and isinstance(
            dim, ConstantVariable):
        a, b, at = x.fake, indices.fake, dim.value
        fits = type(at) is int and -a.dim() <= at < a.dim() == b.dim() and b.dtype is torch.int64 and len(given) == 3
        if fits and all(n == m for d, (n, m) in enumerate(zip(a.shape, b.shape)) if d != at % a.dim()):
            return tx.call_method(x, "gather", [dim, indices])
    return call_in_graph(tx, torch.take_along_dim, list(args), kwargs)


@handles(torch.linalg.multi_dot)
def _multi_dot(tx: Tracer, *args: VariableTracker, **kwargs: VariableTracker) -> VariableTracker:
    """ATen/native/LinearAlgebra.cpp, ``multi_dot_impl``: products in the order with the fewest multiplications, which
    depends on the sizes."""
    matrices = _chain(tx, args) if not kwargs and not tx.output.overrides.active() else None
    if matrices is None:
        return call_in_graph(tx, torch.linalg.multi_dot, list(args), kwargs)
    first, last = matrices[0].fake.dim() == 1, matrices[-1].fake.dim() == 1
    parts: list[VariableTracker] = list(matrices)
    sizes = [m.fake.shape[0] for m in matrices] + [1 if last else matrices[-1].fake.shape[1]]
    if first:
        parts[0] = tx.call_method(parts[0], "unsqueeze", [ConstantVariable(0)])
        sizes[0] = 1
    if last:
        parts[-1] = tx.call_method(parts[-1], "unsqueeze", [ConstantVariable(-1)])
    cuts = _cheapest_cuts(sizes)

    def product(i: int, j: int) -> VariableTracker:
        if i == j:
            return parts[i]
        return tx.call_method(product(i, cuts[i, j]), "mm", [product(cuts[i, j] + 1, j)])

    made = product(0, len(parts) - 1)
    if last:
        made = tx.call_method(made, "squeeze", [ConstantVariable(-1)])
    return tx.call_method(made, "squeeze", [ConstantVariable(0)]) if first else made


def _chain(tx: Tracer, args: tuple[VariableTracker, ...]) -> list[TensorVariable] | None:
    """The matrices to be multiplied, and vectors at the ends; None where all sizes are numbers, or where the function
    raises."""
    content: Any = args[0] if len(args) == 1 else None
    if content is None or content.python_type() not in (tuple, list):
        return None
    items: list[Any] = [realized(tx, item) for item in content.items]
    if len(items) < 2 or not all(isinstance(m, TensorVariable) for m in items) or not any(
            map(_is_sized_by_symbols, items)):
        return None
    fakes = [m.fake for m in items]
    if any((f.dtype, f.device) != (fakes[0].dtype, fakes[0].device) or f.layout is not torch.strided for f in fakes):
        return None
    if any(f.dim() != 2 for f in fakes[1:-1]) or not {fakes[0].dim(), fakes[-1].dim()} <= {1, 2}:
        return None
    if not all(n > 0 for f in fakes for n in f.shape) or any(a.shape[-1] != b.shape[0] for a, b in zip(
            fakes, fakes[1:])):
        return None
    return items


def _cheapest_cuts(p: list[Any]) -> dict[tuple[int, int], int]:
    """For each part of a chain of matrices, the matrix after which the cheapest order of multiplications splits it.
    Matrix `i` has `p[i]` rows and `p[i + 1]` columns."""
    count = len(p) - 1
    costs: dict[tuple[int, int], Any] = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            # At equal costs, three matrices start with the product of the first two, longer chains with the last ones.
            for k in reversed(range(i, j)) if count == 3 else range(i, j):
                cost = costs[i, k] + costs[k + 1, j] + p[i] * p[k + 1] * p[j + 1]
                if (i, j) not in cuts or cost < costs[i, j]:
                    costs[i, j], cuts[i, j] = cost, k
    return cuts
