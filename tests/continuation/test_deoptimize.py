"""Graphs that raise on some data: exceptions, handlers, effects and results as in plain Python."""
from __future__ import annotations

import gc
import traceback
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.backends.registry import lookup_backend


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
    except (IndexError, RuntimeError) as error:
        trace = error.__traceback__
        while trace.tb_next is not None:
            trace = trace.tb_next
        return str(error), trace.tb_lineno


def behind_a_write(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    x.add_(1)
    seen.append(1)
    y = torch.ones(4)[i]
    return x * y


def caught_behind_a_write(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    try:
        x.mul_(2)
        seen.append(1)
        y = torch.ones(4)[i]
    except IndexError:
        seen.append(2)
        return x + 5
    return y * x


def write_and_take(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.sub_(1)
    return torch.ones(4)[i] * x


def in_one_call(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    seen.append(1)
    return (write_and_take(x, i) + 1,
            seen.append(2))


def in_one_statement(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    y = F.embedding(
        i, F.relu_(x).view(4, 1))
    return y + x


def turn_by_turn(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    for k in range(3):
        x.add_(1)
        x = x + torch.ones(4)[i - k]
        seen.append(k)
    return x


def through_a_view(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    x[1:].mul_(3)
    with torch.no_grad():
        seen.append(1)
        return x, torch.ones(4).gather(0, i)


def made_differentiable(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    s = seen.pop()
    s[1] = x[0]
    return s, torch.arange(4)[i]


def in_a_loss(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    y = x.clamp_(-1, 1)
    return F.cross_entropy(y.view(1, 4), i)


BEHIND_WRITES = [behind_a_write, caught_behind_a_write, in_one_call, in_one_statement, turn_by_turn, through_a_view,
                 made_differentiable, in_a_loss]


def all_of(call: Any, i: torch.Tensor) -> Any:
    x, seen = torch.arange(4.0).requires_grad_(), [torch.zeros(4)]
    y = x * 1
    try:
        result: Any = call(y, i, seen)
    except (IndexError, RuntimeError) as error:
        entries = traceback.extract_tb(error.__traceback__)[1:]
        result = str(error), [(e.name, e.lineno) for e in entries if e.filename == __file__]
    grads = torch.autograd.grad((y * y).sum(), x)
    return [v.tolist() if isinstance(v, torch.Tensor) else v for v in tree_leaves([result, y, grads, seen])]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("fn", BEHIND_WRITES)
def test_behind_a_write_that_autograd_knows(fn: Any, backend: str) -> None:
    """What autograd knows of an input can't be put back, so the graph ends behind the write."""
    compiled = dynamo_lite.compile(fn, backend=backend)
    for i in (1, 7, 2, 9):
        assert all_of(compiled, torch.tensor([i])) == all_of(fn, torch.tensor([i]))


def test_one_graph_more_and_none_where_nothing_raises_behind_the_write() -> None:
    def raises_before(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = torch.ones(4)[i]
        return x.add_(1) * y

    def raises_behind(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.ones(4)[i] * x

    def of_its_own(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (x * 2).add_(1) * torch.ones(4)[i]

    for fn, grad, breaks in ((raises_before, True, 0), (raises_behind, True, 1), (raises_behind, False, 0),
                             (of_its_own, True, 0)):
        x = torch.ones(4, requires_grad=grad) * 1
        report = dynamo_lite.explain(fn)(x, torch.tensor([1]))
        assert [b.kind for b in report.break_reasons] == ["raises_after_write"] * breaks, fn
        assert report.graph_count == 1 + breaks
        assert all(b.user_stack[-1].lineno == fn.__code__.co_firstlineno + 2 for b in report.break_reasons)


def with_momentum(p: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        p.mul_(0.9)
    return p * torch.ones(4)[i]


def of_leaf_and_result(p: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        (p * 1).add_(1)
        p.sub_(torch.arange(4.0))
        p[1:].clamp_(min=-2)
        y = torch.ones(4)[i]
    return y + p


def of_data(p: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    p.data.mul_(3)
    p.detach()[1:].add_(1)
    return torch.ones(4)[i] * p


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("make", [
    lambda: torch.arange(24.0).view(3, 8)[:, ::2], lambda: torch.arange(12.0).view(3, 4).t(),
    lambda: torch.arange(8.0).view(1, 8)[:, :2:2], lambda: torch.arange(4.0)[:1].as_strided((1,), (3,)),
    lambda: torch.empty(0, 4), lambda: torch.tensor(1.0), lambda: torch.arange(6)[::2],
    lambda: torch.ones(3, dtype=torch.complex64).conj()])
def test_inputs_of_any_strides_are_put_back(make: Any, backend: str) -> None:
    """What has its elements already is found by comparing bits, in whatever order they lie."""
    def writes_and_raises(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return torch.ones(4)[i]

    def raises(x: torch.Tensor, i: torch.Tensor) -> None:
        x.index_add_(0 if x.dim() else -1, i, x.new_ones((1, *x.shape[1:])))

    for fn in (writes_and_raises, raises):
        results = []
        for call in (fn, dynamo_lite.compile(fn, backend=backend)):
            x = make()
            found = raised(call, x, torch.tensor([9]))
            results.append([str(found), x.tolist(), x._version])
        assert results[0][:2] == results[1][:2]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("fn", [with_momentum, of_leaf_and_result, of_data])
def test_writes_that_autograd_does_not_see_are_put_back(fn: Any, backend: str) -> None:
    """One graph: in `no_grad` an operation may raise behind a write to an input that requires gradients."""
    def run(call: Any, leaf: bool, at: int) -> list[Any]:
        x = torch.tensor([1.0, -0.0, 3.0, -4.0], requires_grad=True)
        p = x if leaf else x * 1
        found = raised(call, p, torch.tensor([at]))
        if isinstance(found, torch.Tensor):
            found.sum().backward()
            found = found.detach()
        return [found, p.detach(), p.grad_fn is None, p.requires_grad, x.grad, 1 / p.detach()]

    compiled = dynamo_lite.compile(fn, backend=backend)
    for leaf, at in ((True, 1), (True, 9), (False, 2), (False, 7)):
        assert str(run(compiled, leaf, at)) == str(run(fn, leaf, at)), (leaf, at)
    assert dynamo_lite.explain(fn)(torch.ones(4, requires_grad=True), torch.tensor([1])).graph_count == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
def test_an_input_that_was_not_written_yet_is_not_counted_as_written(backend: str) -> None:
    def f(mask: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = torch.ones(4)[i]
        return mask.mul_(2) * y

    compiled = dynamo_lite.compile(f, backend=backend)
    for at in (1, 9, 2, 7):
        mask, w = torch.arange(4.0), torch.ones(4, requires_grad=True)
        loss = (w * mask).sum()
        if at > 3:
            with pytest.raises(IndexError):
                compiled(mask, torch.tensor([at]))
            loss.backward()
            assert torch.equal(w.grad, torch.arange(4.0))
        else:
            compiled(mask, torch.tensor([at]))
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


def test_norms_do_not_raise() -> None:
    def scaled(p: torch.Tensor, g: torch.Tensor) -> None:
        with torch.no_grad():
            for _ in range(2):
                p.sub_(g / g.norm().clamp(min=1e-6) * torch.linalg.vector_norm(p))

    p, q, g = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True), torch.arange(3.0)
    report = dynamo_lite.explain(scaled)(p, g)
    scaled(q, g)
    assert torch.equal(p, q) and report.graph_count == 1 and not report.break_reasons


def in_a_callee(x: torch.Tensor, i: torch.Tensor, seen: list[Any]) -> Any:
    y = x + 1
    return (write_and_take(x, i) +
            y)


def of_the_users(gm: Any, inputs: Any) -> Any:
    return lambda *a: gm.forward(*a)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite", of_the_users])
@pytest.mark.parametrize("fn", [behind_a_write, in_one_call, in_one_statement, in_a_callee, made_differentiable])
def test_lines_where_the_frame_cannot_run_again(fn: Any, backend: Any) -> None:
    """With fullgraph=True there is no break: the traceback has the user's lines all the same, innermost last."""
    def lines(call: Any) -> Any:
        with pytest.raises(IndexError) as info:
            call(torch.ones(4, requires_grad=True) * 1, torch.tensor([9]), [torch.zeros(4)])
        entries = traceback.extract_tb(info.value.__traceback__)
        return [(e.name, e.lineno) for e in entries if e.filename == __file__ and e.name not in ("lines", "<lambda>")]

    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    compiled(torch.ones(4, requires_grad=True) * 1, torch.tensor([1]), [torch.zeros(4)])
    assert lines(compiled) == lines(fn)
    assert lines(compiled) == lines(fn)


def view_of_a_leaf(x: torch.Tensor, y: torch.Tensor, seen: list[Any]) -> Any:
    x[...] = 2
    seen.append(1)
    try:
        y.mul_(2)
    except RuntimeError as error:
        seen.append(str(error))
    return x + 1, y.stride()


def view_of_a_leaf_unhandled(x: torch.Tensor, y: torch.Tensor, seen: list[Any]) -> Any:
    x.add_(1)
    y.view(-1)[1:].clamp_(0)
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("fn", [view_of_a_leaf, view_of_a_leaf_unhandled])
def test_a_view_of_a_leaf_is_not_written(fn: Any, backend: str) -> None:
    def outcome(call: Any) -> Any:
        x, leaf, seen = torch.zeros(3, dtype=torch.float64), torch.ones(3, 4, requires_grad=True), []
        try:
            result = call(x, leaf.view_as(leaf), seen)
        except RuntimeError as error:
            lines = [e.lineno for e in traceback.extract_tb(error.__traceback__) if e.filename == __file__]
            result = str(error), lines[1:]
        return result, x.tolist(), seen, leaf._version

    compiled = dynamo_lite.compile(fn, backend=backend)
    for _ in range(2):
        want, got = outcome(fn), outcome(compiled)
        assert str(want) == str(got)
    report = dynamo_lite.explain(fn)(torch.zeros(3), torch.ones(3, 4, requires_grad=True) * 1, [])
    assert report.graph_break_count == 0


def test_tracebacks_leave_out_a_backends_frames() -> None:
    """Where one node alone may raise, the lines are known without the backend's own frames, which the program never
    called."""
    def take(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return (x * 2)[i] + 1

    for backend in ("aot_eager", "inductor_lite"):
        compiled = dynamo_lite.compile(take, backend=backend, fullgraph=True)
        compiled(torch.ones(4), torch.tensor([1]))
        with pytest.raises(IndexError) as info:
            compiled(torch.ones(4), torch.tensor([9]))
        names = [frame.filename for frame in traceback.extract_tb(info.value.__traceback__)]
        assert names.count(__file__) == 2 and not any("backends" in name for name in names), names


def test_guarded_code_keeps_no_graph() -> None:
    """For the lines of an operation that raises it keeps their text, not the nodes, whose tensors without data are kept
    with a whole trace's mode."""
    graphs: list[Any] = []

    def keeping(gm: Any, inputs: Any) -> Any:
        graphs.append(weakref.ref(gm))
        return lookup_backend("inductor_lite")(gm, inputs)

    compiled = dynamo_lite.compile(lambda x, i: (x * 2)[i] + 1, backend=keeping, fullgraph=True)
    compiled(torch.ones(4), torch.tensor([1]))
    gc.collect()
    assert len(graphs) == 1 and graphs[0]() is None
    with pytest.raises(IndexError):
        compiled(torch.ones(4), torch.tensor([9]))
