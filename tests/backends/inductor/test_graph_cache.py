"""Compiled graphs that are kept: what has the same key, another one or none, and that what is found is right."""
import json
import os
import textwrap

import new_process
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config, log
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.inductor import formula, graph_cache, graph_key, register_decomposition, register_lowering
from dynamo_lite.backends.inductor.lowering import LOWERINGS

FOUND = []


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path, monkeypatch):
    find = graph_cache.find

    def counted(key):
        found = find(key)
        FOUND.extend([key] * (found is not None))
        return found

    monkeypatch.setattr(graph_cache, "find", counted)
    FOUND.clear()
    with config.patch(cache_graphs=True, cache_dir=str(tmp_path)):
        yield


@pytest.fixture
def keys(monkeypatch):
    """The keys of the graphs that are compiled, None for one without."""
    found = []
    key_of = graph_cache.key_of

    def noted(*args):
        found.append(key_of(*args))
        return found[-1]

    monkeypatch.setattr(graph_cache, "key_of", noted)
    return found


def hits():
    return len(FOUND)


def twice(fn, *args):
    """The results of a first and of a second compile, and of eager, each with the same random state and own inputs."""
    results = []
    for call in (lambda: dynamo_lite.compile(fn), lambda: dynamo_lite.compile(fn), lambda: fn):
        dynamo_lite.reset()
        torch.manual_seed(3)
        copies = [a.detach().clone() for a in args]
        results.append((call()(*copies), copies))
    return results


def check(fn, *args):
    """What is found gives what was compiled and what eager gives, writes to inputs included; it is found once."""
    first, second, eager = twice(fn, *args)
    assert hits() >= 1
    for got in (first, second):
        torch.testing.assert_close(got, eager)
        for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(eager)):
            if isinstance(a, torch.Tensor):
                assert a.stride() == b.stride() and a.dtype == b.dtype and a._is_view() == b._is_view()


def writes(x, y):
    x.add_(1)
    y[:, 1] = x[:, 0]
    return x * y, y.T, x


PROGRAMS = {
    "pointwise": lambda x, y: (x * y + 1).relu().sum(1),
    "several": lambda x, y: (x.exp(), y, x.t(), (x + y)[:, ::2], 3),
    "writes": writes,
    "constants": lambda x, y: x + torch.tensor([1.0, -0.0, float("inf")]) * torch.tensor(2) + y,
    "product": lambda x, y: F.gelu(x @ y.T) @ y,
    "random": lambda x, y: F.dropout(x, 0.5) + torch.rand_like(y) + torch.randn(4, 3),
    "library": lambda x, y: (x.sort(1), torch.linalg.svdvals(y), x.cumsum(0)),
    "indices": lambda x, y: x[torch.tensor([2, 0])] + F.embedding(torch.tensor([1, 3]), y),
    "dtypes": lambda x, y: (x.to(torch.bfloat16) * 2, y.to(torch.int32) // 2, (x > y)),
    "written views": lambda x, y: (x.mul_(2).view(torch.int32), x.t(), torch.view_as_real(torch.complex(x, y)).sum(2)),
    "literal": lambda x, y: x * 1e-3 + y / 3 - 0.1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    torch.manual_seed(0)
    check(PROGRAMS[name], torch.randn(4, 3), torch.randn(4, 3))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.linear = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x):
        return self.linear(self.norm(self.conv(x)).relu().mean((2, 3)))


def test_modules_find_the_graphs_of_others_that_are_built_alike():
    x = torch.randn(2, 2, 7, 7)
    with torch.no_grad():
        for turn in range(3):
            net = Net().eval()
            dynamo_lite.reset()
            torch.testing.assert_close(dynamo_lite.compile(net)(x), net(x))
            assert hits() == turn


def gradients(net, x, target, compiled):
    net.zero_grad()
    call = dynamo_lite.compile(net) if compiled else net
    loss = F.cross_entropy(call(x), target)
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in net.parameters()), *(b.clone() for b in net.buffers())]


