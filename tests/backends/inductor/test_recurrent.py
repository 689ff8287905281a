"""Recurrent networks by our loops: eager's values, gradients, layouts and random numbers; what stays torch's call."""
import ctypes

import pytest
import thorough
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import config, log
from dynamo_lite.backends.inductor import codecache, processor, recurrent, target_info
from dynamo_lite.backends.inductor.codegen.cpp.libraries import library_source, library_symbol

KINDS = {
    "lstm": (nn.LSTM, {}), "gru": (nn.GRU, {}), "tanh": (nn.RNN, {}), "relu": (nn.RNN, {"nonlinearity": "relu"}),
}
SIZES = [(1, 1, 3, 5), (5, 3, 7, 16), (7, 13, 20, 33), (3, 2, 8, 70), (9, 9, 16, 300), (2, 1, 4, 64), (50, 1, 6, 17)]
OPTIONS = [
    {}, {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.3},
    {"bidirectional": True, "bias": False}, {"num_layers": 2, "batch_first": True},
]


@pytest.fixture(autouse=True)
def strict():
    with config.patch(raise_internal_errors=True):
        yield


def states_of(model, batch, cls):
    count = model.num_layers * (2 if model.bidirectional else 1)
    h = torch.randn(count, batch, model.hidden_size)
    return (h, torch.randn_like(h)) if cls is nn.LSTM else h


def results(call, model, x, states, gradients):
    torch.manual_seed(3)
    x = x.clone().requires_grad_()
    given = [] if states is None else [t.clone().requires_grad_() for t in (
        states if isinstance(states, tuple) else (states,))]
    with torch.set_grad_enabled(gradients):
        args = () if not given else (tuple(given) if len(given) > 1 else given[0],)
        y, last = call(x, *args)
        made = [y, *(last if isinstance(last, tuple) else (last,))]
        if gradients:
            torch.manual_seed(4)
            loss = sum((t * torch.randn_like(t)).sum() for t in made)
            made += torch.autograd.grad(loss, [x, *given, *model.parameters()])
    return made


def agree(want, got):
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b, a, rtol=2e-5, atol=2e-5 * max(float(a.detach().abs().max()), 1e-6))
        assert a.stride() == b.stride() and a.requires_grad == b.requires_grad


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("options", range(len(OPTIONS)))
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients(kind, sizes, options):
    cls, more = KINDS[kind]
    steps, batch, features, hidden = sizes
    torch.manual_seed(0)
    model = cls(features, hidden, **more, **OPTIONS[options])
    x = torch.randn(*((batch, steps) if model.batch_first else (steps, batch)), features)
    before, given = networks(), states_of(model, batch, cls)
    compiled = dynamo_lite.compile(model, fullgraph=True)
    ways = [(None, True), (None, False), (given, False), (given, True)]
    ways = thorough.share(ways, list(KINDS).index(kind) // 2 + SIZES.index(sizes))
    for states, gradients in ways:
        agree(results(model, model, x, states, gradients), results(compiled, model, x, states, gradients))
    of_torch = cls is nn.LSTM and hidden == 300  # oneDNN's large LSTMs in inference
    assert networks() == before + sum(gradients or not of_torch for _, gradients in ways)


def networks():
    return log.counters().get("recurrent_networks", 0)


def test_one_graph_for_all_lengths():
    model = nn.GRU(4, 6, batch_first=True)
    compiled, before = dynamo_lite.compile(model, dynamic=True, fullgraph=True), networks()
    for batch, steps in ((3, 10), (5, 12), (2, 100), (7, 3)):
        x = torch.randn(batch, steps, 4)
        agree(results(model, model, x, None, True), results(compiled, model, x, None, True))
    assert networks() == before + 1


def library(simd):
    path = codecache.shared_library(library_source("recurrent", simd), simd)
    return getattr(ctypes.CDLL(str(path)), library_symbol("recurrent", simd))


@pytest.mark.parametrize("simd", ["avx512", "avx2", "scalar"])
@pytest.mark.parametrize("kind", range(4))
def test_vector_instructions(simd, kind, monkeypatch):
    """All builds that this processor can run give the same but for rounding, packed or not."""
    if simd not in ("scalar", "avx2", processor.simd()):
        pytest.skip("not of this processor")
    gates, hidden = recurrent._GATES[kind] * 37, 37
    torch.manual_seed(1)
    given = (torch.randn(6, 7, gates), torch.randn(gates, hidden) / 6, torch.randn(gates), torch.randn(7, hidden),
             torch.randn(7, hidden) if kind == 0 else None, kind)
    own = target_info.current().simd
    forward, backward = recurrent.operators()
    monkeypatch.setattr(recurrent, "_entry", lambda name: library(name))
    want = forward(*given, False, True, own, 1 << 20, 1, 1 << 20)
    grad = torch.randn_like(want[0])
    others = (grad, None, given[1], given[3], given[4])
    wanted = backward(*others, *want, kind, False, own, 1 << 20, 1, 1 << 20)
    for few in (1, 1 << 20):
        got = forward(*given, False, True, simd, 1 << 20, few, 1 << 20)
        for a, b in zip((*want, *wanted), (*got, *backward(*others, *want, kind, False, simd, 1 << 20, few, 1 << 20))):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


def test_any_number_of_threads():
    """Rows are shared out, so that results have the same bits."""
    model = nn.LSTM(32, 64)
    x, before, compiles = torch.randn(40, 23, 32), torch.get_num_threads(), networks()
    found = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            dynamo_lite.reset()
            found.append(results(dynamo_lite.compile(model), model, x, None, True))
    finally:
        torch.set_num_threads(before)
    assert networks() > compiles
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other))


