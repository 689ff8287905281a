"""Cross-entropy of a linear layer's results, computed some rows at a time: which graphs, values, gradients, memory."""
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from measure import peak_of_call

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends import metrics
from dynamo_lite.backends.aot import chunked_loss, loss_pattern


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    """So that parts are many and tensors small."""
    monkeypatch.setattr(loss_pattern, "LARGE", 0)
    monkeypatch.setattr(chunked_loss, "LEAST", {"cpu": 4, "cuda": 2048})
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with config.patch(raise_internal_errors=True, cache_graphs=False):
        yield
    dynamo_lite.reset()


def count():
    return metrics.metrics().get("chunked_losses", 0)


def check(fn, *args, chunked=1, tolerance=1e-5):
    """Loss and gradients against eager's; of tensors of floats."""
    given = [[a.detach().clone().requires_grad_(a.is_floating_point()) for a in args] for _ in range(2)]
    compiled = dynamo_lite.compile(fn)
    for _ in range(2):
        got, want = compiled(*given[0]), fn(*given[1])
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
        (got * 3).backward()
        (want * 3).backward()
        for a, b in zip(*given):
            if b.grad is not None:
                torch.testing.assert_close(a.grad, b.grad, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert count() == chunked, count()
    with torch.no_grad():
        torch.testing.assert_close(compiled(*given[0]), fn(*given[1]), rtol=tolerance, atol=tolerance, equal_nan=True)
    return compiled


def data(rows=37, inputs=6, outputs=41, dtype=torch.float32):
    torch.manual_seed(0)
    target = torch.randint(0, outputs, (rows,))
    target[3:6] = -100
    return torch.randn(rows, inputs, dtype=dtype), torch.randn(outputs, inputs, dtype=dtype), target


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignored", [-100, 2])
def test_settings(reduction, smoothing, ignored):
    x, w, t = data()
    t[:3] = 2
    t[t < 0] = ignored
    check(lambda x, w, b, t: F.cross_entropy(
        F.linear(x, w, b), t, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing),
        x, w, torch.randn(41), t)


def test_everything_is_ignored():
    x, w, t = data()
    check(lambda x, w, t: F.cross_entropy(F.linear(x, w), t), x, w, t.fill_(-100))
    dynamo_lite.reset_metrics()
    check(lambda x, w, t: F.cross_entropy(F.linear(x, w), t, reduction="sum"), x, w, t)


def test_what_may_stand_between():
    x, w, t = data(40)

    def shifted(x, w, t):
        logits = F.linear(x.view(4, 10, 6), w).float()
        return F.cross_entropy(logits[..., :-1, :].contiguous().view(-1, 41), t.view(4, 10)[..., 1:].reshape(-1))

    check(shifted, x, w, t)
    dynamo_lite.reset_metrics()
    check(lambda x, w, t: F.nll_loss(F.log_softmax(F.linear(x.view(4, 10, 6), w).flatten(0, 1), dim=-1), t), x, w, t)
    dynamo_lite.reset_metrics()
    check(lambda x, w, t: F.cross_entropy(F.linear(x.view(4, 10, 6), w)[:, 2:].reshape((32, -1)),
                                          t.view(4, 10)[:, 2:].flatten()), x, w, t)


def test_what_may_not():
    x, w, t = data()
    for fn in (
        lambda x, w, t: F.cross_entropy(F.linear(x, w) * 2, t),
        lambda x, w, t: F.cross_entropy(F.linear(x, w)[:, :40], t.clamp(-100, 39)),
        lambda x, w, t: F.cross_entropy(F.linear(x, w), t, reduction="none").sum(),
        lambda x, w, t: F.cross_entropy(F.linear(x, w), t, weight=torch.ones(41)),
        lambda x, w, t: F.cross_entropy(F.linear(x, w).t().contiguous().t(), t),
        lambda x, w, t: F.cross_entropy(F.linear(x, w), F.one_hot(t.clamp(0), 41).float()),
        lambda x, w, t: F.cross_entropy(F.linear(x.double(), w.double()), t),
    ):
        check(fn, x, w, t, chunked=0)

    def writes(x, w, t):
        x = x * 1
        logits = F.linear(x, w.detach())
        x.mul_(2)
        return F.cross_entropy(logits, t) + x.sum()

    check(writes, x, w, t, chunked=0)

    def shown(x, w, t):
        logits = F.linear(x, w)
        return F.cross_entropy(logits, t), logits

    got, want = dynamo_lite.compile(shown)(x, w, t), shown(x, w, t)
    torch.testing.assert_close(got, want)
    assert count() == 0


def test_operands_by_name_and_arguments_with_the_names_of_operations():
    x, w, t = data()
    t[3:6] = 0
    for fn in (lambda log_softmax, t: F.nll_loss(log_softmax, t),
               lambda view, t: F.cross_entropy(view, t),
               lambda x, t: F.nll_loss(F.log_softmax(input=x, dim=1), t),
               lambda x, t: F.nll_loss(torch.log_softmax(input=x, dim=1), t),
               lambda x, t: F.cross_entropy(torch.reshape(input=x, shape=(-1, x.shape[-1])), t),
               lambda x, t: F.cross_entropy(torch.flatten(input=x[:, None], end_dim=1), t)):
        check(fn, x @ w.t(), t, chunked=0)
    check(lambda x, w, t: F.nll_loss(F.log_softmax(input=F.linear(x, w), dim=1), t), x, w, t, chunked=0)


def test_rows_of_infinities_that_are_ignored():
    x, w, t = data()
    x[3:6] = float("inf")
    fn = lambda x, w, t: F.cross_entropy(F.linear(x, w), t)
    got, want = dynamo_lite.compile(fn)(x, w, t), fn(x, w, t)
    assert count() == 1 and torch.isfinite(want)
    torch.testing.assert_close(got, want)


def test_targets_out_of_bounds():
    x, w, t = data()
    t[7] = 41
    compiled = dynamo_lite.compile(lambda x, w, t: F.cross_entropy(F.linear(x, w), t))
    with pytest.raises(IndexError, match="Target 41 is out of bounds"):
        compiled(x, w, t)


def test_bfloat16():
    x, w, t = data(64, 16, 200, torch.bfloat16)
    check(lambda x, w, t: F.cross_entropy(F.linear(x, w).float(), t), x, w, t, tolerance=2e-2)
    dynamo_lite.reset_metrics()
    check(lambda x, w, t: F.cross_entropy(F.linear(x, w), t), x, w, t, tolerance=5e-2)
    dynamo_lite.reset_metrics()
    x, w, t = data(64, 16, 200)

    def cast(x, w, t):
        with torch.autocast("cpu", torch.bfloat16):
            return F.cross_entropy(F.linear(x, w), t)

    check(cast, x, w, t, tolerance=2e-2)
    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(lambda x, w, t: F.cross_entropy(F.linear(x, w), t))
    with torch.autocast("cpu", torch.bfloat16):
        got, want = compiled(x, w, t), F.cross_entropy(F.linear(x, w), t)
    assert count() == 1 and got.dtype is want.dtype
    torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_frozen_weights_and_gradients_of_gradients():
    x, w, t = data()
    fn = lambda x, w, t: F.cross_entropy(F.linear(x, w), t)
    compiled = dynamo_lite.compile(fn)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    for f, leaf in ((compiled, a), (fn, b)):
        (g,) = torch.autograd.grad(f(leaf, w, t), leaf, create_graph=True)
        g.square().sum().backward()
    assert count() == 1
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)


