"""Convolutions of 3 x 3 taps in transformed tiles: values, errors, what isn't finite, any number of threads."""
import re

import pytest
import torch
import torch.nn.functional as F
from processors import ALL

import dynamo_lite
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, Patches
from dynamo_lite.backends.inductor.scheduler.threads import share_work

# With which transforming costs nothing.
ALWAYS = {"transform_pixels": 1e-6, "transform_taps": 1e-6, "transform_sums": 1e-6}
SIZES = {  # batch, channels, filters, height, width, padding, groups
    "even": (1, 16, 16, 12, 12, 1, 1),
    "odd": (2, 9, 13, 11, 15, 1, 1),
    "one line more than tiles": (1, 8, 20, 33, 9, 1, 1),
    "no border": (1, 24, 32, 14, 22, 0, 1),
    "wide border": (1, 5, 8, 9, 10, 2, 1),
    "cut lines": (1, 12, 18, 5, 300, 1, 1),
    "cut lines of an odd width": (2, 12, 18, 4, 133, 1, 1),
    "several groups of tiles": (1, 12, 50, 40, 40, 1, 1),
    "many rows": (1, 10, 150, 12, 12, 1, 1),
    "deep": (1, 300, 12, 8, 8, 1, 1),
    "small images": (5, 40, 60, 7, 7, 1, 1),
    "groups": (2, 24, 32, 10, 10, 1, 4),
    "larger than caches": (1, 288, 288, 20, 20, 1, 1),
}


def compiled(fn, *args, **settings):
    """What a function gives that uses the filtering, or not if ``winograd`` is false."""
    own = dynamo_lite.compile(fn)
    with dynamo_lite.config.patch(**{"target": ALWAYS, **settings}), torch.no_grad():
        got = own(*args)
        found = list(map(int, re.findall(r"c.tile_lines = (\d+)", dynamo_lite.generated_code(own))))
        assert found and all(bool(lines) == settings.get("winograd", True) for lines in found)
        assert torch.equal(own(*args), got) or not got.isfinite().all()
    dynamo_lite.reset()
    return got


def operands(batch, channels, filters, height, width, groups=1, numbers=torch.randn):
    torch.manual_seed(0)
    return (numbers(batch, channels, height, width), numbers(filters, channels // groups, 3, 3), numbers(filters))


def conv(padding, groups=1):
    return lambda x, w, b: F.relu(F.conv2d(x, w, b, padding=padding, groups=groups))


def error(got, x, w, b, padding, groups=1):
    exact = F.relu(F.conv2d(x.double(), w.double(), b.double(), padding=padding, groups=groups))
    return (got - exact).abs().max().item()


@pytest.mark.parametrize("simd", ["auto", "scalar"])
@pytest.mark.parametrize("name", SIZES)
def test_values(name, simd):
    batch, channels, filters, height, width, padding, groups = SIZES[name]
    args = operands(batch, channels, filters, height, width, groups)
    got = compiled(conv(padding, groups), *args, cpp_simd=simd)
    want = conv(padding, groups)(*args)
    assert got.shape == want.shape and got.stride() == want.stride()
    # No less exact than sums in some other order.
    assert error(got, *args, padding, groups) <= max(3 * error(want, *args, padding, groups), 1e-5)


def test_small_integers_are_exact():
    args = operands(2, 16, 12, 13, 13, numbers=lambda *size: torch.randint(-8, 9, size).float())
    assert torch.equal(compiled(conv(1), *args), conv(1)(*args))


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 3e38])
@pytest.mark.parametrize("place", ["image", "filter"])
def test_what_is_not_finite_is_as_in_eager(value, place):
    """In the windows that see it, and nowhere else: 3e38 overflows while it is transformed."""
    x, w, b = operands(2, 8, 9, 15, 12)
    if place == "image":
        x[1, 3, 7, 4] = value
    else:
        w[5, 2, 1, 1] = value
    plain = lambda x, w, b: F.conv2d(x, w, b, padding=1) * 0.5
    got, want = compiled(plain, x, w, b), plain(x, w, b)
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(kind(got), kind(want))
    torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["odd", "several groups of tiles", "many rows", "groups", "cut lines"])
def test_the_same_bits_for_any_number_of_threads(name):
    batch, channels, filters, height, width, padding, groups = SIZES[name]
    args = operands(batch, channels, filters, height, width, groups)
    args[0][0, 0, 2, 2] = float("inf")  # a row that is computed again
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            found.append(compiled(conv(padding, groups), *args))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0].view(torch.int32), other.view(torch.int32)) for other in found)


