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
