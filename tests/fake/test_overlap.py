"""Operations that write to memory they read elsewhere: eager's exception, or eager's result; what does not stays one
graph."""
import random

import pytest
import torch

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.fake import overlap


def test_layouts_have_a_common_element():
    drawn = random.Random(0)
    memory = torch.arange(80)

    def view():
        rank = drawn.randrange(1, 4)
        sizes = [drawn.randrange(1, 4) for _ in range(rank)]
        strides = [drawn.choice([0, 1, 2, 3, 4, 6, 8]) for _ in range(rank)]
        return memory.as_strided(sizes, strides, drawn.randrange(20))

    for _ in range(3000):
        a, b = view(), view()
        want = not set(a.flatten().tolist()).isdisjoint(b.flatten().tolist())
        assert overlap.have_common_element(overlap.layout(a), overlap.layout(b)) == want, (a, b)


def test_halves_of_rows_have_none():
    x = torch.empty(8, 16, 128, 64)
    for a, b in ((x[..., :32], x[..., 32:]), (x[..., ::2], x[..., 1::2]), (x[:, 0], x[:, 3])):
        assert not overlap.have_common_element(overlap.layout(a), overlap.layout(b))
    other = torch.empty(6).view(torch.uint8)
    assert overlap.have_common_element(
        overlap.layout(other[3:4]), overlap.layout(other.view(torch.float32)[:1]))


TWO = torch.tensor([0, 1])
ACROSS = {
    "copy_": lambda x: x.copy_(x.t()),
    "out": lambda x: torch.mul(x[:3, :3], 2, out=x[:3, :3].t()),
    "add_": lambda x: x.add_(x[0]),
    "shifted": lambda x: torch.mul(x.view(-1)[1:], 2, out=x.view(-1)[:-1]),
    "setitem": lambda x: x.view(-1).__setitem__(slice(1, None), x.view(-1)[:-1]),
    "columns": lambda x: x[:, 1:].copy_(x[:, :-1]),
    "index_put_": lambda x: x.index_put_((TWO,), x[2:4]),
    "setitem by index": lambda x: x.__setitem__(TWO, x[1:3]),
    "scatter_": lambda x: x.scatter_(0, torch.zeros(1, 4, dtype=torch.long), x[:1]),
    "scatter_ of itself": lambda x: x.scatter_(0, torch.zeros(4, 4, dtype=torch.long), x),
    "index_add_": lambda x: x.index_add_(0, TWO, x[2:4]),
    "index_copy_": lambda x: x.index_copy_(0, TWO, x[2:4]),
    "expanded": lambda x: x[0].expand(4, 4).add_(1),
    "windows": lambda x: x.view(-1).unfold(0, 3, 1).mul_(2),
}
APART = {
    "itself": lambda x: x.mul_(x),
    "a view of itself": lambda x: x.add_(x.view(4, 4)),
    "halves": lambda x: x[:, :2].add_(x[:, 2:]),
    "every other": lambda x: x[::2].copy_(x[1::2]),
    "setitem": lambda x: x.__setitem__((slice(None), 0), x[:, 1]),
    "out": lambda x: torch.exp(x, out=x),
    "where": lambda x: torch.where(x > 0, x, -x, out=x),
    "index_put_": lambda x: x[:2].index_put_((TWO,), x[2:]),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, 0.5),
    "foreach": lambda x: torch._foreach_add_([x[0], x[1]], [x[2], x[3]]),
}


def outcome(f, x):
    x = x.clone()
    try:
        result = f(x)
    except RuntimeError as e:
        return str(e), x
    return result, x


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("f", ACROSS.values(), ids=ACROSS)
def test_across(f, backend):
    x = torch.arange(16.0).reshape(4, 4)
    want, got = outcome(f, x), outcome(dynamo_lite.compile(f, backend=backend), x)
    assert str(got) == str(want)


def test_a_handler_in_the_program_sees_it():
    def f(x):
        try:
            x.copy_(x.t())
        except RuntimeError as e:
            return x + 1, "single memory location" in str(e)

    x = torch.randn(3, 3)
    got = dynamo_lite.compile(f)(x)
    assert torch.equal(got[0], x + 1) and got[1]


@pytest.mark.parametrize("f", APART.values(), ids=APART)
def test_apart(f):
    x = torch.arange(16.0).reshape(4, 4)
    before = log.counters().get("graph_breaks", 0)
    want, got = outcome(f, x), outcome(dynamo_lite.compile(f, fullgraph=True), x)
    assert str(got) == str(want) and log.counters().get("graph_breaks", 0) == before


def test_views_of_one_memory_from_outside():
    def f(a, b):
        return a.add_(b)

    compiled = dynamo_lite.compile(f)
    memory = torch.arange(8.0)
    assert torch.equal(compiled(memory.clone()[:4], torch.ones(4)), memory[:4] + 1)
    x = memory.clone()
    assert torch.equal(compiled(x[:4], x[4:]), memory[:4] + memory[4:])
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(x[:4], x[2:6])


def halves(x):
    n = x.shape[0] // 2
    x[:n] = x[n:n * 2]


def columns(x):
    n = x.shape[1] // 2
    x[:, :n].copy_(x[:, n:n * 2])
    x.t()[0].add_(x.t()[1])


def rest(x):
    n = x.shape[0]
    x[n // 2:] = x[:n - n // 2]


def interleaved(x):
    x[:, ::2][:, :1].add_(x[:, 1::2][:, :1])


SIZES = [(4, 6), (6, 8), (5, 7), (50, 7), (60, 17), (4, 40)]


@pytest.mark.parametrize("mark", [True, None])
@pytest.mark.parametrize("f", [*ACROSS.values(), *APART.values(), halves, columns, rest, interleaved],
                         ids=[*ACROSS, *APART, "half rows", "half columns", "half or a row more", "interleaved"])
def test_sizes_that_change(f, mark):
    """What a call with other sizes would share decides as well: there were no such checks where sizes are symbols."""
    compiled = dynamo_lite.compile(f, dynamic=mark)
    for size in SIZES:
        x = torch.randn(size)
        got, want = outcome(compiled, x), outcome(f, x)
        assert str(got) == str(want)


@pytest.mark.parametrize("f", [halves, columns, APART["every other"], APART["itself"]])
def test_what_is_apart_is_one_graph_for_all_sizes(f):
    compiled = dynamo_lite.compile(f, dynamic=True, fullgraph=True)
    for size in ((4, 6), (6, 4), (8, 4), (12, 10)):
        x = torch.randn(size)
        assert str(outcome(compiled, x)) == str(outcome(f, x))
    assert dynamo_lite.metrics()["graphs"] == 1


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [
    lambda x: x.add_(x[0]), lambda x: x.mul_(x.view(-1)), lambda x: x.add_(x[:]), lambda x: x.unsqueeze(0).add_(x),
    lambda x: torch.sin(x[0], out=x),
])
def test_equal_memory_of_other_dimensions(program, dynamic, backend):
    """Eager refuses operands of the same elements unless their dimensions and strides are the same, too."""
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(program, backend=backend, dynamic=dynamic)
    for rows in (1, 3, 1, 2):
        seen = []
        for function in (program, compiled):
            x = torch.arange(1.0, 1 + 4 * rows).view(rows, 4)
            try:
                made = function(x).tolist()
            except RuntimeError as error:
                made = str(error)
            seen.append((made, x.tolist()))
        assert seen[0] == seen[1]