def test_training():
    torch.manual_seed(0)
    start, x, target = Net().state_dict(), torch.randn(3, 2, 7, 7), torch.tensor([0, 4, 2])
    made = []
    for compiled in (True, True, False):
        dynamo_lite.reset()
        net = Net()
        net.load_state_dict(start)
        made.append(gradients(net, x, target, compiled))
    assert hits() == 1
    torch.testing.assert_close(made[0], made[2])
    torch.testing.assert_close(made[1], made[2])
    assert all(torch.equal(a, b) for a, b in zip(made[0], made[1]))


def both(x, w):
    return (x * w).sin(), (x + w).exp()


def test_other_gradients_of_what_is_found():
    """The pair is kept with the backward pass for gradients of all results; others are recorded anew."""
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    for heads in ((0, 1), (0, 1), (0,), (1,)):
        dynamo_lite.reset()
        got, want = dynamo_lite.compile(both)(x, w), both(x, w)
        found, expected = (
            torch.autograd.grad([values[i].sum() for i in heads], (x, w)) for values in (got, want))
        torch.testing.assert_close(found, expected)
    assert hits() == 3


def test_gradients_of_gradients_of_what_is_found():
    x, w = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)
    for _ in range(2):
        dynamo_lite.reset()
        second = []
        for fn in (dynamo_lite.compile(both), both):
            (first,) = torch.autograd.grad(sum(v.sum() for v in fn(x, w)), x, create_graph=True)
            second.append(torch.autograd.grad(first.sum(), (x, w)))
            torch.autograd.grad(sum(v.sum() for v in fn(x, w)), x)
        torch.testing.assert_close(*second)
    assert hits() == 1


def test_a_forward_pass_is_kept_without_its_gradients_too():
    x, w = torch.randn(4, requires_grad=True), torch.randn(4)
    for turn in range(4):
        dynamo_lite.reset()
        got, want = dynamo_lite.compile(both)(x, w), both(x, w)
        torch.testing.assert_close(got, want)
        assert hits() == turn
        if turn in (1, 2):  # in the first of these it is compiled, and kept with the rest
            found, expected = (torch.autograd.grad(sum(v.sum() for v in values), x) for values in (got, want))
            torch.testing.assert_close(found, expected)


def test_an_optimizers_step_is_kept():
    steps = []
    for turn in range(3):
        dynamo_lite.reset()
        torch.manual_seed(0)
        parameters = [torch.randn(3, 4, requires_grad=True), torch.randn(5, requires_grad=True)]
        optimizer = torch.optim.AdamW(parameters, foreach=True)
        step = dynamo_lite.compile(optimizer.step) if turn else optimizer.step
        for p in parameters:
            p.grad = torch.randn_like(p)
        step()
        steps.append([p.detach() for p in parameters])
    assert hits() == 1
    torch.testing.assert_close(steps[1], steps[0])
    assert all(map(torch.equal, steps[1], steps[2]))


# ---------------------------------------------------------------- keys
def compiled_key(keys, fn, *args):
    dynamo_lite.reset()
    keys.clear()
    dynamo_lite.compile(fn)(*args)
    assert len(keys) == 1
    return keys[0]


def scaled(x, y, k=2.0):
    return x * k + y


def aliased():
    memory = torch.randn(8)
    return memory[:4], memory[4:]


def overlapping():
    memory = torch.randn(8)
    return memory[:4], memory[2:6]


INPUTS = {
    "plain": lambda: (torch.randn(4), torch.randn(4)),
    "longer": lambda: (torch.randn(5), torch.randn(5)),
    "broadcast": lambda: (torch.randn(4), torch.randn(1)),
    "strided": lambda: (torch.randn(8)[::2], torch.randn(4)),
    "offset": lambda: (torch.randn(5)[1:], torch.randn(4)),
    "double": lambda: (torch.randn(4).double(), torch.randn(4)),
    "leaf": lambda: (torch.randn(4, requires_grad=True), torch.randn(4)),
    "no leaf": lambda: (torch.randn(4, requires_grad=True) * 2, torch.randn(4)),
    "aliased": aliased,
    "overlapping": overlapping,
    "negative": lambda: (torch.randn(4, dtype=torch.complex64).conj().imag, torch.randn(4)),
    "k": lambda: (torch.randn(4), torch.randn(4), 3.0),
    "k an integer": lambda: (torch.randn(4), torch.randn(4), 2),
    "k a truth": lambda: (torch.randn(4), torch.randn(4), True),
    "k zero": lambda: (torch.randn(4), torch.randn(4), 0.0),
    "k minus zero": lambda: (torch.randn(4), torch.randn(4), -0.0),
    "k nan": lambda: (torch.randn(4), torch.randn(4), float("nan")),
}


