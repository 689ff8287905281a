"""What fuses and what does not, by the number of kernels; and that fusion never changes a result."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.lowering import graph
from dynamo_lite.backends.inductor.scheduler import fusion
from dynamo_lite.backends.inductor.scheduler.space import blocks, refine


def chain(x):
    for _ in range(8):
        x = torch.relu(x * 1.01 + 0.5) - 0.1
    return x


def norm_gelu_softmax(x, w, b):
    return torch.softmax(F.gelu(F.layer_norm(x, (64,), w, b)) * 0.5, -1) + x


ONE_KERNEL = {
    "a chain": (chain, [(100, 100)]),
    "normalization": (norm_gelu_softmax, [(32, 64), (64,), (64,)]),
    "several outputs": (lambda x, y: (x + y, x * y, (x - y).relu()), [(10, 20), (10, 20)]),
    "through a view": (lambda x: (x * 2).view(-1).relu().view(5, 4, 10) + 1, [(20, 10)]),
    "used twice": (lambda x: (lambda e: (e + 1, e * 2, e.sum(-1)))(x.exp().sin()), [(20, 30)]),
    "statistics side by side": (lambda x: (x.sum(-1), x.amax(-1), x.argmax(-1), x.mean(-1)), [(20, 30)]),
    "rows, then what is made of them": (lambda x: (x.sum(-1).sqrt() + 1) * 2, [(20, 30)]),
    "softmax over rows": (lambda x: x.softmax(0), [(40, 30)]),
    "whole tensor": (lambda x: x / x.sum(), [(40, 30)]),
    "channels": (lambda x: (x - x.mean((0, 2), keepdim=True)) / x.std((0, 2), keepdim=True), [(4, 8, 30)]),
    "32 operations": (lambda x: chain(chain(x)), [(50, 50)]),
    "join": (lambda x: torch.cat([x * 2, x + 1], 1).relu(), [(10, 20)]),
    "other order of loops": (lambda x: (x.exp() + 1).transpose(0, 1).relu() * 2, [(10, 20)]),
}


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel(name, check_many, data):
    fn, shapes = ONE_KERNEL[name]
    built = check_many([(name, fn, [data.random(*s, scale=1.0) for s in shapes])], {torch.float32: (1e-5, 1e-5)})
    assert built.kernels == 1


def test_long_chains_are_several_kernels(check_many, data, monkeypatch):
    monkeypatch.setattr(fusion, "MAX_NODES", 40)
    monkeypatch.setattr(graph, "MAX_NODES", 20)
    case = ("long", lambda x: chain(chain(x)), [data.random(30, 7, scale=1.0)])
    assert 3 <= check_many([case], {torch.float32: (1e-5, 1e-5)}).kernels <= 8


def test_what_fusion_takes_out_is_never_stored(build, data):
    built = build(lambda x: (x.exp() * x.sin(), x.exp().sum(-1)), [data.random(20, 30)])
    assert built.kernels == 1 and len(built.program.buffers) == 3
    assert "row" not in built.program.source.split("KERNEL kernel0")[1]


def test_rows_between_stages_stay_in_the_kernel(build, data):
    built = build(lambda x: x.softmax(-1), [data.random(20, 30)])
    assert "row0" in built.program.source and len(built.program.buffers) == 2


def test_a_library_call_in_between_separates(build, data):
    def f(x, w):
        a = x.relu()
        return a.sort(0)[0].relu() + w

    built = build(f, [data.random(8, 8), data.random(8, 8)])
    assert built.kernels == 2 and built.library == ["aten.sort.default"]
    built.program.check()


def test_broadcast_of_an_expensive_value_is_computed_once(build, data):
    x, y = data.random(1, 20), data.random(1000, 20)
    built = build(lambda x, y: x.exp().sin() * y, [x, y])
    assert built.kernels == 2
    torch.testing.assert_close(built.call(x, y)[0], x.exp().sin() * y, rtol=1e-5, atol=1e-6)


def test_equal_kernels_are_made_once(build, data):
    def f(x, w):
        for _ in range(4):
            x = x.sort(0)[0].relu() + w
        return x

    built = build(f, [data.random(8, 8), data.random(8, 8)])
    assert built.kernels == 4 and built.program.source.count("KERNEL kernel") == 1


def test_short_loops_that_are_one_in_memory_are_one_loop(build, data):
    """A weight of 3 x 3: none of its loops is a good vector loop, all together are."""
    weight, gradient = data.random(8, 16, 3, 3), data.random(8, 16, 3, 3)
    built = build(lambda w, g: w - g * 0.1, [weight, gradient])
    kernel = built.program.source.split("KERNEL kernel0")[1]
    assert "for_lanes<L>(0, 1152" in kernel and "for (" not in kernel
    torch.testing.assert_close(built.call(weight, gradient)[0], weight - gradient * 0.1)


@pytest.mark.parametrize("heads, size, width", [(4, 16, 64), (9, 8, 24), (9, 8, 23)])
def test_joins_of_what_was_split_in_heads(heads, size, width, check_many, data):
    """The columns are divided by heads, and told apart where one part ends: at a head's end, or within one."""

    def f(x, y):
        return torch.cat([x.transpose(1, 2).reshape(2, 5, heads * size), y], -1) * 2

    arguments = [data.random(2, heads, 5, size), data.random(2, 5, width)]
    assert check_many([("join", f, arguments)], {torch.float32: (0, 0)}).kernels == 1


