"""Numbers that come out of tensors, kept in the graph: values and types, graphs, recompiles, gradients, breaks."""
from __future__ import annotations

import enum
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config


@pytest.fixture(autouse=True)
def capture_scalars():
    with config.patch(capture_scalar_outputs=True, raise_internal_errors=True):
        yield


def arguments(seed: int, grad: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(4, generator=generator).requires_grad_(grad)
    return x, torch.randint(1, 3, (3,), generator=generator), torch.rand(4, generator=generator) > 0.5


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.requires_grad == b.requires_grad and torch.allclose(a, b, equal_nan=True)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6) or (a != a and b != b)
    return bool(a == b)


class Counting:
    """A backend that counts graphs and hands them on."""

    def __init__(self, name: str) -> None:
        self.graphs: list[Any] = []
        self.inner = dynamo_lite.backends.registry.lookup_backend(name)

    def __call__(self, gm: Any, inputs: list[Any]) -> Any:
        self.graphs.append(gm)
        return self.inner(gm, inputs)


ONE_GRAPH = {
    "mul_add": lambda x, i, b: x * x.sum().item() + 1,
    "add": lambda x, i, b: x + x.max().item(),
    "alone": lambda x, i, b: x.sum().item(),
    "arithmetic": lambda x, i, b: (x.sum().item() * 2 - 1, i.sum().item() // 2, b.any().item(), i.sum().item() % 2),
    "int_and_float": lambda x, i, b: x.detach() * int(i.sum()) + float(x.detach().mean()),
    "int_of_float": lambda x, i, b: (int(x.sum().item()), float(i.sum().item()), bool(i.sum().item())),
    "math": lambda x, i, b: x * math.sqrt(abs(x.sum().item())) + math.tanh(x.max().item()),
    "floor": lambda x, i, b: (math.floor(x.sum().item()), math.isnan(x.sum().item())),
    "full": lambda x, i, b: torch.full((3,), x.sum().item()),
    "full_of_int": lambda x, i, b: torch.full((2, 2), i.sum().item()),
    "clamp": lambda x, i, b: torch.clamp(x, max=x.mean().item()),
    "where": lambda x, i, b: torch.where(x > 0, x, x.min().item()),
    "pow_int": lambda x, i, b: x ** i.sum().item(),
    "pow_float": lambda x, i, b: (x * x + 1) ** x.abs().sum().item(),
    "number_to_the_power": lambda x, i, b: (i.sum().item() ** 2, x.sum().item() ** 2, 2.0 ** x.sum().item()),
    "ints_become_floats": lambda x, i, b: (i + x.sum().item(), i / i.sum().item(), i > x.sum().item()),
    "reflected": lambda x, i, b: (x.sum().item() - x, x.sum().item() / (x * x + 1), x.sum().item() < x),
    "number_over_number": lambda x, i, b: 1 / (x.sum().item() + 100) + x,
    "tolist": lambda x, i, b: [v * 2 for v in i.tolist()],
    "tolist_element": lambda x, i, b: x * i.tolist()[1],
    "tolist_nested": lambda x, i, b: x.detach().view(2, -1).tolist(),
    "index": lambda x, i, b: x[i[1].item()] * 2,
    "new_tensor": lambda x, i, b: torch.tensor([x.sum().item(), i.sum().item()]) * 2,
    "times_bool": lambda x, i, b: x * b.any().item(),
    "alpha": lambda x, i, b: torch.add(x, x, alpha=x.sum().item()),
    "leaky_relu": lambda x, i, b: F.leaky_relu(x, x.sum().item()),
    "unary": lambda x, i, b: (-x.sum().item(), +i.sum().item(), ~i.sum().item(), -b.any().item()),
    "round": lambda x, i, b: (round(x.sum().item()), round(x.sum().item(), 2)),
    "max": lambda x, i, b: x * max(x.sum().item(), 0.0),
    "comparison": lambda x, i, b: (x.sum().item() > 0, x.sum().item() == i.sum().item()),
    "in_a_dict": lambda x, i, b: {"a": x.sum().item(), "y": x + 1}["a"],
    "divmod": lambda x, i, b: divmod(i.sum().item(), 3),
    "sum": lambda x, i, b: sum(i.tolist()) * x,
    "no_dimensions": lambda x, i, b: (x.sum() * x.max().item(), i.sum() * x.max().item(), i.sum() + i.max().item()),
    "other_types": lambda x, i, b: (x.double() * x.sum().item(), x.half() * x.sum().item(), i.int() + i.sum().item()),
    "fill": lambda x, i, b: torch.zeros(4).fill_(x.sum().item()),
    "store": lambda x, i, b: torch.zeros(4).index_fill_(0, i, x.sum().item()),
    "twice": lambda x, i, b: (x * x.sum().item()) * (x * 2).sum().item(),
    "detached": lambda x, i, b: x * x.sum().item(),
    "isinstance": lambda x, i, b: x + 1 if isinstance(x.sum().item(), float) else x - 1,
    "is_none": lambda x, i, b: x + 1 if x.sum().item() is None else x - 1,
}


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", ONE_GRAPH)
@pytest.mark.parametrize("grad", [False, True])
def test_one_graph_for_all_values(name: str, backend: str, grad: bool) -> None:
    fn = ONE_GRAPH[name]
    counting = Counting(backend)
    compiled = dynamo_lite.compile(fn, backend=counting, fullgraph=True)
    for seed in range(3):
        args = arguments(seed, grad)
        expected, got = fn(*args), compiled(*args)
        assert same(expected, got), (expected, got)
        if grad and isinstance(expected, torch.Tensor) and expected.requires_grad:
            wanted = torch.autograd.grad(expected.sum(), args[0])
            assert torch.allclose(torch.autograd.grad(got.sum(), args[0])[0], wanted[0])
    assert len(counting.graphs) == 1


BREAKS = {
    "branch": (lambda x: x + 1 if x.sum().item() > 0 else x - 1, "data_dependent_branch"),
    "not": (lambda x: x + (not x.sum().item()), "data_dependent_branch"),
    "view": (lambda x: (x + 1).view(int(x.numel() * (x[0] * 0 + 1))), "data_dependent_guard"),
    "hash": (lambda x: ({x.max().item(): 1}, x + 1), "data_dependent_guard"),
    "format": (lambda x: (f"{x.max().item():.3f}", x + 1), "data_dependent_guard"),
    "percent": (lambda x: ("%.3f" % x.max().item(), x + 1), "data_dependent_guard"),
    "str": (lambda x: (str(x.max().item()), x + 1), "data_dependent_guard"),
    "range": (lambda x: sum(range(int(x.sum().abs()))) + x, "data_dependent_guard"),
    "list_index": (lambda x: [x, x + 1, x + 2][int(x[0] > 0)], "data_dependent_guard"),
    "repetition": (lambda x: ([0] * int(x[0] > 0), x + 1), "data_dependent_guard"),
    "text_repetition": (lambda x: ("-" * int(x[0] > 0), x + 1), "data_dependent_guard"),
    "slice": (lambda x: x[: int(x[0] > 0)] + 1, "data_dependent_guard"),
    "probability": (lambda x: F.dropout(x, (x[0] * 0).item()), "data_dependent_guard"),
    "complex": (lambda x: (x.max().item() * 1j, x + 1), "data_dependent_guard"),
    "fraction_power": (lambda x: (abs(x.sum().item()) ** 0.5, x + 1), "data_dependent_guard"),
    "method": (lambda x: (x.sum().item().is_integer(), x + 1), "data_dependent_guard"),
    "member": (lambda x: (x.sum().item() in (1.0, 2.0), x + 1), "data_dependent_branch"),
    "sorted": (lambda x: (sorted(x.tolist()), x + 1), "data_dependent_branch"),
    "many": (lambda x: (x.sum().expand(100).tolist(), x + 1), "tensor_to_python"),
}


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("name", BREAKS)
def test_what_needs_the_value_breaks(name: str, backend: str) -> None:
    fn, kind = BREAKS[name]
    with pytest.raises(dynamo_lite.exc.Unsupported) as error:
        dynamo_lite.compile(fn, backend=backend, fullgraph=True)(torch.randn(4))
    assert error.value.kind == kind
    compiled = dynamo_lite.compile(fn, backend=backend)
    for seed in range(4):
        x = arguments(seed)[0]
        assert same(fn(x), compiled(x))


def test_without_the_option_the_break_names_it() -> None:
    plain = config.patch(capture_scalar_outputs=False, capture_with_fullgraph=False)
    with plain, pytest.raises(dynamo_lite.exc.Unsupported) as error:
        dynamo_lite.compile(lambda x: x * x.sum().item(), backend="eager", fullgraph=True)(torch.randn(4))
    assert error.value.kind == "tensor_to_python"
    assert "capture_scalar_outputs" in str(error.value)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_an_error_of_the_arithmetic_is_the_programs(backend: str) -> None:
    seen: list[str] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        seen.append("entered")
        try:
            factor = 1 / x.sum().item()
        except ZeroDivisionError:
            factor = -1.0
        return x + factor

    compiled = dynamo_lite.compile(fn, backend=backend)
    for x in (torch.ones(4), torch.zeros(4), torch.ones(4)):
        got = compiled(x)
        assert seen == ["entered"]
        seen.clear()
        assert same(got, fn(x))
        seen.clear()


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_order_with_writes(backend: str) -> None:
    def fn(x: torch.Tensor, state: torch.Tensor) -> tuple[Any, ...]:
        before = state.sum().item()
        state.add_(x.sum().item())
        state.mul_(2)
        after = state.sum().item()
        return before, after, state * after, x - before

    counting = Counting(backend)
    compiled = dynamo_lite.compile(fn, backend=counting, fullgraph=True)
    for seed in range(3):
        x = arguments(seed)[0]
        mine, theirs = torch.ones(3), torch.ones(3)
        assert same(fn(x, theirs), compiled(x, mine))
        assert torch.allclose(mine, theirs)
    assert len(counting.graphs) == 1


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_stored_in_objects_and_closures(backend: str) -> None:
    class Tracker(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.history: list[float] = []
            self.last = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            loss = (x * x).mean()
            self.history.append(loss.item())
            self.last = loss.item()
            return loss * 2

    mine, theirs = Tracker(), Tracker()
    counting = Counting(backend)
    compiled = dynamo_lite.compile(mine, backend=counting)
    for seed in range(6):
        x = arguments(seed)[0]
        assert same(theirs(x), compiled(x))
    assert same(theirs.history, mine.history)
    assert same(theirs.last, mine.last)
    assert all(type(v) is float for v in mine.history)


def test_the_graph_names_the_number() -> None:
    counting = Counting("eager")
    dynamo_lite.compile(ONE_GRAPH["mul_add"], backend=counting)(*arguments(0))
    text = counting.graphs[0].print_readable(False)
    assert ".item()" in text
    assert [n.target for n in counting.graphs[0].graph.nodes if n.op == "call_method"] == ["sum", "item"]


def test_random_numbers_keep_their_order() -> None:
    def fn(x: torch.Tensor) -> tuple[Any, ...]:
        a = torch.rand(4)
        scale = a.sum().item()
        b = torch.rand(4) * scale
        return a, b, F.dropout(x, 0.5) * b.max().item()

    compiled = dynamo_lite.compile(fn, fullgraph=True)
    x = torch.randn(4)
    for seed in range(2):
        torch.manual_seed(seed)
        expected = fn(x)
        torch.manual_seed(seed)
        assert same(expected, compiled(x))


# ---------------------------------------------------------------- numbers that have changed, by which nothing is kept
WHOLE = "y.to(torch.int64)"
UNUSED = [
    f"t = {WHOLE} // n", f"t = {WHOLE} % n", f"t = torch.fmod({WHOLE}, n)", f"t = torch.remainder({WHOLE}, n)",
    f"t = torch.div({WHOLE}, n, rounding_mode='trunc')", f"t = {WHOLE}.floor_divide_(n)", f"t = {WHOLE} // (2 * n)",
    f"t = {WHOLE} ** (n - 1)", f"t = {WHOLE}.pow(n - 1)", f"t = 5 // ({WHOLE} * n)", "t = torch.tensor(3) % n",
    "t = y[n - 3]", "t = y.to(torch.int8) + n * 10**30", f"y.mul_(2); t = {WHOLE} // n",
]


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("unused", UNUSED)
def test_an_unused_operation_with_a_number_that_changes_raises(unused, backend):
    scope = {"torch": torch}
    exec(f"def f(y, n):\n    {unused}\n    return y + 1", scope)
    compiled = dynamo_lite.compile(scope["f"], backend=backend)

    def run(fn, n):
        y = torch.full((3,), 3.0)
        try:
            return fn(y, n).tolist(), y.tolist()
        except Exception as error:
            return type(error), str(error), y.tolist()

    for n in (1, 1, 2, 2, 0, 3, 0):
        assert run(compiled, n) == run(scope["f"], n)


class Three(enum.IntEnum):
    THREE = 3


class Half(float, enum.Enum):
    HALF = 1.5


class Own(float):
    pass


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_numbers_of_derived_classes_compare_by_value(backend: str) -> None:
    def fn(x: torch.Tensor, n: float) -> tuple[object, ...]:
        at = x.argmax().item()
        return (at == Three.THREE, at != Three.THREE, Three.THREE == at, at < Three.THREE, at == Own(3), n == Half.HALF,
                Half.HALF != n, n == Own(1.5), n < Own(2.0), x * n)

    compiled = dynamo_lite.compile(fn, backend=backend, fullgraph=True)
    for n in (1.5, 0.5, 1.5, 2.5):
        x = torch.tensor([0.0, 1.0, 2.0, 9.0]) * n
        assert same(compiled(x, n), fn(x, n))
        assert same(compiled(-x, n), fn(-x, n))
