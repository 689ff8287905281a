"""Models compiled once for all batch sizes and lengths."""
import pytest
import torch
import torch.nn as nn

import dynamo_lite
from dynamo_lite import log

transformers = pytest.importorskip("transformers")


def bert():
    config = transformers.BertConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128, vocab_size=100)
    return transformers.BertModel(config), lambda n, m: torch.randint(0, 100, (n, m))


def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_embd=64, n_head=4, vocab_size=100)
    return transformers.GPT2LMHeadModel(config), lambda n, m: torch.randint(0, 100, (n, m))


def convolutions():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    return model, lambda n, m: torch.randn(n, 3, m, m)


@pytest.mark.parametrize("make", [bert, gpt2, convolutions])
def test_one_graph_for_all_sizes(make, caplog):
    caplog.set_level("INFO", "dynamo_lite.fallbacks")
    torch.manual_seed(0)
    model, inputs = make()
    compiled = dynamo_lite.compile(model.eval(), dynamic=True)
    with torch.no_grad():
        for n, m in ((2, 16), (3, 20), (5, 33), (2, 17)):
            x = inputs(n, m)
            want, got = model(x), compiled(x)
            want, got = (r if isinstance(r, torch.Tensor) else r[0] for r in (want, got))
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            assert got.stride() == want.stride()
    assert log.counters()["graphs"] == 1 and log.counters()["kernels"] > 0
    assert "runs in eager" not in caplog.text


def test_gradients_of_a_graph_with_symbols_are_eagers(caplog):
    caplog.set_level("INFO", "dynamo_lite.fallbacks")
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    compiled = dynamo_lite.compile(model, dynamic=True)
    for n in (4, 7, 3):
        x = torch.randn(n, 8)
        want = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
        got = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
        torch.testing.assert_close(got, want)
    assert log.counters()["graphs"] == 1 and "in eager" not in caplog.text


def test_the_last_position_of_one_sequence(caplog):
    """Its stride over the batch is a symbol, along which nothing ever steps."""
    caplog.set_level("INFO", "dynamo_lite.fallbacks")
    layer = nn.Linear(64, 128)
    fn = lambda x: layer(torch.relu(x)[:, -1:])
    compiled = dynamo_lite.compile(fn, dynamic=True)
    with torch.no_grad():
        for n in (12, 13, 5):
            x = torch.randn(1, n, 64)
            torch.testing.assert_close(compiled(x), fn(x))
    assert log.counters()["graphs"] == 1
    assert "can't be lowered" not in caplog.text and "runs in eager" not in caplog.text
