"""Compiled optimizer steps: one graph, no breaks, eager's numbers, no compile for each step."""
import copy
import gc
import weakref

import pytest
import torch
from torch import nn, optim

import dynamo_lite
from dynamo_lite import log

pytestmark = pytest.mark.by_turns(3)

SHAPES = ((8, 4), (8,), (3, 8), (3,), (5, 2, 3), ())

CAPTURED = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "sgd maximize": lambda p: optim.SGD(p, lr=0.1, maximize=True, weight_decay=0.1),
    "sgd momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.1),
    "sgd nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "sgd foreach": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd tensor lr": lambda p: optim.SGD(p, lr=torch.tensor(0.1)),
    "adam": lambda p: optim.Adam(p, lr=0.1),
    "adam amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, weight_decay=0.1),
    "adam foreach": lambda p: optim.Adam(p, lr=0.1, foreach=True),
    "adam foreach amsgrad": lambda p: optim.Adam(p, lr=0.1, foreach=True, amsgrad=True, maximize=True),
    "adam tensor lr": lambda p: optim.Adam(p, lr=torch.tensor(0.1)),
    "adamw": lambda p: optim.AdamW(p, lr=0.1),
    "adamw foreach": lambda p: optim.AdamW(p, lr=0.1, foreach=True),
    "nadam": lambda p: optim.NAdam(p),
    "adamax": lambda p: optim.Adamax(p),
    "adagrad": lambda p: optim.Adagrad(p),
    "adadelta": lambda p: optim.Adadelta(p),
    "rmsprop": lambda p: optim.RMSprop(p, momentum=0.9, centered=True),
    "rprop": lambda p: optim.Rprop([q for q in p if q.dim()]),
    "two groups": lambda p: optim.AdamW([{"params": p[:2], "lr": 0.01, "weight_decay": 0.0}, {"params": p[2:]}]),
}
CORRECT = {
    "radam": lambda p: optim.RAdam(p),
    "asgd": lambda p: optim.ASGD(p),
    "adafactor": lambda p: optim.Adafactor([q for q in p if q.dim()]),
    "adam fused": lambda p: optim.Adam(p, lr=0.1, fused=True),
    "sgd fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "muon": lambda p: optim.Muon([q for q in p if q.dim() == 2]),
}


class Twins:
    """The same parameters twice, one set stepped in eager and one compiled."""

    def __init__(self, make, shapes=SHAPES):
        dynamo_lite.reset()
        torch.manual_seed(0)
        self.theirs = [nn.Parameter(torch.randn(shape)) for shape in shapes]
        self.ours = copy.deepcopy(self.theirs)
        self.eager, self.compiled = make(self.theirs), make(self.ours)
        self.step = dynamo_lite.compile(self.compiled.step)

    def gradients(self, seed, skip=()):
        generator = torch.Generator().manual_seed(seed)
        for i, (p, q) in enumerate(zip(self.theirs, self.ours)):
            grad = torch.randn(p.shape, generator=generator)
            p.grad = None if i in skip else grad
            q.grad = None if i in skip else grad.clone()

    def check(self, **tolerance):
        for p, q in zip(self.theirs, self.ours):
            torch.testing.assert_close(q, p, **(tolerance or {"rtol": 1e-6, "atol": 1e-6}))
        for p, q in zip(self.theirs, self.ours):
            a, b = self.eager.state[p], self.compiled.state[q]
            assert list(a) == list(b)
            for key in a:
                torch.testing.assert_close(b[key], a[key], rtol=1e-5, atol=1e-6)

    def run(self, steps=4):
        graphs = []
        for seed in range(steps):
            self.gradients(seed)
            self.eager.step()
            before = dynamo_lite.metrics()["graphs"]
            self.step()
            graphs.append(dynamo_lite.metrics()["graphs"] - before)
            self.check()
        return graphs


@pytest.mark.parametrize("name", CAPTURED)
def test_one_graph_for_all_steps(name):
    twins = Twins(CAPTURED[name])
    graphs = twins.run()
    # The first step makes the state; the ones after it are all alike.
    assert graphs[0] == 1 and graphs[1] <= 1 and graphs[2:] == [0, 0]
    assert not dynamo_lite.metrics()["fallbacks"]


@pytest.mark.parametrize("name", CORRECT)
def test_the_others_are_right(name):
    graphs = Twins(CORRECT[name]).run(7)
    assert graphs[-1] == 0


@pytest.mark.parametrize("name", ["sgd momentum", "sgd foreach", "adamw", "adamw foreach", "adam foreach",
                                  "adam tensor lr", "rmsprop"])
def test_learning_rates_that_change(name):
    twins = Twins(CAPTURED[name])
    schedules = [optim.lr_scheduler.CosineAnnealingLR(o, T_max=20) for o in (twins.eager, twins.compiled)]
    graphs = []
    for seed in range(10):
        graphs += twins.run(1)
        for schedule in schedules:
            schedule.step()
    assert sum(graphs) <= 4 and sum(graphs[4:]) == 0
    assert not dynamo_lite.metrics()["fallbacks"] and not dynamo_lite.metrics()["library_calls"]


