"""Training steps compiled once for all sizes: one forward pass, one backward pass, equal to eager."""
import copy

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import log


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


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("kind", [Perceptron, Convolutions, Transformer])
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
