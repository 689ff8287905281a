"""Reads of parts of tensors that were written part by part: values, and what is left of the writes in the graph."""
import pytest
import torch
import torch.nn as nn

import dynamo_lite
from dynamo_lite import log


def chunks(x):
    y = x * 2
    a, b, c = y.chunk(3, 1)
    a.add_(1).sigmoid_()
    b.mul_(a)
    return c + a * b


def unsafe_chunks(x):
    a, b, c = (x * 2).unsafe_chunk(3, 1)
    return c.mul_(a.sigmoid_()).tanh_() + b.add_(1)


def rows_one_by_one(x):
    y = x[:4] * 2
    y[1].mul_(3)
    y[2] = y[1] + 1
    c, _, d, _ = y.unbind(0)
    return c + d


def columns(x):
    out = torch.empty(x.shape[0], 6)
    out[:, 0] = x[:, 0]
    for t in range(1, 6):
        out[:, t] = out[:, t - 1] * 0.5 + x[:, t]
    return out[:, 5] - out[:, 2]


def rows_within_a_slice(x):
    y = x * 1
    y[1:4] = x[:3] * 3
    return y[2] + y[0] + y[4:]


def a_slice_within_a_slice(x):
    y = x * 1
    y[:, 1:5] *= 3
    return y[:, 2:4] + y[:, :2]


def overwritten(x):
    y = x * 1
    y[1] = 3
    y[0:2] = x[2:4]
    y[0:2] = x[1:3] + 1
    return y


def read_and_kept(x):
    y = x * 1
    y[:, :2] += 1
    return y, y[:, :2] * 2, y[:, 2:] * 3


def elements(x):
    y = x * 1
    y[1][2] = 7
    return y[1][2] + y[0][2], y[1] * 2


def from_the_end(x):
    y = x * 1
    y[..., -2:] = x[..., :2]
    return y[..., -1] + y[..., -4:-2].sum(-1)


def repeated(x):
    y = x * 1
    y[:, 1:3] = x[:, :1]
    return y[:, 1:3] + y[:, 2:3]


def rounded(x):
    y = (x * 10).to(torch.int32)
    y[:, :3] = x[:, :3] * 10
    return y[:, :3] * 2


def transposed(x):
    y = (x * 1).t().contiguous()
    y[:3] = x.t()[:3] * 2
    return y[:3].reshape(-1), y[:3].contiguous() + 1


def of_expanded(x):
    y = x[:, :1].expand(-1, 6) + 0
    y[:, 2:] = 1
    return y[:, :2] * x[:, :2]


def with_a_step(x):
    y = x * 1
    y[:, ::2] = 0
    return y[:, 1::2] + y[:, ::2], y[:, 1]


def memory_of_a_part(x):
    y = x * 1
    y[:, :3] = x[:, 3:]
    return y[:, :3].as_strided((2, 2), (6, 1), 3)


def through_the_input(x):
    x[0] = 1
    x[1] = x[0] + x[2]
    return x[1] + x[3]


PROGRAMS = [chunks, unsafe_chunks, rows_one_by_one, columns, rows_within_a_slice, a_slice_within_a_slice, overwritten,
            read_and_kept, elements, from_the_end, repeated, rounded, transposed, of_expanded, with_a_step,
            memory_of_a_part, through_the_input]


def agree(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)
        assert a.dtype is b.dtype and a.stride() == b.stride()


def listed(results):
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("backend", ["inductor_lite", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_values_and_layouts(program, backend):
    compiled = dynamo_lite.compile(program, backend=backend)
    for rows in (6, 9, 7):
        x = torch.randn(rows, 6)
        mine, theirs = x.clone(), x.clone()
        agree(listed(compiled(mine)), listed(program(theirs)))
        torch.testing.assert_close(mine, theirs)
    assert log.counters()["graphs"] <= 2


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p not in (
    chunks, rounded, memory_of_a_part, through_the_input)])
def test_gradients(program):
    compiled = dynamo_lite.compile(program)
    x = torch.randn(6, 6, requires_grad=True)
    got, want = listed(compiled(x)), listed(program(x))
    agree(got, want)
    torch.testing.assert_close(torch.autograd.grad(sum(y.sum() for y in got), x),
                               torch.autograd.grad(sum(y.sum() for y in want), x))


@pytest.mark.parametrize("program, kernels", [
    (chunks, 1), (unsafe_chunks, 1), (rows_one_by_one, 1), (columns, 1), (overwritten, 1)])
def test_writes_that_nobody_reads_whole_are_no_copies(program, kernels):
    x = torch.randn(6, 6)
    compiled = dynamo_lite.compile(program)
    dynamo_lite.reset_metrics()
    torch.testing.assert_close(compiled(x), program(x))
    assert dynamo_lite.metrics()["kernels"] == kernels
    assert not dynamo_lite.metrics()["library_calls"]


@pytest.mark.parametrize("cell", [nn.GRUCell, nn.LSTMCell, nn.RNNCell])
def test_a_step_of_a_recurrent_cell_is_two_products_and_one_kernel(cell):
    """torch's cells write to chunks of the gates. The first state, of zeros, is a kernel of its own."""
    c = cell(32, 64)

    def last(xs):
        h = None
        for x in xs:
            h = c(x, h)
        return h

    xs = torch.randn(4, 16, 32)
    with torch.no_grad():
        compiled = dynamo_lite.compile(last)
        dynamo_lite.reset_metrics()
        torch.testing.assert_close(compiled(xs), last(xs))
    assert dynamo_lite.metrics()["kernels"] <= 3 * 4 + 1 and not dynamo_lite.metrics()["library_calls"]
