"""Methods and attributes that a program puts into torch's classes of tensors, in the place of torch's or under new
names, are the ones that compiled code calls and reads, also where the graph was kept by a process that had torch's."""
import os
import textwrap

import new_process
import pytest
import torch

import dynamo_lite

both = pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
X = torch.linspace(-1, 1, 6)
REPLACED = {
    "sin": (lambda x: x.sin() + 1, lambda self: self * 7),
    "add": (lambda x: x.add(1) * 2, lambda self, other: self * 7),
    "norm": (lambda x: x.norm() + 1, lambda self: self * 7),
    "cos": (lambda x: x.cos() + 1, torch.Tensor.exp),
    "exp": (lambda x: x.exp() + 1, staticmethod(lambda: torch.ones(6))),
    "T": (lambda x: x.view(2, 3).T * 2, property(lambda self: self * 7)),
    "real": (lambda x: x.real * 2, property(lambda self: self * 7)),
    "dtype": (lambda x: x * len(str(x.dtype)), property(lambda self: "none")),
    "shape": (lambda x: x * len(x.shape), property(lambda self: (1, 2, 3))),
    "is_leaf": (lambda x: x * (5 if x.is_leaf else 3), property(lambda self: False)),
    "dim": (lambda x: x * x.dim(), lambda self: 7),
    "item": (lambda x: x * 2 + torch.ones(()).item(), lambda self: 7),
}


def compiled_anew(function, backend):
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    return dynamo_lite.compile(function, backend=backend)


@both
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", REPLACED)
def test_replaced(monkeypatch, name, before, backend):
    function, replacement = REPLACED[name]
    want = function(X)
    compiled = compiled_anew(function, backend)
    if not before:
        torch.testing.assert_close(compiled(X), want)
    with monkeypatch.context() as replacing:
        replacing.setattr(torch.Tensor, name, replacement, raising=False)
        with_it = function(X)
        got = compiled(X), compiled(X)
    assert not torch.equal(with_it, want)
    for one in got:
        torch.testing.assert_close(one, with_it)
    torch.testing.assert_close(compiled(X), want)


@both
@pytest.mark.parametrize("name, graphs", [("sin", 1), ("T", 1), ("dim", 1)])
def test_a_function_in_its_place_is_followed(monkeypatch, name, graphs, backend):
    function, replacement = REPLACED[name]
    monkeypatch.setattr(torch.Tensor, name, replacement, raising=False)
    compiled = compiled_anew(function, backend)
    assert torch.equal(compiled(X), function(X)) and torch.equal(compiled(X), function(X))
    assert dynamo_lite.metrics()["graphs"] == graphs
    assert not dynamo_lite.metrics().get("breaks") and not dynamo_lite.metrics().get("recompiles")


scale = 2.0


def scaled(self, times=1):
    return self * scale * times


def added(x):
    return x.scaled() + x.scaled(times=3), x * x.level, x.raised, x + x.rank_text()


@both
@pytest.mark.parametrize("cls", [torch.Tensor, torch.nn.Parameter])
def test_under_new_names(monkeypatch, cls, backend):
    for name, value in {
        "scaled": scaled, "level": 5, "raised": property(lambda self: self + scale),
        "rank_text": lambda self: len(str(self.shape)),
    }.items():
        monkeypatch.setattr(torch.Tensor, name, value, raising=False)
    x = X if cls is torch.Tensor else cls(X.clone(), requires_grad=False)
    compiled = compiled_anew(added, backend)

    def check(graphs):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), added(x))
        assert dynamo_lite.metrics()["graphs"] == graphs

    check(1)
    monkeypatch.setitem(globals(), "scale", 3.0)
    check(2)
    monkeypatch.setattr(torch.Tensor, "level", 7)
    torch.testing.assert_close(compiled(x), added(x))
    monkeypatch.setattr(torch.Tensor, "scaled", staticmethod(lambda times=1: torch.ones(6) * times))
    torch.testing.assert_close(compiled(x), added(x))


PROGRAM = """
import sys, torch, dynamo_lite
from unittest import mock
from torch.nn import functional as F

def f(x):
    return F.softmax(x, -1) + F.relu(x) * F.gelu(x) + F.normalize(x, dim=0) + 1

place, _, name = sys.argv[1].rpartition(".")
if name == "manual_seed":
    import torch._dynamo  # wraps this function, which is torch's own all the same
elif name:
    function = lambda x, *args, **kwargs: x * 7
    setattr(eval(place), name, function if sys.argv[2] == "function" else mock.Mock(side_effect=function))

x = torch.linspace(-1, 1, 6)
torch.testing.assert_close(dynamo_lite.compile(f)(x), f(x))
print("hits", dynamo_lite.metrics().get("graph_cache_hits", 0))
"""


@pytest.mark.parametrize("kind", ["function", "mock"])
@pytest.mark.parametrize("name", ["torch.Tensor.softmax", "torch.relu", "torch.Tensor.norm"])
def test_a_kept_graph_is_not_taken_for_another_ones(tmp_path, name, kind):
    # torch's own functions call these.
    if kind == "mock" and "Tensor" in name:
        return  # a mock is no method: it does not get the tensor
    env = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(tmp_path), "DYNAMO_LITE_CACHE_GRAPHS": "1"}
    for replaced, hits in (("", 0), (name, 0), ("", 1), (name, 0), ("torch.manual_seed", 1)):
        run = new_process.run(textwrap.dedent(PROGRAM), replaced, kind, env=env)
        assert run.returncode == 0 and f"hits {hits}" in run.stdout, (replaced, run.stdout, run.stderr)
