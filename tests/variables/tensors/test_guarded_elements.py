"""Masks, ids and token types from outside that shapes and Python numbers come from: guarded by their elements, once."""
import itertools
import logging

import pytest
import torch

import dynamo_lite
from dynamo_lite import exc, log

pytestmark = pytest.mark.usefixtures("guards_alone")


def compiled(fn, backend="eager", **options):
    dynamo_lite.reset()
    log.reset()
    return dynamo_lite.compile(fn, backend=backend, **options)


def counted(name):
    return log.counters().get(name, 0)


def check(fn, compiled_fn, *args):
    """One call with inputs of its own each; results and what became of the inputs are eager's."""
    mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
    want, got = fn(*theirs), compiled_fn(*mine)
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def picked(x, mask):
    return x[mask] * 2, mask.sum().item()


MASK = torch.tensor([True, False, True, True])


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_a_mask_is_one_graph(backend):
    fn = compiled(picked, backend, fullgraph=True)
    for _ in range(3):
        check(picked, fn, torch.randn(4, 3), MASK)
    assert counted("graphs") == 1 and counted("recompiles") == 0


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_every_type_of_integers(dtype):
    def f(x, mask):
        return x[mask.bool()], mask.tolist(), mask.to(torch.float64).sum().item(), mask.nonzero()

    fn = compiled(f, fullgraph=True)
    check(f, fn, torch.randn(4), MASK.to(dtype))
    check(f, fn, torch.randn(4), MASK.to(dtype))
    assert counted("graphs") == 1
    check(f, fn, torch.randn(4), (~MASK).to(dtype))
    assert counted("graphs") == 2


@pytest.mark.parametrize("mask", [
    torch.tensor(True), torch.tensor(False), torch.zeros(0, dtype=torch.bool), torch.zeros(0, 3, dtype=torch.long),
    torch.zeros(2, 3, dtype=torch.long), torch.tensor([[1, 0, 2]]).expand(2, 3), torch.arange(12).view(3, 4).t(),
    torch.arange(24).view(2, 3, 4)[:, ::2, 1::2], torch.arange(10_000).remainder(7),
], ids=lambda m: f"{list(m.shape)}-{list(m.stride())}")
def test_every_form(mask):
    def f(mask):
        return mask.bool().nonzero(), mask.sum().item(), mask.any().item(), mask.reshape(-1)[:5].tolist()

    fn = compiled(f, fullgraph=True)
    assert_same = torch.testing.assert_close
    for _ in range(2):
        got, want = fn(mask), f(mask)
        assert_same(got, want)
        assert got[0].stride() == want[0].stride()
    assert counted("graphs") <= 1 and counted("recompiles") == 0
    if mask.numel():
        other = (mask == 0).to(mask.dtype)
        assert_same(fn(other), f(other))
        assert counted("graphs") == 2


def test_the_last_element_counts():
    ids = torch.zeros(3, 2000, dtype=torch.long)
    f = lambda ids: ids.max().item() + ids
    fn = compiled(f, fullgraph=True)
    for row, column, value in ((2, 1999, 5), (0, 0, 7), (1, 1000, 9), (2, 1998, 1 << 40)):
        ids[row, column] = value
        assert torch.equal(fn(ids), f(ids))
        assert torch.equal(fn(ids[:, ::3]), f(ids[:, ::3]))


# ---------------------------------------------------------------- changes
def test_changed_in_place_between_calls():
    fn, mask, x = compiled(picked), MASK.clone(), torch.randn(4)
    for place in (0, 1, 1, 3):
        mask[place] = ~mask[place]
        torch.testing.assert_close(fn(x, mask), picked(x, mask))


def test_data_of_another_tensor():
    fn, mask, x = compiled(picked), MASK.clone(), torch.randn(4)
    fn(x, mask)
    mask.data = ~MASK
    torch.testing.assert_close(fn(x, mask), picked(x, mask))
    mask.set_(torch.tensor([True] * 4))
    torch.testing.assert_close(fn(x, mask), picked(x, mask))
    array = mask.numpy()
    array[2] = False
    torch.testing.assert_close(fn(x, mask), picked(x, mask))