def test_dead_results_are_not_computed(build, data):
    built = build(
        lambda x: (
            F.native_layer_norm(x, (8,), None, None, 1e-5)[0]
            if False
            else torch.native_layer_norm(x, [8], None, None, 1e-5)[0]
        ),
        [data.random(4, 8)],
    )
    assert built.kernels == 1 and len(built.program.buffers) == 2


def test_refine():
    assert refine((512, 768), (4, 128, 768)) == (4, 128, 768)
    assert refine((512, 768), (4, 98304)) == (4, 128, 768)
    assert refine((6,), (2, 3)) == (2, 3) and refine((), ()) == ()
    assert refine((4, 6), (3, 8)) is None and refine((4,), (5,)) is None
    assert refine((0, 3), (3, 0)) is None and refine((0,), (5, 0)) is None
    assert blocks((512, 768), (4, 128, 768)) == [[0, 1], [2]] and blocks((4,), (2, 3)) is None


def test_refine_symbols():
    a, b = (ix.atom(ix.Sym(name)) for name in ("s0", "s1"))
    both = ix.mul(a, b)
    assert refine((both, 64), (a, b, 64)) == (a, b, 64) == refine((a, b, 64), (both, 64))
    assert refine((ix.mul(a, 12),), (a, 3, 4)) == (a, 3, 4) and refine((ix.mul(a, 12),), (a, 12)) == (a, 12)
    assert refine((both,), (b, a)) == (b, a) and refine((a, 64), (b, 64)) is None and refine((12,), (a, 4)) is None
    assert refine((ix.add(a, 1), 4), (4, ix.add(a, 1))) is None
    assert blocks((both, 64), (a, b, 64)) == [[0, 1], [2]]


SHAPES = ((6, 8), (6, 1), (8,), (1, 8), ())


@st.composite
def programs(draw):
    """A random program over a few tensors: elementwise operations, views, reductions, several results."""
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12
        )
    )
    outputs = draw(st.lists(st.integers(0, 20), min_size=1, max_size=3))
    return steps, outputs


STEPS = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub": lambda a, b: a - 0.5 * b,
    "max": lambda a, b: torch.maximum(a, b),
    "where": lambda a, b: torch.where(a > b, a, -b),
    "tanh": lambda a, b: a.tanh(),
    "relu": lambda a, b: a.relu(),
    "half": lambda a, b: a.bfloat16().float(),
    "sum": lambda a, b: a.sum(-1, keepdim=True) if a.ndim else a,
    "mean": lambda a, b: a.mean(0, keepdim=True) if a.ndim else a,
    "amax": lambda a, b: a.amax(-1, keepdim=True) if a.ndim else a,
    "softmax": lambda a, b: a.softmax(-1) if a.ndim else a,
    "flip": lambda a, b: a.flip(0) if a.ndim else a,
    "t": lambda a, b: a.reshape(a.shape[::-1]) if a.ndim == 2 else a,
    "twice": lambda a, b: torch.cat([a, a], -1)[..., ::2] if a.ndim else a,
    "center": lambda a, b: a - a.mean(),
    "slice": lambda a, b: a[..., 1:].mean(-1, keepdim=True) if a.ndim and a.shape[-1] > 1 else a,
}


def run_program(program, inputs):
    steps, outputs = program
    values = list(inputs)
    for name, i, j in steps:
        a, b = values[-1 - i % len(values)], values[j % len(values)]
        try:
            values.append(STEPS[name](a, b))
        except RuntimeError:  # shapes that don't broadcast
            values.append(a + 1)
    return tuple(values[-1 - k % len(values)] + 0 for k in outputs)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs())
def test_random_programs(program, check_many, data):
    inputs = [data.random(*s, scale=1.0) for s in SHAPES]
    check_many([("program", lambda *a: run_program(program, a), inputs)], {torch.float32: (1e-4, 1e-4)})
