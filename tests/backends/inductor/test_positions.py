"""Positions of largest and smallest elements: how wide they are in vectors, and that neither this nor the order of
loops changes any."""
import pytest
import thorough
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor.codegen.cpp.accumulate import are_positions_short
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate, positions_ascend

pytestmark = pytest.mark.by_turns(3)


def accumulate(position, dtype=torch.float32):
    return Accumulate("a", "argmax", Builder().load("x", 0, dtype), position)


@pytest.mark.parametrize("size, short", [(5, True), (2**31 - 1, True), (2**31, False), (2**40, False)])
def test_positions_are_short_where_they_fit(size, short):
    # The largest int of 32 bits stands for no position.
    assert are_positions_short(accumulate(ix.var("i", size))) is short


def test_positions_are_long_where_values_are_wide_or_sizes_symbols():
    i, j, s = ix.var("i", 5), ix.var("j", 7), ix.atom(ix.Sym("s0"))
    assert are_positions_short(accumulate(ix.add(ix.mul(i, 7), j)))
    assert not are_positions_short(accumulate(ix.add(ix.mul(i, 2**30), j)))
    assert not are_positions_short(accumulate(i, torch.float64))
    assert not are_positions_short(accumulate(i, torch.int64))
    assert not are_positions_short(accumulate(ix.var("k", s)))
    assert not are_positions_short(accumulate(ix.add(ix.mul(i, s), j)))
    assert not are_positions_short(accumulate(ix.floordiv(i, 2)))


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16,
          torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
SIMD = ["avx512", "avx2", "scalar"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_and_special_elements(check_many, data, dtype):
    """The first of equal ones, wherever it stands, in vectors and what is left of them; NaN before all; the least value
    there is in all places."""
    cases = []
    for turn, (rows, columns) in enumerate(((3, 41), (9, 70), (2, 1), (40, 5), (1, 3000))):
        x = data.random(rows, columns, dtype=dtype, scale=2.0)
        if dtype.is_floating_point:
            x = x.round()
            x[0, columns // 2] = float("nan")
            worst = torch.full_like(x, float("-inf"))
        else:
            x, worst = x % 4, torch.full_like(x, torch.iinfo(dtype).min)
        kinds = [("some", x), ("the least", worst), ("transposed", x.t().contiguous())]
        for name, t in thorough.share(kinds, turn + DTYPES.index(dtype)):
            cases += [(f"{name} {rows} {columns}", lambda x: (
                x.argmax(-1), x.argmin(0), x.argmax(), *x.max(0), *x.min(1), (x * 2).max(1).indices.sum()), [t])]
    check_many(cases)


def test_more_lanes(build, data, in_cpp):
    lanes = [build(lambda x: (x * 2).argmax(1), [data.random(4, 90, dtype=dtype)]).program.source.split(
        "constexpr int L = ")[1].split(";")[0] for dtype in (torch.float32, torch.float64)]
    assert int(lanes[0]) == 2 * int(lanes[1])


def test_loops_that_follow_positions():
    i, j = ix.var("i", 5), ix.var("j", 7)
    (first,), (second,) = ix.free_vars(i), ix.free_vars(j)
    both = accumulate(ix.add(ix.mul(i, 7), j))
    assert positions_ascend(both, (first, second)) and not positions_ascend(both, (second, first))
    assert positions_ascend(accumulate(j), (second,)) and not positions_ascend(accumulate(ix.mul(j, -1)), (second,))
    assert not positions_ascend(accumulate(ix.floordiv(j, 2)), (second,))


def layouts(x):
    """The same values, or parts of them, in other orders of memory."""
    yield x
    yield x.transpose(0, -1).contiguous().transpose(0, -1)
    yield x.flip(0)
    yield torch.stack([x, x + 1], -1)[..., 0]
    yield x[:1].expand(x.shape)
    yield x[..., :1].expand(x.shape)
    if x.dim() == 4:
        yield x.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_the_first_of_equal_elements_in_any_order_of_memory(check_many, data, dtype, simd, monkeypatch):
    monkeypatch.setattr(config, "cpp_simd", simd)
    cases = []
    for shape in ((33, 129), (3, 5, 6, 7)):
        x = data.random(*shape, dtype=dtype, scale=0.4)
        x = x.round() if dtype.is_floating_point else x % 3
        special = [x]
        if dtype.is_floating_point:
            special += [x.masked_fill(x > 0, float("nan")), torch.full_like(x, float("-inf"))]
        for turn, t in enumerate(special):
            cases += [(f"{shape} {layout.stride()}", lambda t: (
                t.argmax(), t.argmin(), t.transpose(0, 1).argmax(), t.flip(-1).argmin(), t.argmax(0), t.argmin(-1),
                t.max(1).indices, t.cummax(0).indices), [layout]) for layout in thorough.share(
                    list(layouts(t)), turn + x.dim() // 4 + SIMD.index(simd))]
    check_many(cases)


@pytest.mark.parametrize("threads", [1, 2])
def test_the_first_of_equal_elements_of_several_parts(threads):
    x = torch.randint(-3, 3, (300, 1001), generator=torch.Generator().manual_seed(3))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for dtype in (torch.float32, torch.int8):
            for t in thorough.share(list(layouts(x.to(dtype))), threads + dtype.itemsize):
                compiled = dynamo_lite.compile(lambda t: (t.argmax(), t.argmin(), t.t().argmax()), dynamic=False)
                assert compiled(t) == (t.argmax(), t.argmin(), t.t().argmax())
    finally:
        torch.set_num_threads(before)
