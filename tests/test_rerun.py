"""Graphs that raise on some data: exceptions, handlers, effects and results as in plain Python."""
from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import log


def between_writes(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> torch.Tensor:
    x.add_(1)
    seen.append(1)
    y = w[i]
    seen.append(2)
    x.add_(y.sum())
    return y


def handled(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> torch.Tensor:
    try:
        x.add_(1)
        y = w[i]
        x.add_(10)
    except IndexError:
        seen.append("handled")
        x.mul_(2)
        return x + 1
    return y


def before_writes(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> torch.Tensor:
    y = F.embedding(i, w.view(4, 1))
    x.add_(1)
    return y


def write_that_raises(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> torch.Tensor:
    x.add_(1)
    x.index_add_(0, i, w[: i.numel()])
    return x * 2


def after_a_break(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> torch.Tensor:
    x.add_(1)
    dynamo_lite.graph_break()
    seen.append(x.sum())
    x.mul_(3)
    try:
        return w[i] + x.sum()
    finally:
        x.sub_(1)


def random_numbers(x: torch.Tensor, w: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> torch.Tensor:
    x.add_(torch.rand(4))
    y = w[i]
    x.add_(torch.rand(4))
    return y


FUNCTIONS = [between_writes, handled, before_writes, write_that_raises, after_a_break, random_numbers]


def outcome(fn: Any, i: torch.Tensor) -> Any:
    x, w, seen = torch.zeros(4), torch.ones(4), []
    torch.manual_seed(0)
    try:
        result: Any = fn(x, w, i, seen).tolist()
    except IndexError as error:
        result = str(error)
    return result, x.tolist(), seen, torch.rand(1).item()


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_inputs_that_were_changed_before(fn: Any, fullgraph: bool, backend: str) -> None:
    if fullgraph and fn is after_a_break:
        pytest.skip("it breaks")
    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=fullgraph)
    for i in (torch.tensor([1]), torch.tensor([7]), torch.tensor([2]), torch.tensor([9])):
        assert outcome(compiled, i) == outcome(fn, i)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_running_statistics(backend: str) -> None:
    def step(model: Any, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), target)

    mine, theirs = (torch.nn.BatchNorm1d(3) for _ in range(2))
    compiled = dynamo_lite.compile(step, backend=backend)
    for target in ([0, 1, 2], [0, 9, 2], [2, 1, 0]):
        x = torch.randn(3, 3)
        for fn, model in ((step, theirs), (compiled, mine)):
            try:
                fn(model, x, torch.tensor(target)).backward()
            except IndexError:
                assert 9 in target
        torch.testing.assert_close(mine.running_mean, theirs.running_mean)
        torch.testing.assert_close(mine.weight.grad, theirs.weight.grad)
        assert mine.num_batches_tracked == theirs.num_batches_tracked


def test_no_copies_where_nothing_can_raise() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(y)
        return (x * y).sum()

    inputs = []
    compiled = dynamo_lite.compile(fn, backend=lambda gm, example: lambda *a: inputs.append(a) or gm(*a))
    x = torch.ones(3)
    compiled(x, torch.ones(3))
    assert inputs[0][0] is x and "graphs_that_raised" not in log.counters()


def in_a_handler(x: torch.Tensor, i: torch.Tensor) -> Any:
    try:
        x.mul_(2)
    except RuntimeError as error:
        return str(error)
    return x


def dead_and_written(x: torch.Tensor, i: torch.Tensor) -> Any:
    try:
        torch.ones(4)[i]
    except IndexError:
        return None
    return x.mul_(2)


@pytest.mark.parametrize("fn", [in_a_handler, dead_and_written])
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_what_requires_gradients_and_was_not_written_yet(fn: Any, backend: str) -> None:
    """No copy could put it back; torch counts writes, and there was none."""
    compiled = dynamo_lite.compile(fn, backend=backend)
    for i in (torch.tensor([1]), torch.tensor([7]), torch.tensor([2])):
        for make in (lambda leaf: leaf * 1, lambda leaf: leaf.view_as(leaf), lambda leaf: leaf):
            got, want = (raised(call, make(torch.ones(4, requires_grad=True)), i) for call in (compiled, fn))
            assert type(got) is type(want)
            assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


def raised(call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    except RuntimeError as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return str(error), trace.tb_lineno
