"""Attributes of threading.local: captured, guarded by what the calling thread has."""
import threading

import pytest
import torch

import dynamo_lite
from dynamo_lite import log

LOCAL = threading.local()


class Settings(threading.local):
    mode = "a"

    def factor(self):
        return 2 if self.mode == "a" else 3


SETTINGS = Settings()


class Prepared(threading.local):
    def __init__(self):
        self.n = 2


PREPARED = Prepared()


@pytest.fixture(autouse=True)
def _fresh():
    dynamo_lite.reset()
    vars(LOCAL).clear()
    vars(SETTINGS).clear()


def in_thread(function, *args):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]


def compile(function):
    return dynamo_lite.compile(function, backend="eager", fullgraph=True)


def test_a_value_is_guarded():
    f = compile(lambda x: x * LOCAL.n)
    LOCAL.n = 2
    assert f(torch.ones(1)).item() == 2 and f(torch.ones(1)).item() == 2
    assert log.counters()["graphs"] == 1
    LOCAL.n = 3
    assert f(torch.ones(1)).item() == 3


def test_each_thread_has_its_own():
    def f(x):
        return x * getattr(LOCAL, "n", 5)

    def other(n):
        if n:
            LOCAL.n = n
        return compiled(torch.ones(1)).item()

    compiled = compile(f)
    LOCAL.n = 2
    assert other(2) == 2
    assert in_thread(other, None) == 5  # no value there, though here is one
    assert in_thread(other, 7) == 7
    assert in_thread(other, 2) == 2
    assert log.counters()["graphs"] == 3
    assert other(2) == 2 and LOCAL.n == 2


def test_what_is_missing():
    def f(x):
        try:
            return x * LOCAL.missing
        except AttributeError as error:
            return x, str(error), hasattr(LOCAL, "missing"), vars(LOCAL), LOCAL.__dict__ is vars(LOCAL)

    compiled = compile(f)
    assert compiled(torch.ones(1)) == f(torch.ones(1))
    LOCAL.missing = 4
    assert compiled(torch.ones(1)).item() == 4


def test_writes_are_the_threads():
    def f(x):
        LOCAL.before = getattr(LOCAL, "last", None)
        LOCAL.last = x + 1
        if hasattr(LOCAL, "gone"):
            del LOCAL.gone
        vars(LOCAL)["by_dict"] = 3
        return LOCAL.last * LOCAL.by_dict

    compiled = compile(f)
    LOCAL.gone = 1
    for n in range(3):
        assert compiled(torch.full((1,), float(n))).item() == 3 * (n + 1)
        assert LOCAL.last.item() == n + 1 and LOCAL.by_dict == 3 and not hasattr(LOCAL, "gone")
    assert LOCAL.before.item() == 2
    assert in_thread(lambda: (compiled(torch.ones(1)).item(), LOCAL.before)) == (6.0, None)
    assert LOCAL.last.item() == 3


def test_classes_of_the_users():
    def f(x):
        return x * SETTINGS.factor(), SETTINGS.mode

    compiled = compile(f)
    assert compiled(torch.ones(1)) == (torch.full((1,), 2.0), "a")
    vars(SETTINGS)["mode"] = "b"
    assert compiled(torch.ones(1)) == (torch.full((1,), 3.0), "b")
    assert in_thread(compiled, torch.ones(1)) == (torch.full((1,), 2.0), "a")


def test_a_class_that_prepares_each_thread_breaks():
    def f(x):
        PREPARED.n += 1
        return x * PREPARED.n

    compiled = dynamo_lite.compile(f, backend="eager")
    assert compiled(torch.ones(1)).item() == 3
    assert in_thread(compiled, torch.ones(1)).item() == 3
    assert log.counters()["graph_breaks"] > 0 and PREPARED.n == 3
