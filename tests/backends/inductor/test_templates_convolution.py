"""Convolutions and pooling as generated code: values against eager in double, layouts, fusion behind them."""
import re

import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends.inductor import target_info

pytestmark = pytest.mark.by_turns(3)

R = torch.randn
conv1, conv2, pool = F.conv1d, F.conv2d, F.max_pool2d


def check(fn, *args, kernels=None, library=0, exact=False):
    torch.manual_seed(0)
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        got, want = dynamo_lite.compile(fn)(*args), fn(*args)
        double = fn(*[a.double() if isinstance(a, torch.Tensor) else a for a in args])
    assert got.stride() == want.stride() and got.shape == want.shape
    if exact:
        assert torch.equal(got, want)
    error, theirs = ((x - double).abs().max().item() for x in (got, want))
    assert error <= 3 * theirs + 1e-6, (error, theirs)
    metrics = dynamo_lite.metrics()
    assert sum(metrics["library_calls"].values()) == library, metrics["library_calls"]
    if kernels is not None:
        assert metrics["kernels"] == kernels


CONVOLUTIONS = {
    "3x3": (lambda x, w, b: F.relu(conv2(x, w, b, 1, 1)), R(2, 16, 14, 14), R(24, 16, 3, 3), R(24)),
    "3x3, stride 2": (lambda x, w, b: F.relu(conv2(x, w, b, 2, 1)), R(2, 16, 15, 13), R(24, 16, 3, 3), R(24)),
    "7x7, stride 2": (lambda x, w: F.relu(conv2(x, w, None, 2, 3)), R(1, 3, 64, 61), R(62, 3, 7, 7)),
    "1x1": (lambda x, w: conv2(x, w), R(2, 16, 14, 14), R(24, 16, 1, 1)),
    "1x1, padded": (lambda x, w: conv2(x, w, None, 1, 1), R(2, 16, 14, 14), R(24, 16, 1, 1)),
    "1x1, stride 2": (lambda x, w: conv2(x, w, None, 2), R(2, 16, 14, 14), R(24, 16, 1, 1)),
    "dilated": (lambda x, w: conv2(x, w, None, 1, 2, 2), R(2, 16, 14, 17), R(24, 16, 3, 3)),
    "dilated, stride 3": (lambda x, w: conv2(x, w, None, 3, 4, 2), R(2, 16, 31, 37), R(24, 16, 3, 3)),
    "everything differs": (lambda x, w: conv2(x, w, None, (2, 1), (0, 2), (1, 2)), R(1, 16, 20, 22), R(65, 16, 2, 3)),
    "groups": (lambda x, w: conv2(x, w, None, 1, 1, 1, 4), R(2, 16, 14, 14), R(32, 4, 3, 3)),
    "groups, 1x1": (lambda x, w, b: conv2(x, w, b, 1, 0, 1, 2), R(2, 16, 14, 14), R(32, 8, 1, 1), R(32)),
    "one channel": (lambda x, w: conv2(x, w, None, 1, 1), R(2, 1, 14, 14), R(32, 1, 3, 3)),
    "deep": (lambda x, w: conv2(x, w, None, 1, 1), R(1, 512, 7, 7), R(100, 512, 3, 3)),
    "padding beyond the image": (lambda x, w: conv2(x, w, None, 1, 3), R(1, 8, 2, 2), R(9, 8, 5, 5)),
    "7x7 results": (lambda x, w, b: conv2(x, w, b, 1, 1), R(2, 32, 7, 7), R(50, 32, 3, 3), R(50)),
    "5x5 of 7x7": (lambda x, w: conv2(x, w, None, 1, 2), R(2, 70, 7, 7), R(31, 70, 5, 5)),
    "3x3 of 6x5, dilated": (lambda x, w, b: conv2(x, w, b, 1, 2, 2).relu(), R(1, 33, 6, 5), R(50, 33, 3, 3), R(50)),
    "2x3 of each other line": (lambda x, w: conv2(x, w, None, (2, 1), (0, 1)), R(2, 90, 9, 3), R(20, 90, 2, 3)),
    "a line of 16": (lambda x, w: conv1(x, w, None, 1, 4, 2), R(3, 130, 16), R(9, 130, 5)),
    "lines of one window": (lambda x, w: conv2(x, w, None, 1, (1, 0)), R(2, 20, 12, 3), R(20, 20, 5, 3)),
    "3x3 of 7x7 in groups": (lambda x, w: conv2(x, w, None, 1, 1, 1, 2), R(2, 80, 7, 7), R(62, 40, 3, 3)),
    "19 results, 1x1": (lambda x, w: conv1(x, w), R(2, 1100, 19), R(23, 1100, 1)),
    "one dim": (lambda x, w, b: conv1(x, w, b, 5), R(2, 16, 100), R(24, 16, 10), R(24)),
    "one dim, padded": (lambda x, w, b: F.gelu(conv1(x, w, b, 1, 1)), R(2, 16, 101), R(24, 16, 3), R(24)),
    "residual": (lambda x, w, y: F.relu(conv2(x, w, None, 1, 1) + y), R(2, 16, 14, 14), R(16, 16, 3, 3),
                 R(2, 16, 14, 14)),
    "batch norm": (lambda x, w, m, v, a, b: F.relu(F.batch_norm(conv2(x, w, None, 1, 1), m, v, a, b)),
                   R(2, 16, 14, 14), R(24, 16, 3, 3), R(24), R(24).abs() + 0.1, R(24), R(24)),
    "depthwise": (lambda x, w, b: F.hardswish(conv2(x, w, b, 1, 1, 1, 16)), R(2, 16, 14, 14), R(16, 1, 3, 3), R(16)),
    "depthwise, 5x5, stride 2": (lambda x, w: conv2(x, w, None, 2, 2, 1, 16), R(2, 16, 15, 14), R(16, 1, 5, 5)),
    "depthwise, twice as many": (lambda x, w: conv2(x, w, None, 1, 1, 1, 16), R(2, 16, 15, 14), R(32, 1, 3, 3)),
    "depthwise, stride 1 and 2": (lambda x, w: conv2(x, w, None, (1, 2), 1, 2, 16), R(2, 16, 15, 14), R(16, 1, 3, 3)),
    "depthwise of one pixel": (lambda x, w: conv2(x, w, None, 1, 1, 1, 16), R(2, 16, 1, 1), R(16, 1, 3, 3)),
    "depthwise of one padded pixel": (lambda x, w: conv2(x, w, None, 1, (2, 1), 2, 6), R(2, 6, 3, 5), R(6, 1, 4, 4)),
    "depthwise, one dim": (lambda x, w, b: conv1(x, w, b, 1, 1, 1, 16), R(2, 16, 100), R(16, 1, 3), R(16)),
    "depthwise, 7x7": (lambda x, w: conv2(x, w, None, 1, 3, 1, 9), R(2, 9, 21, 45), R(9, 1, 7, 7)),
    "depthwise, 5x3, large": (lambda x, w: conv2(x, w, None, 1, (2, 1), 1, 3), R(1, 3, 61, 112), R(3, 1, 5, 3)),
    "depthwise, 3x3, stride 2, large": (lambda x, w: conv2(x, w, None, 2, 1, 1, 3), R(1, 3, 113, 112), R(3, 1, 3, 3)),
    "depthwise, 4x4, stride 3": (lambda x, w: conv2(x, w, None, 3, 2, 1, 3), R(1, 3, 20, 23), R(3, 1, 4, 4)),
    "depthwise, dilated": (lambda x, w: conv2(x, w, None, 2, 3, 3, 8), R(2, 8, 20, 41), R(16, 1, 3, 5)),
    "depthwise, a long line": (lambda x, w, b: conv1(x, w, b, 1, 3, 1, 4).sigmoid(), R(2, 4, 2500), R(8, 1, 7), R(8)),
    "depthwise, wide": (lambda x, w: conv2(x, w, None, 1, 1, 1, 2), R(1, 2, 9, 1100), R(2, 1, 3, 3)),
    "depthwise, wider": (lambda x, w: conv2(x, w, None, 1, 1, 1, 3), R(2, 3, 18, 900), R(3, 1, 3, 3)),
    "few rows": (lambda x, w: conv2(x, w, None, 1, 1), R(2, 5, 30, 41), R(5, 5, 3, 3)),
    "few rows, narrow": (lambda x, w: conv2(x, w, None, 1, 1), R(3, 5, 9, 7), R(4, 5, 3, 3)),
    "few rows, stride 2": (lambda x, w: conv2(x, w, None, 2, 3).relu(), R(2, 3, 50, 61), R(7, 3, 7, 7)),
    "few rows in groups": (lambda x, w: conv2(x, w, None, 1, 1, 1, 6), R(2, 24, 14, 28), R(36, 4, 3, 3)),
    "few rows of a long line": (lambda x, w: conv1(x, w, None, 1, 4, 2), R(2, 3, 300), R(5, 3, 5)),
    "few rows, deep": (lambda x, w: conv2(x, w, None, 1, 1), R(1, 130, 12, 60), R(5, 130, 3, 3)),
    "wide gaps between lines": (lambda x, w: conv2(x, w, None, 1, 40, 40), R(1, 2, 60, 400), R(4, 2, 3, 3)),
    "depthwise, very far apart": (lambda x, w: conv1(x, w, None, 1, 3000, 3000, 2), R(1, 2, 6100), R(2, 1, 3)),
    "1x1, stride 3": (lambda x, w: conv2(x, w, None, 3, 1), R(2, 5, 20, 23), R(9, 5, 1, 1)),
    "dilation along the stride": (lambda x, w: conv2(x, w, None, 2, 2, 2), R(2, 5, 21, 40), R(9, 5, 3, 3)),
    "dilation beyond the stride": (lambda x, w: conv2(x, w, None, (3, 2), 4, (5, 3)), R(1, 5, 31, 40), R(9, 5, 3, 2)),
    "depthwise of the whole image": (lambda x, w, b: conv2(x, w, b, 1, 0, 1, 8), R(3, 8, 7, 7), R(8, 1, 7, 7), R(8)),
    "depthwise, padding beyond the image": (lambda x, w: conv2(x, w, None, 1, 9, 1, 4), R(1, 4, 3, 2), R(4, 1, 3, 3)),
    "depthwise of many small ones": (lambda x, w, m, v: F.batch_norm(conv2(x, w, None, 1, 2, 1, 45), m, v).relu(),
                                     R(2, 45, 7, 7), R(45, 1, 5, 5), R(45), R(45).abs() + 0.1),
    "depthwise of a slice": (lambda x, w: conv2(x[:, 2:10, 1:], w, None, 1, 1, 1, 8), R(2, 12, 15, 14), R(8, 1, 3, 3)),
    "strips of an image": (lambda x, w: conv2(x, w, None, 1, 1).relu(), R(2, 64, 45, 50), R(21, 64, 3, 3)),
    "strips of an image, stride 2": (lambda x, w: conv2(x, w, None, 2, 2), R(1, 96, 70, 61), R(20, 96, 5, 5)),
    "strips of few rows": (lambda x, w: conv2(x, w, None, 1, 1), R(1, 40, 80, 90), R(5, 40, 3, 3)),
    "strips of a line": (lambda x, w, b: conv1(x, w, b, 2, 3), R(2, 64, 9001), R(9, 64, 7), R(9)),
    "strips of a dilated line": (lambda x, w: conv1(x, w, None, 1, 40, 20), R(1, 130, 4000), R(9, 130, 5)),
    "wide lines": (lambda x, w: conv2(x, w, None, 1, 1), R(1, 40, 5, 5001), R(8, 40, 3, 3)),
    "1x1, four results beyond vectors": (lambda x, w: conv2(x, w).relu(), R(2, 72, 14, 14), R(50, 72, 1, 1)),
    "1x1, one beyond": (lambda x, w: conv2(x, w), R(3, 600, 7, 7), R(50, 600, 1, 1)),
    "1x1, nine beyond": (lambda x, w: conv2(x, w), R(1, 600, 5, 5), R(50, 600, 1, 1)),
    "1x1, lines a page apart": (lambda x, w: conv2(x, w), R(1, 600, 32, 32), R(20, 600, 1, 1)),
    "1x1, lines in the same places": (lambda x, w: conv2(x, w), R(1, 70, 64, 128), R(20, 70, 1, 1)),
    "patches, 16x16": (lambda x, w, b: conv2(x, w, b, 16).flatten(2).relu(), R(2, 3, 96, 83), R(99, 3, 16, 16), R(99)),
    "patches, 4x4": (lambda x, w, b: conv2(x, w, b, 4), R(2, 3, 57, 62), R(96, 3, 4, 4), R(96)),
    "patches, cut in a line": (lambda x, w: conv2(x, w, None, 14), R(2, 3, 70, 71), R(50, 3, 14, 14)),
    "patches with gaps": (lambda x, w: conv2(x, w, None, (6, 7)), R(1, 8, 80, 82), R(60, 8, 3, 5)),
    "patches of a line": (lambda x, w: conv1(x, w, None, 20), R(2, 8, 3001), R(90, 8, 20)),
    "patches in groups": (lambda x, w: conv2(x, w, None, 5, 0, 1, 2), R(2, 8, 60, 60), R(120, 4, 5, 5)),
    "every other pixel": (lambda x, w, b: conv2(x, w, b, 2).relu(), R(2, 40, 29, 31), R(50, 40, 1, 1), R(50)),
    "every other pixel of each third line": (lambda x, w: conv2(x, w, None, (3, 2)), R(2, 70, 20, 19), R(60, 70, 1, 1)),
    "every other pixel, in groups": (lambda x, w: conv2(x, w, None, 2, 0, 1, 2), R(1, 48, 13, 60), R(80, 24, 1, 1)),
    "every other pixel of a line": (lambda x, w: conv1(x, w, None, 2), R(2, 530, 259), R(90, 530, 1)),
    "every other pixel of lines of three": (lambda x, w: conv2(x, w, None, 2), R(3, 20, 90, 3), R(64, 20, 1, 1)),
    "patches that overlap": (lambda x, w: conv2(x, w, None, 3), R(1, 8, 60, 47), R(60, 8, 5, 5)),
    "7x7, stride 4": (lambda x, w, b: conv2(x, w, b, 4, 3), R(2, 3, 63, 90), R(32, 3, 7, 7), R(32)),
    "4x4, stride 3": (lambda x, w: conv2(x, w, None, 3, 2), R(1, 12, 40, 19), R(20, 12, 4, 4)),
    "9x17, stride 5": (lambda x, w: conv2(x, w, None, 5, (4, 20), (2, 1)), R(1, 3, 60, 41), R(9, 3, 9, 17)),
    "3x3, stride 4, narrow": (lambda x, w: conv2(x, w, None, 4, 1), R(2, 9, 40, 14), R(20, 9, 3, 3)),
    "mean over the image": (lambda x, w: conv2(x, w, None, 1, 1).mean((2, 3)), R(1, 16, 7, 7), R(64, 16, 3, 3)),
    "of a slice": (lambda x, w: conv2(x[:, 3:11], w, None, 1, 1), R(2, 16, 14, 14), R(24, 8, 3, 3)),
    "of part of an image": (lambda x, w: conv2(x[:, :, 3:11, 2:], w, None, 1, 1), R(2, 16, 14, 14), R(24, 16, 3, 3)),
    "of what was computed": (lambda x, w: conv2(x.relu() * 2, w, None, 1, 1), R(2, 16, 14, 14), R(24, 16, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    check(*CONVOLUTIONS[name])


@pytest.mark.parametrize("simd", ["avx2", "scalar"])
@pytest.mark.parametrize("name", [
    "3x3, stride 2", "everything differs", "groups", "depthwise, 5x5, stride 2", "1x1", "7x7 results",
    "19 results, 1x1", "depthwise, 7x7", "depthwise, dilated", "depthwise of many small ones", "few rows",
    "few rows, narrow", "few rows, stride 2", "few rows in groups", "few rows, deep", "wide gaps between lines",
    "strips of an image", "strips of an image, stride 2", "strips of a line", "1x1, four results beyond vectors",
    "1x1, one beyond", "depthwise, 3x3, stride 2, large", "patches, 16x16", "patches, 4x4", "patches, cut in a line",
    "patches with gaps", "7x7, stride 4", "9x17, stride 5"])
def test_narrower_vectors(name, simd):
    with dynamo_lite.config.patch(cpp_simd=simd):
        check(*CONVOLUTIONS[name])


# Costs with which windows are packed where they have no border and overlap little, and operands exchange their roles
# elsewhere; with which planes have filters in streams; packed ones; with which operands exchange their roles anywhere.
PACKED = {"streamed_left": 0.5, "aliased_left": 0.5, "left_columns": 1.0, "near_left_columns": 1.0, "pack_columns": 0.1}
STREAMED = {"streamed_left": 1e-6, "aliased_left": 1e-6, "placed_right": 1e-6, "pack_columns": 1000.0}
PLANES = {**PACKED, "placed_right": 1e-6, "pack_columns": 1000.0}
# Costs with which few windows are packed in one panel, and read filters in streams.
ONE_PANEL = {"streamed_left": 1e-6, "aliased_left": 1e-6, "placed_right": 100.0, "pack_columns": 1000.0,
             "pack_lines": 1e-3}
EXCHANGED = {"streamed_left": 10.0, "aliased_left": 10.0, "left_columns": 1e6, "near_left_columns": 1e6,
             "pack_columns": 0.01}


def ways(fn, args):
    """How each product of a compiled function reads its operands."""
    compiled = dynamo_lite.compile(fn)
    with torch.no_grad():
        compiled(*args)
    code = dynamo_lite.generated_code(compiled)
    groups, strips, parts = (list(map(int, re.findall(rf"{name} = (\d+)", code)))
                             for name in ("c.group", "c.windows.strip", "c.row_parts"))
    return ["exchanged" if part else _way(group, strip)
            for group, strip, part in zip(groups, strips, parts, strict=True)]


def _way(group, strip):
    return ("packed filters, " if group else "streamed filters, ") + ("planes" if strip else "packed windows")


@pytest.mark.parametrize("simd", ["auto", "scalar"])
@pytest.mark.parametrize("name, way", [
    *[(name, PACKED) for name in ("patches, 16x16", "patches, 4x4", "patches, cut in a line", "patches with gaps",
                                  "patches of a line", "patches in groups")],
    *[(name, PLANES) for name in ("7x7, stride 4", "3x3", "dilated", "strips of an image")]])
def test_filters_are_packed_where_that_pays(name, way, simd):
    fn, *args = CONVOLUTIONS[name]
    packed = "packed filters, " + ("planes" if way is PLANES else "packed windows")
    for costs, expected in ((STREAMED, "streamed filters, planes"), (way, packed)):
        with dynamo_lite.config.patch(cpp_simd=simd, target=costs, winograd=False):
            check(fn, *args)
            assert ways(fn, args) == [expected]


@pytest.mark.parametrize("simd", ["auto", "avx2", "scalar"])
@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if "every other" in name])
def test_every_other_pixel_is_packed_where_that_pays(name, simd):
    fn, *args = CONVOLUTIONS[name]
    for packing, operand in ((0.1, "packed windows"), (1000.0, "planes")):
        costs = {**PACKED, "pack_columns": 1000.0, "pack_lines": packing, "placed_right": 1e-6}
        with dynamo_lite.config.patch(cpp_simd=simd, target=costs):
            check(fn, *args)
            assert ways(fn, args) == ["packed filters, " + operand]


@pytest.mark.parametrize("simd, most", [("auto", 64), ("avx2", 16), ("scalar", 8)])
@pytest.mark.parametrize("name", ["5x5 of 7x7", "3x3 of 6x5, dilated", "2x3 of each other line", "a line of 16",
                                  "lines of one window", "3x3 of 7x7 in groups", "deep"])
def test_few_windows_are_packed_in_one_panel(name, simd, most):
    fn, *args = CONVOLUTIONS[name]
    with dynamo_lite.config.patch(cpp_simd=simd, target=ONE_PANEL, winograd=False):
        if simd == "auto":
            most = target_info.current().panel
        check(fn, *args)
        fits = fn(*args)[0, 0].numel() <= most
        assert (ways(fn, args) == ["streamed filters, packed windows"]) == fits


@pytest.mark.parametrize("simd", ["auto", "scalar"])
@pytest.mark.parametrize("name", [
    "3x3", "3x3, stride 2", "dilated, stride 3", "everything differs", "groups", "deep", "padding beyond the image",
    "one dim, padded", "7x7, stride 2", "strips of an image", "strips of an image, stride 2", "strips of a line",
    "few rows", "patches that overlap", "residual", "of a slice"])
def test_operands_exchange_their_roles_where_that_pays(name, simd):
    fn, *args = CONVOLUTIONS[name]
    with dynamo_lite.config.patch(cpp_simd=simd, target=EXCHANGED, winograd=False):
        check(fn, *args)
        assert ways(fn, args) == ["exchanged"]


def test_what_follows_reads_and_writes_is_fetched_ahead():
    """Where it is in plain lines, and too large to stay near, for shallow products too large for the L2 cache: results
    and a residual, not one number for a line."""
    def fn(x, w, b, y):
        return (conv2(x, w) * b[:, None, None] + y).relu()

    info = target_info.current()
    deep = info.fetched_depth
    beyond = next(n for n in range(8, 1024, 8) if n * n * (2 * 64 + deep // 4) * 4 >= info.own_cache)
    near = next(n for n in range(8, 1024, 8) if n * n * 64 * 4 >= info.near_result)
    for side, channels, expected in ((near, deep, 2), (8, deep, 0), (beyond - 8, deep // 4, 0), (beyond, deep // 4, 2)):
        compiled = dynamo_lite.compile(fn)
        args = R(1, channels, side, side), R(64, channels, 1, 1), R(64), R(1, 64, side, side)
        with torch.no_grad():
            assert torch.allclose(compiled(*args), fn(*args), atol=1e-4)
        assert len(re.findall(r"c\.touched\[\d\] =", dynamo_lite.generated_code(compiled))) == expected
        dynamo_lite.reset()


@pytest.mark.parametrize("costs", [STREAMED, PLANES, PACKED], ids=["streamed", "planes", "packed"])
@pytest.mark.parametrize("simd", ["auto", "scalar"])
@pytest.mark.parametrize("part", range(4))
def test_ways_to_read_filters(part, simd, costs):
    """All convolutions of a share in one graph, whatever would pay."""
    names = [name for name in CONVOLUTIONS if "depthwise" not in name][part::4]
    if simd == "scalar":
        names = thorough.share(names, part, 3)
    fns, inputs = [CONVOLUTIONS[name][0] for name in names], [CONVOLUTIONS[name][1:] for name in names]
    flat = [x for own in inputs for x in own]

    def all_of_them(*args):
        rest = iter(args)
        return tuple(fn(*(next(rest) for _ in own)) for fn, own in zip(fns, inputs))

    with dynamo_lite.config.patch(cpp_simd=simd, target=costs), torch.no_grad():
        found, want = dynamo_lite.compile(all_of_them)(*flat), all_of_them(*flat)
        exact = all_of_them(*[x.double() for x in flat])
    for name, a, b, c in zip(names, found, want, exact):
        assert a.stride() == b.stride() and a.shape == b.shape, name
        assert (a - c).abs().max() <= 3 * (b - c).abs().max() + 1e-6, name


def test_what_a_line_shares_is_computed_once_for_all_lines():
    """A batch norm's factor: in vectors along the lines of a tile, whose last lines are no whole vector."""
    fn = lambda x, w, m, v, g, b: F.hardswish(F.batch_norm(conv2(x, w), m, v, g, b))
    for rows in (5, 64, 100):
        check(fn, R(2, 3, 13, 17), R(rows, 3, 3, 3), R(rows), R(rows).abs() + 0.1, R(rows), R(rows), kernels=1)


def test_what_follows_is_computed_on_the_tiles():
    check(*CONVOLUTIONS["batch norm"], kernels=1)
    check(*CONVOLUTIONS["residual"], kernels=1)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_border_of_a_depthwise_convolution_sees_no_neighbour(stride):
    """NaN and infinity stay where the kernel sees them, in the last and first columns too."""
    x = R(1, 6, 14, 14)
    x[0, 1, 3, 0], x[0, 2, 0, 13], x[0, 4, 13, 13] = float("nan"), float("inf"), float("-inf")
    fn = lambda x, w: conv2(x, w, None, stride, 1, 1, 6)
    w = R(6, 1, 3, 3)
    with torch.no_grad():
        torch.testing.assert_close(dynamo_lite.compile(fn)(x, w), fn(x, w), equal_nan=True)


@pytest.mark.parametrize("fn, x, w", [
    (lambda x, w: conv2(x, w, None, 1, 2, 1, 40), R(2, 40, 56, 56), R(40, 1, 5, 5)),
    (lambda x, w: conv2(x, w, None, 1, 1), R(1, 64, 50, 50), R(70, 64, 3, 3)),
    (lambda x, w: conv2(x, w, None, 1, 1), R(1, 128, 7, 7), R(130, 128, 3, 3)),
    (lambda x, w: conv2(x, w), R(2, 100, 14, 14), R(101, 100, 1, 1)),
    (F.linear, R(70, 600), R(201, 600)),
    (F.linear, R(20, 2000), R(300, 2000)),
    (lambda x, w: F.linear(w, x), R(20, 2000), R(300, 2000)),
    (torch.mm, R(300, 600), R(600, 70))])
def test_results_do_not_depend_on_the_number_of_threads(fn, x, w):
    """Neither on that of a call, nor on that at the time when it was compiled."""
    before = torch.get_num_threads()
    results = []
    with torch.no_grad():
        try:
            for threads in (2, 1, 3):
                torch.set_num_threads(threads)
                dynamo_lite.reset()
                compiled = dynamo_lite.compile(lambda x, w: fn(x, w).relu())
                for now in (threads, 1, 2, 4):
                    torch.set_num_threads(now)
                    results.append(compiled(x, w))
        finally:
            torch.set_num_threads(before)
    assert all(torch.equal(result, results[0]) for result in results)


def test_channels_last_goes_to_the_library():
    check(lambda x, w: conv2(x, w, None, 1, 1), R(2, 16, 14, 14).to(memory_format=torch.channels_last),
          R(24, 16, 3, 3), library=1)


def test_taps_too_far_apart_for_32_bits_go_to_the_library(monkeypatch):
    from dynamo_lite.backends.inductor.lowering import convolution

    fn, args = CONVOLUTIONS["3x3"][0], CONVOLUTIONS["3x3"][1:]
    check(fn, *args)
    monkeypatch.setattr(convolution, "MAX_REACH", 1000)
    with dynamo_lite.config.patch(cache_graphs=False):
        check(fn, *args, library=1)


def test_a_changed_weight_is_seen():
    conv = torch.nn.Conv2d(8, 9, 3)
    compiled, x = dynamo_lite.compile(conv), R(1, 8, 9, 9)
    with torch.no_grad():
        compiled(x)
        conv.weight.data[3, 5, 1, 1] += 1.0  # no version counter sees this
        assert torch.allclose(compiled(x), conv(x), atol=1e-5)


def test_gradients_of_a_small_network():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 8, 3, groups=8), torch.nn.Conv2d(8, 12, 1), torch.nn.Flatten(), torch.nn.Linear(432, 10))
    x = R(4, 3, 16, 16)
    net(x).square().sum().backward()
    want = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    net[1].reset_running_stats()
    dynamo_lite.compile(net)(x).square().sum().backward()
    for p, w in zip(net.parameters(), want):
        assert torch.allclose(p.grad, w, rtol=1e-3, atol=1e-4 * w.abs().max().item() + 1e-5)


POOLS = {
    "3, stride 2, padded": lambda x: pool(x, 3, 2, 1),
    "2": lambda x: pool(x, 2),
    "3, stride 1": lambda x: pool(x, 3, 1, 1),
    "everything differs": lambda x: pool(x, (3, 5), (2, 3), (1, 2), (2, 1), ceil_mode=True),
    "beyond the end": lambda x: pool(x, 3, 2, 0, 1, True),
}


@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("shape", [(2, 5, 55, 77), (5, 56, 56), (1, 3, 9, 9)])
def test_pools(name, shape):
    check(POOLS[name], R(shape), exact=True)


def test_pools_of_nans_and_infinities():
    x = R(1, 2, 20, 40)
    x[0, 0, 3, 5], x[0, 1, 7, 7], x[0, 1, :5] = float("nan"), float("inf"), -float("inf")
    got, want = dynamo_lite.compile(POOLS["3, stride 2, padded"])(x), pool(x, 3, 2, 1)
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.nan_to_num(), want.nan_to_num())
    half = R(1, 2, 20, 40).bfloat16()
    assert torch.equal(dynamo_lite.compile(lambda x: pool(x, 2))(half), pool(half, 2))


def test_indices_of_a_pool_come_from_the_library():
    x = R(1, 2, 20, 40)
    got = dynamo_lite.compile(lambda x: pool(x, 2, return_indices=True))(x)
    assert all(torch.equal(a, b) for a, b in zip(got, pool(x, 2, return_indices=True)))


@pytest.mark.parametrize("images", [1, 3, 20])
def test_squeeze_and_excite(images):
    def fn(x, v, w):
        s = conv2(F.relu(conv2(x.mean((2, 3), keepdim=True), v)), w)
        return x * s.sigmoid()

    check(fn, R(images, 64, 9, 9), R(40, 64, 1, 1), R(64, 40, 1, 1))
