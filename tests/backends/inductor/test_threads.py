"""Who computes what of a sum of products, and how much room that takes."""
import dataclasses

import pytest
from processors import ALL, ARM, DESKTOP, EPYC, XEON

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.contraction import MAX_PANEL, Contraction, Matrix, Patches
from dynamo_lite.backends.inductor.ir.substitution import substitute
from dynamo_lite.backends.inductor.processor import Cache
from dynamo_lite.backends.inductor.scheduler.exchanged import exchange, parts_of, stays_near
from dynamo_lite.backends.inductor.scheduler.im2col import im2col_planes
from dynamo_lite.backends.inductor.scheduler.packing import chunk_depth, near_columns
from dynamo_lite.backends.inductor.scheduler.threads import share_work as share
from dynamo_lite.backends.inductor.scheduler.winograd import group_tiles


def contraction(rows, columns, depth, right=None, transposed=False):
    r, c = ix.Var("r", rows), ix.Var("c", columns)
    right = right or Matrix("right", 0, (), 1, columns)
    return Contraction((), (r,), (c,), depth, Matrix("left", 0, (), depth, 1), right, transposed)


def share_work(contraction, threads, info=EPYC):
    return share(contraction, threads, info)


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
    assert share_work(contraction(64, 192, 400), 2).direct
    assert not share_work(contraction(64, 1024, 400), 2).direct, "lines a page apart"
    assert not share_work(contraction(64, 4096 * 8, 40), 2).direct, "lines that differ in nothing that a cache looks at"
    assert not share_work(contraction(64, 169, 400), 2).direct, "the last vector would reach beyond the operand"
    assert not share_work(contraction(64, 196, 40), 2).direct, "too shallow for sums along the depth"
    assert not share_work(contraction(64, 196, 400), 2).direct, "most lines begin within a vector, for many rows"
    assert share_work(contraction(8, 196, 400), 2).direct, "the same for few rows"


@pytest.mark.parametrize("channels, size, kernel, stride", [
    (64, (56, 56), 3, 1), (512, (7, 7), 3, 1), (3, (224, 224), 7, 2), (32, (1, 9000), 1, 1), (256, (14, 900), 3, 1)])
def test_planes_of_a_strip_stay_in_the_cache(channels, size, kernel, stride):
    planes = im2col_planes(patches(channels, size, kernel, stride), 64, EPYC)
    assert planes.strip % 64 == 0 and planes.strip > 0
    # A line of results at least, however long that is, and what its windows see above and below.
    least = channels * (2 * kernel + 3) * (size[1] + kernel) * kernel
    assert planes.elements <= max(EPYC.near_planes, least)


