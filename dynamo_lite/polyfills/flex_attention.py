"""Stand-ins for ``flex_attention`` of ``torch.nn.attention``, and for its hints to torch's compiler.

Invariant: results are those of torch's dense formulas (``math_attention`` in
``torch._higher_order_ops.flex_attention``), which eager computes. A block mask holds no information beyond that in its
function ``mask_mod``.
"""
from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.flex_attention import FlexAttentionHOP
from torch.fx import traceback
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..rules.table import Rule, row, stands_in_for

_LN2 = math.log(2)
# For each of four nested vmaps, innermost first, the arguments of a score function (batch, head, row, column) that it
# maps.
_MAPPED = ((None, None, None, 0), (None, None, 0, None), (None, 0, None, None), (0, None, None, None))


class IndexByTensors(TorchFunctionMode):
    """While this mode is on, tensors of one element that index a tensor stay tensors; eager reads their elements."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__getitem__:
            indices = pytree.tree_leaves(args[1])
            if all(isinstance(i, (Tensor, int)) for i in indices):
                device = args[0].device
                return torch.ops.aten.index(args[0], [
                    torch.tensor(i, dtype=torch.int64, device=device) if isinstance(i, int) else i for i in indices])
        return func(*args, **(kwargs or {}))


def _of_all_scores(function: Callable[..., Any], *before: int) -> Callable[..., Any]:
    """Turns a function of one score's batch, head, row and column into a function of those of all scores."""
    for mapped in _MAPPED:
        function = torch.vmap(function, in_dims=(*before, *mapped))
    return function


@stands_in_for(FlexAttentionHOP.__call__)
def flex_attention(
    operator: Any, query: Tensor, key: Tensor, value: Tensor, score_mod: Callable[..., Any], block_mask: Any,
    scale: float, kernel_options: Any, score_mod_other_buffers: Any = (), mask_mod_other_buffers: Any = (),
) -> tuple[Tensor, Tensor, Tensor]:
    """The operator behind ``flex_attention``.

    Returns:
        The result, of shape (batch, heads, rows, width of values) and in query's order of dimensions; for each row, the
        logarithm to base 2 of the sum of exponentials; and for each row the largest score, in the same unit.
    """
    if torch.is_autocast_enabled(query.device.type):
        query, key, value = (_cast(x) for x in (query, key, value))
    with torch.autocast(query.device.type, enabled=False):
        groups = query.size(1) // key.size(1)
        if not (query.size(0) == key.size(0) or query.size(0) > 1 and key.size(0) == 1):
            raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={query.size(0)} and Bkv={key.size(0)}")
        key, value = (_for_all_heads(x, query.size(0), groups) for x in (key, value))
        scores = _scores(query, key, score_mod, block_mask[-1], scale, score_mod_other_buffers, mask_mod_other_buffers)
        empty = (scores == -math.inf).all(-1)
        # For a row without any score, the gradient would be infinity minus infinity.
        finite = torch.where(empty.unsqueeze(-1), 0.0, scores)
        sums = torch.where(empty, -math.inf, finite.logsumexp(-1))
        largest = scores.detach().amax(-1) if scores.size(-1) else scores.detach().max(-1)[0]
        weights = torch._safe_softmax(scores, -1).to(query.dtype)
        return _in_order_of(_product(weights, value.to(query.dtype)), query), sums / _LN2, largest / _LN2


def _product(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``. On a CPU, eager sums products of 16-bit floats, which are exact in float32, in float32. Written out,
    our kernels do, where the library's product would need all weights in memory."""
    if a.device.type == "cpu" and a.dtype in (torch.bfloat16, torch.float16):
        return (a.float() @ b.float()).to(a.dtype)
    return a @ b


def _cast(x: Tensor) -> Tensor:
    """Casts an argument as autocast does it."""
    eligible = x.is_floating_point() and x.dtype != torch.float64
    return x.to(torch.get_autocast_dtype(x.device.type)) if eligible else x


def _for_all_heads(x: Tensor, batch: int, groups: int) -> Tensor:
    if groups != 1:
        x = x.repeat_interleave(groups, dim=1)
    return x.expand(batch, -1, -1, -1)


def _scores(
    query: Tensor, key: Tensor, score_mod: Callable[..., Any], mask_mod: Callable[..., Any], scale: float,
    of_scores: Any, of_masks: Any,
) -> Tensor:
    exact = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = ((query.to(exact) @ key.to(exact).transpose(-2, -1)) * scale).to(exact)
    places = [torch.arange(n, device=scores.device) for n in scores.shape]
    with IndexByTensors():
        allowed = _of_all_scores(lambda *at: mask_mod(*at, *of_masks))(*places)
        changed = _of_all_scores(lambda score, *at: score_mod(score, *at, *of_scores), 0)(scores, *places)
        return torch.where(allowed, changed, -math.inf)


def _in_order_of(result: Tensor, like: Tensor) -> Tensor:
    """A copy whose dimensions lie in memory in the order of another tensor's, except that the last is innermost."""
    order = sorted(range(3, -1, -1), key=lambda dim: like.stride(dim))
    order = [3] + [dim for dim in order if dim != 3]
    strides, step = [0] * 4, 1
    for dim in order:
        strides[dim] = step
        step = step * max(result.size(dim), 1)
    made = result.new_empty_strided(result.shape, strides)
    return made.copy_(result)


@stands_in_for("torch.fx.experimental.symbolic_shapes:has_free_unbacked_symbols")
def has_symbols_without_values(x: Any) -> bool:
    """What ``flex_attention`` asks about its arguments since torch 2.15: each symbol of a trace has a value."""
    return False


def one_block(query: Tensor, key: Tensor) -> Any:
    """The block mask of a call without one. For each block of keys, torch's own also lists the blocks of queries, which
    only torch's compiler reads."""
    from torch.nn.attention import flex_attention as of_torch  # takes 40 ms

    ones = torch.ones(1, 1, 1, dtype=torch.int32, device=query.device)
    zeros = torch.zeros(1, 1, 1, 1, dtype=torch.int32, device=query.device)
    size = of_torch._LARGE_SPARSE_BLOCK_SIZE
    return of_torch.BlockMask(
        (1, 1), ones, zeros, None, None, None, None, None, None, (size, size), of_torch.noop_mask)


@contextlib.contextmanager
def no_notes(annotation: dict[str, Any]) -> Iterator[None]:
    """``torch.fx.traceback.annotate``, whose annotations only torch's compiler reads."""
    yield


def mark_static(t: Tensor, index: Any = None) -> None:
    """``torch._dynamo.mark_static`` of a traced tensor: the treatment of its sizes has been settled by then."""


# In plain Python after a break, torch's own code runs.
row(Rule.SUBSTITUTED, traceback.annotate, calls=no_notes)
row(Rule.SUBSTITUTED, "torch._dynamo.decorators:mark_static", calls=mark_static)
row(Rule.SUBSTITUTED, "torch.nn.attention.flex_attention:_create_empty_block_mask", calls=one_block)