def test_inputs_that_differ_have_different_keys(keys):
    found = {name: compiled_key(keys, scaled, *make()) for name, make in INPUTS.items()}
    again = {name: compiled_key(keys, scaled, *make()) for name, make in INPUTS.items()}
    assert found == again and None not in found.values()
    same = {a: b for a in found for b in found if a < b and found[a] == found[b]}
    assert not same


def states():
    yield "plain", torch.enable_grad()
    yield "no grad", torch.no_grad()
    yield "inference", torch.inference_mode()
    yield "autocast", torch.autocast("cpu", torch.bfloat16)
    yield "simd", config.patch(cpp_simd="scalar")


def test_states_that_differ_have_different_keys(keys):
    x, y = torch.randn(4), torch.randn(4)
    found = []
    for _, scope in states():
        with scope:
            found.append(compiled_key(keys, scaled, x, y))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        found.append(compiled_key(keys, scaled, x, y))
    finally:
        torch.set_num_threads(threads)
    torch.set_default_dtype(torch.float64)
    try:
        found.append(compiled_key(keys, scaled, x, y))
    finally:
        torch.set_default_dtype(torch.float32)
    assert None not in found and len(set(found)) == len(found)


def test_programs_that_differ_have_different_keys(keys):
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    functions = [
        lambda x, y: x + y, lambda x, y: y + x, lambda x, y: x - y, lambda x, y: x.add(y),
        lambda x, y: x.sum(0) + y, lambda x, y: x.sum(1).sum() + y, lambda x, y: x[1:] + y[1:],
        lambda x, y: x[:-1] + y[1:], lambda x, y: x[..., 1:] + y[..., 1:], lambda x, y: (y, x + y),
        lambda x, y: F.gelu(x) + y, lambda x, y: F.gelu(x, approximate="tanh") + y]
    found = [compiled_key(keys, fn, x, y) for fn in functions]
    assert None not in found and len(set(found)) == len(found)


def own(x, y):
    return torch.nn.functional.relu(x) + y


def with_autograd_function(x, y):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    return Double.apply(x) + y


def test_no_key_with_functions_of_the_users(keys):
    x, y = torch.randn(4, requires_grad=True), torch.randn(4)
    dynamo_lite.compile(with_autograd_function)(x, y).sum().backward()
    assert set(keys) <= {None}

    @torch.library.custom_op("dynamo_lite_tests::kept", mutates_args=())
    def kept(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    kept.register_fake(torch.empty_like)
    keys.clear()
    dynamo_lite.compile(lambda x: kept(x) + 1)(y)
    assert keys == [None]


def test_no_key_with_lowerings_of_the_users(keys):
    before = LOWERINGS[torch.ops.aten.relu.default]
    x, y = torch.randn(4), torch.randn(4)
    assert compiled_key(keys, own, x, y) is not None
    try:
        @register_lowering(torch.ops.aten.relu.default)
        def halved(g, self):
            return g.pointwise(lambda v: formula.div(v, 2.0), self) if hasattr(formula, "div") else NotImplemented

        assert compiled_key(keys, own, x, y) is None
    finally:
        LOWERINGS[torch.ops.aten.relu.default] = before
    assert compiled_key(keys, own, x, y) is not None


def test_decompositions_of_torchs_that_a_user_registers_are_part_of_the_key(keys):
    target = torch.ops.aten.grid_sampler_2d.default
    x, y = torch.randn(4), torch.randn(4)
    without = compiled_key(keys, own, x, y)
    try:
        register_decomposition(target)(torch._decomp.decomposition_table[target])
        registered = compiled_key(keys, own, x, y)
    finally:
        del FOR_KERNELS[target]
    assert registered not in (None, without)
    assert compiled_key(keys, own, x, y) == without


def test_no_key_for_values_that_have_no_text():
    for value in (object(), torch.ones(1), nn.ReLU()):
        with pytest.raises(graph_key.NoKey):
            graph_key._text((1, [value]))


def test_texts_of_arguments_differ():
    values = [1, 1.0, True, "1", b"1", None, 0.0, -0.0, (1,), [1], (1, (2,)), (1, 2), ((1,), 2), {}, {"a": 1},
              {"a": 1.0}, slice(1), slice(None, 1, 1), ..., torch.float32, "torch.float32", torch.strided,
              torch.device("cpu"), "%x", 1j, torch.relu, torch.sigmoid, "a, b", ["a", "b"], ["a, str b"]]
    texts = list(map(graph_key._text, values))
    assert len(set(texts)) == len(texts)


# ---------------------------------------------------------------- files
def entries(folder):
    return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".graph")]


