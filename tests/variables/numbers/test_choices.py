"""``max`` and ``min`` of tensors by Python's builtins: captured where nobody can tell the result from the operand."""
from __future__ import annotations

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import exc, log

BACKENDS = ["eager", "inductor_lite"]


def compiled(fn, backend="eager", **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, **options)


def graphs():
    return log.counters().get("graphs", 0)


def same(got, want):
    assert type(got) is type(want)
    if isinstance(got, torch.Tensor):
        assert got.dtype is want.dtype and got.stride() == want.stride() and got.requires_grad == want.requires_grad
        torch.testing.assert_close(got, want, equal_nan=True)
    elif isinstance(got, (tuple, list)):
        assert len(got) == len(want)
        for a, b in zip(got, want):
            same(a, b)
    else:
        assert got == want


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_graph(backend):
    def f(x):
        a, b, c = x[0] + 0, x[1] + 0, x[2] + 0
        return max(a, b, c) * 2, min([a, b, c]) - 1, max(-v for v in (a, b)), x / max(x.abs().max(), x.sum())

    fn = compiled(f, backend, fullgraph=True)
    for values in "1 2 3", "3 2 1", "nan 1 2", "1 nan 2", "1 2 nan", "0 -0 0":
        x = torch.tensor([float(v) for v in values.split()])
        same(fn(x), f(x))
        assert [str(v) for v in fn(x)] == [str(v) for v in f(x)]  # signs of zero, too
    assert graphs() == 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64, torch.bfloat16])
def test_dtypes_and_one_element(dtype):
    f = lambda x: (max(x[0] | x[1], x[0] & x[1]) if not x.is_floating_point() else max(x[:1] + 1, x[1:] + 1)).clone()
    fn = compiled(f, fullgraph=True)
    for values in ([1, 0], [0, 1], [1, 1]):
        same(fn(torch.tensor(values).to(dtype)), f(torch.tensor(values).to(dtype)))


def test_the_result_itself_may_be_returned():
    fn = compiled(lambda x: max(x.sum(), x.mean()), fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3)):
        same(fn(x), max(x.sum(), x.mean()))


def check_breaks(f, make, calls=2):
    """Such a program breaks, and gives what eager gives, in the same objects."""
    with pytest.raises(exc.Unsupported):
        compiled(f, fullgraph=True)(*make())
    fn = compiled(f)
    for _ in range(calls):
        args, twins = make(), make()
        same(fn(*args), f(*twins))
        same(args, twins)


def numbers():
    return torch.tensor([1.0, 3.0, 2.0]),


def test_the_operand_is_returned_too():
    def f(x):
        a, b = x[0] * 1, x[1] * 1
        m = max(a, b)
        return m, b, a

    check_breaks(f, numbers)
    m, b, _ = compiled(f)(*numbers())
    assert m is b


def test_identity():
    check_breaks(lambda x: (lambda a, b: max(a, b) is b)(x[0] * 1, x[1] * 1), numbers)
    check_breaks(lambda x: (lambda a, b: max(a, b) in [b, 1])(x[0] * 1, x[1] * 1), numbers)
    check_breaks(lambda x: (lambda a, b: {a: 1, b: 2}[max(a, b)])(x[0] * 1, x[1] * 1), numbers)
    fn = compiled(lambda x: max(x[0] * 1, x[1] * 1) is x, fullgraph=True)
    assert fn(*numbers()) is False


def test_written_to():
    def through_result(x):
        a, b = x[0] * 1, x[1] * 1
        max(a, b).add_(10)
        return a * 1, b * 1

    def through_operand(x):
        a, b = x[0] * 1, x[1] * 1
        m = max(a, b)
        b.mul_(5)
        return m * 1

    check_breaks(through_result, numbers)
    check_breaks(through_operand, numbers)


def test_views_of_inputs():
    check_breaks(lambda x: max(x[0], x[1]), numbers)
    fn = compiled(lambda x: max(x[0], x[1]) * 2, fullgraph=True)
    same(fn(*numbers()), torch.tensor(6.0))


def test_attributes():
    def f(x):
        a, b = x[0] * 1, x[1] * 1
        m = max(a, b)
        b.tag = 3
        return m * m.tag

    def by_handler(x):
        a, b = x[0] * 1, x[1] * 1
        m = max(a, b)
        b.tag = 3
        try:
            return m * m.tag
        except AttributeError:
            return m

    check_breaks(f, numbers)
    check_breaks(by_handler, numbers)


def test_other_operands_break():
    check_breaks(lambda x: max(x.sum(), 0.0), numbers)
    check_breaks(lambda x: max(x.sum(), x.sum().double()), numbers)
    check_breaks(lambda x: max(x[:1] * 1, x[1] * 1), numbers)
    check_breaks(lambda x, y: max(x, y) * 2, lambda: (torch.tensor(1.0), torch.tensor(2.0)))
    check_breaks(lambda x: max(x[0] * 1, x[1] * 1, key=lambda v: v * 2) * 2, numbers)


def test_no_gradients_for_what_was_not_chosen():
    def f(x, first, second):
        return max(first(x).sum(), second(x).sum())

    def run(fn):
        torch.manual_seed(0)
        layers = nn.Linear(3, 2), nn.Linear(3, 2)
        fn(torch.ones(3), *layers).backward()
        return [p.grad for layer in layers for p in layer.parameters()]

    got, want = run(compiled(f)), run(f)
    assert [g is None for g in got] == [g is None for g in want] and any(g is None for g in got)
    fn = compiled(f, fullgraph=True)
    with torch.no_grad():
        layers = nn.Linear(3, 2), nn.Linear(3, 2)
        same(fn(torch.ones(3), *layers), f(torch.ones(3), *layers))


def test_sizes_by_a_maximum():
    def f(x, lengths):
        return x[:, : max(lengths)]

    fn = compiled(f)
    for lengths in ([1, 3], [2, 1]):
        same(fn(torch.ones(2, 4), torch.tensor(lengths)), f(torch.ones(2, 4), torch.tensor(lengths)))
