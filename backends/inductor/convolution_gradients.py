"""Gradients of convolutions that other operations compute faster than the library's backward convolution; all others
are left to the library.

The library computes the weight's gradient in a blocked layout and then rearranges it, at some nanoseconds per element,
however small the images are: for a weight of 512 x 512 x 3 x 3 and images of 2 x 2 pixels, that is 95 % of the time. A
matrix product of the incoming gradient and the unfolded input writes it in the right layout at once.

The image's gradient of a convolution with stride 1 is itself a convolution, of the incoming gradient with filters that
are flipped and whose input and output channels are exchanged; with 3 x 3 taps, Winograd's algorithm computes it.
"""
from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dynamo_lite.backends.aot.decompositions import register_decomposition
from dynamo_lite.backends.inductor import target_info
from dynamo_lite.symbols.nodes import hint_of

aten = torch.ops.aten

_SURELY = 0.8
"""The product is chosen if the model gives it less than this share of the library's time; the model errs by a tenth."""


@register_decomposition(aten.convolution_backward.default)
def convolution_backward(
    grad_output: Tensor, input: Tensor, weight: Tensor, bias_sizes: list[int] | None, stride: list[int],
    padding: list[int], dilation: list[int], transposed: bool, output_padding: list[int], groups: int,
    output_mask: list[bool],
) -> Any:
    """Decomposes ``aten.convolution_backward`` where that is faster; otherwise returns ``NotImplemented``."""
    if transposed or groups != 1:
        return NotImplemented
    spatial = input.dim() - 2
    stride, padding, dilation = (v * spatial if len(v) == 1 else list(v) for v in (stride, padding, dilation))
    as_product = output_mask[1] and _plain(grad_output, input, weight) and _product_is_faster(grad_output, weight)
    if output_mask[0] and not as_product and _is_filtered(grad_output, input, weight, stride, padding, dilation):
        # The library lays out its result as the images and filters are, regardless of the incoming gradient's layout.
        last = any(map(_is_channels_last, (input, weight)))
        layout = torch.channels_last if last else torch.contiguous_format
        turned = weight.flip([2, 3]).transpose(0, 1).contiguous(memory_format=layout)
        grad_input = aten.convolution.default(
            grad_output.contiguous(memory_format=layout), turned, None, stride, [2 - p for p in padding], dilation,
            False, output_padding, 1)
        if not any(output_mask[1:]):
            return grad_input, None, None
        rest = aten.convolution_backward.default(
            grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
            [False, *output_mask[1:]])
        return grad_input, *rest[1:]
    if not as_product:
        return NotImplemented
    columns = unfolded(input, list(weight.shape[2:]), stride, padding, dilation)
    channels = grad_output.shape[1]
    rows = grad_output.transpose(0, 1).reshape(channels, -1)
    grad_weight = aten.mm.default(rows, columns.reshape(rows.shape[1], -1)).view(weight.shape)
    grad_input = None
    if output_mask[0]:
        grad_input = aten.convolution_backward.default(
            grad_output, input, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups,
            [True, False, False])[0]
    grad_bias = grad_output.sum([0, *range(2, grad_output.dim())]) if output_mask[2] else None
    return grad_input, grad_weight, grad_bias


def unfolded(x: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]) -> Tensor:
    """The elements that each window of a convolution reads, with dimensions: image, window position, channel, tap."""
    spatial = len(kernel)
    if any(padding):
        x = aten.constant_pad_nd.default(x, [p for p in reversed(padding) for _ in range(2)], 0.0)
    for d, (k, s, apart) in enumerate(zip(kernel, stride, dilation)):
        x = x.unfold(2 + d, (k - 1) * apart + 1, s)
        if apart > 1:
            x = x[..., ::apart]
    positions, window = range(2, 2 + spatial), range(2 + spatial, 2 + 2 * spatial)
    return x.permute(0, *positions, 1, *window)


def _is_filtered(
    grad_output: Tensor, input: Tensor, weight: Tensor, stride: list[int], padding: list[int], dilation: list[int]
) -> bool:
    """Whether Winograd's algorithm computes the image's gradient, and faster than the library."""
    if input.dim() != 4 or not all(map(_of_images, (grad_output, input, weight))):
        return False
    sizes = (*grad_output.shape[1:], *input.shape[1:], *weight.shape)
    if not all(type(n) is int for n in sizes) or weight.shape[2:] != (3, 3) or any(p > 2 for p in padding):
        return False
    if any(n != 1 for n in (*stride, *dilation)):
        return False
    # Imported here, so that starting a kept graph does not import the scheduler.
    from dynamo_lite.backends.inductor.scheduler.image_gradients import is_filtered

    gradient, image = (t.shape[1:] for t in (grad_output, input))
    return is_filtered(hint_of(input.shape[0]), (gradient[0], gradient[1], gradient[2]), (image[0], image[1], image[2]),
                       (2 - padding[0], 2 - padding[1]))


def _of_images(t: Tensor) -> bool:
    """Whether a tensor is float32 on the CPU, not empty, and dense, either contiguous or channels-last."""
    return t.dtype is torch.float32 and t.device.type == "cpu" and bool(t.numel()) and (
        t.is_contiguous() or t.is_contiguous(memory_format=torch.channels_last))


def _is_channels_last(t: Tensor) -> bool:
    return not t.is_contiguous() and t.is_contiguous(memory_format=torch.channels_last)


def _product_is_faster(grad_output: Tensor, weight: Tensor) -> bool:
    """Estimated by a model of the library's time, fitted to measurements; symbolic sizes count as in the traced call.
    """
    info = target_info.current()
    places = hint_of(grad_output.numel()) // hint_of(grad_output.shape[1])
    size = hint_of(weight.numel())
    flops = 2.0 * places * size
    # Beyond the L2 cache, every store goes to another page. The input is unfolded element by element.
    rearranging = size * (info.near_store + (info.far_store - info.near_store) * min(1.0, size / info.far_stores))
    unfolding = info.near_store * places * math.prod(map(hint_of, weight.shape[1:]))
    rate = 2 * info.costs.product_rate
    library = flops / (info.convolution_share * rate) + rearranging
    return flops / (info.product_share * rate) + unfolding < _SURELY * library


def _plain(*tensors: Tensor) -> bool:
    """Whether these are dense float32 tensors of images, in the contiguous layout that a matrix product reads.

    With one channel or one pixel, a tensor is contiguous and channels-last at once. Then the strides decide, as they
    do in the library when it chooses the layout of its results.
    """
    return all(
        t.dtype is torch.float32 and t.dim() in (3, 4, 5) and t.numel() and t.is_contiguous()
        and t.stride(-1) == 1 and t.stride(1) == math.prod(t.shape[2:]) for t in tensors)