def test_special_values():
    """NaN and infinities go where eager has them."""
    for cls, more in KINDS.values():
        torch.manual_seed(2)
        model = cls(3, 20, **more)
        x = torch.randn(4, 5, 3) * 50
        x[1, 2, 0], x[2, 3, 1], x[0, 1, 2] = torch.nan, torch.inf, -torch.inf
        compiled, before = dynamo_lite.compile(model), networks()
        with torch.no_grad():
            for a, b in zip(model(x)[0], compiled(x)[0]):
                torch.testing.assert_close(b, a, equal_nan=True, rtol=1e-5, atol=1e-5)
        assert networks() == before + 1


@pytest.mark.parametrize("make", [
    lambda: nn.LSTM(4, 6, proj_size=3), lambda: nn.GRU(4, 6, dtype=torch.float64),
    lambda: nn.RNN(4, 6, dtype=torch.bfloat16),
])
def test_calls_of_torch(make):
    """Projections and other dtypes stay torch's calls, with the same results."""
    model, before = make(), networks()
    x = torch.randn(5, 3, 4, dtype=next(model.parameters()).dtype)
    compiled = dynamo_lite.compile(model)
    for a, b in zip(results(model, model, x, None, True), results(compiled, model, x, None, True), strict=True):
        assert torch.equal(a, b)
    assert networks() == before


def test_one_row_reads_its_weights_in_place():
    """From eight vectors on: the product of one row has no use for packed weights."""
    model = nn.GRU(5, 300)
    x = torch.randn(30, 1, 5)
    agree(results(model, model, x, None, True), results(dynamo_lite.compile(model), model, x, None, True))
    *_, few, deep = recurrent._decided()
    assert 1 <= few < 30 and deep == 8 * target_info.current().lanes <= 300


def test_gradient_of_a_gradient():
    model = nn.GRU(3, 4)
    compiled = dynamo_lite.compile(model)

    def second(call):
        x = torch.linspace(-1, 1, 30).reshape(5, 2, 3).requires_grad_()
        (first,) = torch.autograd.grad(call(x)[0].sin().sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), [x, *model.parameters()])

    agree(second(model), second(compiled))
