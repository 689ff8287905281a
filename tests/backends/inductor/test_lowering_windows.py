"""Nearest-neighbour resizing and pooling: generated code against eager."""
import itertools

import pytest
import torch
import torch.nn.functional as F

aten = torch.ops.aten


def image(*shape, dtype=torch.float32, channels_last=False):
    torch.manual_seed(sum(shape))
    x = torch.randn(shape).to(dtype)
    return x.to(memory_format=torch.channels_last) if channels_last else x


def test_nearest(check_many):
    cases = []
    for mode, shape in itertools.product(("nearest", "nearest-exact"), ((2, 3, 5, 4), (1, 2, 1, 6))):
        for how in ({"scale_factor": 2}, {"scale_factor": 3.0}, {"size": (2 * shape[2], 4 * shape[3])},
                    {"size": shape[2:]}, {"scale_factor": (1, 2)}):
            cases.append((f"{mode} {how}", lambda x, m=mode, h=how: F.interpolate(x, mode=m, **h) + 1, [image(*shape)]))
        cases.append(("vector", lambda x, m=mode: F.interpolate(x, scale_factor=2, mode=m), [image(2, 3, 7)]))
        half = {"size": (4, 3)}
        cases.append(("down", lambda x, m=mode, h=half: F.interpolate(x, mode=m, **h), [image(1, 2, 8, 9)]))
    check_many(cases)


@pytest.mark.parametrize("sizes", [((5, 6), (8, 11)), ((7, 7), (3, 5))])
def test_nearest_with_other_factors_is_the_library_s(check_many, sizes):
    x = image(1, 2, *sizes[0])
    check_many([("odd", lambda x: F.interpolate(x, size=sizes[1], mode="nearest"), [x])],
               library=["aten.upsample_nearest2d.default"])


def test_nearest_backward(check_many):
    d = image(2, 3, 8, 9)
    check_many([("backward", lambda d: aten.upsample_nearest2d_backward(d, (8, 9), (2, 3, 4, 3)), [d])])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_average_pools(check_many, dtype, data):
    cases = []
    for kernel, stride in ((2, 2), (3, 1), (3, 2), ((2, 4), (1, 3)), (1, 1)):
        for last in (False, True):
            x = image(2, 3, 9, 10, dtype=dtype, channels_last=last)
            cases.append((f"{kernel} {stride}", lambda x, k=kernel, s=stride: F.avg_pool2d(x, k, s), [x]))
    x = image(2, 3, 8, 9, dtype=dtype)
    cases.append(("adaptive", lambda x: F.adaptive_avg_pool2d(x, (4, 3)), [x]))
    cases.append(("divisor", lambda x: F.avg_pool2d(x, 2, divisor_override=3), [x]))
    check_many(cases, data.CLOSE)
