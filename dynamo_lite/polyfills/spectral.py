"""The inverse of the short-time Fourier transform, which in C++ asks for elements of the window.

Invariant: the result is computed by the operations that torch's own function runs, in their order.
"""
from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 1e-11
"""What the sum of squared windows must reach everywhere."""
_BY_ROOT, _BY_COUNT = 1, 2  # how the results of an inverse Fourier transform are scaled


def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: Tensor | None = None, center: bool = True, normalized: bool = False, onesided: bool | None = None,
    length: int | None = None, return_complex: bool = False,
) -> Tensor:
    """``torch.istft`` of arguments that it accepts, with real results."""
    hop = n_fft // 4 if hop_length is None else hop_length
    width = n_fft if win_length is None else win_length
    frames = input.size(-1)
    whole = n_fft + hop * (frames - 1)
    start = n_fft // 2 if center else 0
    end = whole - n_fft // 2 if center else whole
    if length is not None:
        end = start + length
    weights = torch.ones(width, dtype=input.dtype.to_real(), device=input.device) if window is None else window
    if width != n_fft:
        left = (n_fft - width) // 2
        weights = torch.constant_pad_nd(weights, (left, n_fft - width - left), 0)
    batch = input.unsqueeze(0) if input.dim() == 2 else input
    batch = batch.transpose(1, 2)
    if onesided is False:
        batch = batch.narrow(-1, 0, n_fft // 2 + 1)
    parts = torch.ops.aten._fft_c2r(batch, [2], _BY_ROOT if normalized else _BY_COUNT, n_fft)
    parts = parts * weights.view(1, 1, n_fft)
    signal = torch.ops.aten.unfold_backward(parts, [parts.size(0), whole], 1, n_fft, hop)
    squares = weights.pow(2).expand(1, frames, n_fft)
    envelope = torch.ops.aten.unfold_backward(squares, [1, whole], 1, n_fft, hop)
    signal, envelope = signal[:, start:end], envelope[:, start:end]
    # Where this fails, the frame runs in plain Python, in which torch's own function raises.
    torch._assert_async((envelope.abs().min() < _LEAST).logical_not())
    signal = signal / envelope
    return signal.squeeze(0) if input.dim() == 2 else signal
