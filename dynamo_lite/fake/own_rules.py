"""Metadata of operators for which torch has no rule, or one that gives other strides.

Eager computes them by kernels that are written for real memory alone: quantization-aware training, histograms,
gradients of distributions, softmax of PyTorch's own encoder. Their results are new tensors, whose layouts follow from
the operands' sizes, dtypes and strides alone. Where an operator raises because of its elements, the graph does when it
runs.

Invariant: a rule describes each result by an operator that makes an empty one (``empty``, ``empty_like``), so that
sizes may be symbols; it reads no elements.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten
# An operator, its positional arguments, its keyword arguments.
Empty = tuple[Any, tuple[Any, ...], dict[str, Any]]
Rule = Callable[..., "list[Empty] | Empty"]
Number = Any


def result(func: Any, args: Any, kwargs: Any, make: Callable[[Any, Any, Any], Any]) -> Any:
    """The results of an operator, each made by `make` from the call of an operator; ``NotImplemented`` if there is no
    rule here."""
    rule = _RULES.get(func)
    if rule is None:
        return NotImplemented
    described = rule(*args, **kwargs)
    if isinstance(described, tuple):
        return make(*described)
    made = [make(*one) for one in described]
    return made if _gives_a_list(func) else tuple(made)


def _gives_a_list(func: Any) -> bool:
    return isinstance(func._schema.returns[0].type, torch.ListType)


def _like(x: torch.Tensor, dtype: torch.dtype | None = None) -> Empty:
    """An empty tensor with the sizes and the memory format of `x`."""
    return aten.empty_like.default, (x,), {"dtype": dtype or x.dtype, "device": x.device}


def _sized(x: torch.Tensor, *sizes: Number) -> Empty:
    """A contiguous empty tensor with the given sizes, and the dtype and device of `x`."""
    return aten.empty.memory_format, (list(sizes),), {"dtype": x.dtype, "device": x.device}


def _contiguous_like(at: int) -> Rule:
    """The rule of an operator with a contiguous result of the shape and dtype of the argument at a position."""
    return lambda *args, **kwargs: _sized(args[at], *args[at].shape)


def _same(x: torch.Tensor, *_: Any, **__: Any) -> Empty:
    return _like(x)


def _extremes(x: torch.Tensor) -> list[Empty]:
    return [_sized(x), _sized(x)]


def _extremes_along(x: torch.Tensor, dim: int, keepdim: bool = False) -> list[Empty]:
    sizes = list(x.shape)
    if sizes:
        at = range(len(sizes))[dim]
        sizes[at:at + 1] = [1] if keepdim else []
    return [_sized(x, *sizes), _sized(x, *sizes)]


def _with_mask(x: torch.Tensor, *_: Any, **__: Any) -> list[Empty]:
    """The result, and a mask that is true where the gradient passes."""
    return [_like(x), _like(x, torch.bool)]


def _learned_backward(grad: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, *_: Any, **__: Any) -> list[Empty]:
    """Gradients of the operand, of the scale and of the zero point; the latter two have one element each."""
    return [_like(x), _sized(scale, 1), _sized(scale, 1)]


def _learned_backward_by_channel(
    grad: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, axis: int, *_: Any, **__: Any
) -> list[Empty]:
    return [_like(x), _sized(scale, x.shape[axis]), _sized(scale, x.shape[axis])]


def _histogram(x: torch.Tensor, bins: int = 100, **_: Any) -> list[Empty]:
    return [_sized(x, bins), _sized(x, bins + 1)]


def _histogram_between(x: torch.Tensor, bins: torch.Tensor, **_: Any) -> list[Empty]:
    return [_sized(x, bins.shape[0] - 1), _sized(x, bins.shape[0])]


def _edges(x: torch.Tensor, bins: Sequence[int], **_: Any) -> list[Empty]:
    return [_sized(x, n + 1) for n in bins]


def _counts(x: torch.Tensor, bins: Sequence[int], **_: Any) -> Empty:
    return _sized(x, *bins)


def _counts_between(x: torch.Tensor, bins: Sequence[torch.Tensor], **_: Any) -> Empty:
    return _sized(x, *(b.shape[0] - 1 for b in bins))


def _heads(qkv: torch.Tensor, bias: torch.Tensor, heads: int) -> list[Empty]:
    batch, length, width = qkv.shape
    return [_sized(qkv, batch, heads, length, width // 3 // heads)] * 3


def _combined(x: torch.Tensor, coefficients: torch.Tensor) -> Empty:
    return _sized(x, coefficients.shape[0], *x.shape[1:])


def _reflectors(x: torch.Tensor) -> list[Empty]:
    """The layout of LAPACK: column by column."""
    *batch, rows, columns = x.shape
    strides = [math.prod(x.shape[at + 1:]) for at in range(len(batch))]
    place = aten.empty_strided.default, (list(x.shape), [*strides, 1, rows]), {"dtype": x.dtype, "device": x.device}
    return [place, _sized(x, *batch, torch.sym_min(rows, columns))]


_RULES: dict[Any, Rule] = {
    aten._sample_dirichlet.default: _contiguous_like(0), aten.binomial.default: _contiguous_like(0),
    aten._dirichlet_grad.default: _contiguous_like(0), aten._standard_gamma_grad.default: _contiguous_like(0),
    aten.multi_margin_loss_backward.default: _contiguous_like(1),
    aten.multilabel_margin_loss_backward.default: _contiguous_like(1),
    aten._transformer_encoder_layer_fwd.default: _contiguous_like(0),
    aten._aminmax.default: _extremes, aten._aminmax.dim: _extremes_along,
    aten.fake_quantize_per_tensor_affine_cachemask.default: _with_mask,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _with_mask,
    aten.fake_quantize_per_channel_affine_cachemask.default: _with_mask,
    aten._fake_quantize_learnable_per_tensor_affine.default: _same,
    aten._fake_quantize_learnable_per_channel_affine.default: _same,
    aten._fake_quantize_learnable_per_tensor_affine_backward.default: _learned_backward,
    aten._fake_quantize_learnable_per_channel_affine_backward.default: _learned_backward_by_channel,
    aten.histogram.bin_ct: _histogram, aten.histogram.bins_tensor: _histogram_between,
    aten._histogramdd_bin_edges.default: _edges, aten._histogramdd_from_bin_cts.default: _counts,
    aten._histogramdd_from_bin_tensors.default: _counts_between,
    aten._masked_softmax.default: _same, aten._masked_softmax_backward.default: _contiguous_like(0),
    aten._transform_bias_rescale_qkv.default: _heads, aten._compute_linear_combination.default: _combined,
    aten.geqrf.default: _reflectors,
}
