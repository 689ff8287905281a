"""Whether the gradient of a convolution's image is faster by our Winograd convolution than by the library.

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
    """Whether to compute the image's gradient as a convolution of the incoming gradient by Winograd's filtering. The
    library is assumed to reach ``convolution_share`` of a core's peak rate.

    Args:
        images: number of images.
        gradient, image: channels, height and width of the incoming gradient, which is convolved, and of the result.
        padding: padding of the 3 x 3 convolution, without stride and dilation, that computes the image's gradient.
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
    # The cost, in rows, of copying the filters, where each store goes to another cache line.
    copied = channels * info.far_store * info.costs.product_rate / (images * height * width)
    return filtering_cost(contraction, right, info) + copied < (1 - LEAST_GAIN) * channels / info.convolution_share
