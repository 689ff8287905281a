"""The public entry points: compile in all its forms, marks on functions, reset."""
import copy
import pickle
import warnings

import pytest
import torch
import torch.nn as nn

import dynamo_lite
from dynamo_lite import log


class Counter:
    """A backend that counts graphs and runs them as they are."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, example_inputs):
        self.graphs.append(gm)
        return gm.forward


def test_compiled_functions_nest():
    counter = Counter()
    inner = dynamo_lite.compile(lambda x: x.sin() + 1, backend=counter)
    outer = dynamo_lite.compile(lambda x: inner(x) * 2, backend=counter, fullgraph=True)
    x = torch.randn(3)
    assert torch.equal(outer(x), (x.sin() + 1) * 2)
    assert len(counter.graphs) == 1


def test_a_compiled_module_inside_a_compiled_function():
    counter = Counter()
    module = nn.Linear(3, 3)
    compiled = dynamo_lite.compile(module, backend=counter)
    outer = dynamo_lite.compile(lambda x: compiled(x).relu(), backend=counter, fullgraph=True)
    x = torch.randn(2, 3)
    assert torch.allclose(outer(x), module(x).relu())
    assert len(counter.graphs) == 1
    inside = nn.Sequential(compiled, nn.ReLU())
    assert torch.allclose(dynamo_lite.compile(inside, backend=counter)(x), module(x).relu())


def test_methods_decorated_in_the_class_body():
    class Model:
        def __init__(self, k):
            self.k = k

        @dynamo_lite.compile(backend="eager")
        def scale(self, x):
            return x * self.k

        @staticmethod
        @dynamo_lite.compile(backend="eager")
        def double(x):
            return x * 2

    x = torch.ones(2)
    a, b = Model(2), Model(3)
    assert a.scale(x).tolist() == [2, 2] and b.scale(x).tolist() == [3, 3] and a.scale(x).tolist() == [2, 2]
    assert Model.double(x).tolist() == [2, 2]


def test_callable_objects_and_bound_methods():
    class Adder:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x + self.k

        def twice(self, x):
            return x + 2 * self.k

    adder = Adder(3)
    assert dynamo_lite.compile(adder, backend="eager")(torch.zeros(1)).item() == 3
    assert dynamo_lite.compile(adder.twice, backend="eager")(torch.zeros(1)).item() == 6


def test_compiling_twice_does_not_compile_frames_twice():
    counter = Counter()
    dynamo_lite.register_backend(counter, name="counted")
    def f(x):
        return x + 1

    first, second = dynamo_lite.compile(f, backend="counted"), dynamo_lite.compile(f, backend="counted")
    first(torch.ones(2)), second(torch.ones(2))
    assert len(counter.graphs) == 1
    dynamo_lite.compile(first, backend="counted")(torch.ones(2))
    assert len(counter.graphs) == 1


def test_module_face_pickle_and_deepcopy():
    # Not ReLU, which makes zeros of one random input in four, as zero weights do.
    module = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    compiled = dynamo_lite.compile(module)
    x = torch.randn(1, 2)
    want = module(x)
    assert torch.allclose(compiled(x), want)
    again = pickle.loads(pickle.dumps(compiled))
    assert torch.allclose(again(x), want) and list(again.state_dict()) == list(module.state_dict())
    twin = copy.deepcopy(compiled)
    with torch.no_grad():
        twin[0].weight.zero_()
    assert torch.allclose(compiled(x), want) and not torch.allclose(twin(x), want)
    assert torch.allclose(pickle.loads(pickle.dumps(module))(x), want)
    compiled.extra = 5
    assert module.extra == 5
    del compiled.extra
    assert not hasattr(module, "extra")
    compiled.train(False)
    assert not module.training
    assert "Linear" in repr(compiled)
    wrapper = nn.Sequential(compiled)
    assert list(wrapper.state_dict()) == ["0.0.weight", "0.0.bias"]
    compiled.load_state_dict(module.state_dict())
    assert {id(p) for p in wrapper.parameters()} == {id(p) for p in module.parameters()}
    assert compiled.to(torch.float64)[0].weight.dtype == torch.float64


def test_bad_arguments():
    with pytest.raises(TypeError, match="callable"):
        dynamo_lite.compile(3)
    with pytest.raises(ValueError, match="no mode"):
        dynamo_lite.compile(lambda x: x, mode="fastest")
    with pytest.raises(dynamo_lite.exc.InvalidBackend, match="nope"):
        dynamo_lite.compile(lambda x: x, backend="nope")
    with pytest.raises(TypeError, match="class"):
        dynamo_lite.compile(nn.Linear)


def test_disable_forms():
    counter = Counter()

    def helper(x):
        return x * 2

    @dynamo_lite.disable(recursive=False)
    def shallow(x):
        return helper(x) + 1

    f = dynamo_lite.compile(lambda x: shallow(x + 1) * 3, backend=counter)
    assert f(torch.ones(1)).item() == 15
    names = [n.target.__name__ for g in counter.graphs for n in g.graph.nodes if n.op == "call_function"]
    assert names == ["add", "mul", "mul"]

    @dynamo_lite.disable
    def deep(x):
        return helper(x) + 1

    counter.graphs.clear()
    f = dynamo_lite.compile(lambda x: deep(x + 1) * 3, backend=counter)
    assert f(torch.ones(1)).item() == 15 and len(counter.graphs) == 2
    assert f.__name__ == "<lambda>" and deep.__name__ == "deep"


def test_marks():
    def opaque(x):
        return x + 1

    counter = Counter()
    dynamo_lite.allow_in_graph(opaque)
    f = dynamo_lite.compile(lambda x: opaque(x) * 2, backend=counter, fullgraph=True)
    assert f(torch.ones(1)).item() == 4
    assert opaque in [n.target for n in counter.graphs[0].graph.nodes]

    def banned(x):
        return x + 1

    dynamo_lite.disallow_in_graph(banned)
    f = dynamo_lite.compile(lambda x: banned(x * 2) * 2, backend=counter, fullgraph=True)
    with pytest.raises(dynamo_lite.exc.Unsupported, match="disallowed"):
        f(torch.ones(1))

    calls = []

    @dynamo_lite.assume_constant_result
    def setting():
        calls.append(1)
        return 7

    f = dynamo_lite.compile(lambda x: x * setting(), backend=counter, fullgraph=True)
    assert f(torch.ones(1)).item() == 7 and f(torch.ones(1)).item() == 7 and calls == [1]


def test_marks_on_torch_functions():
    dynamo_lite.disallow_in_graph(torch.sinh)
    try:
        with pytest.raises(dynamo_lite.exc.Unsupported, match="disallowed"):
            dynamo_lite.compile(lambda x: torch.sinh(x), fullgraph=True)(torch.ones(1))
    finally:
        dynamo_lite.allow_in_graph(torch.sinh)
    got = dynamo_lite.compile(lambda x: torch.sinh(x), fullgraph=True)(torch.ones(1))
    assert torch.allclose(got, torch.ones(1).sinh())


def test_backend_options_and_failures():
    seen = {}

    def backend(gm, inputs, *, options):
        seen.update(options)
        return gm.forward

    dynamo_lite.compile(lambda x: x + 1, backend=backend, options={"level": 3})(torch.ones(1))
    assert seen == {"level": 3}
    with pytest.raises(dynamo_lite.exc.BackendCompilerFailed, match="callable"):
        dynamo_lite.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)(torch.ones(1))
    broken = dynamo_lite.compile(lambda x: x + 1, backend=lambda gm, inputs: 3)
    with dynamo_lite.config.patch(suppress_errors=True):
        assert broken(torch.ones(1)).item() == 2


def test_reset_forgets():
    counter = Counter()
    f = dynamo_lite.compile(lambda x: x + 1, backend=counter)
    f(torch.ones(1))
    dynamo_lite.reset()
    f(torch.ones(1))
    assert len(counter.graphs) == 2


def test_is_compiling_of_torch_and_ours():
    f = dynamo_lite.compile(
        lambda x: x + (1 if torch.compiler.is_compiling() and dynamo_lite.is_compiling() else 0), backend="eager"
    )
    assert f(torch.zeros(1)).item() == 1 and not dynamo_lite.is_compiling()


def test_recompile_limit_is_said_once_and_stays_right(caplog):
    counter = Counter()
    f = dynamo_lite.compile(lambda x, word: x + len(word), backend=counter)
    with caplog.at_level("WARNING", logger="dynamo_lite"):
        for k in range(20):
            assert f(torch.zeros(1), "a" * k).item() == k
    assert len(counter.graphs) == dynamo_lite.config.recompile_limit
    assert sum("recompile_limit" in r.getMessage() for r in caplog.records) == 1
    assert f(torch.zeros(1), "").item() == 0


def test_many_modules_do_not_share_a_limit():
    counter = Counter()
    dynamo_lite.register_backend(counter, name="counted_modules")
    modules = [nn.Sequential(*[nn.ReLU() for _ in range(n + 1)]) for n in range(12)]
    for module in modules:
        assert dynamo_lite.compile(module, backend="counted_modules")(torch.ones(2)).tolist() == [1, 1]
    assert len(counter.graphs) == 12


def test_methods_of_many_modules_and_optimizers_do_not_share_a_limit():
    counter = Counter()
    dynamo_lite.register_backend(counter, name="counted_methods")
    for n in range(10):
        layer = nn.Linear(3, n + 1)
        expected = layer(torch.ones(2, 3))
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
        layer.forward = dynamo_lite.compile(layer.forward, backend="counted_methods")
        assert layer.forward.__name__ == "forward" and layer.forward.__doc__ == nn.Linear.forward.__doc__
        result = layer(torch.ones(2, 3))
        assert torch.equal(result, expected)
        result.sum().backward()
        bias = layer.bias.detach().clone()
        dynamo_lite.compile(optimizer.step, backend="counted_methods")()
        assert torch.equal(layer.bias, bias - 0.5 * layer.bias.grad)
    assert len(counter.graphs) == 20 and log.counters().get("recompiles", 0) == 0


def test_methods_of_equal_modules_share_an_artifact():
    counter = Counter()
    dynamo_lite.register_backend(counter, name="counted_equal_methods")
    for _ in range(10):
        layer = nn.Linear(3, 3)
        method = dynamo_lite.compile(layer.forward, backend="counted_equal_methods")
        again = dynamo_lite.compile(method, backend="counted_equal_methods")
        x = torch.randn(2, 3)
        assert torch.allclose(method(x), layer(x)) and torch.allclose(again(x), layer(x))
    assert len(counter.graphs) == 1


def test_layers_compiled_one_by_one_share_an_artifact():
    counter = Counter()
    dynamo_lite.register_backend(counter, name="counted_layers")
    layers = [dynamo_lite.compile(nn.Linear(3, 3), backend="counted_layers") for _ in range(12)]
    x = torch.randn(2, 3)
    for layer in layers:
        assert torch.allclose(layer(x), layer._orig_mod(x))
    assert len(counter.graphs) == 1


@pytest.mark.parametrize("wrong, text", [
    ({"fullgraph": "yes"}, "fullgraph is bool, not 'yes'"), ({"dynamic": "no"}, "dynamic is bool or None, not 'no'"),
    ({"disable": 1}, "disable is bool, not 1"), ({"options": 3}, "options is Mapping or None, not 3"),
    ({"mode": 2}, "mode is str or None, not 2")])
def test_arguments_of_a_wrong_type_are_named(wrong, text):
    with pytest.raises(TypeError, match=text):
        dynamo_lite.compile(lambda x: x, **wrong)
    with pytest.raises(TypeError, match=text):
        dynamo_lite.compile(**wrong)


@pytest.mark.parametrize("wrong, error, text", [
    ({"options": {"lower": 1}}, ValueError, "no option 'lower'; it has lowering"),
    ({"options": {"lowering": "fast"}}, ValueError, "'lowering' is one of native, library, not 'fast'"),
    ({"options": {"triton.cudagraphs": True}}, ValueError, "no option 'triton.cudagraphs'"),
    ({"options": {"lowering": "library"}, "backend": "eager"}, TypeError, "backend 'eager' takes no options"),
    ({"options": {"a": 1}, "backend": "nope"}, dynamo_lite.exc.InvalidBackend, "no backend 'nope'"),
    ({"options": {"lowering": "library"}, "mode": "default"}, ValueError, "a mode or options, not both"),
    ({"mode": "fastest"}, ValueError, "no mode 'fastest'; the known ones are default, reduce-overhead"),
])
def test_settings_are_refused_at_compile(wrong, error, text):
    with pytest.raises(error, match=text):
        dynamo_lite.compile(lambda x: x, **wrong)
    with pytest.raises(error, match=text):
        dynamo_lite.compile(**wrong)
    assert dynamo_lite.compile(abs, disable=True, **wrong) is abs


@pytest.mark.parametrize("setting", [{"mode": "reduce-overhead"}, {"mode": "max-autotune"}])
def test_settings_without_an_effect_are_warned_of_once(setting):
    dynamo_lite.reset()
    with pytest.warns(UserWarning, match="has no effect") as caught:
        f = dynamo_lite.compile(lambda x: x + 1, backend="eager", **setting)
        dynamo_lite.compile(lambda x: x + 2, backend="eager", **setting)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert f(torch.ones(2)).tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dynamo_lite.compile(lambda x: x, backend="eager", dynamic=True, mode="default")
        dynamo_lite.compile(lambda x: x, backend="eager", dynamic=None, options={})


def test_modes_that_a_backend_knows_are_options_of_it():
    seen = []

    def backend(gm, inputs, *, options=None):
        seen.append(options)
        return gm.forward

    backend.modes = {"reduce-overhead": {"cuda_graphs": "on"}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for known in (backend, "inductor_lite"):  # the latter's has no effect on a CPU
            f = dynamo_lite.compile(lambda x: x + 1, backend=known, mode="reduce-overhead")
            assert f(torch.ones(2)).tolist() == [2.0, 2.0]
    assert seen == [{"cuda_graphs": "on"}]


def test_options_go_unchecked_to_a_backend_that_does_not_check_them():
    seen = []

    def backend(gm, inputs, **rest):
        seen.append(rest)
        return gm.forward

    dynamo_lite.compile(lambda x: x + 1, backend=backend, options={"any": 1})(torch.ones(1))
    assert seen == [{"options": {"any": 1}}]


def test_version():
    assert dynamo_lite.__version__.count(".") == 2


def test_what_is_no_function_is_named():
    with pytest.raises(TypeError, match="disable takes a function"):
        dynamo_lite.disable(3)
    with pytest.raises(TypeError, match="explain takes a function"):
        dynamo_lite.explain(3)
