"""Training steps compiled once for all sizes: one forward pass, one backward pass, equal to eager."""
import collections
import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config, log


@pytest.fixture(autouse=True)
def nothing_in_eager(caplog):
    caplog.set_level("INFO", "dynamo_lite.fallbacks")
    yield
    assert "in eager" not in caplog.text and "fault" not in caplog.text and "fixed" not in caplog.text


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 5))

    def forward(self, x, y):
        return F.cross_entropy(self.layers(x), y)

    def batch(self, n, m):
        return torch.randn(n, 8), torch.randint(5, (n,))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(16, 5))

    def forward(self, x, y):
        return F.cross_entropy(self.layers(x), y)

    def batch(self, n, m):
        return torch.randn(n, 3, m, m), torch.randint(5, (n,))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(64, 32)
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 50)

    def forward(self, ids, labels):
        n, m = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(m))
        q, k, v = self.qkv(self.norm1(x)).view(n, m, 3, 4, 8).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, -1)
        x = x + self.out((a + weights @ v).transpose(1, 2).reshape(n, m, 32))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return F.cross_entropy(self.head(x).view(-1, 50), labels.view(-1))

    def batch(self, n, m):
        return torch.randint(50, (n, m)), torch.randint(50, (n, m))


SIZES = ((4, 12), (7, 20), (3, 17), (9, 33), (5, 26))


@pytest.mark.parametrize(("kind", "optimizer"), [
    (Perceptron, torch.optim.Adam), (Convolutions, torch.optim.SGD), (Transformer, torch.optim.Adam)])
def test_one_graph_for_all_sizes(kind, optimizer):
    torch.manual_seed(0)
    own = kind()
    compiled_own = copy.deepcopy(own)
    step = dynamo_lite.compile(lambda *batch: compiled_own(*batch), dynamic=True)
    optimizers = [optimizer(model.parameters(), lr=1e-2) for model in (own, compiled_own)]
    for n, m in SIZES:
        batch = own.batch(n, m)
        want, got = own(*batch), step(*batch)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        for loss, update in zip((want, got), optimizers):
            update.zero_grad()
            loss.backward()
        for p, q in zip(compiled_own.parameters(), own.parameters()):
            torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)
            assert p.grad.stride() == q.grad.stride()
        for update in optimizers:
            update.step()
        for p, q in zip(compiled_own.state_dict().values(), own.state_dict().values()):
            torch.testing.assert_close(p, q, rtol=1e-3, atol=0.021 if optimizer is torch.optim.Adam else 1e-5)
        # Adam makes steps of one size of gradients that are next to nothing.
        compiled_own.load_state_dict(copy.deepcopy(own.state_dict()), assign=False)
    assert log.counters()["graphs"] == 1


# ---------------------------------------------------------------- what autograd sees
def with_intermediate(x, w):
    h = x @ w
    return h, (h * h).mean()


def with_views(x, w):
    h = (x @ w).relu()
    return h.view(-1), h.t(), x[1:]


def with_write(x, w):
    s = torch.zeros_like(x)
    s[1:] = (x @ w)[1:]
    return s, s.std()


def with_ratio(x, w):
    return (x @ w).sum() / (x.shape[0] - 1), x.shape[0]


