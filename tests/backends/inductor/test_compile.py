"""``inductor_lite`` as a whole: models and programs against eager, what it falls back to, what it says about itself."""
import linecache
import logging
import os
import textwrap
import weakref

import new_process
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config, log
from dynamo_lite.backends import lookup_backend, metrics
from dynamo_lite.backends.inductor import codecache, pipeline
from dynamo_lite.fake.mode import TraceFakeMode
from dynamo_lite.symbols.environment import Environment
from dynamo_lite.symbols.nodes import symbolic_int


@pytest.fixture(autouse=True)
def _counts_from_zero():
    log.reset()
    yield


class Block(nn.Module):
    """One layer of a transformer."""

    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


def models():
    torch.manual_seed(0)
    yield "transformer", nn.Sequential(nn.Embedding(50, 32), Block(), Block(), nn.LayerNorm(32)), [
        torch.randint(0, 50, (2, 9))]
    yield "convolutions", nn.Sequential(
        nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Residual(8),
        Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).eval(), [torch.randn(2, 3, 32, 32)]
    yield "convolutions in training", nn.Sequential(Residual(4), Residual(4)), [torch.randn(2, 4, 8, 8)]
    yield "channels last", nn.Sequential(Residual(4), Residual(4)).eval(), [
        torch.randn(2, 4, 8, 8).contiguous(memory_format=torch.channels_last)]
    yield "bf16", Block().bfloat16(), [torch.randn(1, 5, 32, dtype=torch.bfloat16)]
    yield "recurrent", nn.LSTM(8, 8, batch_first=True), [torch.randn(2, 5, 8)]
    yield "dropout", nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU(), nn.Dropout(0.1)), [torch.randn(4, 8)]


@pytest.mark.parametrize("name, module, inputs", models(), ids=[m[0] for m in models()])
def test_models(backend_check, name, module, inputs):
    fn, flat = backend_check.as_function(module, inputs)
    tolerance = 5e-2 if name == "bf16" else 2e-5

    def run(*args):
        result = fn(*args)
        return (result[0], *result[1]) if isinstance(result, tuple) else result

    backend_check.compare(run, flat, rtol=tolerance, atol=tolerance)


def test_pointwise_chains_and_reductions(backend_check):
    def f(x, w, b):
        h = F.layer_norm(x, (64,), w, b)
        return torch.softmax(F.gelu(h) * 0.5, -1) + x

    backend_check.compare(f, [torch.randn(32, 64), torch.randn(64), torch.randn(64)], rtol=1e-5, atol=1e-6)
    assert metrics.metrics()["kernels"] >= 1


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (1, 1), (17,), (3, 5, 7), (2, 1, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16])
def test_shapes_and_dtypes(backend_check, shape, dtype):
    def f(x, y):
        z = (x + y) * 2
        return z, torch.where(x > 0, z, y.to(z.dtype)), z.sum(), x.t() if x.dim() <= 2 else x.transpose(0, 2) * 1

    torch.manual_seed(1)
    x, y = ((torch.randn(shape) * 3).to(dtype) for _ in range(2))
    backend_check.compare(f, [x, y], rtol=1e-5, atol=1e-5)


def test_inputs_that_are_unaligned_views(backend_check):
    wide = torch.randn(4, 65)
    backend_check.compare(lambda x, y: (x.sin() + y, (x * y).t()), [wide[:, 1:], wide[:, :-1].clone()],
                          rtol=1e-6, atol=1e-6)
    flat = torch.randn(1001)
    backend_check.compare(lambda x: x * 2 + 1, [flat[1:]])


def test_mutation_and_aliases(backend_check):
    def f(x, y):
        v = x.view(-1)[1:]
        v.mul_(2)
        y.t().add_(1)
        x.t()[0].copy_(y[0, :2] + v[0])
        return v, y[0], x + 1, x, x.sum()

    compiled = backend_check.compare(f, [torch.randn(2, 3), torch.randn(3, 3)], rtol=1e-6, atol=1e-6)
    assert compiled.mutated_inputs == (0, 1)


def test_results_outlive_later_calls(backend_check):
    def f(x):
        y = x * 2
        return y, y + 1, (y + 2).sum(0)

    gm, fakes = backend_check.capture(f, [torch.randn(8, 8)])
    with torch.no_grad():
        compiled = lookup_backend("inductor_lite")(gm, fakes)
    inputs = [torch.randn(8, 8) for _ in range(4)]
    results = [compiled(x) for x in inputs]
    for x, result in zip(inputs, results):
        for want, got in zip(f(x), result):
            torch.testing.assert_close(got, want)


# ---------------------------------------------------------------- gradients
def compile_graph(backend_check, fn, *inputs, **kwargs):
    gm, fakes = backend_check.capture(fn, list(inputs))
    return lookup_backend("inductor_lite")(gm, fakes, **kwargs)


def test_a_graph_that_needs_gradients_takes_part_in_autograd(backend_check):
    w = torch.randn(3, requires_grad=True)
    compiled = compile_graph(backend_check, lambda x: x * 2, w)
    (out,) = compiled(w)
    out.sum().backward()
    assert torch.equal(w.grad, torch.full((3,), 2.0))


