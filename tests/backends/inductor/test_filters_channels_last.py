"""Filters whose channels lie innermost: templates pack them as they are, no copy of them is made."""
import math

import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends.inductor.scheduler import threads

pytestmark = pytest.mark.by_turns(3)

# Images, filters, stride, padding, dilation, groups.
SIZES = [
    ((2, 16, 14, 14), (24, 16, 3, 3), 1, 1, 1, 1),
    ((1, 17, 19, 33), (50, 17, 3, 3), 1, 0, 1, 1),
    ((3, 8, 15, 13), (13, 8, 3, 3), 2, 1, 1, 1),
    ((1, 3, 33, 40), (62, 3, 7, 7), 2, 3, 1, 1),
    ((2, 300, 7, 7), (98, 300, 3, 3), 1, 1, 1, 1),
    ((1, 12, 20, 22), (65, 12, 2, 3), (2, 1), (0, 2), (1, 2), 1),
    ((2, 40, 9, 28), (20, 10, 3, 3), 1, 1, 1, 4),
    ((1, 20, 14, 9), (9, 20, 3, 1), 1, (1, 0), 1, 1),
    ((1, 20, 14, 9), (9, 20, 1, 5), 1, (0, 2), 1, 1),
]
WAYS = ["decided", "planes", "exchanged", "filtered"]


def arranged(monkeypatch, way):
    """As if this way were the cheapest one."""
    if way == "planes":
        monkeypatch.setattr(threads, "exchange", lambda *_: None)
        monkeypatch.setattr(dynamo_lite.config, "winograd", False)
    elif way == "exchanged":
        monkeypatch.setattr(dynamo_lite.config, "winograd", False)
        monkeypatch.setattr(dynamo_lite.config, "target", {"placed_right": 1000.0})
    elif way == "filtered":
        monkeypatch.setattr(threads, "LEAST_GAIN", -math.inf)


def in_float64(fn, x, w, *rest):
    return fn(x.double(), w.double(), *rest)


@pytest.mark.parametrize("sizes", SIZES, ids=lambda s: "x".join(map(str, s[1])))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("last", [True, False], ids=["images last", "images in planes"])
def test_values(sizes, way, last, monkeypatch):
    image, filters, stride, padding, dilation, groups = sizes
    arranged(monkeypatch, way)
    monkeypatch.setattr(dynamo_lite.config, "cache_graphs", False)
    x, w = torch.randn(image), torch.randn(filters) / math.prod(filters[1:]) ** 0.5
    w = w.contiguous(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last) if last else x
    convolution = lambda x, w: F.relu(F.conv2d(x, w, None, stride, padding, dilation, groups)) + 1
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(convolution, dynamic=False)
    with torch.no_grad():
        got, want = compiled(x, w), convolution(x, w)
    assert got.stride() == want.stride()
    source = dynamo_lite.generated_code(compiled)
    # The convolution, and kernels that put the image in planes and the result in its layout: no filter is copied.
    assert f"c.taps = {math.prod(filters[2:])};" in source
    assert source.count("KERNEL kernel") == (3 if last else 2)
    suits = filters[2:] == (3, 3) and stride == dilation == 1 and way == "filtered"
    if way != "decided":
        assert ("tile_lines = 0" not in source) == suits
    exact = in_float64(convolution, x, w)
    theirs = (want - exact).abs().max()
    assert (got - exact).abs().max() <= 3 * theirs + 1e-6


def test_numbers_of_images_that_are_symbols():
    """The library decides, of packed filters too."""
    w = torch.randn(24, 16, 3, 3).contiguous(memory_format=torch.channels_last)
    dynamo_lite.reset()
    for stride in (1, 2):
        convolution = eval(f"lambda x, w: F.conv2d(x, w, stride={stride}, padding=1) * 2", {"F": F})
        compiled = dynamo_lite.compile(convolution, dynamic=True)
        for batch in (2, 3, 7):
            x = torch.randn(batch, 16, 15, 17)
            with torch.no_grad():
                torch.testing.assert_close(compiled(x, w), convolution(x, w), rtol=1e-4, atol=1e-4)


def test_a_result_that_is_not_finite():
    """Sums that filtering made NaN are computed again from filters as they lie."""
    x = torch.randn(1, 16, 20, 20)
    x[0, 3, 4, 5], x[0, 7, 11, 12] = math.inf, -math.inf
    w = torch.randn(16, 16, 3, 3).contiguous(memory_format=torch.channels_last)
    convolution = lambda x, w: F.conv2d(x, w, None, 1, 1) + 0.5
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "LEAST_GAIN", -math.inf)
        patch.setattr(dynamo_lite.config, "cache_graphs", False)
        dynamo_lite.reset()
        got, want = dynamo_lite.compile(convolution, dynamic=False)(x, w), convolution(x, w)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("threads_", thorough.share([1, 2, 3, 7], 0, 2))
def test_bits_do_not_depend_on_threads(threads_):
    x = torch.randn(1, 32, 28, 28)
    w = torch.randn(50, 32, 3, 3).contiguous(memory_format=torch.channels_last)
    found, before = [], torch.get_num_threads()
    for number in (2, threads_):
        dynamo_lite.reset()
        try:
            torch.set_num_threads(number)
            with torch.no_grad():
                found.append([dynamo_lite.compile(eval(f"lambda x, w: F.conv2d(x, w, stride={s}, padding=1) + 1", {
                    "F": F}), dynamic=False)(x, w) for s in (1, 2)])
        finally:
            torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


