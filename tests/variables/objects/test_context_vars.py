"""Context variables: captured, guarded by what the calling context holds, set behind the graph."""
import contextlib
import contextvars

import pytest
import torch

import dynamo_lite

MODE = contextvars.ContextVar("mode", default="plain")
SCALE: contextvars.ContextVar = contextvars.ContextVar("scale")


def graphs_and_breaks():
    metrics = dynamo_lite.metrics()
    return metrics["graphs"], sum(metrics.get("graph_breaks", {}).values())


@pytest.fixture(autouse=True)
def _fresh():
    dynamo_lite.reset()
    dynamo_lite.metrics().clear()


def isolated(function, *args):
    return contextvars.copy_context().run(function, *args)


def reads(x):
    return x * (2 if MODE.get() == "plain" else 3) + SCALE.get(1.0)


def test_each_context_has_its_own():
    compiled = dynamo_lite.compile(reads, backend="eager", fullgraph=True)
    x = torch.ones(2)

    def elsewhere():
        MODE.set("other")
        SCALE.set(5.0)
        return compiled(x), reads(x)

    for _ in range(2):
        assert torch.equal(compiled(x), reads(x))
        got, want = isolated(elsewhere)
        assert torch.equal(got, want)
    assert dynamo_lite.metrics()["graphs"] == 2


@contextlib.contextmanager
def mode(value):
    token = MODE.set(value)
    try:
        yield token.var
    finally:
        MODE.reset(token)


def inside(x):
    before = MODE.get()
    with mode("other") as var:
        y = reads(x)
        with mode(x):
            z = MODE.get() * 2
        same = var is MODE, MODE.get(), MODE.name
    return y, z, same, before, MODE.get()


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_set_and_put_back(backend):
    compiled = dynamo_lite.compile(inside, backend=backend, fullgraph=True)
    x = torch.ones(2)
    for _ in range(2):
        for got, want in zip(compiled(x), inside(x), strict=True):
            assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
    assert MODE.get() == "plain" and MODE not in contextvars.copy_context()


def leaves_set(x, fail=False):
    y = x + 1
    MODE.set("left")
    SCALE.set(y)
    if fail:
        raise ValueError("after it")
    return y


def test_what_is_left_set():
    compiled = dynamo_lite.compile(leaves_set, backend="eager")
    x = torch.ones(2)

    def calls():
        y = compiled(x)
        assert SCALE.get() is y and MODE.get() == "left"
        with pytest.raises(ValueError, match="after it"):
            compiled(x, True)
        assert torch.equal(SCALE.get(), y) and SCALE.get() is not y

    for _ in range(2):
        isolated(calls)
    assert dynamo_lite.metrics()["graphs"] >= 1


def breaks_inside(x):
    with mode("other"):
        if x.sum() > 0:
            x = x * 2
        y = reads(x)
    return y, MODE.get()


def test_a_break_between_set_and_reset():
    compiled = dynamo_lite.compile(breaks_inside, backend="eager")
    for x in (torch.ones(2), -torch.ones(2)):
        for _ in range(2):
            got, want = compiled(x), breaks_inside(x)
            assert torch.equal(got[0], want[0]) and got[1] == want[1] == "plain"


def wrong_tokens(x, token):
    errors = []
    own = MODE.set("a")
    MODE.reset(own)
    for wrong in (own, token, None):
        try:
            MODE.reset(wrong)
        except (RuntimeError, ValueError, TypeError) as error:
            errors.append(type(error))
    try:
        SCALE.get()
    except LookupError as error:
        errors.append(error.args[0] is SCALE)
    return x + len(errors), errors


def test_errors_are_pythons():
    compiled = dynamo_lite.compile(wrong_tokens, backend="eager")
    x = torch.ones(2)
    token = SCALE.set(1)
    SCALE.reset(token)
    for _ in range(2):
        got, want = compiled(x, token), wrong_tokens(x, token)
        assert torch.equal(got[0], want[0]) and got[1] == want[1]
