"""Functions without arguments that tell something of torch's or Python's state: the answer is of the call, not of the
trace."""
import sys

import pytest
import torch

import dynamo_lite


def anomaly_detection():
    previous = torch.is_anomaly_enabled()
    torch.autograd.set_detect_anomaly(True)
    return lambda: torch.autograd.set_detect_anomaly(previous)


def checks_for_nan():
    torch.autograd.set_detect_anomaly(True, False)
    return lambda: torch.autograd.set_detect_anomaly(False)


def filled_memory():
    torch.utils.deterministic.fill_uninitialized_memory = False
    return lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)


def threads_of_backward():
    previous = torch._C._set_multithreading_enabled(False)
    return lambda: torch._C._set_multithreading_enabled(previous if previous is not None else True)


def depth_of_recursion():
    previous = sys.getrecursionlimit()
    sys.setrecursionlimit(previous + 100)
    return lambda: sys.setrecursionlimit(previous)


QUESTIONS = [
    (torch.is_anomaly_enabled, anomaly_detection),
    (torch.is_anomaly_check_nan_enabled, checks_for_nan),
    (torch._C._get_deterministic_fill_uninitialized_memory, filled_memory),
    (torch._C._is_multithreading_enabled, threads_of_backward),
    (sys.getrecursionlimit, depth_of_recursion),
]


@pytest.mark.parametrize("ask, change", QUESTIONS, ids=lambda f: getattr(f, "__name__", None))
def test_the_answer_is_of_the_call(ask, change):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def asks(x):
        return x + 1, ask()

    compiled = dynamo_lite.compile(asks, backend=backend, fullgraph=True)
    for _ in range(2):
        assert compiled(torch.ones(2))[1] == ask()
    assert len(graphs) == 1
    before, restore = ask(), change()
    try:
        assert ask() != before
        assert compiled(torch.ones(2))[1] == ask()
    finally:
        restore()
    assert compiled(torch.ones(2))[1] == before
    assert len(graphs) == 2


def halves_without_denormals(x):
    torch.set_flush_denormal(True)
    y = x * 0.5
    torch.set_flush_denormal(False)
    return y, x * 0.5


def looks_for_anomalies(x):
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        inside = torch.is_anomaly_enabled()
        y = x * 2
    return y, inside, torch.is_anomaly_enabled()


def casts_to(x):
    before = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", torch.float16)
    inside = torch.get_autocast_dtype("cpu")
    torch.set_autocast_dtype("cpu", before)
    return x + 1, inside


@pytest.mark.parametrize("f", [halves_without_denormals, looks_for_anomalies, casts_to])
def test_what_sets_torchs_state_does_so_at_each_call(f):
    """Functions in C that set something were called while tracing, where ``torch`` is their module, and never again."""
    x = torch.full((8,), 1e-39)
    compiled = dynamo_lite.compile(f)
    for _ in range(3):
        got, want = compiled(x), f(x)
        for a, b in zip(got, want):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