@pytest.mark.parametrize("name", ["odd", "small images", "cut lines"])
def test_a_symbolic_number_of_images(name):
    _, channels, filters, height, width, padding, groups = SIZES[name]
    fn = conv(padding, groups)
    own = dynamo_lite.compile(fn)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with dynamo_lite.config.patch(target=ALWAYS), torch.no_grad():
            for batch in (4, 2, 7, 30):
                args = operands(batch, channels, filters, height, width, groups)
                torch.testing.assert_close(own(*args), fn(*args), rtol=1e-4, atol=1e-3)
            assert "c.decided = false" in dynamo_lite.generated_code(own)
            assert re.search(r"c.tile_lines = [1-9]", dynamo_lite.generated_code(own))
    finally:
        torch.set_num_threads(before)


def test_what_follows_is_fused():
    def fn(x, w, b, y, scale):
        z = F.conv2d(x, w, b, padding=1) * scale[:, None, None] + y
        return F.gelu(z), z.amax(1), z.half()

    torch.manual_seed(0)
    args = (*operands(2, 16, 24, 13, 18), torch.randn(2, 24, 13, 18), torch.randn(24))
    own = dynamo_lite.compile(fn)
    with dynamo_lite.config.patch(target=ALWAYS), torch.no_grad():
        for got, want in zip(own(*args), fn(*args)):
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
        assert re.search(r"c.tile_lines = [1-9]", dynamo_lite.generated_code(own))


def test_gradients():
    """That of the image is such a convolution, too."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 12, 3))
    x = torch.randn(2, 8, 14, 14, requires_grad=True)
    leaves, found = [x, *model.parameters()], []
    with dynamo_lite.config.patch(target=ALWAYS):
        for fn in (model, dynamo_lite.compile(model)):
            found.append(torch.autograd.grad(fn(x).square().sum(), leaves))
    for got, want in zip(found[1], found[0]):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)


def test_a_setting_turns_it_off():
    args = operands(1, 16, 16, 12, 12)
    torch.testing.assert_close(compiled(conv(1), *args, winograd=False), conv(1)(*args), rtol=1e-4, atol=1e-4)
    compiled(conv(1), *args)


def made(batch, channels, filters, side, kernel=3, stride=1, dilation=1, depth=1):
    out = (side + 2 - dilation * (kernel - 1) - 1) // stride + 1
    right = Patches("image", 0, (channels * side * side,), channels, side, side, out, out, (kernel, kernel),
                    (stride, stride), (1, 1), (dilation, dilation))
    seen = channels * kernel ** 2
    left = Matrix("filters", 0, (0,), seen if depth == 1 else 1, depth)
    batches, rows, columns = (ix.Var(name, size) for name, size in (("n", batch), ("r", filters), ("c", out * out)))
    return Contraction((batches,), (rows,), (columns,), seen, left, right, False)


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
def test_where_it_pays(info):
    assert share_work(made(1, 64, 64, 56), 1, info).tile_lines and share_work(made(8, 256, 256, 14), 2, info).tile_lines
    # Few channels or filters, or filters that are used for a few tiles only.
    assert not share_work(made(1, 4, 64, 56), 1, info).tile_lines
    assert not share_work(made(1, 64, 4, 56), 1, info).tile_lines
    assert not share_work(made(1, 512, 512, 6), 1, info).tile_lines
    # Of another kind.
    for kind in ({"kernel": 5}, {"stride": 2}, {"dilation": 2}, {"depth": 64}):
        assert not share_work(made(1, 64, 64, 56, **kind), 1, info).tile_lines


@pytest.mark.parametrize("threads", [1, 2, 8, 64])
@pytest.mark.parametrize("sizes", [(1, 64, 64, 56), (8, 512, 512, 14), (1, 256, 256, 14), (64, 64, 64, 32)])
@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
def test_threads_share_out_rows_and_groups(info, sizes, threads):
    sharing = share_work(made(*sizes), threads, info)
    assert sharing.tile_lines == share_work(made(*sizes), 1, info).tile_lines
    assert threads // 2 < sharing.row_parts * sharing.block_parts <= threads
    # What stays transformed is in a cache's part of one core.
    kept = min(sharing.tile_rows * sizes[1] * 64, sharing.tile_groups * 64 * sizes[1] * 64)
    assert kept <= max(info.near_panels, 12 * sizes[1] * 64)
