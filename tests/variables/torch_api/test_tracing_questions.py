"""What programs ask of TorchScript, torch.fx and torch.distributed, modules that torch.fx made, assumed constants."""
import copy
import sys
import textwrap

import new_process
import pytest
import torch
import torch.distributed as dist
from torch import fx, nn
from torch.fx import _symbolic_trace

import dynamo_lite


class Counter:
    def __init__(self):
        self.graphs = []

    def __call__(self, gm, inputs):
        self.graphs.append(gm)
        return gm.forward


@pytest.fixture(autouse=True)
def _fresh():
    dynamo_lite.reset()
    yield
    dynamo_lite.reset()


def whole(fn, *args, calls=2):
    """The result of `fn`, which is one graph, compiled once."""
    counter = Counter()
    compiled = dynamo_lite.compile(fn, backend=counter, fullgraph=True)
    want = fn(*args)
    for _ in range(calls):
        got = compiled(*args)
        torch.testing.assert_close(got, want)
    assert len(counter.graphs) == 1
    return got


@torch.jit.script_if_tracing
def scripted_if_tracing(x, n: int = 2):
    """Three times."""
    return x * 3 + n


X = torch.ones(3)


@pytest.mark.parametrize("fn", [
    lambda x: x + torch.jit.annotate(int, 3),
    lambda x: x + sum(torch.jit.annotate(list[int], [])) + torch.jit.annotate(torch.Tensor, x * 2),
    lambda x: scripted_if_tracing(x) + scripted_if_tracing(x, n=4),
    lambda x: x + 1 if not torch.jit.is_scripting() and not torch.jit.is_tracing() else x,
    lambda x: x + 1 if torch.jit.isinstance([x], list[torch.Tensor]) else x,
    lambda x: x + 1 if torch.jit.isinstance({"a": 1}, dict[str, int]) and not torch.jit.isinstance(3, str) else x,
    lambda x: x + 1 if not _symbolic_trace.is_fx_tracing() else x,
    lambda x: x + 1 if not _symbolic_trace.is_fx_symbolic_tracing() else x,
    lambda x: x + (2 if torch.distributed.is_available() and torch.distributed.is_initialized() else 1),
    lambda x: x + (dist.get_world_size() if dist.is_initialized() else 1),
    lambda x: x + 1 if dist.is_torchelastic_launched() or dist.is_nccl_available() or dist.is_gloo_available() else x,
    lambda x: x * 2 if torch.compiler.is_exporting() else x * 3,
], ids=range(12))
def test_questions_are_answered(fn):
    whole(fn, X)


def test_script_if_tracing_around_a_function_with_a_break():
    @torch.jit.script_if_tracing
    def f(x):
        y = x * 3
        dynamo_lite.graph_break()
        return y + 1

    counter = Counter()
    assert dynamo_lite.compile(lambda x: f(x + 1), backend=counter)(X).tolist() == [7.0] * 3
    assert len(counter.graphs) == 3


def test_fx_tracing_is_guarded():
    counter = Counter()
    f = dynamo_lite.compile(lambda x: x + 1 if _symbolic_trace.is_fx_tracing() else x + 2, backend=counter)
    assert f(X).tolist() == [3.0] * 3
    by_thread = getattr(_symbolic_trace, "_is_fx_tracing_tls", None)
    holder, name = (_symbolic_trace, "_is_fx_tracing_flag") if by_thread is None else (by_thread, "flag")
    before = vars(holder).copy()  # a thread that has not been asked has no flag
    setattr(holder, name, True)
    try:
        assert f(X).tolist() == [2.0] * 3
    finally:
        setattr(holder, name, before[name]) if name in before else delattr(holder, name)
    assert f(X).tolist() == [3.0] * 3 and len(counter.graphs) == 2


def test_distributed_is_guarded():
    code = """
        import torch, torch.distributed as dist, dynamo_lite
        graphs = []
        def backend(gm, inputs):
            graphs.append(gm)
            return gm.forward
        def f(x):
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                return x * (dist.get_world_size() + 1) + dist.get_rank()
            return x
        c = dynamo_lite.compile(f, backend=backend, fullgraph=True)
        x = torch.ones(1)
        def step():
            return c(x).item()
        out = [step()]
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        out += [step(), step()]
        n = len(graphs)
        dist.destroy_process_group()
        out += [step()]
        print(out, n)
        try:
            dynamo_lite.compile(lambda x: x + dist.get_world_size(), backend=backend)(x)
        except ValueError as error:
            print("process group" in str(error))
    """
    run = new_process.run(textwrap.dedent(code), timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:2] == ["[1.0, 2.0, 2.0, 1.0] 1", "True"]