SCHEDULES = {
    "step": lambda o: optim.lr_scheduler.StepLR(o, 2),
    "cosine": lambda o: optim.lr_scheduler.CosineAnnealingLR(o, 20),
    "lambda": lambda o: optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.9**epoch),
    "one after the other": lambda o: optim.lr_scheduler.SequentialLR(
        o, [optim.lr_scheduler.ConstantLR(o), optim.lr_scheduler.ExponentialLR(o, 0.9)], [3]),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_inside_a_compiled_step(schedule):
    """The number of steps, which each schedule counts in Python, is in no graph and no guard."""
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = optim.AdamW(model.parameters(), lr=0.1)
        rates = SCHEDULES[schedule](optimizer)

        def step(x):
            loss = model(x).square().sum()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rates.step()
            optimizer.zero_grad()
            return loss.detach()

        run = dynamo_lite.compile(step, backend="eager") if compiled else step
        losses.append([run(torch.randn(5, 4)) for _ in range(12)])
    assert all(torch.equal(a, b) for a, b in zip(*losses))
    # backward() breaks, and the schedule's step; what follows backward() is compiled without state, with it, and for
    # rates that change.
    assert log.counters()["recompiles"] == 2 and log.counters()["graph_breaks"] == 4


def test_parameters_without_gradients_are_left_alone():
    twins = Twins(CAPTURED["adam"])
    for seed, skip in enumerate([(1,), (1,), (), (0, 1), ()]):
        twins.gradients(seed, skip)
        twins.eager.step()
        twins.step()
        twins.check()


def test_the_same_entry_serves_another_optimizer_of_the_same_kind():
    make = CAPTURED["adam"]
    Twins(make).run(2)
    first = Twins(make)
    assert first.run(3)[2] == 0


def test_hooks_before_and_after_the_step():
    calls = []
    twins = Twins(CAPTURED["sgd"])
    twins.run(1)
    twins.compiled.register_step_pre_hook(lambda *_: calls.append("before"))
    twins.compiled.register_step_post_hook(lambda *_: calls.append("after"))
    twins.run(2)
    assert calls == ["before", "after"] * 2


def test_a_closure():
    twins = Twins(CAPTURED["sgd"])
    losses = []
    for seed in range(3):
        for optimizer, step, parameters in ((twins.eager, twins.eager.step, twins.theirs),
                                            (twins.compiled, twins.step, twins.ours)):
            def closure():
                optimizer.zero_grad()
                loss = sum((p ** 2).sum() for p in parameters)
                loss.backward()
                return loss

            losses.append(step(closure))
        torch.testing.assert_close(losses[-1], losses[-2])
        twins.check()


def test_state_goes_to_disk_and_back():
    twins = Twins(CAPTURED["adamw"])
    twins.run(2)
    for optimizer in (twins.eager, twins.compiled):
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    twins.run(2)


def test_versions_of_parameters_move():
    twins = Twins(CAPTURED["sgd"])
    twins.run(1)
    before = [p._version for p in twins.ours]
    twins.run(1)
    assert all(p._version > v for p, v in zip(twins.ours, before))


def test_one_call_of_c_for_all_parameters():
    twins = Twins(CAPTURED["adamw"])
    twins.run(3)
    assert not dynamo_lite.metrics()["library_calls"]


def test_the_step_that_a_schedule_has_wrapped_is_compiled_where_it_is_asked_for():
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = optim.AdamW(model.parameters(), lr=0.1)
        rates = optim.lr_scheduler.StepLR(optimizer, 2)
        step = dynamo_lite.compile(optimizer.step, backend="eager") if compiled else optimizer.step
        before = dynamo_lite.metrics()["graphs"]
        for _ in range(8):
            model(torch.randn(5, 4)).square().sum().backward()
            step()
            rates.step()
            optimizer.zero_grad()
        results.append(list(model.parameters()))
    assert all(map(torch.equal, *results))
    assert dynamo_lite.metrics()["graphs"] - before == 3  # without state, with it, and for rates that change


def test_torchs_own_functions_are_captured_where_they_are_asked_for():
    function = torch.functional.broadcast_tensors
    compiled = dynamo_lite.compile(function, backend="eager")
    before = dynamo_lite.metrics()["graphs"]
    assert [t.shape for t in compiled(torch.ones(3), torch.ones(2, 1))] == [(2, 3), (2, 3)]
    assert dynamo_lite.metrics()["graphs"] == before + 1


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_a_line_search_runs_in_python_and_its_closure_compiled(search):
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model, x, y = nn.Linear(4, 1), torch.randn(20, 4), torch.randn(20, 1)
        optimizer = optim.LBFGS(model.parameters(), lr=0.5, max_iter=5, line_search_fn=search)

        def closure(optimizer=optimizer, model=model, x=x, y=y):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss

        def step(optimizer=optimizer, closure=closure):
            return optimizer.step(closure)

        run = dynamo_lite.compile(step, backend="eager") if compiled else step
        before = dynamo_lite.metrics()["graphs"]
        losses = [run().item() for _ in range(4)]
        results.append([*losses, *(p.tolist() for p in model.parameters())])
    assert results[0] == results[1]
    assert dynamo_lite.metrics()["graphs"] - before == 2  # the closure without gradients, and with them