def test_broken_files_are_reported_and_made_again(tmp_path, caplog):
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    fn = PROGRAMS["pointwise"]
    want = fn(x, y)
    dynamo_lite.compile(fn)(x, y)
    (path,) = entries(tmp_path)
    whole = open(path, "rb").read()
    for content in (whole[:100], b"", whole[:-1] + b"x"):
        open(path, "wb").write(content)
        dynamo_lite.reset()
        caplog.clear()
        torch.testing.assert_close(dynamo_lite.compile(fn)(x, y), want)
        assert "truncated or not from here" in caplog.text
        assert open(path, "rb").read() == whole
    assert hits() == 0


def test_a_file_that_can_not_be_read_as_a_graph(tmp_path, caplog):
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    fn = PROGRAMS["pointwise"]
    dynamo_lite.compile(fn)(x, y)
    (path,) = entries(tmp_path)
    key = os.path.basename(path).removesuffix(".graph")
    graph_cache.kept_files.write_entry(key, ".graph", b"no pickle")
    dynamo_lite.reset()
    torch.testing.assert_close(dynamo_lite.compile(fn)(x, y), fn(x, y))
    assert "can't be read, and is compiled again" in caplog.text and hits() == 0


def test_logs_of_the_way_show_the_way():
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    dynamo_lite.compile(PROGRAMS["pointwise"])(x, y)
    dynamo_lite.reset()
    log.set_logs("schedule")
    try:
        dynamo_lite.compile(PROGRAMS["pointwise"])(x, y)
    finally:
        log.set_logs("")
    assert hits() == 0


def test_the_switch():
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    with config.patch(cache_graphs=False):
        for _ in range(2):
            dynamo_lite.reset()
            dynamo_lite.compile(PROGRAMS["pointwise"])(x, y)
    assert hits() == 0 and not entries(config.cache_dir)


PROCESS = textwrap.dedent("""
    import json, sys, torch, dynamo_lite
    from dynamo_lite import log
    def fn(x, w):
        return torch.nn.functional.gelu(x @ w).softmax(1).sum(), torch.tensor([2.0]) * x
    torch.manual_seed(0)
    x, w = torch.randn(5, 7), torch.randn(7, 3, requires_grad=True)
    compiled = dynamo_lite.compile(fn)
    got, want = compiled(x, w), fn(x, w)
    for values in (got, want):
        w.grad = None
        (values[0] * 2).backward()
        values += (w.grad,)
    torch.testing.assert_close(got, want)
    print(json.dumps([log.counters(), log.phase_times(), str(dynamo_lite.generated_code(compiled))[-400:],
                      "dynamo_lite.backends.inductor.lowering" in sys.modules]))
""")


def test_the_next_process_records_nothing_and_starts_no_compiler(tmp_path):
    def run(seed):
        env = {**os.environ, "DYNAMO_LITE_CACHE_DIR": str(tmp_path / "kept"), "DYNAMO_LITE_CACHE_GRAPHS": "1",
               "PYTHONHASHSEED": seed}
        done = new_process.run(PROCESS, env=env)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first, second = run("1"), run("2")
    assert first[0].get("graph_cache_hits", 0) == 0 and first[0]["cache_misses"] > 0
    assert second[0]["graph_cache_hits"] == 1 and "cache_misses" not in second[0]
    assert "aot" in first[1] and not {"aot", "lowering", "scheduling", "cpp_codegen", "cpp_compile"} & set(second[1])
    assert first[2] == second[2] != ""
    assert first[3] and not second[3]
    assert first[0]["kernels"] == second[0]["kernels"]
