"""Logging: the records are eager's, in order, and the graph is one."""
from __future__ import annotations

import functools
import io
import logging

import pytest
import torch

import dynamo_lite

FORMAT = "%(levelname)s %(name)s %(filename)s %(funcName)s %(lineno)d %(message)s"
logger = logging.getLogger("test_later")


@functools.lru_cache(None)
def warning_once(self, *args, **kwargs):
    self.warning(*args, **kwargs)


@pytest.fixture
def output(monkeypatch):
    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)  # as transformers does
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(FORMAT))
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def run(function, output):
    output.truncate(0)
    output.seek(0)
    warning_once.cache_clear()
    x = torch.ones(2)
    return [function(x).tolist(), function(x).tolist()], output.getvalue()


def helper(x, n):
    y = x * 2
    logger.info("helper %d %s", n,
                "a")
    return y


def logs(x):
    logger.warning("hello")
    y = helper(x, 3) + helper(x, 4)
    logger.debug("not shown")
    logger.warning_once("once")
    logger.warning_once("once %s", "more")
    if logger.isEnabledFor(logging.DEBUG):
        y = y + 100
    try:
        logger.error(f"shape {tuple(x.shape)} {y.dtype}")
    finally:
        y = y + 1
    return y


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_records(output, backend):
    compiled = dynamo_lite.compile(logs, backend=backend, fullgraph=True)
    assert run(compiled, output) == run(logs, output)
    logger.setLevel(logging.DEBUG)
    assert run(compiled, output) == run(logs, output)


def around_a_break(x):
    logger.warning("before")
    y = x + 1
    dynamo_lite.graph_break()
    logger.warning("after")
    return y


def with_a_tensor(x):
    y = x + 1
    logger.warning("tensor %s", y)
    return y * 2


def without_errors(x):
    logging.raiseExceptions = False
    logger.log("10", "no number")  # which is ignored
    logging.raiseExceptions = True
    return x + 1


def asks_after_a_change(x):
    logger.propagate = True
    y = x + int(logger.isEnabledFor(logging.INFO))
    propagates = logger.hasHandlers()
    logger.propagate = False
    return y + int(propagates)


class Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


@pytest.fixture
def kept():
    handler = Kept()
    logger.addHandler(handler)
    yield handler.records
    logger.removeHandler(handler)


def test_what_a_handler_keeps_is_read_after_the_call(output, kept):
    def function(x, records):
        logger.warning("one")
        y = x + len(records)
        logger.warning("two %s", records[-1].getMessage())
        return y * len(records)

    compiled = dynamo_lite.compile(function, backend="eager")
    for _ in range(2):
        kept.clear()
        want = function(torch.ones(2), kept), [record.getMessage() for record in kept]
        kept.clear()
        got = compiled(torch.ones(2), kept), [record.getMessage() for record in kept]
        assert torch.equal(got[0], want[0]) and got[1] == want[1] == ["one", "two one"]


@pytest.mark.parametrize("function", [around_a_break, with_a_tensor, without_errors, asks_after_a_change])
def test_breaks(output, function):
    compiled = dynamo_lite.compile(function, backend="eager")
    assert run(compiled, output) == run(function, output)


def test_log_in_a_function_that_runs_twice_breaks(output):
    def function(x):
        w = x.requires_grad_() * 1
        return torch.utils.checkpoint.checkpoint(helper, w, 3, use_reentrant=False)

    with pytest.raises(dynamo_lite.exc.Unsupported):
        dynamo_lite.compile(function, backend="eager", fullgraph=True)(torch.ones(2))


class Full(logging.NullHandler):
    """Holds more objects than are looked at, and a list that changes with each record."""

    def __init__(self):
        super().__init__()
        self.counted = [0]
        self.held = [object() for _ in range(400)]

    def handle(self, record):
        self.counted[0] += 1


def test_handlers_that_hold_too_much_to_be_looked_at(output):
    handler = Full()
    counted = handler.counted
    logger.addHandler(handler)
    try:
        def fn(x):
            y = x + counted[0]
            logger.info("counts")
            return y + counted[0]

        compiled = dynamo_lite.compile(fn, backend="eager")
        assert [compiled(torch.zeros(1)).item() for _ in range(3)] == [1, 3, 5]
    finally:
        logger.removeHandler(handler)
