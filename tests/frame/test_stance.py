"""The stance, by dynamo_lite's name and by torch's; the kill switch; run(); and what follows torch's compiler."""
import os
import textwrap
import threading

import new_process
import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import config

pytestmark = pytest.mark.by_turns(3)


class Counter:
    def __init__(self):
        self.graphs = []

    def __call__(self, gm, inputs):
        self.graphs.append(gm)
        return gm.forward

    def __len__(self):
        return len(self.graphs)


@pytest.fixture(autouse=True)
def _fresh():
    dynamo_lite.reset()
    yield
    dynamo_lite.set_stance("default")
    dynamo_lite.reset()


@pytest.fixture(params=["own", "torch"])
def set_stance(request):
    yield dynamo_lite.set_stance if request.param == "own" else torch.compiler.set_stance
    if request.param == "torch":
        torch.compiler.set_stance("default")


def in_process(code, **env):
    run = new_process.run(textwrap.dedent(code), timeout=120, env=dict(os.environ, **env))
    assert run.returncode == 0, run.stderr
    return run.stdout


def double(x):
    return x * 2 + 1


X3, X4, X5 = (torch.ones(n) for n in (3, 4, 5))


def compiled(counter, fn=double):
    made = dynamo_lite.compile(fn, backend=counter, dynamic=False)

    def call(x):
        assert torch.equal(made(x), fn(x))
        return len(counter)

    return call


# ---------------------------------------------------------------- stances
def test_force_eager_as_function_block_and_decorator(set_stance):
    f = compiled(Counter())
    assert f(X3) == 1
    set_stance("force_eager")
    assert f(X4) == 1
    set_stance("default")
    with set_stance("force_eager"):
        assert f(X4) == 1
    assert f(X4) == 2
    eager = set_stance("force_eager")(lambda: f(X5))
    assert eager() == 2
    assert f(X5) == 3
    assert eager.__name__ == "<lambda>"


def test_force_eager_reaches_what_runs_already(set_stance):
    seen = []

    def inner(x):
        seen.append(dynamo_lite.is_compiling())
        return x * 3

    counter = Counter()

    def outer(x):
        y = x + 1
        with set_stance("force_eager"):
            y = inner(y)
        return y - 1

    f = dynamo_lite.compile(outer, backend=counter)
    for _ in range(2):
        assert f(X3).tolist() == [5.0] * 3
    assert seen == [False, False]


def test_force_eager_holds_for_modules_and_training(set_stance):
    counter = Counter()
    model = nn.Linear(3, 2)
    f = dynamo_lite.compile(model, backend=counter)
    with set_stance("force_eager"):
        f(X3).sum().backward()
    assert model.weight.grad is not None and not counter.graphs


def test_eager_on_recompile(set_stance):
    f = compiled(Counter())
    assert f(X3) == 1
    with set_stance("eager_on_recompile"):
        assert f(X3) == 1 and f(X4) == 1
    assert f(X4) == 2


def test_fail_on_recompile(set_stance):
    counter = Counter()
    f = compiled(counter)
    assert f(X3) == 1
    with set_stance("fail_on_recompile"):
        assert f(X3) == 1
        with pytest.raises(RuntimeError, match=r"fail_on_recompile.*x.shape was \[3\], is \[4\]"):
            f(X4)
        with pytest.raises(RuntimeError, match="double.*would be compiled"):
            compiled(counter)(X3)
    assert f(X4) == 2


def test_eager_then_compile(set_stance):
    f, g = compiled(Counter()), compiled(Counter(), lambda x: x - 1)
    with set_stance("eager_then_compile"):
        assert f(X3) == 0 and f(X3) == 1 and f(X3) == 1 and f(X4) == 2
        assert g(X3) == 0 and g(X3) == 1
    dynamo_lite.reset()
    with set_stance("eager_then_compile"):
        assert f(X3) == 2 and f(X3) == 3


def test_force_backend(set_stance):
    other, counter = Counter(), Counter()
    f = compiled(counter)
    with set_stance(force_backend=other):
        assert f(X3) == 0 and f(X3) == 0 and len(other) == 1
    assert f(X3) == 1
    with set_stance(force_backend="eager"):
        assert f(X4) == 1
    with set_stance("default"):
        assert f(X4) == 2


def test_bad_stances():
    with pytest.raises(ValueError, match="no stance 'fast'; the known ones are default, force_eager"):
        dynamo_lite.set_stance("fast")
    with pytest.raises(ValueError, match="no force_backend"):
        dynamo_lite.set_stance("force_eager", force_backend="eager")
    with dynamo_lite.set_stance(force_backend="nope"), pytest.raises(dynamo_lite.exc.InvalidBackend, match="nope"):
        dynamo_lite.compile(double, backend="eager")(X3)


def test_unsafe_guards_are_warned_of():
    with pytest.warns(UserWarning, match="skip_guard_eval_unsafe has no effect"):
        torch.compiler.set_stance("default", skip_guard_eval_unsafe=True)
    torch.compiler.set_stance("default")


# ---------------------------------------------------------------- the kill switch
def test_config_disable():
    f = compiled(Counter())
    with config.patch(disable=True):
        assert f(X3) == 0
        with pytest.raises(dynamo_lite.exc.DynamoLiteError, match="config.disable is set"):
            dynamo_lite.export(double)(X3)
        assert "config.disable is set" in str(dynamo_lite.explain(double)(X3))
    assert f(X3) == 1


