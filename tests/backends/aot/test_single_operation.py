"""Graphs that torch's own calls run at least as fast: training graphs of one operation on few elements, and views."""
import contextlib

import pytest
import torch

import dynamo_lite
from dynamo_lite import config, log


@pytest.fixture(autouse=True)
def _as_by_default():
    with config.patch(torch_for_single_operations=True):
        yield


LEFT = {
    "sin": (torch.sin, "SinBackward0"),
    "softmax": (lambda x: torch.softmax(x, -1), "SoftmaxBackward0"),
    "product with a view": (lambda x: x.view(4, 6) @ x.view(6, 4), "MmBackward0"),
    "view": (lambda x: x.view(-1), "ViewBackward0"),
    "unbind": (lambda x: x.unbind(1), "UnbindBackward0"),
    "chunk": (lambda x: x.chunk(3, -1), "SplitBackward0"),
}
OUTSIDE = {
    "a ramp": (lambda x: x * torch.linspace(0, 1, 6), "MulBackward0"),
    "ones": (lambda x: x + torch.ones(6), "AddBackward0"),
    "two": (lambda x: x * torch.arange(6.0).exp(), "MulBackward0"),
    "detached": (lambda x: x * x.detach().sin(), "MulBackward0"),
    "a mask": (lambda x: x.masked_fill(x > 0, 0.5), "MaskedFillBackward0"),
}
LEFT |= OUTSIDE
COMPILED = {
    "three outside": lambda x: x * torch.arange(6.0).exp().sin(),
    "many elements outside": lambda x: x * torch.ones(6000).exp().view(1000, 6)[:4],
    "converted": lambda x: x * torch.arange(6),
    "random outside": lambda x: x * torch.rand(6),
    "two operations": lambda x: x.sin().exp(),
    "written": lambda x: (x * 1).mul_(2),
    "random": lambda x: torch.nn.functional.dropout(x, 0.5),
    "slow in torch": lambda x: x.logcumsumexp(-1),
    "large": lambda x: x.expand(1000, 4, 6).sin(),
}


def flat(result):
    return result if isinstance(result, tuple) else (result,)


def gradient(fn, x):
    torch.manual_seed(0)
    results = flat(fn(x))
    return torch.autograd.grad(results, x, [torch.ones_like(r) for r in results])[0]


@pytest.mark.parametrize("kind", LEFT)
def test_history_is_that_of_torch(kind):
    function, name = LEFT[kind]
    compiled, log_before = dynamo_lite.compile(function, fullgraph=True), log.counters().get("graphs", 0)
    for _ in range(3):
        x = torch.randn(4, 6, requires_grad=True)
        results = flat(compiled(x))
        assert all(r.grad_fn.name() == name for r in results)
        assert all(torch.equal(a, b) for a, b in zip(results, flat(function(x)), strict=True))
        assert torch.equal(gradient(compiled, x), gradient(function, x))
    assert log.counters()["graphs"] == log_before + 1
    bigger = torch.randn(8, 6, requires_grad=True)
    if kind != "product with a view":  # it is compiled for all sizes then
        torch.testing.assert_close(gradient(compiled, bigger), gradient(function, bigger))


@pytest.mark.parametrize("kind", COMPILED)
def test_others_are_compiled(kind):
    x = torch.randn(4, 6, requires_grad=True)
    compiled = dynamo_lite.compile(COMPILED[kind], fullgraph=True)
    assert compiled(x).grad_fn.name() == "CompiledBackward"
    torch.testing.assert_close(gradient(compiled, x), gradient(COMPILED[kind], x))


def test_the_setting():
    with config.patch(torch_for_single_operations=False):
        compiled = dynamo_lite.compile(torch.sin)
        assert compiled(torch.randn(3, requires_grad=True)).grad_fn.name() == "CompiledBackward"


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, contextlib.nullcontext])
def test_views_of_inputs_are_made_by_the_program(mode):
    """In Python too, where the frame does little else; its callees are then not looked at."""
    def function(x, n):
        rows = x.view(4, -1).unbind(0)
        return rows[n], rows[0][1:]

    compiled = dynamo_lite.compile(function, fullgraph=True)
    for n in (1, 1, 2, 1):
        with mode():
            x = torch.randn(8, 3)
            for got, want in zip(compiled(x, n), function(x, n), strict=True):
                assert torch.equal(got, want) and got.data_ptr() == want.data_ptr()
                assert got._is_view() == want._is_view()
                assert got.stride() == want.stride() and got.is_inference() == want.is_inference()
    assert log.counters()["graphs"] == 2


def test_effects_of_such_a_frame_happen_once():
    seen = []

    def function(x, out):
        seen.append(len(seen))
        out["rows"] = x[1:]
        return x.t()

    compiled, out = dynamo_lite.compile(function), {}
    for n in range(1, 4):
        x = torch.randn(3, 2)
        assert torch.equal(compiled(x, out), x.t()) and torch.equal(out["rows"], x[1:]) and seen == list(range(n))


def test_methods_and_generators_are_called_as_they_are():
    class Rows:
        n = 1

        def row(self, x, *, by=0):
            return x.select(0, self.n + by)

    rows = Rows()
    compiled = dynamo_lite.compile(rows.row)
    x = torch.randn(5, 2)
    for n in (1, 1, 2):
        rows.n = n
        assert torch.equal(compiled(x), x[n]) and torch.equal(compiled(x, by=1), x[n + 1])
    with pytest.raises(IndexError):
        compiled(x, by=7)


@pytest.mark.parametrize("kind", ["sin", "view"])
def test_generated_code_shows_the_graph_and_the_reason(kind):
    compiled = dynamo_lite.compile(LEFT[kind][0])
    compiled(torch.randn(4, 6, requires_grad=True))
    text = dynamo_lite.generated_code(compiled)
    assert text.startswith("# A graph runs as torch's own calls: ") and "def forward(self, " in text