def test_columns_have_copies_where_windows_between_lines_would_cost_more():
    assert im2col_planes(patches(256, (14, 14), 3), 256, EPYC).copies
    assert not im2col_planes(patches(3, (224, 224), 3, 2), 16, EPYC).copies
    line = dataclasses.replace(patches(64, (14, 14), 3), height=1, out_height=1, kernel=(1, 3), padding=(0, 1))
    assert not im2col_planes(line, 64, EPYC).copies, "there is nothing between the lines of one line"


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
@pytest.mark.parametrize("threads", [1, 2, 8, 64])
def test_shares_are_even_on_any_processor(info, threads):
    for rows, columns, depth in ((512, 49, 512), (6, 6400, 512), (768, 128, 768), (3072, 128, 768), (128, 3136, 64)):
        sharing = share_work(contraction(rows, columns, depth), threads, info)
        assert sharing.slots == threads
        if threads == 1:
            assert not sharing.by_rows
        unit, total = (2, rows) if sharing.by_rows else (64, columns)
        other = (64, columns) if sharing.by_rows else (2, rows)
        busiest, elsewhere = (-(-(-(-n // u)) // threads) * u / n for u, n in ((unit, total), other))
        # What is shared out splits evenly, or the other would not have been better by much.
        assert busiest <= max(1.35 / threads, 1.2 * elsewhere), (rows, columns, depth, sharing)


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
def test_planes_stay_in_the_own_cache_of_any_processor(info):
    for channels, side in ((64, 56), (128, 28), (256, 14), (512, 7)):
        planes = im2col_planes(patches(channels, (side, side), 3), channels, info)
        least = channels * (2 * 3 + 3) * (side + 3) * 3
        assert planes.elements * 4 <= max(info.own_cache * 5 // 8, least * 4)


def test_what_a_larger_cache_changes():
    far = contraction(900, 128, 768)  # 2.8 MB of the left operand
    assert EPYC.far_left < 900 * 768 * 4 < XEON.far_left
    assert share_work(far, 2, EPYC).slots == share_work(far, 2, XEON).slots == 2
    wide = patches(64, (56, 56), 3)
    small, large = (im2col_planes(wide, 64, info) for info in (EPYC, XEON))
    assert small.strip <= large.strip
    # Lines 64 KB apart: of a cache of 8 ways half are taken by 4 lines, of one of 16 by 8.
    apart = contraction(64, 1 << 15, 8)
    assert not share_work(apart, 2, EPYC).direct or share_work(apart, 2, XEON).direct


def strided(rows, columns, depth):
    """``a.t() @ b``: neighbouring rows of the left operand are neighbours in memory."""
    kept = contraction(rows, columns, depth)
    return dataclasses.replace(kept, left=Matrix("left", 0, (), 1, rows))


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
def test_the_left_operand_is_packed_where_that_costs_less_than_it_saves(info):
    sharing = share_work(strided(1024, 1024, 1024), 1, info)
    assert sharing.group and not sharing.direct and sharing.chunk == chunk_depth(info)
    assert not share_work(strided(1024, info.lanes, 1024), 1, info).group, "each element is read for one vector"
    columns, least = sharing.group * info.panel, near_columns(strided(1024, 1024, 1024), info)
    assert columns <= least and columns >= min(1024, info.costs.left_lines / 0.02, least) / 2
    dear = dataclasses.replace(info, known_costs=dataclasses.replace(info.costs, left_lines=64.0, strided_left=0.01))
    assert not share_work(strided(1024, 1024, 1024), 1, dear).group


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
def test_panels_and_kept_sums_stay_in_the_l2_cache(info):
    sizes = (128, 768, 768), (128, 3072, 768), (128, 768, 3072), (512, 6400, 768), (2000, 900, 70)
    for rows, columns, depth in sizes:
        sharing = share_work(strided(rows, columns, depth), 1, info)
        if sharing.group > MAX_PANEL // info.panel:
            held = sharing.piece + (rows if sharing.kept else 0)
            assert sharing.group * info.panel * held * 4 <= info.own_cache // 2, (rows, columns, depth)


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
def test_a_right_operand_from_memory_is_packed_for_many_columns_at_once(info):
    """The next piece is prefetched then, which saves time even where packing the left operand saves none."""
    def group(columns, far):
        costs = dataclasses.replace(info.costs, streamed_left=0.0, aliased_left=0.0, pack_lines=8.0, pack_far_lines=far)
        made = contraction(128, columns, 768)
        return share_work(made, 1, dataclasses.replace(info, known_costs=costs)).group

    assert group(6400, 40.0) > 0 and not group(6400, 8.0)
    assert not group(64, 40.0), "it stays in the own cache"


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
@pytest.mark.parametrize("rows, columns, depth", [(1000, 700, 300), (64, 4000, 3000), (3, 300, 2000)])
def test_whether_the_left_operand_is_packed_does_not_depend_on_threads(info, rows, columns, depth):
    """The last bits of a few columns do depend on it."""
    for made in (contraction(rows, columns, depth), strided(rows, columns, depth)):
        found = {(s.group, s.chunk) for s in (share_work(made, threads, info) for threads in (1, 2, 8, 64))}
        assert len(found) == 1


def test_threads_with_few_columns_share_out_rows_of_a_packed_operand():
    """Each would pack all of the left one for them."""
    assert not share_work(strided(64, 4096, 512), 4).by_rows
    assert share_work(strided(4096, 256, 512), 16).by_rows


def test_pieces_of_packed_operands():
    """A panel of AVX2's is in the first cache with 256 lines, one of AVX-512's in the second with any."""
    assert [chunk_depth(info) for info in (EPYC, XEON, DESKTOP, ARM)] == [512, 512, 256, 256]
    assert EPYC.near_panels == 8 << 20 and DESKTOP.near_panels == 1 << 20


# ---------------------------------------------------------------- as many processors as there may be
THREADS = [1, 2, 8, 64]


def bounds(n, unit, threads):
    """Of the parts into which ``parallel`` (``threads.h``) divides a range."""
    units = -(-n // unit)
    return [(units * t // threads * unit, min(units * (t + 1) // threads * unit, n)) for t in range(threads)]


def parts(c, sharing, threads, info):
    """What each thread computes, as ``contraction.cpp`` shares it out: rows and columns."""
    rows, columns = (v[0].size for v in (c.rows, c.columns))
    if sharing.tile_lines:
        grouping = group_tiles(c.right, info)
        assert grouping.side * 2 >= c.right.out_width, "groups are whole lines"
        lines = bounds(-(-c.right.out_height // 2), grouping.lines, sharing.block_parts)
        return [(own, tuple(min(2 * y * c.right.out_width, columns) for y in seen)) for seen in lines
                for own in bounds(rows, info.tile[0], sharing.row_parts)]
    if sharing.exchanged:
        unit = info.panel if sharing.row_parts * info.panel <= rows else info.lanes
        return [(own, seen) for seen in bounds(columns, 48, sharing.block_parts)
                for own in bounds(rows, unit, sharing.row_parts)]
    if sharing.by_rows:
        return [((begin, end), (0, columns)) for begin, end in bounds(rows, 16 if c.transposed else 2, threads)]
    panels = -(-columns // info.panel)
    return [((0, rows), (begin * info.panel, min(end * info.panel, columns)))
            for begin, end in bounds(panels, 1, threads)]


LAYERS = {  # rows, columns, depth; windows: channels, size, kernel, stride
    "BERT, 128 tokens": (768, 128, 768), "BERT, widening": (3072, 128, 768), "BERT, narrowing": (768, 128, 3072),
    "logits": (50257, 128, 768), "square": (1024, 1024, 1024), "ResNet, 56 x 56": (64, 3136, 64),
    "ResNet, 7 x 7": (2048, 49, 512), "3 x 3, 56 x 56": (64, 3136, (64, (56, 56), 3)),
    "3 x 3, 14 x 14": (256, 196, (256, (14, 14), 3)), "3 x 3, 7 x 7": (512, 49, (512, (7, 7), 3)),
    "7 x 7, stride 2": (64, 12544, (3, (224, 224), 7, 2)),
}


def layer(rows, columns, depth, transposed=False):
    if isinstance(depth, tuple):
        return contraction(rows, columns, depth[0] * depth[2] ** 2, patches(*depth))
    return contraction(rows, columns, depth, transposed=transposed)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("name", LAYERS)
def test_shares_of_layers(name, threads):
    """On the Xeon with so many processors no thread has more than half as much again as the mean, or else each has a
    tile's width of what splits finer."""
    info = dataclasses.replace(XEON, processor=dataclasses.replace(XEON.processor, cores=threads))
    rows, columns, _ = LAYERS[name]
    made = layer(*LAYERS[name])
    sharing = share_work(made, threads, info)
    shares = [(r1 - r0) * (c1 - c0) for (r0, r1), (c0, c1) in parts(made, sharing, threads, info)]
    assert sum(shares) == rows * columns
    finest = min(2 * columns, rows * info.panel)
    assert len(shares) <= threads and max(shares) <= max(1.5 * rows * columns / threads, finest)


@pytest.mark.parametrize("info", [XEON, DESKTOP], ids=lambda info: info.simd)
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("transposed", [False, True])
def test_no_two_threads_write_one_line_of_a_products_results(info, threads, transposed):
    """Where lines of the result are whole lines of the caches, as layers of multiples of 16 have them."""
    for rows, columns, depth in ((768, 128, 768), (208, 3136, 64), (2048, 48, 512), (1040, 16, 16)):
        made = contraction(rows, columns, depth, transposed=transposed)
        written = []
        for (r0, r1), (c0, c1) in parts(made, share_work(made, threads, info), threads, info):
            lines, (first, last), length = (r0, r1), (c0, c1), columns
            if transposed:
                lines, (first, last), length = (c0, c1), (r0, r1), rows
            own = set()
            if first < last:
                for line in range(*lines):
                    own.update(range((line * length + first) * 4 // 64, ((line * length + last) * 4 - 1) // 64 + 1))
            written.append(own)
        assert sum(map(len, written)) == len(set.union(*written)) == rows * columns * 4 // 64


@pytest.mark.parametrize("threads", THREADS)
def test_shares_of_a_depthwise_convolution(threads):
    """Channels, several at a time, or strips of them: ``depthwise.cpp`` shares out these."""
    info = dataclasses.replace(XEON, processor=dataclasses.replace(XEON.processor, cores=threads))
    for channels, side in ((72, 56), (240, 28), (480, 14), (960, 7)):
        windows = dataclasses.replace(patches(1, (side, side), 3), each=1)
        tile_rows, width, _, _ = windows.tiles(info.strip)
        tiles = -(-side // tile_rows) * -(-side // width)
        sizes = [end - begin for begin, end in bounds(channels * tiles, 1, threads)]
        assert sum(sizes) == channels * tiles and max(sizes) - min(sizes) <= 1
        assert max(sizes) <= max(1.8 * channels * tiles / threads, 1)
        made = dataclasses.replace(contraction(channels, side * side, 9), right=windows)
        sharing = share_work(made, threads, info)
        assert sharing.slots == threads and not sharing.by_rows


@pytest.mark.parametrize("left", [{}, {"left_columns": 64.0, "near_left_columns": 64.0, "streamed_left": 0.0,
                                       "aliased_left": 0.0, "pack_far_columns": 4.0}], ids=["", "never packed"])
@pytest.mark.parametrize("info", [*ALL, dataclasses.replace(DESKTOP, processor=dataclasses.replace(
    DESKTOP.processor, l2=Cache(128 << 10, 8, 1)))])
@pytest.mark.parametrize("symbolic", ["rows", "columns", "both", "depth"])
def test_a_workspace_for_all_sizes_has_room_for_what_is_decided_for_each(info, symbolic, left):
    """The library decides at the call as is decided for these sizes when they are known."""
    info = dataclasses.replace(info, known_costs=dataclasses.replace(info.costs, **left))
    size = ix.atom(ix.Sym("s0"))
    names = ("rows", "columns") if symbolic == "both" else (symbolic,)
    for rows, columns, depth in ((768, 2048, 3072), (2048, 768, 3072), (5, 700, 64), (300, 9, 2000), (64, 64, 512)):
        for threads in (1, 2, 16):
            given = {"rows": rows, "columns": columns, "depth": depth}
            right = Matrix("right", 0, (), depth, 1)
            fixed = share(contraction(*given.values(), right), threads, info)
            found = share(contraction(*(given | dict.fromkeys(names, size)).values(), right), threads, info)
            slot = found.slot
            if not isinstance(slot, int):
                slot = substitute(slot, {ix.Sym("s0"): depth})
            assert not found.decided and fixed.group * info.panel <= found.widest and fixed.slot <= slot


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
@pytest.mark.parametrize("threads", THREADS)
def test_operands_exchange_their_roles_whatever_the_threads(info, threads):
    """Last bits may depend on it."""
    for filters, *image in ((64, 64, 56, 3, 1), (256, 256, 28, 3, 2), (48, 16, 300, 3, 2)):
        channels, side, kernel, stride = image
        right = patches(channels, (side, side), kernel, stride)
        made = contraction(filters, right.out_height * right.out_width, channels * kernel * kernel, right)
        alone, several = share_work(made, 1, info), share_work(made, threads, info)
        assert alone.exchanged == several.exchanged and several.strip <= alone.strip
        assert several.row_parts * several.block_parts <= threads


@pytest.mark.parametrize("info", ALL, ids=lambda info: info.processor.name)
def test_what_exchanged_operands_need(info):
    right = patches(64, (56, 56), 3)
    made = contraction(64, 3136, 576, right)
    own = exchange(made, right, info)
    assert own.strip % 48 == 0 and stays_near(right, info)
    lines = -(-own.strip // 56) + 3
    alone, several = parts_of(made, right, own, 1, info), parts_of(made, right, own, 64, info)
    assert alone.strip == own.strip and several.elements <= alone.elements
    assert several.strip == min(own.strip, -(-66 // several.blocks) * 48)
    assert alone.elements <= 576 + 16 + own.strip * (info.panel + 1) + 256 * info.panel + 64 * lines * 58 + 64
    few = contraction(info.lanes // 2, 3136, 576, right)
    assert exchange(few, right, info).cost >= info.lanes // 2, "half of each vector is idle"
    wide = dataclasses.replace(right, channels=1 << 14, height=300, width=300, out_height=300, out_width=300)
    assert exchange(contraction(64, 90000, 9 << 14, wide), wide, info) is None, "a line of all channels fills any cache"
    short = dataclasses.replace(info, processor=dataclasses.replace(info.processor, l1=Cache(8 << 10, 8, 1)))
    assert not stays_near(dataclasses.replace(right, kernel=(1, 1)), short), "each tap is on a line of its own"
