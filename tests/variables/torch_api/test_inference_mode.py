"""torch.inference_mode inside captured functions."""
import pytest
import torch

import dynamo_lite


class Counter:
    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward


def inside(x):
    y = x + 1
    with torch.inference_mode():
        z = y * 2
    return y, z, x * 3


def nested(x):
    with torch.inference_mode():
        with torch.inference_mode(False):
            y = x * 2
        z = x * 3
    return y, z


@torch.inference_mode()
def decorated(x):
    return x * 2


def breaks(x):
    with torch.inference_mode():
        y = x * 2
        dynamo_lite.graph_break()
        z = y + 1
    return y, z, x * 3


def same(got, want):
    for a, b in zip(got, want):
        assert torch.equal(a, b) and a.is_inference() == b.is_inference() and a.requires_grad == b.requires_grad


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("fn", [inside, nested, breaks], ids=lambda f: f.__name__)
@pytest.mark.parametrize("grad", [False, True])
def test_results_are_inference_tensors_where_eager_s_are(fn, backend, grad):
    x = torch.randn(3, requires_grad=grad)
    compiled = dynamo_lite.compile(fn, backend=backend)
    for _ in range(2):
        same(compiled(x), fn(x))
        assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def test_one_graph():
    counter = Counter()
    for fn in (inside, nested):
        counter.graphs.clear()
        dynamo_lite.compile(fn, backend=counter, fullgraph=True)(torch.randn(3))
        assert len(counter.graphs) == 1


def test_decorator_and_outer_mode():
    x = torch.randn(3)
    compiled = dynamo_lite.compile(decorated, fullgraph=True)
    same([compiled(x)], [decorated(x)])
    plain = dynamo_lite.compile(lambda x: x.abs() * 2)
    same([plain(x)], [x.abs() * 2])
    with torch.inference_mode():
        same([plain(x)], [x.abs() * 2])
    same([plain(x)], [x.abs() * 2])


with torch.inference_mode():
    MADE_BEFORE = torch.arange(12.0).view(3, 4)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("function", [
    lambda x: (x + MADE_BEFORE.sum(0), MADE_BEFORE.t()),
    lambda x: (MADE_BEFORE[:2], MADE_BEFORE * 2, x * 2),
    lambda x: (MADE_BEFORE.detach(), MADE_BEFORE.clone(), MADE_BEFORE.contiguous()),
    lambda x: (MADE_BEFORE[[0, 2]], MADE_BEFORE.unbind(), torch.zeros(2)),
    lambda x: MADE_BEFORE.reshape(-1),
])
def test_views_of_an_inference_tensor_are_such_and_what_is_computed_is_not(backend, function):
    x = torch.ones(4)
    expected, result = function(x), dynamo_lite.compile(function, backend=backend)(x)
    pairs = list(zip(torch.utils._pytree.tree_leaves(expected), torch.utils._pytree.tree_leaves(result)))
    assert [b.is_inference() for _, b in pairs] == [a.is_inference() for a, _ in pairs]
    for a, b in pairs:
        torch.testing.assert_close(a, b)
