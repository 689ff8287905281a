"""Positions of largest and smallest elements: how wide they are in vectors, and that this changes none."""
import pytest
import torch

from dynamo_lite.backends.inductor.codegen.cpp.accumulate import are_positions_short
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.scheduler.kernel import Accumulate


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16,
                                   torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_equal_and_special_elements(check_many, data, dtype):
    """The first of equal ones, wherever it stands, in vectors and what is left of them; NaN before all; the least value
    there is in all places."""
    cases = []
    for rows, columns in ((3, 41), (9, 70), (2, 1), (40, 5), (1, 3000)):
        x = data.random(rows, columns, dtype=dtype, scale=2.0)
        if dtype.is_floating_point:
            x = x.round()
            x[0, columns // 2] = float("nan")
            worst = torch.full_like(x, float("-inf"))
        else:
            x, worst = x % 4, torch.full_like(x, torch.iinfo(dtype).min)
        for name, t in (("some", x), ("the least", worst), ("transposed", x.t().contiguous())):
            cases += [(f"{name} {rows} {columns}", lambda x: (
                x.argmax(-1), x.argmin(0), x.argmax(), *x.max(0), *x.min(1), (x * 2).max(1).indices.sum()), [t])]
    check_many(cases)


def test_more_lanes(build, data, in_cpp):
    lanes = [build(lambda x: (x * 2).argmax(1), [data.random(4, 90, dtype=dtype)]).program.source.split(
        "constexpr int L = ")[1].split(";")[0] for dtype in (torch.float32, torch.float64)]
    assert int(lanes[0]) == 2 * int(lanes[1])
