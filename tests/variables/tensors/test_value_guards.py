"""Size tables, whose elements are guarded where Python numbers are made of them, and texts that nobody reads."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config, exc, log
from dynamo_lite.variables.tensors.value_guards import is_worth_its_cost

pytestmark = pytest.mark.usefixtures("guards_alone")


def compiled(fn, backend="eager", **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, **options)


def positions(x, grid):
    """What vision models do: positions from a list, lengths from products, a mask, parts of a sequence."""
    sums = [x[: t * h * w].sum() for t, h, w in grid.tolist()]
    ends = F.pad(torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0]).cumsum(0), (1, 0))
    lengths = (ends[1:] - ends[:-1]).tolist()
    mask = torch.arange(4)[None] < grid[:, 1:2]
    return sums, ends, x[: sum(lengths)].split(lengths), mask.nonzero(), x[:4][mask[0]], ends.max().item()


GRID = torch.tensor([[1, 2, 3], [2, 3, 4]])


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_one_graph_and_the_values_of_eager(backend):
    fn = compiled(positions, backend, fullgraph=True)
    x = torch.randn(30, 5)
    for grid in (GRID, GRID.clone(), torch.tensor([[1, 1, 3], [3, 3, 3]]), GRID):
        torch.testing.assert_close(fn(x, grid), positions(x, grid))
    assert log.counters()["graphs"] == 2


def test_a_table_that_changes_is_not_fixed_for_ever():
    fn = compiled(lambda x, sizes: x[: sizes[0, 0].item()] * 2)
    x = torch.randn(9)
    for n in range(1, 8):
        assert torch.equal(fn(x, torch.tensor([[n, 1]])), x[:n] * 2)
    assert log.counters()["graphs"] <= 8 and "recompile_limit" not in log.counters()


def test_a_changed_table_is_read_again():
    fn = compiled(lambda x, sizes: x[: sizes[0, 1].item()] * 2)
    x, sizes = torch.randn(9), torch.tensor([[1, 2]])
    assert fn(x, sizes).shape == (2,)
    sizes[0, 1] = 5
    assert fn(x, sizes).shape == (5,)


def test_a_table_that_the_program_changes():
    def f(x, sizes):
        sizes[0, 1] += 1
        n = sizes[0, 1].item()
        sizes.mul_(2)
        return x[:n], x[: sizes.sum().item()]

    x = torch.randn(20)
    for fullgraph in (True, False):
        fn = compiled(f, fullgraph=fullgraph)
        for start in ([[1, 2]], [[1, 2]], [[2, 3]]):
            a, b = torch.tensor(start), torch.tensor(start)
            torch.testing.assert_close(fn(x, a), f(x, b))
            assert torch.equal(a, b)


def test_views_of_a_table_see_its_changes():
    def f(x, sizes):
        row = sizes[0]
        first = row[0].item()
        row[0] = 4
        return x[:first], x[: sizes[0, 0].item()]

    x = torch.randn(9)
    fn = compiled(f, fullgraph=True)
    torch.testing.assert_close(fn(x, torch.tensor([[2, 3]])), f(x, torch.tensor([[2, 3]])))


def test_what_is_computed_from_other_tensors_breaks():
    def f(x, sizes):
        return x[: (sizes[0, 0] + x.argmax()).item()]

    x = torch.arange(5.0)
    with pytest.raises(exc.Unsupported, match="tensor_to_python"):
        compiled(f, fullgraph=True)(x, GRID)
    assert torch.equal(compiled(f)(x, GRID), f(x, GRID))


def test_large_tensors_and_floats_are_never_guarded_by_their_elements():
    for given in (torch.zeros(20_000, dtype=torch.long), torch.ones(3), torch.ones(2, dtype=torch.float64)):
        with pytest.raises(exc.Unsupported):
            compiled(lambda x: x.tolist(), fullgraph=True)(given)


def test_a_message_that_nobody_reads():
    def check(condition, message):
        if not condition:
            raise ValueError(message)

    def f(x):
        check(x.shape[0] > 2, f"too few: {x.sum()} of {x.shape}")
        return x + 1

    fn = compiled(f, fullgraph=True)
    x = torch.randn(3)
    assert torch.equal(fn(x), x + 1)
    with pytest.raises(ValueError, match="too few: 1.0 of"):
        compiled(f)(torch.tensor([1.0]))


def test_a_text_that_is_read_has_the_elements_of_its_moment():
    def f(x):
        text = f"first {x[0]}"
        x.add_(1)
        return text.upper(), text, x * 2

    fn = compiled(f)
    a, b = torch.ones(2), torch.ones(2)
    first, second = fn(a), f(b)
    assert first[:2] == second[:2] and torch.equal(first[2], second[2]) and torch.equal(a, b)


def test_the_order_of_a_set_from_outside():
    kinds = {"full", "sliding", "linear"}

    def f(x):
        return {kind: x + i for i, kind in enumerate(kinds)}

    fn = compiled(f, fullgraph=True)
    x = torch.randn(2)
    assert list(fn(x)) == list(f(x)) == list(kinds)
    kinds.discard("full")
    assert list(fn(x)) == list(kinds)
    kinds.add("other")
    assert list(fn(x)) == list(kinds) and log.counters()["graphs"] == 3


def test_masks_of_several_dimensions_and_vectors_made_of_numbers():
    def f(x, grid):
        offsets = torch.empty(grid.size(0), dtype=torch.long)
        offsets[0] = 0
        offsets[1:] = grid.prod(-1).cumsum(0)[:-1]
        ends = torch.tensor([0, *[int(n) for n in grid[:, 1]], 3])
        inside = torch.arange(4)[None] < grid[:, 2:]
        picked = x.view(-1, 5)[:8].view(2, 4, 5)[inside]
        return [torch.arange(o, o + 2) for o in offsets], torch.unique_consecutive(ends), picked

    x = torch.randn(30, 5)
    for backend in ("eager", "inductor_lite"):
        fn = compiled(f, backend, fullgraph=True)
        torch.testing.assert_close(fn(x, GRID), f(x, GRID))
        assert log.counters()["graphs"] == 1


def test_a_check_of_all_elements():
    def f(x):
        torch._check_tensor_all_with(ValueError, x > 0, lambda: f"not positive: {x.min()}")
        return x * 2

    x = torch.ones(3)
    assert torch.equal(compiled(f, fullgraph=True)(x), x * 2)
    fn = compiled(f)
    assert torch.equal(fn(x), x * 2) and "graph_breaks" not in log.counters()
    with pytest.raises(ValueError, match="not positive: -1.0"):
        fn(-x)


class Strided(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("stride", torch.tensor(3), persistent=False)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x, grid):
        extra = -x.size(-1) % self.stride
        x = F.pad(x, (0, extra))
        return x.reshape(-1, self.stride), x[..., grid[0, 1]], x[: grid[1, 0]]


def test_integer_buffers():
    model = Strided()
    x = torch.randn(4, 10)
    for backend in ("eager", "inductor_lite"):
        fn = compiled(model, backend, fullgraph=True)
        torch.testing.assert_close(fn(x, GRID), model(x, GRID))
        assert log.counters()["graphs"] == 1
    model.stride.fill_(5)
    torch.testing.assert_close(fn(x, GRID), model(x, GRID))


def test_a_failing_assertion_raises():
    def f(x):
        torch._assert(x.sum() > 0, "not positive")
        return x * 2

    x = torch.ones(3)
    for backend in ("eager", "inductor_lite"):
        fn = compiled(f, backend)
        assert torch.equal(fn(x), x * 2)
        with pytest.raises(AssertionError, match="not positive"):
            fn(-x)
        assert log.counters()["graphs"] == 1


# ---------------------------------------------------------------- what a guard may cost
def test_the_rule_is_about_costs():
    assert is_worth_its_cost(16384) and not is_worth_its_cost(16385)
    assert is_worth_its_cost(3, of=3 * 512) and not is_worth_its_cost(3, of=3 * 512 - 1)
    assert not is_worth_its_cost(0, of=511)
    assert is_worth_its_cost(3, of=9999, operations=32) and not is_worth_its_cost(3, of=9999, operations=33)
    with config.patch(value_guard_elements=8, value_guard_reduction=1):
        assert is_worth_its_cost(8) and not is_worth_its_cost(9)
        assert is_worth_its_cost(4, of=4) and not is_worth_its_cost(9, of=500)


@pytest.mark.parametrize("setting, graphs", [({}, 1), ({"value_guard_elements": 2}, 2)])
def test_a_table_larger_than_the_setting_breaks(setting, graphs):
    def f(x, lengths):
        return (x + 1).split(lengths.tolist())[0] * 2

    fn, x, lengths = compiled(f), torch.randn(6), torch.tensor([1, 2, 3])
    with config.patch(**setting):
        for _ in range(3):
            torch.testing.assert_close(fn(x, lengths), f(x, lengths))
    assert log.counters()["graphs"] == graphs and log.counters().get("graph_breaks", 0) == graphs - 1


@pytest.mark.parametrize("setting, graphs", [
    ({}, 1), ({"value_guard_elements": 2}, 2), ({"value_guard_operations": 2}, 2),
    ({"value_guard_reduction": 1025}, 2),
])
def test_a_mask_dearer_than_the_settings_breaks(setting, graphs):
    def f(x):
        real = ~(x == 0).flatten(1).all(1)
        return (x[real] + 1).sum()

    fn, x = compiled(f), torch.randn(3, 32, 32)
    x[1] = 0
    with config.patch(**setting):
        for _ in range(3):
            torch.testing.assert_close(fn(x), f(x))
    assert log.counters()["graphs"] == graphs and log.counters().get("graph_breaks", 0) == graphs - 1


def helper(x, lengths):
    total = (x + 1) * len(lengths.flatten().tolist())
    dynamo_lite.graph_break()
    return total * 2


def calls_a_helper(x, lengths):
    return helper(x * 2, lengths + 0).sum()


class Lengths:
    def __init__(self, held):
        self.held = held


def helper_of_an_object(x, lengths):
    total = (x + 1) * len(lengths.held.unique().tolist())
    dynamo_lite.graph_break()
    return total * 2


def calls_it_with_an_object(x, lengths):
    return helper_of_an_object(x * 2, lengths).sum()


def test_what_an_object_holds_is_guarded_in_a_function_behind_a_break():
    fn, x = compiled(calls_it_with_an_object), torch.randn(6)
    lengths = Lengths(torch.arange(12))
    for _ in range(3):
        torch.testing.assert_close(fn(x, lengths), calls_it_with_an_object(x, lengths))
    # In the caller at the call, and in the function where it says so.
    assert "recompiles" not in log.counters() and log.counters()["graph_breaks"] == 2
    lengths.held = torch.zeros(12)
    torch.testing.assert_close(fn(x, lengths), calls_it_with_an_object(x, lengths))


@pytest.mark.parametrize("shape", [(1,), (2, 2), (8,), (12,)])
def test_what_a_function_behind_a_break_is_given_may_change_without_a_compile(shape):
    """The program has most likely computed it, whatever its size."""
    fn, x = compiled(calls_a_helper), torch.randn(6)
    compiles = []
    for n in range(6):
        lengths = torch.arange(torch.Size(shape).numel()).view(shape) // (n + 1)
        torch.testing.assert_close(fn(x, lengths), calls_a_helper(x, lengths))
        compiles.append((log.counters()["graphs"], log.counters().get("recompiles", 0)))
    assert compiles == compiles[-1:] * 6 and compiles[0][1] == 0