def test_masks_that_change_with_every_call_cost_one_compile():
    fn, x = compiled(picked), torch.randn(6)
    masks = [torch.tensor(m) for m in itertools.product([False, True], repeat=6) if sum(m) == 3]
    fn(x, masks[0])
    assert counted("graphs") == 1 and counted("graph_breaks") == 0
    compiles = []
    for mask in masks:
        torch.testing.assert_close(fn(x, mask), picked(x, mask))
        compiles.append(counted("graphs"))
    assert compiles[2:] == compiles[2:3] * (len(masks) - 2) and counted("recompiles") == 1
    torch.testing.assert_close(fn(x, masks[0]), picked(x, masks[0]))
    assert counted("recompiles") == 1


def test_the_first_mask_keeps_its_one_graph():
    def helper(x, mask):
        return x[mask].cumsum(0)

    def f(x, mask):
        return helper(x * 2, mask) + 1

    fn, x = compiled(f), torch.randn(4)
    for mask in (MASK, ~MASK):
        torch.testing.assert_close(fn(x, mask), f(x, mask))
    graphs, breaks = counted("graphs"), counted("graph_breaks")
    for mask in (MASK, MASK, ~MASK, MASK):  # MASK fits the entry of all masks too, but not the sizes after its break
        torch.testing.assert_close(fn(x, mask), f(x, mask))
    assert (counted("graphs"), counted("graph_breaks")) == (graphs, breaks) and counted("recompiles") == 1