@pytest.mark.parametrize("name", ["DYNAMO_LITE_DISABLE", "TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_disabled_by_the_environment(name):
    code = """
        import torch, dynamo_lite
        graphs = []
        def backend(gm, inputs):
            graphs.append(gm)
            return gm.forward
        m = dynamo_lite.compile(torch.nn.Linear(3, 2), backend=backend)
        f = dynamo_lite.compile(lambda x: x + 1, backend=backend)
        m(f(torch.ones(3)))
        print(len(graphs), dynamo_lite.config.disable)
        dynamo_lite.config.disable = False
        m(f(torch.ones(3)))
        print(len(graphs))
    """
    assert in_process(code, **{name: "1"}).split() == ["0", "True", "2"]
    assert in_process(code, **{name: "0"}).split()[:2] == ["2", "False"]
    if name == "TORCH_COMPILE_DISABLE":
        assert in_process(code, **{name: "1"}, DYNAMO_LITE_DISABLE="0").split()[:2] == ["2", "False"]


def test_torchs_config_disable():
    import torch._dynamo

    with torch._dynamo.config.patch(disable=True):
        assert dynamo_lite.compile(double, backend=Counter()) is double
        model = nn.Linear(3, 3)
        assert dynamo_lite.compile(model) is model


# ---------------------------------------------------------------- run
def test_run_compiles_nothing():
    counter = Counter()
    made = dynamo_lite.compile(double, backend=counter)
    only = dynamo_lite.run(made)
    assert torch.equal(only(X3), double(X3)) and not counter.graphs
    made(X3)
    entries = counter.graphs[0]
    calls = []
    entries.forward, before = (lambda *a: (calls.append(1), before(*a))[1]), entries.forward
    assert torch.equal(only(X3), double(X3)) and torch.equal(only(X4), double(X4)) and len(counter) == 1
    made(X4)
    assert torch.equal(only(X4), double(X4)) and len(counter) == 2
    assert only.__name__ == "double"


def test_run_uses_what_was_compiled():
    ran = []

    def backend(gm, inputs):
        def call(*args):
            ran.append(1)
            return gm.forward(*args)

        return call

    def f(x):
        y = x + 1
        dynamo_lite.graph_break()
        return y * 2

    made = dynamo_lite.compile(f, backend=backend)
    made(X3)
    assert len(ran) == 2
    for only in (dynamo_lite.run(made), dynamo_lite.run(f)):
        ran.clear()
        assert only(X3).tolist() == [4.0] * 3 and len(ran) == 2
        assert only(X4).tolist() == [4.0] * 4 and len(ran) == 2
    with dynamo_lite.run():
        made(X5)
    assert len(ran) == 2

    @dynamo_lite.run()
    def both(x):
        return made(x)

    both(X3)
    assert len(ran) == 4


def test_run_takes_modules_and_holds_for_its_thread_only():
    counter = Counter()
    model = nn.Linear(3, 3)
    made = dynamo_lite.compile(model, backend=counter)
    only = dynamo_lite.run(made)
    assert isinstance(only, nn.Module) and only.weight is model.weight
    only(X3)
    assert not counter.graphs
    with dynamo_lite.run():
        thread = threading.Thread(target=made, args=(X3,))
        thread.start()
        thread.join()
    assert len(counter) == 1
    with pytest.raises(TypeError, match="run takes a function"):
        dynamo_lite.run(3)


# ---------------------------------------------------------------- torch's compiler as a whole
def test_torchs_reset_resets():
    code = """
        import sys, torch, dynamo_lite
        graphs = []
        def backend(gm, inputs):
            graphs.append(gm)
            return gm.forward
        f = dynamo_lite.compile(lambda x: x + 1, backend=backend)
        f(torch.ones(3))
        assert "torch._dynamo" not in sys.modules
        {first}
        f(torch.ones(3)); f(torch.ones(3))
        assert len(graphs) == 2, len(graphs)
        {second}
        f(torch.ones(3)); f(torch.ones(3))
        assert len(graphs) == 3, len(graphs)
        assert not any("torch_compiler" in type(finder).__module__ for finder in sys.meta_path)
        print(torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2)).tolist())
    """
    for first, second in [("torch.compiler.reset()", "torch._dynamo.reset()"),
                          ("torch._dynamo.reset()", "torch.compiler.reset()")]:
        assert in_process(code.format(first=first, second=second)).strip() == "[2.0, 2.0]"


def test_torch_compiler_imported_before():
    assert in_process("""
        import torch, torch._dynamo
        from torch._dynamo import reset
        torch.compiler.set_stance("force_eager")
        import dynamo_lite
        graphs = []
        def backend(gm, inputs):
            graphs.append(gm)
            return gm.forward
        f = dynamo_lite.compile(lambda x: x + 1, backend=backend)
        f(torch.ones(3))
        torch.compiler.set_stance("default")
        f(torch.ones(3)); reset(); f(torch.ones(3))
        print(len(graphs))
    """).strip() == "2"


def test_torchs_settings():
    import torch._dynamo

    def spread(x):
        return x * x.sum().item()

    counter = Counter()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        dynamo_lite.compile(spread, backend=counter, fullgraph=True)(X3)
    for name in ("recompile_limit", "cache_size_limit"):
        dynamo_lite.reset()
        counter = Counter()
        f = dynamo_lite.compile(double, backend=counter, dynamic=False)
        with torch._dynamo.config.patch({name: 2}):
            for n in range(1, 6):
                f(torch.ones(n))
        assert len(counter) == 2
    dynamo_lite.reset()

    def broken(gm, inputs):
        raise ValueError("no")

    f = dynamo_lite.compile(double, backend=broken)
    with torch._dynamo.config.patch(suppress_errors=True):
        assert torch.equal(f(X3), double(X3))
    dynamo_lite.reset()
    with config.patch(recompile_limit=3), torch._dynamo.config.patch(recompile_limit=2):
        counter = Counter()
        f = dynamo_lite.compile(double, backend=counter, dynamic=False)
        for n in range(1, 6):
            f(torch.ones(n))
        assert len(counter) == 3  # what is set here counts
