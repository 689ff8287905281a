"""``NextRows`` of ``panels.h``: which cache lines of the left operand are prefetched, and when; and which products of
``packed.h`` do so."""
import ctypes

import pytest

from dynamo_lite.backends.inductor import codecache
from dynamo_lite.backends.inductor.codegen.cpp.libraries import HEADERS, library_header, text

# A build of the headers in which a prefetch notes the address.
_NOTED = """
static long long noted[1 << 16], notes;
#define __builtin_prefetch(p, ...) (void)(noted[notes++ % (1 << 16)] = (long long)(p))
"""
_ENTRY = """
extern "C" __attribute__((visibility("default"))) long long shares(
    const float* left, i64 line, i64 taps, i64 channels, i64 r0, i64 rows, i64 k, i64 depth, i64 tiles,
    i64* ends, i64* to) {
    Contraction c{};
    c.left.line = line, c.left.depth = taps ? 0 : 1, c.taps = taps, c.windows.channels = channels;
    NextRows<2> next(c, left, r0, rows, k, depth, tiles);
    notes = 0;
    for (i64 t = 0; t < tiles; ++t) next.fetch(), ends[t] = notes;
    for (i64 i = 0; i < notes; ++i) to[i] = (noted[i] - (long long)left) / (i64)sizeof(float);
    return notes;
}
"""


@pytest.fixture(scope="module")
def shares():
    files = (*HEADERS, "tiles.h", "panels.h")
    before, after = files[:len(HEADERS)], files[len(HEADERS):]
    source = _NOTED + "".join(map(text, before)) + library_header("scalar") + "".join(map(text, after)) + _ENTRY
    entry = ctypes.CDLL(str(codecache.shared_library(source))).shares
    entry.restype = ctypes.c_longlong

    def call(line, taps, channels, r0, rows, k, depth, tiles):
        ends, to = (ctypes.c_int64 * tiles)(), (ctypes.c_int64 * (1 << 16))()
        numbers = map(ctypes.c_int64, (line, taps, channels, r0, rows, k, depth, tiles))
        room = (ctypes.c_float * 16)()
        found = entry(room, *numbers, ends, to)
        return list(to[:found]), list(ends)

    return call


@pytest.mark.parametrize("line, r0, rows, k, depth", [(768, 48, 48, 256, 256), (100, 6, 5, 0, 100), (40, 0, 1, 16, 20)])
def test_every_line_of_the_next_rows_once_and_in_equal_shares(shares, line, r0, rows, k, depth):
    for tiles in (1, 7, 24):
        at, ends = shares(line, 0, 0, r0, rows, k, depth, tiles)
        each = -(-depth // 16)
        assert at == [(r0 + r) * line + k + 16 * i for r in range(rows) for i in range(each)]
        assert ends == [len(at) * (t + 1) // tiles for t in range(tiles)]


def test_channels_last_filters_are_contiguous_within_each_tap(shares):
    channels, taps = 32, 9
    at, _ = shares(channels * taps, taps, channels, 2, 3, 0, channels * taps, 4)
    assert at == [(2 + r) * channels * taps + t * channels + 16 * i
                  for r in range(3) for t in range(taps) for i in range(channels // 16)]


@pytest.mark.parametrize("rows", [0, -3])
def test_no_rows_are_left(shares, rows):
    assert shares(768, 0, 0, 96, rows, 0, 256, 8)[0] == []


_PRODUCT = """
static void nothing(const void*, i64, i64, i64, i64, i64, const float*, i64) {}
extern "C" __attribute__((visibility("default"))) long long fetched_lines(
    const float* left, const float* right, float* room, i64 rows, i64 columns, i64 depth, i64 group, i64 is_far,
    i64 results_too) {
    Contraction c{{1, 1, 1}, rows, columns, depth};
    c.left = {left, depth, 1}, c.right = {right, 1, columns}, c.workspace = room, c.far_left = (i64)1 << 40;
    c.group = group, c.chunk = depth, c.piece = depth, c.left_is_far = is_far;
    if (results_too) c.touched[0] = room, c.touched_line = 0;
    const i64 across = (columns + panel - 1) / panel;
    const PackedProduct packs{c, nothing, nullptr, across, depth, {columns, columns}, columns};
    notes = 0;
    packs.compute(0, across, 0, rows, 0);
    long long found = 0;
    for (i64 i = 0; i < notes; ++i)
        found += noted[i] >= (long long)left && noted[i] < (long long)(left + rows * depth);
    return found;
}
"""


@pytest.mark.parametrize("group, is_far, results_too, blocks", [
    (4, True, False, 2), (1, True, False, 2), (4, False, False, 0), (4, True, True, 0)])
def test_far_rows_are_prefetched_once_and_not_beside_results(group, is_far, results_too, blocks):
    """The rows of each block but the first, while the products of the one before are computed."""
    files = (*HEADERS, "tiles.h", "panels.h", "packed.h")
    before, after = files[:len(HEADERS)], files[len(HEADERS):]
    source = _NOTED + "".join(map(text, before)) + library_header("scalar") + "".join(map(text, after)) + _PRODUCT
    entry = ctypes.CDLL(str(codecache.shared_library(source))).fetched_lines
    entry.restype = ctypes.c_longlong
    block, rows, columns, depth = 48, 144, 32, 64
    left, right, room = ((ctypes.c_float * n)() for n in (rows * depth + 64, depth * columns + 64, 1 << 16))
    numbers = map(ctypes.c_int64, (rows, columns, depth, group, is_far, results_too))
    assert entry(left, right, room, *numbers) == blocks * block * depth // 16
