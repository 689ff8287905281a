"""Cross-entropy of a linear layer's results, computed in parts of some rows, so that the logits are never in memory as
a whole.

If gradients will be needed, they are computed together with the loss, for each part of the logits while it is in
memory: loss and gradients are linear in the incoming gradient, which is a number, so the backward pass only multiplies
by it. That takes as many products as without parts. Logits of 16 bits are products of 16 bits, rounded as in eager;
everything after them is float32.

Invariant: results differ from eager's only by rounding; ignored rows contribute nothing, whatever they contain.
"""
from __future__ import annotations

import functools
from typing import Any

import torch

from dynamo_lite.runtime.sized_operators import NAMESPACE

NAME = "linear_cross_entropy"
_SCHEMA = (f"{NAME}(Tensor x, Tensor weight, Tensor? bias, Tensor target, int ignore_index, float label_smoothing, "
           "bool mean, bool for_x, bool for_weight, bool for_bias) -> (Tensor, Tensor, Tensor, Tensor, Tensor)")
LEAST = {"cpu": 256, "cuda": 2048}
"""The least number of rows of a part. Each part reads and writes the sum of the weight's gradients once, 8 bytes per
element (16 if products are of 16 bits), and computes 6 operations per element and row. With 256 rows that is 192
operations per byte: ten times as many as a CPU's cores compute in the time that a byte takes from memory (10 to 20). An
H100 computes 300 (16 bits): with 2,048 rows, 768 per byte, updating the sum takes at most two fifths of the products'
time, and less with longer parts."""


def rows_at_once(rows: int, outputs: int, inputs: int, device: str) -> int:
    """The number of rows per part: a multiple of ``LEAST`` whose logits take about as much memory as all of ``x``, or
    ``LEAST`` if that is more."""
    least = LEAST.get(device, LEAST["cuda"])
    return max(-(-rows * inputs // (max(outputs, 1) * least)), 1) * least


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, ignore_index: int,
    label_smoothing: float, mean: bool, compute: torch.dtype, result: torch.dtype,
) -> torch.Tensor:
    """Computes ``F.cross_entropy(F.linear(x, weight, bias), target)``, differentiably.

    Args:
        x: (rows, inputs).
        weight, bias: (outputs, inputs), (outputs,).
        target: (rows,), int64.
        mean: whether the loss is the mean over the rows that are not ignored; else it is the sum.
        compute: the dtype of the products, which autocast may have chosen.
        result: the dtype of the loss.
    """
    x, weight = x.to(compute), weight.to(compute)
    bias = None if bias is None else bias.to(compute)
    rest = (target, ignore_index, label_smoothing, mean)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, weight, bias)):
        loss: torch.Tensor = _Loss.apply(x, weight, bias, *rest)
    else:
        loss = operator()(x, weight, bias, *rest, False, False, False)[0]
    return loss.to(result)


class _Loss(torch.autograd.Function):
    """The loss for autograd: the gradients are computed in the forward pass, and scaled in the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *rest: Any) -> torch.Tensor:
        loss, *made = operator()(x, weight, bias, *rest, *ctx.needs_input_grad[:3])
        ctx.save_for_backward(*made)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        factor, *made = ctx.saved_tensors
        scale = grad * factor
        found = [(g * scale).to(g.dtype) if asked else None for g, asked in zip(made, ctx.needs_input_grad)]
        return (*found, None, None, None, None)


@functools.cache
def operator() -> Any:
    """The torch operator, which the first call defines. Its results: the loss; a factor common to all gradients; the
    gradients of the summed losses by x, weight and bias, each empty if it is not requested."""
    library = _library()
    library.define(_SCHEMA)
    library.impl(NAME, _compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{NAME}", _like, lib=library)
    return getattr(getattr(torch.ops, NAMESPACE), NAME).default


@functools.cache
def _library() -> torch.library.Library:
    """The library, which has to live as long as its operator."""
    return torch.library.Library(NAMESPACE, "FRAGMENT")


def _like(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, ignore_index: int,
    label_smoothing: float, mean: bool, *asked: bool,
) -> tuple[torch.Tensor, ...]:
    shapes = (x.shape, weight.shape, weight.shape[:1])
    return (x.new_empty((), dtype=torch.float32), x.new_empty((), dtype=torch.float32),
            *(x.new_empty(shape if wanted else (0,)) for shape, wanted in zip(shapes, asked)))


@torch.no_grad()
def _compute(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, target: torch.Tensor, ignore_index: int,
    label_smoothing: float, mean: bool, *asked: bool,
) -> tuple[torch.Tensor, ...]:
    """The kernel of the operator on all devices; see ``operator`` for its results."""
    (rows, inputs), outputs = x.shape, weight.shape[0]
    kept = target != ignore_index
    if x.device.type == "cpu":
        _check(target, kept, outputs)
    parts = _Parts(x, weight, bias, label_smoothing, asked)
    target = torch.where(kept, target, 0)
    step = rows_at_once(rows, outputs, inputs, x.device.type)
    losses = [parts.take(slice(at, at + step), target[at:at + step], kept[at:at + step].to(torch.float32))
              for at in range(0, rows, step)]
    loss = torch.stack(losses).sum() if losses else x.new_zeros((), dtype=torch.float32)
    factor = torch.ones_like(loss)
    if mean:
        count = kept.sum()
        loss = loss / count
        factor = torch.where(count > 0, 1.0 / count, 0.0)
    return (loss, factor, *parts.gradients())


def _check(target: torch.Tensor, kept: torch.Tensor, outputs: int) -> None:
    """Raises eager's error for a class out of bounds. On a GPU, the kernel that uses it stops, as in eager."""
    wrong = kept & ((target < 0) | (target >= outputs))
    if wrong.any():
        raise IndexError(f"Target {target[wrong][0].item()} is out of bounds.")


