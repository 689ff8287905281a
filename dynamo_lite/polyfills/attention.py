"""Stand-ins for the parts of ``nn.Transformer`` that ask for the elements of a mask.

Invariant: results are eager's for every mask; where two kernels have the same results, another one may run than in
eager.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.transformer import _detect_is_causal_mask, _get_seq_len

from ..rules.table import stands_in_for

_DEVICES = ("cpu", "cuda", "xpu")


@stands_in_for(_detect_is_causal_mask)
def detect_is_causal_mask(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """``_detect_is_causal_mask``, whose answer is only a hint: as torch documents, False is always correct."""
    return is_causal is True


@stands_in_for(nn.TransformerEncoder.forward)
def encode(
    self: Any, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    """``nn.TransformerEncoder.forward``.

    In inference eager drops padded positions (with a nested tensor) and returns zeros for them, if they are at the end
    of each sequence. Here they are computed like the others, and become zeros after the last layer.
    """
    src_key_padding_mask = F._canonical_mask(
        mask=src_key_padding_mask, mask_name="src_key_padding_mask", other_type=F._none_or_dtype(mask),
        other_name="mask", target_type=src.dtype)
    mask = F._canonical_mask(
        mask=mask, mask_name="mask", other_type=None, other_name="", target_type=src.dtype, check_other=False)
    blank = None
    if src_key_padding_mask is not None and mask is None and _drops_padding(self, src):
        kept = src_key_padding_mask.logical_not()
        blank = kept.logical_not()
        if getattr(self, "mask_check", True):
            blank = blank & (kept[:, 1:] <= kept[:, :-1]).all()
    is_causal = detect_is_causal_mask(mask, is_causal, _get_seq_len(src, self.layers[0].self_attn.batch_first))
    output = src
    for layer in self.layers:
        output = layer(output, src_mask=mask, is_causal=is_causal, src_key_padding_mask=src_key_padding_mask)
    if blank is not None:
        output = output.masked_fill(blank.unsqueeze(-1), 0.0)
    if self.norm is not None:
        output = self.norm(output)
    return output


def _drops_padding(self: Any, src: Tensor) -> bool:
    first = self.layers[0]
    if not torch.backends.mha.get_fastpath_enabled() or not getattr(self, "use_nested_tensor", False):
        return False
    if first.training or src.dim() != 3 or src.device.type not in _DEVICES or torch.is_autocast_enabled():
        return False
    attention = first.self_attn
    read = (
        src, attention.in_proj_weight, attention.in_proj_bias, attention.out_proj.weight, attention.out_proj.bias,
        first.norm1.weight, first.norm1.bias, first.norm2.weight, first.norm2.bias, first.linear1.weight,
        first.linear1.bias, first.linear2.weight, first.linear2.bias,
    )
    return not (torch.is_grad_enabled() and any(x.requires_grad for x in read))
