"""Recurrent networks as one call: eager's values, layouts and gradients by one graph for all lengths and batches."""
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends import lookup_backend

pytestmark = pytest.mark.by_turns(3)

BACKENDS = ("eager", "aot_eager", "inductor_lite")
KINDS = {
    "lstm": (nn.LSTM, {}), "gru": (nn.GRU, {}), "rnn": (nn.RNN, {}), "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "deep": (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "deep gru": (nn.GRU, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "without biases": (nn.GRU, {"bias": False}), "projected": (nn.LSTM, {"proj_size": 3}),
    "dropout": (nn.LSTM, {"num_layers": 2, "dropout": 0.5}),
}


class Tagger(nn.Module):
    def __init__(self, cls, **options):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Linear(4, 8)
        self.network = cls(8, 6, **options)
        self.out = nn.LazyLinear(2)

    def forward(self, x):
        made, state = self.network(self.embed(x).relu())
        return self.out(made).tanh(), state


def agree(want, got):
    for a, b in zip(pytree.tree_leaves(want), pytree.tree_leaves(got), strict=True):
        torch.testing.assert_close(b, a)
        assert a.stride() == b.stride() and a.requires_grad == b.requires_grad


def run_both(model, compiled, x, gradients):
    with torch.set_grad_enabled(gradients):
        made = []
        for call in (model, compiled):
            torch.manual_seed(1)
            made.append(call(x))
        agree(*made)
        if gradients:
            of = list(model.parameters())
            agree(*(torch.autograd.grad(y.sum() + sum(s.sum() for s in pytree.tree_leaves(states)), of)
                    for y, states in made))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_graph_for_all_lengths(kind, backend):
    cls, options = KINDS[kind]
    model = Tagger(cls, **options)
    model(torch.randn(5, 3, 4))
    graphs = []

    def counting(gm, inputs):
        graphs.append(gm)
        return lookup_backend(backend)(gm, inputs)

    with config.patch(raise_internal_errors=True):
        compiled = dynamo_lite.compile(model, backend=counting, dynamic=True, fullgraph=True)
        for gradients in (True, False):
            for shape in ((10, 3), (12, 5), (100, 2), (3, 7)):
                run_both(model, compiled, torch.randn(*shape, 4), gradients)
    assert len(graphs) == 2
    assert all(sum("call" in n.op for n in graph.graph.nodes) < 30 for graph in graphs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_packed_sequences(backend):
    network = nn.GRU(4, 6, bidirectional=True)

    def fn(data, sizes):
        made, state = network(torch.nn.utils.rnn.PackedSequence(data * 2, sizes))
        return made.data + 1, state

    compiled = dynamo_lite.compile(fn, backend=backend, dynamic=True)
    for lengths in ([5, 3, 2], [7, 7, 1], [4, 2, 2]):
        packed = pack_padded_sequence(torch.randn(max(lengths), 3, 4), lengths)
        agree(fn(packed.data, packed.batch_sizes), compiled(packed.data, packed.batch_sizes))
    whole = dynamo_lite.compile(lambda x: pad_packed_sequence(network(pack_padded_sequence(x, [4, 2]))[0])[0] * 2,
                                backend=backend)
    x = torch.randn(4, 2, 4)
    agree(pad_packed_sequence(network(pack_padded_sequence(x, [4, 2]))[0])[0] * 2, whole(x))


def test_what_does_not_fit_raises_as_in_eager():
    x, h = torch.randn(5, 3, 4), torch.zeros(1, 2, 6)
    network = nn.GRU(4, 6)
    fn = lambda x, h: torch.gru(x, h, network._flat_weights, True, 1, 0.0, False, False, False)
    with pytest.raises(RuntimeError) as want:
        fn(x, h)
    with pytest.raises(RuntimeError) as got:
        dynamo_lite.compile(fn, backend="eager")(x, h)
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_graphs_that_are_not_cut(backend):
    """Which write in place under autograd, or set torch's state."""
    network, bias = nn.GRU(4, 6), torch.randn(6)

    def fn(x):
        y = x * 2
        y.add_(1)
        with torch.no_grad():
            mean = x.mean()
        return network(y)[0] * mean + bias

    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for length in (5, 5, 7, 4):
        results = []
        for call in (fn, compiled):
            x = torch.arange(length * 8.0).sin().reshape(length, 2, 4).requires_grad_()
            made = call(x)
            results.append((made, torch.autograd.grad(made.square().sum(), x)))
        agree(*results)
