"""Who computes what of a sum of products, and how much room that takes."""
import dataclasses

import pytest

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import Contraction, Matrix, Patches
from dynamo_lite.backends.inductor.scheduler.threads import NEAR_PLANES, im2col_planes, share_work


def contraction(rows, columns, depth, right=None, transposed=False):
    r, c = ix.Var("r", rows), ix.Var("c", columns)
    right = right or Matrix("right", 0, (), 1, columns)
    return Contraction((), (r,), (c,), depth, Matrix("left", 0, (), depth, 1), right, transposed)


def patches(channels, size, kernel, stride=1):
    height, width = size
    out = [(n + 2 * (kernel // 2) - kernel) // stride + 1 for n in size]
    pairs = [(n, n) for n in (kernel, stride, kernel // 2, 1)]
    return Patches("image", 0, (), channels, height, width, out[0], out[1], *pairs)


def test_one_thread_shares_out_nothing():
    for rows, columns in ((7, 4000), (4000, 7), (64, 64)):
        sharing = share_work(contraction(rows, columns, 64), 1)
        assert (sharing.by_rows, sharing.slots) == (False, 1)


def test_few_columns_are_shared_out_by_rows():
    assert share_work(contraction(512, 49, 512), 2).by_rows
    assert share_work(contraction(512, 49, 512), 16).by_rows
    assert not share_work(contraction(6, 640, 512), 2).by_rows


def test_sums_are_kept_of_a_threads_own_rows():
    pieces = contraction(768, 20, 3072, Matrix("right", 0, (), 3072, 1))
    kept = [share_work(pieces, threads).kept for threads in (1, 2, 16)]
    assert kept == [768, 384, 48]
    assert share_work(pieces, 16).elements < 16 * (512 + 768) * 64 / 2


def test_lines_that_take_each_others_place_are_packed():
    assert share_work(contraction(64, 196, 400), 2).direct
    assert not share_work(contraction(64, 1024, 400), 2).direct, "lines a page apart"
    assert not share_work(contraction(64, 4096 * 8, 40), 2).direct, "lines that differ in nothing that a cache looks at"
    assert not share_work(contraction(64, 169, 400), 2).direct, "the last vector would reach beyond the operand"
    assert not share_work(contraction(64, 196, 40), 2).direct, "too shallow for sums along the depth"


@pytest.mark.parametrize("channels, size, kernel, stride", [
    (64, (56, 56), 3, 1), (512, (7, 7), 3, 1), (3, (224, 224), 7, 2), (32, (1, 9000), 1, 1), (256, (14, 900), 3, 1)])
def test_planes_of_a_strip_stay_in_the_cache(channels, size, kernel, stride):
    planes = im2col_planes(patches(channels, size, kernel, stride), 64)
    assert planes.strip % 64 == 0 and planes.strip > 0
    # A line of results at least, however long that is, and what its windows see above and below.
    least = channels * (2 * kernel + 3) * (size[1] + kernel) * kernel
    assert planes.elements <= max(NEAR_PLANES, least)


def test_columns_have_copies_where_windows_between_lines_would_cost_more():
    assert im2col_planes(patches(256, (14, 14), 3), 256).copies
    assert not im2col_planes(patches(3, (224, 224), 3, 2), 16).copies
    line = dataclasses.replace(patches(64, (14, 14), 3), height=1, out_height=1, kernel=(1, 3), padding=(0, 1))
    assert not im2col_planes(line, 64).copies, "there is nothing between the lines of one line"