def results_and_gradients(run, n):
    torch.manual_seed(n)
    x, w = torch.randn(n, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    results = run(x, w)
    seen = []
    for r in results:
        if isinstance(r, torch.Tensor) and r.requires_grad:
            r.retain_grad()
            r.register_hook(lambda g: seen.append(g.clone()))
    sum((r * r).sum() for r in results if isinstance(r, torch.Tensor)).backward()
    tensors = [r for r in results if isinstance(r, torch.Tensor)]
    return [*results, *[t.grad for t in (x, w, *tensors)], *seen, [t._is_view() for t in tensors]]


@pytest.mark.parametrize("function", [with_intermediate, with_views, with_write, with_ratio])
def test_views_hooks_and_retained_gradients_are_eagers(function):
    compiled = dynamo_lite.compile(function, dynamic=True)
    for n in (5, 4, 9):
        for a, b in zip(results_and_gradients(function, n), results_and_gradients(compiled, n), strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
                assert b.stride() == a.stride()
            else:
                assert a == b
    assert log.counters()["graphs"] == 1


def test_gradients_of_some_results_and_of_gradients():
    def function(x, w):
        h = (x @ w).tanh()
        return h.sum(1), h.exp().mean(0), x * 2

    def gradients(run, n, which):
        torch.manual_seed(n)
        x, w = torch.randn(n, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
        results = run(x, w)
        found = torch.autograd.grad(results[which].sum(), (x, w), retain_graph=True, allow_unused=True)
        (first,) = torch.autograd.grad(results[0].sum(), x, create_graph=True)
        return (*found, torch.autograd.grad(first.square().sum(), w)[0])

    compiled = dynamo_lite.compile(function, dynamic=True)
    for n, which in ((5, 0), (4, 1), (9, 2), (7, 1)):
        want, got = gradients(function, n, which), gradients(compiled, n, which)
        for a, b in zip(want, got, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    assert log.counters()["graphs"] == 1


# ---------------------------------------------------------------- a loop as users write it
class Trainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        self.steps = 0

    def training_step(self, x, y):
        self.steps += 1
        loss = F.cross_entropy(self.model(x), y) / 2
        return loss * 0.5 if self.steps < 3 else loss

    def clip(self):
        return torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

    def update(self):
        self.optimizer.step()

    def evaluate(self, x, y):
        scores = self.model(x)
        return F.cross_entropy(scores, y), (scores.argmax(1) == y).sum()


def trained(compiled):
    trainer = Trainer()
    step, clip, update, evaluate = [compiled(getattr(trainer, name)) for name in (
        "training_step", "clip", "update", "evaluate")]
    batches = [(torch.randn(n, 8), torch.randint(4, (n,))) for n in (16, 16, 16, 16, 5)]
    held_out = [(torch.randn(n, 8), torch.randint(4, (n,))) for n in (32, 32, 7)]
    history = []
    for _ in range(3):
        trainer.model.train()
        for i, batch in enumerate(batches):
            loss = step(*batch)
            loss.backward()
            history.append(loss.detach())
            if i % 2 or i == len(batches) - 1:
                history.append(clip())
                update()
                trainer.optimizer.zero_grad()
        trainer.schedule.step()
        trainer.model.eval()
        with torch.no_grad():
            for batch in held_out:
                history += evaluate(*batch)
    return history + [p.detach() for p in trainer.model.state_dict().values()]


def test_a_training_loop_compiles_each_function_at_most_4_times(caplog, monkeypatch):
    monkeypatch.setattr(config, "automatic_dynamic_sizes", True)
    caplog.set_level("INFO", "dynamo_lite.recompiles")
    want, got = trained(lambda f: f), trained(dynamo_lite.compile)
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-4)
    again = collections.Counter(
        r.getMessage().split()[0] for r in caplog.records if r.name == "dynamo_lite.recompiles")
    assert again and max(again.values()) <= 3, again


def test_sizes_of_an_intermediate_do_not_tell_the_symbol():
    """A graph is cut where what it returns is used on; the length that a stride leaves, ``s0 // 4``, does not tell
    ``s0``, which the sizes of what is computed of it have in them."""
    def fn(x, w):
        y = F.conv1d(x, w, stride=4)
        return y, y.sin().transpose(1, 2).contiguous(), F.pad(y, (1, 0)).mul(2)

    compiled = dynamo_lite.compile(fn, dynamic=True)
    for n in (32, 50, 61):
        results = []
        for call in (fn, compiled):
            torch.manual_seed(n)
            x, w = torch.randn(2, 3, n, requires_grad=True), torch.randn(4, 3, 5, requires_grad=True)
            made = call(x, w)
            sum((m * m).sum() for m in made).backward()
            results.append([*made, x.grad, w.grad])
        for want, got in zip(*results, strict=True):
            assert want.stride() == got.stride()
            torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-4)