def test_the_break_says_why(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.graph_breaks")
    fn, x = compiled(picked), torch.randn(4)
    fn(x, MASK)
    assert not caplog.records
    fn(x, ~MASK)
    said = caplog.records[0].getMessage()
    assert "the elements of mask matter" in said and "change from call to call" in said and "x[mask] * 2" in said


def positions(x, mask):
    out = torch.zeros_like(x)
    for row in range(mask.shape[0]):
        part = x[row][mask[row]]
        out[row, : len(part)] = part.flip(0)
    return out


def outer(x, mask):
    y = x + 1
    first = positions(y, mask)
    n = int(mask.sum())
    return first * n, positions(first, mask)


def test_functions_that_are_called_are_told_as_well():
    fn, x = compiled(outer), torch.randn(2, 4)
    masks = [torch.tensor([m[:4], m[4:]]) for m in itertools.product([False, True], repeat=8) if sum(m) == 4]
    masks = [m for m in masks if m.sum(1).tolist() == [2, 2]][:20]
    graphs = []
    for mask in masks:
        torch.testing.assert_close(fn(x, mask), outer(x, mask))
        graphs.append(counted("graphs"))
    assert graphs[0] == 1 and graphs[3:] == graphs[-1:] * (len(graphs) - 3)


def test_what_a_break_leaves_is_computed_by_the_program():
    def f(x, mask):
        kept = (x > 0).nonzero().flatten()
        total = torch.zeros(())
        for index in kept:
            total = total + x[index] * 2
        return total, x[mask]

    fn = compiled(f)
    for n in range(6):
        x = torch.randn(6)
        x[:3] = x[:3].abs() * (1 if n % 2 else -1)
        x[3:] = -x[:3]
        torch.testing.assert_close(fn(x, torch.arange(6) > 2), f(x, torch.arange(6) > 2))
        if n == 1:
            graphs = counted("graphs")
    assert counted("graphs") == graphs


def test_whole_graphs_are_made_for_each_mask():
    fn, x = compiled(picked, fullgraph=True), torch.randn(4)
    for mask in (MASK, ~MASK, MASK, ~MASK):
        torch.testing.assert_close(fn(x, mask), picked(x, mask))
    assert counted("graphs") == 2


def test_another_tensor_beside_it_stays_fixed():
    def f(x, sizes, mask):
        return x[: sizes[0].item()].sum(), x[mask].sum()

    fn, x, sizes = compiled(f), torch.randn(4), torch.tensor([2])
    for mask in (MASK, ~MASK, MASK.flip(0), MASK.roll(1)):
        torch.testing.assert_close(fn(x, sizes, mask), f(x, sizes, mask))
    assert counted("recompiles") == 1
    torch.testing.assert_close(fn(x, torch.tensor([3]), MASK), f(x, torch.tensor([3]), MASK))


# ---------------------------------------------------------------- changes inside
def writes(x, mask):
    mask[0] = ~mask[0]
    first = x[mask]
    mask.logical_not_()
    return first, x[mask], mask.sum().item()


def writes_unknown(x, mask):
    before = mask.sum().item()
    mask[1:] = x[1:] > 0
    return x[:before], mask.any(), mask


def through_a_view(x, mask):
    row = mask[1:]
    n = row.sum().item()
    row.fill_(True)
    return x[:n], x[mask], x[: mask.sum().item()]


def out_argument(x, mask):
    n = mask.sum().item()
    torch.logical_not(mask, out=mask)
    return x[:n], x[: mask.sum().item()]


@pytest.mark.parametrize("f", [writes, writes_unknown, through_a_view, out_argument])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_masks_that_the_program_writes_to(f, fullgraph, backend):
    fn = compiled(f, backend, fullgraph=fullgraph)
    for mask in (MASK, MASK, ~MASK, MASK.roll(1)):
        check(f, fn, torch.tensor([1.0, -1.0, 2.0, -3.0]), mask)


def aliases(x, mask, other):
    n = mask.sum().item()
    other.fill_(1)
    return x[:n], x[: mask.sum().item()], x[mask.bool()]


def test_two_inputs_in_the_same_memory():
    for make in (lambda t: (t, t), lambda t: (t, t.view(4)), lambda t: (t, t[1:]), lambda t: (t[:3], t[1:]),
                 lambda t: (t, t.view(torch.uint8)), lambda t: (t, torch.from_numpy(t.numpy()))):
        for order in (1, -1):
            fn, x = compiled(aliases), torch.randn(4)
            for values in ([1, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1]):
                a, b = torch.tensor(values, dtype=torch.int8), torch.tensor(values, dtype=torch.int8)
                mine, theirs = make(a)[::order], make(b)[::order]
                args = [x[: mine[0].numel()]]
                torch.testing.assert_close(fn(*args, *mine), aliases(*args, *theirs))
                assert torch.equal(a, b)


def test_an_alias_that_is_met_after_a_write():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mask = torch.tensor([1, 0, 1, 0])
            self.view = self.mask[1:]

        def forward(self, x):
            self.mask.add_(1)
            return x[: self.view.sum().item()], x[: self.mask.sum().item()]

    for fullgraph in (False, True):
        mine, theirs, x = Model(), Model(), torch.randn(30)
        fn = compiled(mine, fullgraph=False)
        for _ in range(4):
            torch.testing.assert_close(fn(x), theirs(x))
            assert torch.equal(mine.mask, theirs.mask)


# ---------------------------------------------------------------- around it
def test_data_that_requires_grad_next_to_it():
    def f(x, mask, index):
        return (x[mask] * 2).sum() + x[index[: mask.sum().item()]].sum()

    for backend in ("eager", "inductor_lite"):
        fn, index = compiled(f, backend, fullgraph=True), torch.tensor([3, 1, 2, 0])
        for mask in (MASK, ~MASK):
            a, b = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
            fn(a, mask, index).backward()
            f(b, mask, index).backward()
            assert torch.equal(a.grad, b.grad)


def test_floats_are_never_guarded():
    def f(x):
        return x[x > 0].sum(), x.sum().item()

    x = torch.tensor([1.0, -1.0])
    with pytest.raises(exc.Unsupported, match="dynamic_output_shape"):
        compiled(f, fullgraph=True)(x)
    with pytest.raises(exc.Unsupported, match="dynamic_output_shape"):
        compiled(lambda x, m: x[(x > 0) & m], fullgraph=True)(x, torch.tensor([True, False]))
    with pytest.raises(exc.Unsupported, match="dynamic_output_shape"):
        compiled(lambda x, m: x[(torch.rand(2) > 0.5) & m], fullgraph=True)(x, torch.tensor([True, False]))
    fn = compiled(lambda x, m: x[(torch.rand(2) > 0.5) & m])
    for mask in ([True, False], [False, True], [True, True]):
        fn(x, torch.tensor(mask))
    assert counted("recompiles") == 0


def test_large_tensors_break():
    fn, mask = compiled(picked), torch.ones(20_000, dtype=torch.bool)
    check(picked, fn, torch.randn(20_000), mask)
    assert counted("graph_breaks") >= 1
    check(picked, fn, torch.randn(20_000), ~mask)


def test_a_check_that_only_raises_guards_nothing():
    def f(x, ids):
        if (ids < 0).any():
            raise ValueError("negative")
        return x[ids]

    fn, x = compiled(f, fullgraph=True), torch.randn(5)
    for ids in ([0, 1], [2, 3], [4, 4]):
        torch.testing.assert_close(fn(x, torch.tensor(ids)), f(x, torch.tensor(ids)))
    assert counted("graphs") == 1
    with pytest.raises(ValueError, match="negative"):
        fn(x, torch.tensor([0, -1]))


def test_a_batch_has_no_known_elements():
    def f(x, sizes):
        n = sizes.sum().item()
        return torch.vmap(lambda row, size: row * size)(x, sizes) + n

    fn, x, sizes = compiled(f), torch.randn(3, 2), torch.tensor([1, 2, 3])
    torch.testing.assert_close(fn(x, sizes), f(x, sizes))

    def g(x, mask):
        n = mask.sum().item()
        return torch.vmap(lambda row, m: torch.where(m.any(), row, -row))(x, mask), n

    mask = torch.tensor([[True, False], [False, False], [True, True]])
    fn = compiled(g)
    torch.testing.assert_close(fn(x, mask), g(x, mask))


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask):
        ctx.mask = mask
        return x * mask.sum().item()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.mask, None


