"""torch.autocast: weights that change between calls are cast anew, at every depth, with breaks and with errors."""
import contextlib
import copy
import logging

import pytest
import torch

import dynamo_lite
from dynamo_lite.runtime import autocast

pytestmark = pytest.mark.by_turns(3)


def context(**settings):
    return torch.autocast("cpu", **{"dtype": torch.bfloat16, **settings})


@dynamo_lite.disable
def opaque(x):
    return x


def whole(model, x):
    with context():
        h = model(x) + model(x * 2)
    return h.float().sum()


def with_a_break(model, x):
    with context():
        h = opaque(model(x))
        h = h + model(x * 2)
    return h.float().sum()


def nested(model, x):
    with context():
        with context(enabled=False):
            h = opaque(model(x))
        h = h + model(x * 2)
        try:
            with context():
                h = opaque(h + model(x))
                raise KeyError
        except KeyError:
            h = h * 2
        h = h + model(x)
    return h.float().sum()


def that_raises(model, x):
    with context():
        h = model(x)
        try:
            h = h[torch.tensor([len(x) * 100])]
        except IndexError:
            h = h + model(x)
    return h.float().sum()


def by_hand(model, x):
    casts = context()
    casts.__enter__()
    h = opaque(model(x)) + model(x)
    casts.__exit__(None, None, None)
    return h.float().sum()


def out_of_order(model, x):
    with context(cache_enabled=False):
        h = model(x)
    with context():
        h = h + model(x)
        torch.clear_autocast_cache()
        h = h + model(x)
    return h.float().sum()


PROGRAMS = {f.__name__: f for f in (whole, with_a_break, nested, that_raises, by_hand, out_of_order)}
BREAKS = {"with_a_break": 1, "nested": 2, "by_hand": 1}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_weights_that_change(name, outside, backend):
    torch.manual_seed(0)
    fn = PROGRAMS[name]
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    twin = copy.deepcopy(model)
    compiled = dynamo_lite.compile(fn, backend=backend)
    for _ in range(3):
        x = torch.randn(5, 8)
        losses = []
        for f, m in ((fn, model), (compiled, twin)):
            with context(enabled=outside):
                losses.append(f(m, x))
            losses[-1].backward()
        exact = {"rtol": 0, "atol": 0} if backend == "eager" else {"rtol": 2e-2, "atol": 0.15}
        torch.testing.assert_close(losses[1], losses[0], **exact)
        for p, q in zip(model.parameters(), twin.parameters()):
            torch.testing.assert_close(q.grad, p.grad, **exact)
        for p in (*model.parameters(), *twin.parameters()):
            p.grad = None
            with torch.no_grad():
                p.sub_(0.05)
        assert autocast.depth() == 0 and not torch.is_autocast_enabled("cpu")
    explained = dynamo_lite.explain(fn)(twin, torch.randn(5, 8))
    assert explained.graph_break_count == BREAKS.get(name, 0)


@pytest.mark.parametrize("outer", [None, False, True])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor_lite"])
def test_a_context_inside_of_another_is_recorded(caplog, outer, backend):
    """What the trace has cast is not found by the recorder in autocast's cache, which the outer context keeps."""
    layer = torch.nn.Linear(12, 12)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x) * 2

    compiled = dynamo_lite.compile(fn, backend=backend)
    around = contextlib.nullcontext() if outer is None else torch.autocast("cpu", torch.bfloat16, enabled=outer)
    with torch.no_grad(), around:
        depth = autocast.depth()
        for n in (3, 4):
            x = torch.randn(n, 12)
            want, got = fn(x), compiled(x)
            assert got.dtype is want.dtype is torch.bfloat16
            torch.testing.assert_close(got, want, rtol=0.02, atol=0.02)
        assert autocast.depth() == depth
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING or "in eager" in r.getMessage()]


def test_a_recording_that_fails_inside_of_a_context_leaves_none_behind():
    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            return x.as_strided((12,), (1,)) * 2, y  # elements behind those of x

    for _ in range(2):
        x = torch.randn(4, 3)[:3]
        want, got = fn(x), dynamo_lite.compile(fn, backend="aot_eager")(x)
        assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])
        assert autocast.depth() == 0
    assert dynamo_lite.metrics()["fallbacks"]