def test_symbolic_rows():
    compiled = dynamo_lite.compile(lambda x, w, t: F.cross_entropy(F.linear(x, w), t), dynamic=True)
    for rows in (37, 50, 64, 9):
        x, w, t = data(rows)
        a, b = w.clone().requires_grad_(), w.clone().requires_grad_()
        got, want = compiled(x, a, t), F.cross_entropy(F.linear(x, b), t)
        got.backward()
        want.backward()
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-5, atol=1e-5)


def test_training():
    torch.manual_seed(0)
    tokens = torch.randint(0, 60, (4, 12))
    losses = []
    for run in (lambda m: m, dynamo_lite.compile):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(60, 8), nn.Tanh(), nn.Linear(8, 60))
        step = run(lambda t, model=model: F.cross_entropy(model(t[:, :-1]).flatten(0, 1), t[:, 1:].flatten()))
        optimizer = torch.optim.AdamW(model.parameters(), 0.05)
        found = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = step(tokens)
            loss.backward()
            optimizer.step()
            found.append(loss.detach())
        losses.append(found)
    assert count() == 1
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)


def test_another_process_finds_the_graph(tmp_path):
    x, w, t = data()
    w.requires_grad_()
    fn = lambda x, w, t: F.cross_entropy(F.linear(x, w), t)
    want = fn(x, w, t)
    with config.patch(cache_graphs=True, cache_dir=str(tmp_path)):
        for _ in range(2):
            dynamo_lite.reset()
            got = dynamo_lite.compile(fn)(x, w, t)
            got.backward()
            torch.testing.assert_close(got, want)
    assert metrics.metrics()["graph_cache_hits"] >= 1 and count() == 1


def test_memory(monkeypatch):
    """At most two fifths of what the whole logits take, as Liger's kernel."""
    monkeypatch.setattr(chunked_loss, "LEAST", {"cpu": 256, "cuda": 2048})
    rows, inputs, outputs = 2048, 64, 4096
    x, w = torch.randn(rows, inputs, requires_grad=True), torch.randn(outputs, inputs, requires_grad=True)
    t = torch.randint(0, outputs, (rows,))
    peaks = []
    for chunked in (False, True):
        dynamo_lite.reset()
        with config.patch(chunked_loss=chunked):
            compiled = dynamo_lite.compile(lambda x, w, t: F.cross_entropy(F.linear(x, w), t))

            def call(compiled=compiled):
                x.grad = w.grad = None
                compiled(x, w, t).backward()

            call()
            call()
            peaks.append(peak_of_call(call))
    assert peaks[1] < 0.4 * peaks[0], peaks
    assert peaks[1] < 0.4 * 2 * 4 * rows * outputs


def test_the_rule():
    worth = loss_pattern.is_worth_it
    assert worth(8192, 32000, 768, "cpu", True) and worth(2048, 50257, 768, "cpu", True)
    assert not worth(512, 32000, 768, "cpu", True)  # the weight's gradient is larger than the logits
    assert worth(1024, 32000, 768, "cpu", False)  # no gradient of it
    assert not worth(2048, 1000, 2048, "cpu", False)  # the rows are as large as their logits
    assert worth(16384, 128256, 4096, "cuda", True) and not worth(4096, 128256, 4096, "cuda", True)