def test_parameters_without_grad_mode_are_compiled(backend_check):
    w = torch.randn(3, requires_grad=True)
    with torch.no_grad():
        compiled = compile_graph(backend_check, lambda x: (x * 2,), w)
        assert not compiled(w)[0].requires_grad
    assert not metrics.metrics()["fallbacks"]


def test_grad_mode_switched_off_inside(backend_check):
    """As the front end writes it: the graph switches the mode, and says of every call what it gives."""
    w = torch.randn(3, 3, requires_grad=True)
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    off = graph.call_function(torch._C._set_grad_enabled, (False,))
    y = graph.call_function(torch.mm, (x, x))
    on = graph.call_function(torch._C._set_grad_enabled, (True,))
    graph.output((y,))
    gm = torch.fx.GraphModule(nn.Module(), graph)
    _, (fake,) = backend_check.capture(lambda a: a, [w])
    for node in (off, on):
        node.meta["example_value"] = None
    with torch.no_grad(), fake.fake_mode:
        y.meta["example_value"] = torch.mm(fake, fake)
    compiled = lookup_backend("inductor_lite")(gm, [fake])
    assert torch.is_grad_enabled()
    (out,) = compiled(w)
    assert not out.requires_grad and torch.allclose(out, (w @ w).detach()) and torch.is_grad_enabled()
    assert not metrics.metrics()["fallbacks"]


def test_autocast_around_the_call(backend_check):
    def f(x):
        a = x @ x
        with torch.autocast("cpu", enabled=False):
            b = x @ x
        return a, b, torch.softmax(a, -1)

    x = torch.randn(4, 4)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        compiled = compile_graph(backend_check, f, x)
        for want, got in zip(f(x), compiled(x)):
            assert want.dtype == got.dtype
            torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)


def test_inference_mode_inside(backend_check):
    def f(x):
        with torch.inference_mode():
            return x + 1, x @ x

    for out in compile_graph(backend_check, f, torch.randn(2, 2))(torch.randn(2, 2)):
        assert out.is_inference()


# ---------------------------------------------------------------- without a compiler, and other processes
def test_without_a_compiler_graphs_run_by_library_calls(backend_check, caplog, tmp_path):
    with config.patch(cpp_compiler="no-such-compiler-here", cache_dir=str(tmp_path)):
        for _ in range(2):
            backend_check.compare(lambda x: (x.sin() + 1, x.sum()), [torch.randn(5)])
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 1 and "no-such-compiler-here" in warnings[0].getMessage()
    assert metrics.metrics()["fallbacks"] == {"CompilerMissing": 2}


def test_a_fault_in_lowering_is_told_and_survived(backend_check, caplog, monkeypatch):
    def broken(*args):
        raise AssertionError("this is the fault")

    monkeypatch.setattr(pipeline, "lower_and_schedule", broken)
    with torch.no_grad(), config.patch(raise_internal_errors=False):
        compiled = compile_graph(backend_check, lambda x: (x + 1,), torch.randn(3))
    assert torch.equal(compiled(torch.ones(3))[0], torch.full((3,), 2.0))
    assert "this is the fault" in caplog.text and metrics.metrics()["fallbacks"] == {"lowering failed": 1}


def test_nothing_is_left_of_a_compiled_graph(backend_check):
    def sources():
        return {name for name in linecache.cache if name.startswith("<dynamo_lite wrapper")}

    before = sources()
    c = torch.randn(3)
    with torch.no_grad():
        compiled = compile_graph(backend_check, lambda x, y: (x @ y + c,), torch.randn(3, 3), torch.randn(3, 3))
    (mine,) = sources() - before
    held = weakref.ref(compiled)
    del compiled
    assert held() is None and mine not in sources()


def test_a_second_process_starts_no_compiler(tmp_path):
    code = textwrap.dedent("""
        import subprocess, sys, torch
        sys.path.insert(0, sys.argv[1])
        from conftest import capture
        from dynamo_lite import log
        from dynamo_lite.backends import lookup_backend
        def f(x):
            parts = [(x + n).sort(0)[0] for n in range(6)]  # their order in the entry must not be that of a set
            return (x * 2).sin(), x.sum(), sum(p * n for n, p in enumerate(parts)) / parts[3]
        gm, fakes = capture(f, [torch.randn(5)])
        with torch.no_grad():
            compiled = lookup_backend("inductor_lite")(gm, fakes)
        x = torch.randn(5)
        assert torch.allclose(compiled(x)[0], (x * 2).sin(), atol=1e-6)
        assert not [m for m in ("torch._dynamo", "torch._inductor") if m in sys.modules]
        print(log.counters().get("cache_misses", 0), "cpp_compile" in log.phase_times())
    """)
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    env = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "cache")}
    for seed, expected in (("1", ["1", "True"]), ("2", ["0", "False"]), ("1", ["0", "False"])):
        run = new_process.run(code, here, env={**env, "PYTHONHASHSEED": seed})
        assert run.returncode == 0, run.stderr
        assert run.stdout.split() == expected


