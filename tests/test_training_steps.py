"""A whole training step as one compiled function: one break, at backward(), no compile after the second call, eager's
parameters."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
}
STEPS = {
    "plain": {}, "clipped": {"clip": 0.1}, "zeros": {"set_to_none": False}, "microbatches": {"batches": 3},
    "scheduled": {"schedule": True}, "autocast": {"autocast": True}, "by value": {"clip_value": 0.01},
}


def make(
    optimizer, model=None, clip=None, clip_value=None, set_to_none=True, batches=1, schedule=False, autocast=False
):
    model = model or build()
    optimizer = OPTIMIZERS[optimizer](model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9) if schedule else None

    def gradients(x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    def step(x, y):
        loss = gradients(x, y)
        for _ in range(batches - 1):
            loss = gradients(x, y)
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        if clip_value is not None:
            torch.nn.utils.clip_grad_value_(model.parameters(), clip_value)
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
        return loss.detach()

    return model, step, schedule


def batches(count):
    for i in range(count):
        generator = torch.Generator().manual_seed(i)
        yield torch.randn(8, 16, generator=generator), torch.randint(0, 4, (8,), generator=generator)


def compare(theirs, ours, count=5, tolerance=1e-5):
    """Runs both; how many graphs each step compiled."""
    dynamo_lite.reset()
    (model, step, schedule), (other, other_step, other_schedule) = theirs, ours
    compiled = dynamo_lite.compile(other_step)
    graphs = []
    for i, (x, y) in enumerate(batches(count)):
        torch.manual_seed(i)
        want = step(x, y)
        before = dynamo_lite.metrics()["graphs"]
        torch.manual_seed(i)
        got = compiled(x, y)
        graphs.append(dynamo_lite.metrics()["graphs"] - before)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
        for (name, p), q in zip(model.named_parameters(), other.parameters()):
            torch.testing.assert_close(q, p, rtol=tolerance, atol=tolerance, msg=name)
            assert (p.grad is None) == (q.grad is None)
        if schedule is not None:
            schedule.step()
            other_schedule.step()
    return graphs


@pytest.mark.parametrize("options", STEPS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps(optimizer, options):
    tolerance = 2e-2 if options == "autocast" else 1e-5
    graphs = compare(make(optimizer, **STEPS[options]), make(optimizer, **STEPS[options]), 6, tolerance)
    # One more for the optimizer's first state, and one where the learning rate is seen to change.
    assert sum(graphs) <= graphs[0] + (3 if options == "scheduled" else 1) and graphs[-1] == 0
    assert not dynamo_lite.metrics()["fallbacks"]


def test_one_break():
    model = build()
    optimizer = OPTIMIZERS["adamw"](model.parameters())

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    report = dynamo_lite.explain(step)(*next(batches(1)))
    assert [reason.kind for reason in report.break_reasons] == ["autograd_in_graph"]


def test_compiled_model_with_a_plain_loop():
    model = build()
    other = copy.deepcopy(model)
    theirs = make("adamw", model)
    compiled = dynamo_lite.compile(other)
    optimizer = torch.optim.AdamW(other.parameters(), lr=0.01)
    for i, (x, y) in enumerate(batches(4)):
        torch.manual_seed(i)
        want = theirs[1](x, y)
        torch.manual_seed(i)
        loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.testing.assert_close(loss.detach(), want)
    for p, q in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(q, p, rtol=1e-5, atol=1e-5)


def test_gradients_set_by_the_function():
    def f(p, scale):
        p.grad = p.grad * scale
        q = p.grad.sum()
        p.grad = None
        return q

    def g(p, scale):
        p.grad = p.grad * scale
        return p.grad.sum()

    for fn in (f, g):
        results = []
        for call in (fn, dynamo_lite.compile(fn)):
            p = torch.nn.Parameter(torch.arange(4.0))
            p.grad = torch.ones(4)
            results.append((call(p, 3.0), p.grad))
        assert torch.equal(results[0][0], results[1][0])
        assert (results[0][1] is None) == (results[1][1] is None)
        assert results[0][1] is None or torch.equal(results[0][1], results[1][1])


def test_a_gradient_that_does_not_fit():
    def f(p):
        p.grad = torch.ones(3)

    with pytest.raises(RuntimeError):
        dynamo_lite.compile(f)(torch.nn.Parameter(torch.ones(4)))


def test_grad_scaler():
    def run(wrap):
        torch.manual_seed(0)
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
        forward = wrap(model)
        for i, (x, y) in enumerate(batches(4)):
            torch.manual_seed(i)
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(forward(x), y)
            scaler.scale(loss).backward()
            if i == 2:
                next(model.parameters()).grad.fill_(float("inf"))
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        return [p.detach() for p in model.parameters()], scaler.get_scale()

    (want, scale), (got, other_scale) = run(lambda m: m), run(dynamo_lite.compile)
    assert scale == other_scale
    for p, q in zip(want, got):
        torch.testing.assert_close(q, p, rtol=2e-2, atol=2e-2)


def test_the_compiler_is_not_captured():
    """The backward pass is compiled while the hook is active."""
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(make("sgd")[1])
    for x, y in batches(3):
        compiled(x, y)
    assert dynamo_lite.metrics()["graphs"] == 3
