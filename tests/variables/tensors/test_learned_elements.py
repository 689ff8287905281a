"""Elements that become known in the middle of a trace: what was computed before is computed again, beside the trace."""
import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import exc, log
from dynamo_lite.frame import trace


@pytest.fixture
def traces(monkeypatch):
    """One entry for each trace that is begun."""
    begun = []

    class Counted(trace.OutputGraph):
        def __init__(self, *args, **kwargs):
            begun.append(self)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(trace, "OutputGraph", Counted)
    return begun


pytestmark = pytest.mark.usefixtures("guards_alone")


def compiled(fn, **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend="eager", fullgraph=True, **options)


def check(fn, *args, calls=2):
    """Values and what became of the inputs are eager's, in one graph."""
    mine = compiled(fn)
    for _ in range(calls):
        a, b = [t.clone() for t in args], [t.clone() for t in args]
        torch.testing.assert_close(mine(*a), fn(*b), rtol=0, atol=0)
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    return mine


class Padded(nn.Module):
    """What audio models do: sizes in buffers."""

    def __init__(self, stride):
        super().__init__()
        self.register_buffer("stride", torch.tensor(stride, dtype=torch.int64), persistent=False)
        self.register_buffer("kernel", torch.tensor(2 * stride + 1, dtype=torch.int64), persistent=False)
        self.weight = nn.Parameter(torch.randn(3))

    def forward(self, x):
        frames = (x.shape[-1] - self.kernel + 4) / self.stride + 1
        length = (torch.ceil(frames).to(torch.int64) - 1) * self.stride + self.kernel
        return nn.functional.pad(x, (0, int(length - x.shape[-1]))) * self.weight.sum()


def test_many_buffers_cost_one_trace(traces):
    model = nn.Sequential(*[Padded(n % 4 + 1) for n in range(12)])
    x = torch.randn(2, 20)
    fn = compiled(model)
    torch.testing.assert_close(fn(x), model(x))
    assert len(traces) == 1 and log.counters()["graphs"] == 1
    model[5].stride.fill_(3)
    torch.testing.assert_close(fn(x), model(x))
    assert log.counters()["graphs"] == 2 and len(traces) == 2


@pytest.mark.parametrize("use", [
    lambda x, n: x[: n.sum().item()], lambda x, n: x[:3][n > 1].sum(0), lambda x, n: x[:3].repeat_interleave(n, 0),
    lambda x, n: x.split(n.tolist()), lambda x, n: x * 2 if (n.cumsum(0)[-1] > 3) else x,
    lambda x, n: x[: int(torch.zeros_like(n).max()) + 2], lambda x, n: x[: n.view(3, 1).expand_as(x[:3])[2, 1]],
    lambda x, n: torch.tensor([n[0], 5, n.max()]) + x[0, :3], lambda x, n: x[n.nonzero().flatten()],
    lambda x, n: [x[i] for i in n.unbind()[1:] if i > 1], lambda x, n: x[: n.float().mean().floor().long()],
])
def test_one_trace_and_the_values_of_eager(traces, use):
    def f(x, n):
        later = n * 2 - n
        return use(x, later), later

    check(f, torch.randn(6, 4), torch.tensor([1, 3, 2]))
    assert len(traces) == 1 and log.counters()["graphs"] == 1


@pytest.mark.parametrize("write", [
    lambda n, m: n.add_(1), lambda n, m: m.add_(1), lambda n, m: m.data.mul_(2), lambda n, m: n.detach()[1:].zero_(),
    lambda n, m: n.copy_(n.flip(0)), lambda n, m: m.view(-1).__setitem__(0, 0), lambda n, m: torch.add(n, 1, out=n),
])
@pytest.mark.parametrize("make", [lambda n: n.view(3, 1), lambda n: n + 0, lambda n: n.t(), lambda n: n[:2]])
def test_what_is_written_in_between(make, write):
    def f(x, n):
        m = make(n)
        first = m + 1
        write(n, m)
        second = m + 1
        return x[: m.sum().item()], x[: first.sum().item()], x[: second.sum().item()], x[: n.sum().item()]

    check(f, torch.randn(40), torch.tensor([1, 3, 2]))


def test_a_buffer_of_the_program_that_is_filled_with_them():
    def f(x, n):
        ends = torch.zeros(3, dtype=torch.long)
        ends[1:] = n.cumsum(0)[:-1]
        parts = [x[: int(k)] for k in n]
        return parts, [x[int(a) :] for a in ends]

    check(f, torch.randn(9), torch.tensor([1, 3, 2]))


def test_random_numbers_and_other_tensors_stay_unknown():
    for f in (lambda x, n: x[: (n + torch.randint(2, (3,))).max().item()],
              lambda x, n: x[: (n + x[:3].long()).sum().item()],
              lambda x, n: x[: torch.empty_like(n).bool().sum().item()],
              lambda x, n: x[: torch.empty(3, dtype=torch.bool).sum().item()]):
        with pytest.raises(exc.Unsupported, match="tensor_to_python"):
            compiled(f)(torch.randn(9), torch.tensor([1, 3, 2]))


def test_a_default_type_that_changes_in_between():
    def f(x, n):
        halves = n / 2
        torch.set_default_dtype(torch.float64)
        try:
            more = n / 2
            return x[: int(halves.sum())], halves, x[: int(more.sum())], more
        finally:
            torch.set_default_dtype(torch.float32)

    check(f, torch.randn(9), torch.tensor([1, 3, 2]))


def test_other_elements_are_seen():
    def f(x, n):
        m = n + 1
        return x[: m[0].item()] if m.sum() > 4 else x

    fn, x = compiled(f), torch.randn(9)
    for n in ([1, 3], [0, 1], [5, 0], [1, 3]):
        assert torch.equal(fn(x, torch.tensor(n)), f(x, torch.tensor(n)))
    assert log.counters()["graphs"] == 2


def test_inputs_over_each_other():
    def f(x, a, b):
        c = a + 1
        b.add_(1)
        return x[: c.sum().item()], x[: (a + 1).sum().item()], x[: b.sum().item()]

    dynamo_lite.reset()
    fn = dynamo_lite.compile(f, backend="eager")
    for _ in range(2):
        first, second = torch.tensor([1, 2, 3]), torch.tensor([1, 2, 3])
        x = torch.randn(40)
        torch.testing.assert_close(fn(x, first[:2], first[1:]), f(x, second[:2], second[1:]))
        assert torch.equal(first, second)
