"""Backward passes are compiled for the layouts in which gradients come first, and copy others."""
import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.aot import tangent_layouts, usual_backward
from dynamo_lite.backends.aot.tangent_layouts import as_they_come
from dynamo_lite.backends.inductor import graph_cache, training
from dynamo_lite.backends.inductor.artifact import Pair

F32 = torch.float32
FUNCTIONS = {
    "loops": lambda x, w: (x * 2).sin() * x,
    "one pass": lambda x, w: x + 1,
    "products": lambda x, w: (x @ w).relu(),
    "rows": lambda x, w: (x * 3).softmax(-1),
    "columns": lambda x, w: (x * w[0]).cumsum(0),
    "library": lambda x, w: F.adaptive_max_pool1d((x * 2)[None], 3)[0] + 1,
    "views": lambda x, w: (x * w[1]).t().reshape(-1, 5),
    "view of the gradient": lambda x, w: (x * 1).view(-1, 5) + 1,
    "half": lambda x, w: (x * 2).half().sin(),
}
SEEDS = {
    "as recorded": torch.randn_like,
    "one number": lambda y: torch.randn((), dtype=y.dtype).expand(y.shape),
    "one for each row": lambda y: torch.randn(y.shape[0], 1, dtype=y.dtype).expand(y.shape),
    "one row": lambda y: torch.randn(1, y.shape[1], dtype=y.dtype).expand(y.shape),
    "a part": lambda y: torch.randn(y.shape[0], y.shape[1] + 3, dtype=y.dtype)[:, 1:-2],
    "every second": lambda y: torch.randn(y.shape[0], 2 * y.shape[1], dtype=y.dtype)[:, ::2],
    "transposed": lambda y: torch.randn(y.shape[1], y.shape[0], dtype=y.dtype).t(),
}


@pytest.fixture
def built(monkeypatch):
    """A list that gets the layouts of each backward pass that is compiled for layouts as they come."""
    seen = []
    read = tangent_layouts.read_as_they_come

    def noted(backward, strides, come):
        seen.append(strides)
        read(backward, strides, come)

    monkeypatch.setattr(training, "read_as_they_come", noted)
    return seen


def leaves():
    torch.manual_seed(0)
    return torch.randn(7, 5, requires_grad=True), torch.randn(5, 5, requires_grad=True)


def gradients(fn, seed):
    x, w = leaves()
    y = fn(x, w)
    return torch.autograd.grad(y, (x, w), seed, allow_unused=True)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_gradients_of_all_layouts_are_those_of_eager(kind):
    fn = FUNCTIONS[kind]
    y = fn(*leaves()).detach()
    for first in thorough.share(list(SEEDS), list(FUNCTIONS).index(kind)):
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(fn)
        for other in (first, first, "as recorded", *SEEDS, first):
            seed = SEEDS[other](y)
            for a, b in zip(gradients(fn, seed), gradients(compiled, seed), strict=True):
                assert (a is None) == (b is None)
                if a is not None:
                    torch.testing.assert_close(b, a)


def test_two_backward_passes_are_compiled_at_most(built):
    fn = FUNCTIONS["loops"]
    compiled = dynamo_lite.compile(fn)
    for kind in ("one number", "one number", "as recorded", "one row", "a part", "one number"):
        seed = SEEDS[kind](torch.empty(7, 5))
        for a, b in zip(gradients(fn, seed)[:1], gradients(compiled, seed)[:1]):
            torch.testing.assert_close(b, a)
    assert built == [((0, 0),)]


def test_the_short_way_is_taken_for_both(monkeypatch):
    run, short = usual_backward.UsualBackward.run, []

    def noted(self, ctx, grads):
        made = run(self, ctx, grads)
        short.append(made is not None)
        return made

    monkeypatch.setattr(usual_backward.UsualBackward, "run", noted)
    compiled = dynamo_lite.compile(FUNCTIONS["loops"])
    for kind in ("one number", "as recorded", "one number", "as recorded", "one row"):
        gradients(compiled, SEEDS[kind](torch.empty(7, 5)))
    assert short == [False, False, True, True, False]


def test_a_gradient_that_is_passed_on_stays_as_it_came(built):
    compiled = dynamo_lite.compile(lambda x, y: (x + y).sin() + y)
    for _ in range(2):
        x, w = torch.randn(5, 5, requires_grad=True), torch.randn(5, 5, requires_grad=True)
        compiled(x, w).sum().backward()
        torch.testing.assert_close(x.grad, (x + w).cos())
        torch.testing.assert_close(w.grad, (x + w).cos() + 1)
    with config.patch(torch_for_single_operations=False):
        passes = dynamo_lite.compile(lambda x, y: x + y)
        for _ in range(2):
            x, w = torch.randn(5, 5, requires_grad=True), torch.randn(5, 5, requires_grad=True)
            passes(x, w).sum().backward()
            # Leaves have gradients of their own, which can be written.
            x.grad.mul_(2)
            assert x.grad.tolist() == [[2.0] * 5] * 5 and w.grad.tolist() == [[1.0] * 5] * 5
    assert built[0] == ((0, 0),)


def test_large_graphs_copy_gradients(built):
    def deep(x, w):
        for _ in range(tangent_layouts.MOST_CALLS):
            x = (x * w[0]).sin()
        return x

    compiled, seed = dynamo_lite.compile(deep), torch.ones(()).expand(7, 5)
    for a, b in zip(gradients(deep, seed), gradients(compiled, seed)):
        torch.testing.assert_close(b, a)
    assert built == []


def test_both_passes_are_kept(tmp_path, built):
    with config.patch(cache_graphs=True, cache_dir=str(tmp_path)):
        for _ in range(2):
            dynamo_lite.reset()
            compiled = dynamo_lite.compile(FUNCTIONS["loops"])
            for kind in ("one number", "as recorded"):
                gradients(compiled, SEEDS[kind](torch.empty(7, 5)))
        kept = [graph_cache._read(path.stem, path.stem) for path in tmp_path.rglob("*.graph")]
        pair, = (entry for entry in kept if isinstance(entry, Pair))
        assert [strides for strides, _ in pair.backward] == [((0, 0),), None]
    assert built == [((0, 0),)]


def test_layouts_that_loops_read_in_order():
    def taken(grad, recorded):
        found = as_they_come([grad], [(recorded, F32)])
        return None if found is None else found[0]

    x = torch.randn(4, 6)
    assert taken(x, (6, 1)) is None
    assert taken(x[:, :1].expand(4, 6), (6, 1)) == (6, 0)
    assert taken(x.t(), (4, 1)) is None  # the other order
    assert taken(x.t(), (1, 6)) is None  # as recorded
    assert taken(torch.randn(8, 8)[:, ::2], (4, 1)) is None  # elements that don't lie together
    assert taken(torch.randn(8, 8)[::2], (8, 1)) == (16, 1)
    assert taken(x.double().expand(2, 4, 6), (24, 6, 1)) is None  # another dtype
    assert taken(torch._neg_view(x[:1].expand(4, 6)), (6, 1)) is None
    assert taken(torch.nn.Parameter(x[:1]).expand(4, 6), (6, 1)) == (0, 1)
    assert as_they_come([None, x], [((6, 1), F32), ((6, 1), F32)]) is None
