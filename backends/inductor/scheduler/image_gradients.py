"""Whether the image's gradient of a convolution is faster as one by Winograd's filtering than by the library.

Invariant: the answer is a function of the sizes and the description of the processor.
"""
from __future__ import annotations

from dynamo_lite.backends.inductor import target_info
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, Patches
from dynamo_lite.backends.inductor.scheduler.threads import share_work
from dynamo_lite.backends.inductor.scheduler.winograd import LEAST_GAIN, TAPS, filtering_cost


def is_filtered(images: int, gradient: tuple[int, int, int], image: tuple[int, int, int],
                padding: tuple[int, int]) -> bool:
    """The library reaches ``convolution_share`` of a core's rate.

    Args:
        images: how many there are.
        gradient, image: channels, height and width of the incoming gradient, which is convolved, and of the result.
        padding: of the convolution of 3 x 3 taps without stride and dilation that gives the gradient.
    """
    (filters, out_height, out_width), (channels, height, width) = gradient, image
    right = Patches("gradient", 0, (filters * out_height * out_width,), filters, out_height, out_width, height, width,
                    (3, 3), (1, 1), padding, (1, 1))
    depth, info = filters * TAPS, target_info.current()
    batch, rows, columns = ix.Var("n", images), ix.Var("r", channels), ix.Var("c", height * width)
    contraction = Contraction(
        (batch,), (rows,), (columns,), depth, Matrix("weight", 0, (0,), depth, 1), right, False)
    if not share_work(contraction, 1, info).tile_lines:
        return False
    # In rows, as costs are: filters are copied, each store to another line.
    copied = channels * info.far_store * info.costs.product_rate / (images * height * width)
    return filtering_cost(contraction, right, info) + copied < (1 - LEAST_GAIN) * channels / info.convolution_share