def test_marks_of_cuda_graphs_do_nothing_without_cuda():
    if torch.cuda.is_available():
        pytest.skip("there they break the graph")
    before = "torch._inductor.cudagraph_trees" in sys.modules

    def f(x):
        torch.compiler.cudagraph_mark_step_begin()
        return x + 1

    counter = Counter()
    assert dynamo_lite.compile(f, backend=counter, fullgraph=True)(X).tolist() == [2.0] * 3
    assert ("torch._inductor.cudagraph_trees" in sys.modules) == before


# ---------------------------------------------------------------- modules of torch.fx
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("shift", torch.full((3,), 2.0))

    def forward(self, x, scale=2):
        return self.linear(x).relu() * scale + self.shift


def traced():
    return fx.symbolic_trace(Small())


def test_graph_modules_are_captured():
    gm = traced()
    whole(lambda x: gm(x) * 2, X)
    whole(lambda x: gm(x, scale=3), X)
    whole(gm, X)
    whole(nn.Sequential(gm, nn.ReLU(), copy.deepcopy(gm)), X)
    whole(fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))), X)


def test_a_graph_module_that_changes():
    gm = traced()
    counter = Counter()
    f = dynamo_lite.compile(lambda x: gm(x), backend=counter, fullgraph=True)
    torch.testing.assert_close(f(X), gm(X))
    with torch.no_grad():
        gm.linear.weight.add_(1)
    torch.testing.assert_close(f(X), gm(X))
    assert len(counter.graphs) == 1
    for node in gm.graph.nodes:
        if node.target == "relu":
            node.target = "tanh"
    gm.recompile()
    torch.testing.assert_close(f(X), gm(X))
    assert len(counter.graphs) == 2
    calls = []
    handle = gm.register_forward_hook(lambda module, args, out: calls.append(1) or out * 2)
    torch.testing.assert_close(f(X), gm(X))
    assert len(calls) == 2
    handle.remove()
    torch.testing.assert_close(f(X), gm(X))


def test_graph_modules_train_and_fail_as_in_eager():
    gm = traced()
    twin = copy.deepcopy(gm)
    f = dynamo_lite.compile(gm)
    f(X).sum().backward()
    twin(X).sum().backward()
    torch.testing.assert_close(gm.linear.weight.grad, twin.linear.weight.grad)
    for call in (gm, dynamo_lite.compile(gm, backend="eager")):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied|size mismatch"):
            call(torch.ones(4))


def test_a_graph_module_with_a_call_of_its_own():
    class Own(fx.GraphModule):
        def __call__(self, *args):
            return super().__call__(*args) - 1

    gm = Own(Small(), fx.symbolic_trace(Small()).graph)
    dynamo = dynamo_lite.compile(lambda x: gm(x), backend="eager")
    torch.testing.assert_close(dynamo(X), gm(X))


# ---------------------------------------------------------------- assumed constants
HELD = torch.full((3,), 2.0)
BOTH = pytest.mark.parametrize("assume", [torch.compiler.assume_constant_result, dynamo_lite.assume_constant_result],
                               ids=["torch", "own"])


@BOTH
def test_results_with_tensors_are_assumed_constant(assume):
    calls = []

    @assume
    def held():
        calls.append(1)
        return HELD

    @assume
    def made(n):
        return torch.full((3,), float(n))

    @assume
    def doubled(t):
        return t * 2

    @assume
    def several():
        return {"a": HELD, "b": [1, (HELD,)], "c": None}

    class Owner:
        @assume
        def get(self):
            return HELD

    owner = Owner()
    whole(lambda x: x + held(), X)
    assert len(calls) == 2  # once in plain Python
    whole(lambda x: x + made(4), X)
    whole(lambda x: x + doubled(HELD), X)
    whole(lambda x: x + several()["a"] + several()["b"][1][0] + several()["b"][0], X)
    whole(lambda x: x + owner.get(), X)


@BOTH
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_assumed_constants_are_the_objects_of_the_call(assume, backend):
    weight = nn.Parameter(torch.ones(3))

    @assume
    def parameter():
        return weight

    @assume
    def held():
        return HELD

    dynamo_lite.compile(lambda x: x * 2 * parameter(), backend=backend)(X).sum().backward()
    assert weight.grad.tolist() == [2.0] * 3

    def broken(x):
        y = held()
        dynamo_lite.graph_break()
        return y + x, y is HELD

    out, same = dynamo_lite.compile(broken, backend=backend)(X)
    assert out.tolist() == [3.0] * 3 and same

    def writes(x):
        x.add_(1)
        return held() + x

    f = dynamo_lite.compile(writes, backend=backend)
    before = HELD.clone()
    try:
        assert f(torch.ones(3)).tolist() == [4.0] * 3
        assert f(HELD).tolist() == [6.0] * 3  # the argument is the constant
        assert f(torch.ones(3)).tolist() == [5.0] * 3
    finally:
        HELD.copy_(before)
