"""Operators of libraries that only write to what they are given: no kernel of theirs runs while a graph is made."""
import pytest
import torch

import dynamo_lite

CALLS = []


@pytest.fixture(scope="module", autouse=True)
def library():
    with torch.library._scoped_library("writes_alone", "DEF") as lib:
        lib.define("accumulate(Tensor x, Tensor factor, Tensor(a!) out) -> Tensor(a!)")
        lib.define("start(Tensor(a!) first, Tensor(b!) second) -> ()")

        def slowly(x, factor, out):
            CALLS.append(type(x))
            for i in range(x.shape[-1]):
                out[..., i] = x[..., i] + (factor * out[..., i - 1] if i else 0)
            return out

        def start(first, second):
            CALLS.append(type(first))
            for part in (*first, *second):
                part.fill_(2)

        def quickly(x, factor, out):
            with torch.no_grad():
                return slowly(x, factor, out)

        lib.impl("accumulate", quickly, "CPU")
        lib.impl("accumulate", slowly, "CompositeExplicitAutograd")
        lib.impl("start", start, "CompositeExplicitAutograd")
        yield


class Filter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        out = torch.zeros_like(x)
        torch.ops.writes_alone.accumulate(x, factor, out)
        ctx.save_for_backward(factor)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = torch.zeros_like(grad)
        torch.ops.writes_alone.accumulate(grad.flip(-1).contiguous(), ctx.saved_tensors[0], out)
        return out.flip(-1), None


def written(x, factor):
    out, second = torch.ones(x.shape), torch.zeros(3)
    same = torch.ops.writes_alone.accumulate(x * 2, factor, out)
    torch.ops.writes_alone.start(second[:2], factor.view(1))
    return same is out, same + out, second, factor


def filtered(x, factor):
    return Filter.apply(x.sin(), factor) * 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor_lite"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [written, filtered])
def test_one_graph_for_all_sizes(fn, dynamic, backend, caplog):
    caplog.set_level("INFO", "dynamo_lite.fallbacks")
    caplog.set_level("INFO", "dynamo_lite.graph_breaks")
    compiled = dynamo_lite.compile(fn, dynamic=dynamic, backend=backend)
    for n in (6, 6, 9, 13):
        results = []
        for call in (fn, compiled):
            x = torch.linspace(0, 1, 2 * n).view(2, n).requires_grad_(fn is filtered)
            factor = torch.tensor(0.5)
            CALLS.clear()
            made = call(x, factor)
            if fn is filtered:
                made.sum().backward()
            results.append([made, factor, x.grad])
            assert not any(issubclass(cls, torch._subclasses.FakeTensor) for cls in CALLS)
        torch.testing.assert_close(results[1], results[0])
    assert "Graph break" not in caplog.text and "these sizes alone" not in caplog.text