def test_a_backward_sees_the_elements_of_its_time():
    results = []
    for run in (Masked.apply, compiled(lambda x, m: Masked.apply(x, m))):
        for start in (MASK, ~MASK):
            x, mask = torch.ones(4, requires_grad=True), start.clone()
            y = run(x, mask)
            mask.logical_not_()
            y.sum().backward()
            results.append(x.grad)
    assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[3])


def test_tensors_made_of_elements():
    def f(x, grid, ids):
        at, ends = 0, []
        for row in grid:
            at = at + row[0] * row[1]
            ends.append(at)
        made = torch.tensor(ends), torch.tensor([ids[0], 2.5]), torch.tensor([[ids[0]], [ids[1]]], dtype=torch.int8)
        return made, [0] * grid[0, 1], [made[0].dtype, made[1].dtype], x[: grid[0, 0] : ids[1]]

    fn = compiled(f, fullgraph=True)
    for grid in ([[2, 3], [1, 1]], [[3, 1], [2, 2]]):
        args = torch.randn(5), torch.tensor(grid), torch.tensor([4, 2], dtype=torch.int32)
        got, want = fn(*args), f(*args)
        torch.testing.assert_close(got[0], want[0])
        assert got[1:3] == want[1:3] and torch.equal(got[3], want[3])
    assert counted("graphs") == 2


def test_what_vision_language_models_do():
    def f(ids, kinds, mask, grid):
        places = torch.ones(3, *ids.shape, dtype=ids.dtype)
        deltas = []
        for i, row in enumerate(ids):
            row, kind = row[mask[i].bool()], kinds[i][mask[i].bool()]
            groups = [(k, list(g)) for k, g in itertools.groupby(enumerate(kind.tolist()), lambda pair: pair[1])]
            at, parts, grids = 0, [], iter(grid)
            for k, g in groups:
                if k == 0:
                    parts.append(torch.arange(len(g)).view(1, -1).expand(3, -1) + at)
                    at += len(g)
                else:
                    t, h, w = next(grids)
                    parts.append(torch.stack([torch.arange(t * h * w)] * 3) + at)
                    at += max(h, w)
            every = torch.cat(parts, 1)
            places[:, i, mask[i].bool()] = every
            deltas.append(every.max() + 1 - len(row))
        return places, torch.tensor(deltas).unsqueeze(1)

    ids, grid = torch.arange(16).view(2, 8), torch.tensor([[1, 2, 2]])
    kinds = torch.tensor([[0, 0, 1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0, 0, 0]])
    mask = torch.tensor([[1] * 8, [1] * 7 + [0]])
    for backend in ("eager", "inductor_lite"):
        fn = compiled(f, backend, fullgraph=True)
        for _ in range(2):
            check(f, fn, ids, kinds, mask, grid)
        assert counted("graphs") == 1


def test_sizes_of_large_results():
    def f(x, sizes):
        made = x.new_zeros((sizes[0], sizes[1], 600))
        made[..., : sizes[0]] = x[0, 0]
        mask = torch.ones(1, dtype=torch.bool).expand(int(sizes[0]), 700, 600)
        return made, torch.full((sizes[0] * 400, 400), 2), mask.nonzero()[-1]

    x = torch.randn(3, 3)
    for backend in ("eager", "inductor_lite"):
        fn = compiled(f, backend)
        for sizes in ([2, 600], [2, 600], [1, 700]):
            torch.testing.assert_close(fn(x, torch.tensor(sizes)), f(x, torch.tensor(sizes)))