# ---------------------------------------------------------------- what it says about itself
def test_metrics_code_and_logs(backend_check, caplog):
    def f(x, y):
        return torch.relu(torch.sort(x, 0)[0]) + y

    log.set_logs("output_code,aot_graphs")
    try:
        with caplog.at_level(logging.INFO), torch.no_grad():
            compiled = compile_graph(backend_check, f, torch.randn(8, 8), torch.randn(8, 8))
    finally:
        log.set_logs()
    counts = metrics.metrics()
    assert counts["kernels"] == 1 and counts["library_calls"] == {"aten.sort.default": 1}
    assert counts["bytes"] >= 8 * 8 * 4 * 2 and counts["compile_seconds"]["aot"] > 0
    source, wrapper = compiled.generated_code
    assert "run0" in source and "def call(" in wrapper and "sort(" in wrapper
    assert "def call(" in caplog.text and "aten.relu.default" in caplog.text
    metrics.reset_metrics()
    assert metrics.metrics()["kernels"] == 0


def test_options_are_checked(backend_check):
    with torch.no_grad():
        compiled = compile_graph(backend_check, lambda x: (x + 1,), torch.randn(2), options={"lowering": "library"})
        assert len(compiled.generated_code) == 1
        with pytest.raises(ValueError, match="lowering"):
            compile_graph(backend_check, lambda x: x, torch.randn(2), options={"lower": 1})
        with pytest.raises(ValueError, match="native, library"):
            compile_graph(backend_check, lambda x: x, torch.randn(2), options={"lowering": "other"})


def test_every_kind_of_vectors(backend_check):
    for kind in ("scalar", "avx2", "avx512"):
        with config.patch(cpp_simd=kind):
            assert codecache.simd() in ("scalar", kind) or codecache.simd() == "avx2"
            backend_check.compare(lambda x: (x.exp() * 2, x.sum(1)), [torch.randn(5, 37)], rtol=1e-5, atol=1e-5)


def test_tracebacks_show_the_wrapper(backend_check):
    import traceback

    with torch.no_grad():
        compiled = compile_graph(backend_check, lambda x, y: x @ y + 1, torch.randn(2, 6), torch.randn(6, 6))
    try:
        compiled(torch.randn(2, 6), torch.randn(5, 5))
    except RuntimeError:
        assert "mm(" in traceback.format_exc()
    else:
        pytest.fail("a wrong shape went through")


def test_symbolic_sizes_by_library_calls(backend_check):
    """Programs carry sizes as expressions over the sizes of inputs."""
    def f(x, w):
        y = torch.softmax(x @ w, -1) * 2
        return y.sum(0) * x.shape[0], y.view(-1), torch.ones(x.shape[0]) + 1, x.shape[0]

    check_sizes(backend_check, f, "library")


def test_symbolic_sizes_in_kernels(backend_check):
    def f(x, w):
        y = torch.softmax(x @ w, -1) * 2
        half = y.view(-1)[: x.shape[0] // 2 * 3]
        return y.sum(0) * x.shape[0], half.view(-1, 3).t() + 1, torch.cat([x, x * 2], 1).sum(1), x.shape[0] * 2

    check_sizes(backend_check, f, "loops")


def check_sizes(backend_check, f, lowering):
    env = Environment()
    mode, n = TraceFakeMode(env), symbolic_int(env, env.new("n", 8, 2))
    gm, _ = backend_check.capture(f, [torch.randn(8, 4), torch.randn(4, 3)])
    with torch.no_grad():
        with mode:
            fakes = [torch.empty_strided((n, 4), (4, 1)), torch.empty(4, 3)]
        gm.meta["fake_mode"] = mode
        options = {"lowering": "library"} if lowering == "library" else None
        compiled = lookup_backend("inductor_lite")(gm, fakes, options=options)
        for size in (8, 5, 4, 33):
            inputs = torch.randn(size, 4), torch.randn(4, 3)
            for want, got in zip(f(*inputs), compiled(*inputs)):
                backend_check.same(want, got, rtol=1e-5, atol=1e-6)


DEVICES_THAT_ARE_MISSING = {
    "to": lambda x: x.to("cuda:63") * 2,
    "cuda": lambda x: x + x.cuda(63),
    "made": lambda x: x.sum() + torch.ones(2, device="cuda:63"),
    "a number": lambda x: torch.tensor([1.0], device="cuda:63"),
    "like": lambda x: torch.zeros_like(x, device="cuda:63"),
}


@pytest.mark.parametrize("name", DEVICES_THAT_ARE_MISSING)
def test_a_device_that_is_missing_raises_as_in_eager(name):
    """The graph can be traced, as fake tensors need no device."""
    raised = []
    for function in (DEVICES_THAT_ARE_MISSING[name], dynamo_lite.compile(DEVICES_THAT_ARE_MISSING[name])):
        with pytest.raises(Exception) as info:
            function(torch.ones(3))
        raised.append((info.type, str(info.value)))
    assert raised[0] == raised[1]