class _Parts:
    """Accumulates sums over parts of the rows, and holds the memory for one part."""

    def __init__(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, smoothing: float,
        asked: tuple[bool, ...],
    ) -> None:
        self._x, self._weight, self._bias, self._smoothing = x, weight, bias, smoothing
        self._for_x = torch.empty(x.shape, dtype=x.dtype, device=x.device) if asked[0] else None
        # 16-bit sums would be rounded once for each part.
        self._for_weight = x.new_zeros(weight.shape, dtype=torch.float32) if asked[1] else None
        self._for_bias = x.new_zeros(weight.shape[:1], dtype=torch.float32) if asked[2] else None
        self._memory: torch.Tensor | None = None

    def take(self, rows: slice, target: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """The sum of the rows' losses. Adds their gradients to the sums.

        Args:
            kept: (rows,), 1 for each row, or 0 if it is ignored.
        """
        x, smoothing, outputs = self._x[rows], self._smoothing, self._weight.shape[0]
        if self._memory is None:
            self._memory = x.new_empty((x.shape[0], outputs))
        products = torch.mm(x, self._weight.t(), out=self._memory[:x.shape[0]])
        if self._bias is not None:
            products += self._bias
        logits = products.float()  # for float32, this is the same memory
        torch.ops.aten._log_softmax.out(logits, 1, False, out=logits)
        target = target.unsqueeze(1)
        loss = logits.gather(1, target).squeeze(1) * (smoothing - 1)
        if smoothing:
            loss -= logits.sum(1) * (smoothing / outputs)
        # Selects instead of multiplying by 0: a row of infinities counts as nothing if it is ignored.
        total = torch.where(kept > 0, loss, 0.0).sum()
        if self._for_x is not None or self._for_weight is not None or self._for_bias is not None:
            gradient = logits.exp_()
            if smoothing:
                gradient -= smoothing / outputs
            gradient.scatter_(1, target, gradient.gather(1, target) + (smoothing - 1))
            products = gradient if gradient.dtype is products.dtype else products.copy_(gradient)
            self._add(rows, x, products, kept)
        return total

    def _add(self, rows: slice, x: torch.Tensor, gradient: torch.Tensor, kept: torch.Tensor) -> None:
        """Adds the gradients of one part of the rows to the sums, from the gradient of the part's logits."""
        kept = kept.to(x.dtype)
        if self._for_x is not None:
            into = torch.mm(gradient, self._weight, out=self._for_x[rows])
            into *= kept.unsqueeze(1)
        if self._for_weight is not None:
            x = x * kept.unsqueeze(1)
            if x.dtype is torch.float32:
                self._for_weight.addmm_(gradient.t(), x)
            else:
                self._for_weight += torch.mm(gradient.t(), x)
        if self._for_bias is not None:
            self._for_bias += torch.mv(gradient.t(), kept)

    def gradients(self) -> list[torch.Tensor]:
        found = (self._for_x, self._for_weight, self._for_bias)
        return [self._x.new_empty((0,)) if g is None else g.to(self._x.dtype) for g in found]