LISTS = {
    "lerp_": lambda p, g, z, n: torch._foreach_lerp_(p, g, weight=n),
    "lerp_ positional": lambda p, g, z, n: torch._foreach_lerp_(p, g, n),
    "lerp": lambda p, g, z, n: torch._foreach_lerp(p, g, n),
    "addcmul_": lambda p, g, z, n: torch._foreach_addcmul_(p, g, z, value=n),
    "addcmul": lambda p, g, z, n: torch._foreach_addcmul(p, g, z, n),
    "addcdiv_ numbers": lambda p, g, z, n: torch._foreach_addcdiv_(p, g, z, [n, 0.5, n * 2]),
    "addcdiv keyword": lambda p, g, z, n: torch._foreach_addcdiv(p, g, z, scalars=[n, 0.5, n * 2]),
    "mul_ numbers": lambda p, g, z, n: torch._foreach_mul_(p, [n, 2, -n]),
    "add alpha": lambda p, g, z, n: torch._foreach_add(p, g, alpha=-n),
    "sub_ alpha": lambda p, g, z, n: torch._foreach_sub_(p, g, alpha=n),
    "div": lambda p, g, z, n: torch._foreach_div(p, n),
    "methods": lambda p, g, z, n: [x.lerp_(y, n).addcmul_(y, w, value=n).lerp(w, weight=n) for x, y, w in zip(p, g, z)],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", LISTS)
def test_steps_written_by_hand_with_numbers_that_change(name, dtype):
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()

    @torch.no_grad()
    def step(p, g, z, n):
        made = LISTS[name](p, g, z, n)
        return [made] if isinstance(made, torch.Tensor) else list(made or ())

    compiled = dynamo_lite.compile(step, fullgraph=True)
    for k in range(5):
        torch.manual_seed(k)
        lists = [[torch.rand(shape, dtype=dtype) + 0.5 for shape in ((3, 2), (5,), ())] for _ in range(3)]
        theirs = copy.deepcopy(lists)
        for x in (*lists[0], *theirs[0]):
            x.requires_grad_()
        n = 0.3 + 0.15 * k
        got, want = compiled(*lists, n), step(*theirs, n)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(lists, theirs)
    counted = dynamo_lite.metrics()
    assert counted["graphs"] <= 2 and not counted["fallbacks"], counted


@pytest.mark.parametrize("call", [
    lambda x, y, n: x.add_(y, alpha=n), lambda x, y, n: x.addcmul_(y, y, value=n), lambda x, y, n: x.lerp_(y, n),
    lambda x, y, n: torch._foreach_add_([x], [y], alpha=n),
])
def test_numbers_that_eager_refuses(call):
    """Fractions for integral tensors."""
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(call, backend="eager")
    for n in (0.5, 0.25, 0.75):
        x, y = torch.arange(4), torch.arange(4)
        try:
            want = call(x.clone(), y, n)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error).split("\n")[0][:20]):
                compiled(x, y, n)
            assert x.tolist() == [0, 1, 2, 3]
        else:
            mine = x.clone()
            compiled(mine, y, n)
            call(x, y, n)
            assert torch.equal(mine, x), want


@pytest.mark.parametrize("call", [
    lambda x, n: torch._foreach_add_([x, x], [x], alpha=n), lambda x, n: torch._foreach_mul_([x], [n, n]),
    lambda x, n: torch._foreach_lerp_([x], [x, x], n), lambda x, n: torch._foreach_addcmul_([], [], [], value=n),
])
def test_lists_that_eager_refuses(call):
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(call, backend="eager")
    for n in (0.5, 0.25, 0.75):
        x = torch.ones(3)
        with pytest.raises(RuntimeError) as theirs:
            call(x, n)
        with pytest.raises(RuntimeError) as ours:
            compiled(x, n)
        assert str(ours.value).split("\n")[0] == str(theirs.value).split("\n")[0] and x.tolist() == [1, 1, 1]


def test_pairs_of_models_and_optimizers_share_a_compile_and_end():
    """A state is a dict keyed by parameters: which of the step's parameters a key is counts, not which object."""
    @dynamo_lite.compile(backend="aot_eager")
    def step(model, optimizer, x):
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    ends = []
    for turn in range(4):
        model = nn.Linear(3, 2)
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        twin = copy.deepcopy(model)
        plain = optim.Adam(twin.parameters(), lr=0.1)
        with dynamo_lite.config.patch(error_on_recompile=turn > 0):
            for _ in range(3):
                x = torch.randn(4, 3)
                got = step(model, optimizer, x)
                loss = twin(x).square().mean()
                loss.backward()
                plain.step()
                plain.zero_grad()
                torch.testing.assert_close(got, loss.detach())
        torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
        ends.append(weakref.ref(model.weight))
        del model, optimizer
    gc.collect()
    assert not any(end() is not None for end in ends)
