"""Which operations may raise because of their operands' elements: the one rule for all code that drops or moves calls.

Examples are an index out of bounds, an integer division by zero, a matrix that is not positive definite. Eager raises
whether the result is used or not. So such a call is never dropped, and a graph with one is prepared to run again.

Invariant: if this module says that an operation can't raise, the operation raises for some operands only if it raises
for all operands of the same sizes, dtypes and strides.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

# Prefixes of the names of such operators, without leading underscores. Found by running op_db's samples with other
# elements: zeros, negative and large numbers, NaN.
_NAMES = (
    "index", "gather", "scatter", "take", "put", "embedding", "one_hot", "nll_loss", "multi_margin_loss",
    "multilabel_margin_loss", "cross_entropy", "ctc_loss", "max_unpool", "segment_reduce", "binary_cross_entropy",
    "bernoulli", "multinomial", "normal", "poisson", "binomial", "standard_gamma", "sample_dirichlet", "bincount",
    "hist", "linalg", "cholesky", "inverse", "lu_", "ldl", "repeat_interleave", "masked_scatter", "masked_select",
    "assert", "linspace.Tensor", "logspace.Tensor", "searchsorted", "unique", "pack_padded_sequence",
    "nonzero_static", "local_scalar_dense", "equal", "tensor_split.tensor", "quantile", "nanquantile", "multigammaln",
    "fake_quantize",
)
_HARMLESS = ("binary_cross_entropy_with_logits", "binary_cross_entropy_backward", "index_fill.Dimname",
             "embedding_dense_backward", "linalg_vector_norm", "linalg_cross", "linalg_vecdot", "linalg_diagonal",
             "linalg_matmul")
_BY_MASKS = ("index.Tensor", "index_put", "index_put_")
_COMPOSITES = frozenset({torch.nn.functional.one_hot})
"""Functions that run other operators on fake tensors, which do not show that the function may raise."""
_DIVISIONS = ("div.Tensor_mode", "div_.Tensor_mode", "floor_divide", "fmod", "remainder", "floor_divide_", "fmod_",
              "remainder_", "div.out_mode")


def may_raise(func: Any, args: Any, kwargs: Any, value_of: Callable[[Any], Any] = lambda value: value) -> bool:
    """Whether an operator may raise on some data although it does not on other data.

    Args:
        value_of: maps an argument to the tensor that has its dtype.
    """
    if not isinstance(func, torch._ops.OpOverload):
        return func in _COMPOSITES
    rule = _rule_of(func)
    if rule == "masks" and len(args) > 1:
        # A mask has no index out of bounds. The number of its true elements matters if there are several values.
        masks = [value_of(index) for index in args[1] if index is not None]
        picked = len(args) < 3 or getattr(value_of(args[2]), "numel", lambda: 0)() == 1
        return not (picked and all(isinstance(m, torch.Tensor) and m.dtype is torch.bool for m in masks))
    if rule == "narrowing":
        written, value = value_of(args[0]), value_of(args[2] if len(args) > 2 else kwargs["value"])
        return narrows(value.dtype, written.dtype)
    if rule != "division":
        return rule != "never"
    operands = [value_of(argument) for argument in (*args, *kwargs.values())][:2]
    if any(isinstance(x, float) or isinstance(x, torch.Tensor) and not _is_whole(x) for x in operands):
        return False
    divisor = operands[-1]
    if isinstance(divisor, (int, bool)) and isinstance(operands[0], torch.Tensor):
        # Converted to the tensor's dtype, the number may become zero. Metadata rules do not notice.
        dtype = operands[0].dtype
        return divisor % (1 << 8 * dtype.itemsize) == 0 or dtype is torch.bool
    return True


def narrows(given: torch.dtype, wanted: torch.dtype) -> bool:
    """Whether a number of one dtype may be out of range for another, an integer dtype."""
    return given is not wanted and not (wanted.is_floating_point or wanted.is_complex or wanted is torch.bool)


def may_ever_raise(func: Any) -> bool:
    """Whether :func:`may_raise` holds for an operator and some operands."""
    return func in _COMPOSITES if not isinstance(func, torch._ops.OpOverload) else _rule_of(func) != "never"


@functools.cache
def _rule_of(func: Any) -> str:
    if func.namespace not in ("aten", "prims", "prim"):
        return "always"
    name = str(func).removeprefix(f"{func.namespace}.").removesuffix(".default")
    if name.startswith(_DIVISIONS):
        return "division"
    if name in _BY_MASKS:
        return "masks"
    if name in ("masked_fill.Tensor", "masked_fill_.Tensor"):
        return "narrowing"
    name = name.lstrip("_")
    return "always" if name.startswith(_NAMES) and not name.startswith(_HARMLESS) else "never"


def _is_whole(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex())
