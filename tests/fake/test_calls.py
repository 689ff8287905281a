"""Calls of a trace that are remembered whole: the graph is what it is where each call is worked out."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.fake import calls
from dynamo_lite.output.output_graph import OutputGraph


def traced(fn, args, monkeypatch, remember):
    """The nodes of the graphs of a function, each with its result, and what the function gives."""
    nodes, results = [], []

    def told(value):
        if isinstance(value, torch.Tensor):
            known = value.fake_mode.known.of(value)
            return (tuple(value.shape), value.stride(), value.dtype, value.storage_offset(), value.requires_grad,
                    value.is_leaf, value.is_inference(), value.untyped_storage().nbytes(), known is not None)
        return [told(v) for v in value] if isinstance(value, (list, tuple)) else str(value)

    original = OutputGraph.create_node

    def create_node(self, tx, op, target, a, k, value, impure, counted=True):
        node = original(self, tx, op, target, a, k, value, impure, counted)
        nodes.append((op, str(target), told(value), impure))
        return node

    original_remembered = calls.remembered

    def remembered(mode, key):
        made = original_remembered(mode, key)
        results.append(made is not None)
        return made

    with monkeypatch.context() as patch:
        patch.setattr(OutputGraph, "create_node", create_node)
        patch.setattr(calls, "remembered", remembered if remember else lambda mode, key: None)
        dynamo_lite.reset()
        out = dynamo_lite.compile(fn, backend="eager")(*args)
    return nodes, out, sum(results)


def layers(x, w, b):
    for _ in range(3):
        x = F.layer_norm(F.gelu(F.linear(x, w, b)), (8,))
        x = torch.softmax(x, -1).float().clone() + torch.relu(x)
    return x


def attention(x, w, b):
    for _ in range(2):
        q, k, v = (F.linear(x, w, b).view(4, 2, 4).transpose(0, 1) for _ in range(3))
        x = F.scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(4, 8)
    return x


def states(x, w, b):
    out = []
    for _ in range(2):
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            out.append(torch.zeros(3) + torch.arange(3).div(2))
        torch.set_default_dtype(torch.float32)
        with torch.autocast("cpu", torch.bfloat16):
            out.append(F.linear(x, w, b))
        out.append(F.linear(x, w, b))
        with torch.enable_grad():
            out.append(F.linear(x, w, b))
        with torch.no_grad():
            out.append(F.linear(x, w, b))
    return out


def written(x, w, b):
    for _ in range(3):
        y = F.relu(x)
        y.add_(b)
        z = F.relu(x, inplace=False)
        z[0] = 1
        x = y + z
    return x


def numbers(x, w, b):
    return [op(x, n) for _ in range(2) for n in (2, 2.0, True) for op in (torch.mul, torch.pow, torch.true_divide)]


def forms(x, w, b):
    return [F.relu(y) + F.relu(y) for y in (x, x.t(), x.t().contiguous(), x[:2], x[:1].expand(4, 8), x.double())]


def counted(x, w, b):
    n = torch.tensor([3, 5])
    lengths = [F.relu(n).sum() for _ in range(2)]
    return [x[:1] * length for length in lengths], torch.arange(3) + torch.arange(3)


def random(x, w, b):
    torch.manual_seed(3)
    return [F.dropout(x, 0.5) for _ in range(2)], [torch.rand(3) for _ in range(2)]


PROGRAMS = [layers, attention, states, written, numbers, forms, counted, random]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("context", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_remembered_is_worked_out(program, context, requires_grad, monkeypatch):
    args = torch.randn(4, 8), torch.randn(8, 8, requires_grad=requires_grad), torch.randn(8)
    with context():
        want = program(*(a.clone() for a in args))
        nodes, out, hits = traced(program, [a.clone() for a in args], monkeypatch, remember=True)
        fresh, _, _ = traced(program, [a.clone() for a in args], monkeypatch, remember=False)
    assert nodes == fresh
    torch.testing.assert_close(out, want, rtol=0, atol=0)
    if program in (layers, forms) and not (requires_grad and context is torch.enable_grad):
        assert hits > 1


def test_what_depends_on_elements_is_not_remembered(monkeypatch):
    def fn(x):
        n = torch.relu(x)
        m = torch.relu(x)
        return torch.zeros(3)[: int(n[0])], torch.zeros(3)[: int(m[1])], torch.zeros(5)[: int(x.add(1)[1])]

    x = torch.tensor([1, 2])
    _, out, _ = traced(fn, [x], monkeypatch, remember=True)
    assert [t.shape[0] for t in out] == [1, 2, 3]


def test_a_function_that_the_program_lets_into_the_graph_is_not_remembered(monkeypatch):
    sizes = iter(range(1, 9))

    def grow(x):
        return x.new_zeros(next(sizes))

    def fn(x):
        return grow(x), grow(x)

    dynamo_lite.allow_in_graph(grow)
    nodes, _, _ = traced(fn, [torch.randn(3)], monkeypatch, remember=True)
    shapes = [told[0] for op, target, told, _ in nodes if "grow" in target]
    assert shapes == [(1,), (2,)]
