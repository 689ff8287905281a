"""Sizes and numbers that change from call to call: one graph, eager's results, guards on what the program asked."""
import logging
import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import dynamo_lite
from dynamo_lite import config, log


class Counting:
    """A backend that counts graphs and runs them as they are."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, inputs):
        self.graphs.append(gm)
        return gm.forward


def compiled_for(fn, sizes, make, dynamic=True, backend=None):
    counting = Counting()
    compiled = dynamo_lite.compile(fn, backend=backend or counting, dynamic=dynamic)
    for n in sizes:
        args = make(n)
        want, got = fn(*args), compiled(*args)
        for a, b in zip(torch.utils._pytree.tree_leaves(want), torch.utils._pytree.tree_leaves(got), strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b)
                assert a.shape == b.shape and a.stride() == b.stride()
            else:
                assert type(a) is type(b) and a == b
    return len(counting.graphs)


def of_shape(*shape):
    def make(n):
        return (torch.randn([n if s == "n" else 2 * n if s == "2n" else n + 1 if s == "n+1" else s for s in shape]),)

    return make


PROGRAMS = {
    "arithmetic": lambda x: (x * x.shape[0] + x.numel(), x.shape[0] * 2 + 1, 3 - x.size(0), -x.shape[0], x.shape),
    "divisions": lambda x: (x + x.shape[0] // 2, x.shape[0] % 5, divmod(x.shape[0], 3), 100 // x.shape[0]),
    "float": lambda x: (x / x.shape[0], x.shape[0] / 2),
    "views": lambda x: (x.view(-1), x.reshape(x.shape[0] * 4), x.t().reshape(4, -1), x.unsqueeze(1).flatten(0, 1)),
    "slices": lambda x: (x[1:], x[: x.shape[0] - 1], x[-1], x[:, 1:3], x[x.shape[0] // 2 :]),
    "joined": lambda x: (torch.cat([x, x[1:]]), torch.stack([x, x], 1), x.repeat(2, 1), x.expand(3, *x.shape)),
    "made": lambda x: (torch.arange(x.shape[0]), torch.zeros(x.shape[0], 2), torch.ones_like(x), x.new_ones(x.shape)),
    "reductions": lambda x: (x.sum(), x.mean(0), x.softmax(0), x.max(0).values, x.cumsum(0), x.var(1), x.argmax()),
    "products": lambda x: (x @ x.t(), torch.einsum("ij,kj->ik", x, x), x.t() @ x, torch.outer(x[:, 0], x[:, 1])),
    "masks": lambda x: (x.masked_fill(x > 0, 0), torch.tril(x @ x.t()), torch.where(x > 0, x, -x)),
    "compared": lambda x: x * 2 if x.shape[0] > 1 else x,
    "minimum": lambda x: (x[: min(x.shape[0], 100)], max(x.shape[0], 1), abs(x.shape[0]), int(x.shape[0])),
    "unpacked": lambda x: (lambda b, c: x.view(b, c // 2, 2).transpose(0, 1).reshape(c // 2, b * 2))(*x.shape),
    "layers": lambda x: torch.nn.functional.layer_norm(torch.nn.functional.gelu(x), (4,)),
    "split": lambda x: x.chunk(2, 1) + x.split([1, 3], 1) + tuple(x.unbind(1)),
    "in place": lambda x: (x.clone().add_(1).mul_(x.shape[0]), x.clone().zero_()),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*[x[None, None]] * 3),
    "text": lambda x: (x + 1, len(x)),
    "items": lambda x: (x[x.shape[0] - 1], x[x.shape[0] // 2, 1], x[-x.shape[0], ..., None], x[2:][-1]),
    "inner items": lambda x: (x.t()[1, x.shape[0] - 2], x.t()[..., x.shape[0] // 2], x[None, :, None][0, -x.shape[0]]),
    "padding": lambda x: (F.pad(x, (0, x.shape[0])), F.pad(x, (1, 2, x.shape[0], 0))),
    "functions": lambda x: (x / math.sqrt(x.shape[0]), x * math.log(x.shape[0])),
    "powers": lambda x: (x * x.shape[0] ** 0.5, x * x.shape[0] ** -1),
    "floats": lambda x: x * 2 if x.shape[0] > 1.5 and 2.5 <= x.shape[0] < 99.5 and x.shape[0] != 0.5 else x,
}


# Views and copies, and what a library does.
NO_KERNELS = {"items", "inner items", "attention", "minimum", "slices", "split", "views"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_serves_all_sizes(name):
    assert compiled_for(PROGRAMS[name], (5, 3, 8, 17, 6), of_shape("n", 4)) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_serve_all_sizes(name, caplog):
    caplog.set_level("INFO", "dynamo_lite.fallbacks")
    with torch.no_grad():
        compiled_for(PROGRAMS[name], (5, 3, 8, 17, 6), of_shape("n", 4), backend="inductor_lite")
    assert log.counters()["graphs"] == 1
    assert (log.counters().get("kernels", 0) == 0) is (name in NO_KERNELS)
    assert "runs in eager" not in caplog.text
    assert "runs again in plain Python" not in caplog.text


def test_a_branch_on_a_size_has_one_graph_for_each_side():
    def f(x):
        return x * 2 if x.shape[0] > 7 else x - 1

    assert compiled_for(f, (3, 9, 4, 12, 7, 8), of_shape("n", 5)) == 2


def test_a_multiple_is_asked_for_once():
    def f(x):
        return x.view(-1, 8) + 1 if x.shape[0] % 8 == 0 else x - 1

    assert compiled_for(f, (16, 24, 3, 40, 5, 9), of_shape("n")) == 2


def test_sizes_that_are_equal_share_a_symbol_until_they_differ():
    counting = Counting()
    fn = lambda x, y: x.sum() + y.sum()
    compiled = dynamo_lite.compile(fn, backend=counting, dynamic=True)
    for a, b in ((4, 4), (5, 5), (7, 7), (3, 6), (6, 3), (9, 9)):
        x, y = torch.randn(a), torch.randn(b)
        torch.testing.assert_close(compiled(x, y), fn(x, y))
    assert len(counting.graphs) == 2


def test_operands_that_must_agree():
    counting = Counting()
    fn = lambda x, y: x + y
    compiled = dynamo_lite.compile(fn, backend=counting, dynamic=True)
    for n in (4, 5, 9):
        x, y = torch.randn(n, 3), torch.randn(n, 3)
        torch.testing.assert_close(compiled(x, y), fn(x, y))
    assert len(counting.graphs) == 1
    with pytest.raises(RuntimeError, match="must match"):
        compiled(torch.randn(4, 3), torch.randn(5, 3))
    torch.testing.assert_close(compiled(torch.ones(1, 3), torch.ones(5, 3)), torch.full((5, 3), 2.0))


def test_sizes_that_have_changed_become_symbols():
    assert compiled_for(lambda x: x * x.shape[0], (5, 3, 8, 17), of_shape("n", 4), dynamic=None) == 2
    assert compiled_for(lambda x: x * x.shape[0], (5, 3, 8), of_shape("n", 4), dynamic=False) == 3
    with config.patch(automatic_dynamic_sizes=False):
        assert compiled_for(lambda x: x * x.shape[0], (5, 3, 8), of_shape("n", 4), dynamic=None) == 3


def test_marks():
    for mark in (dynamo_lite.mark_dynamic, dynamo_lite.maybe_mark_dynamic):
        def make(n, mark=mark):
            x = torch.randn(n, 4)
            mark(x, 0)
            return (x,)

        assert compiled_for(lambda x: x + 1, (5, 3, 8), make, dynamic=None) == 1

    def static(n):
        x = torch.randn(n, 4)
        dynamo_lite.mark_static(x, 0)
        return (x,)

    assert compiled_for(lambda x: x + 1, (5, 3, 8), static) == 3
    with config.patch(dynamic_sources=("x",)):
        assert compiled_for(lambda x: x + 1, (5, 3, 8), of_shape("n", 4), dynamic=None) == 1


def test_layouts_that_are_not_dense_in_order():
    def f(x):
        return x * 2 + x.shape[1], x.contiguous().view(-1)

    assert compiled_for(f, (5, 3, 8), lambda n: (torch.randn(n, 3).t(),)) == 1
    assert compiled_for(f, (5, 3, 8), lambda n: (torch.randn(2, n, 3).transpose(1, 2)[:, :2],)) == 1
    assert compiled_for(f, (5, 3, 8), lambda n: (torch.randn(40, 3)[:n],)) == 1


def test_a_number_that_passes_a_threshold():
    state, counting = {"step": 0}, Counting()

    def f(x):
        state["step"] += 1
        return x * 2 if state["step"] < 8 else x / state["step"]

    compiled = dynamo_lite.compile(f, backend=counting)
    for i in range(1, 30):
        assert torch.allclose(compiled(torch.ones(2)), torch.ones(2) * 2 if i < 8 else torch.ones(2) / i)
    assert len(counting.graphs) == 3


def test_numbers_as_sizes_and_bounds():
    def f(x, n):
        return torch.zeros(n, 2).sum(0) + x[:n].sum(0), torch.arange(n) * 2, x[n - 1 :], n * 3 - 1

    counting = Counting()
    compiled = dynamo_lite.compile(f, backend=counting)
    x = torch.randn(20, 2)
    for n in (4, 5, 9, 13, 2):
        for a, b in zip(f(x, n), compiled(x, n), strict=True):
            torch.testing.assert_close(a, b)
    assert len(counting.graphs) == 2


def test_sizes_live_across_a_break():
    def f(x):
        n = x.shape[0] * 2
        y = x + n
        dynamo_lite.graph_break()
        return y * n, n

    compiled = dynamo_lite.compile(f, backend="eager", dynamic=True)
    for n in (3, 5, 9, 4):
        x = torch.randn(n, 2)
        want, got = f(x), compiled(x)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1] and type(got[1]) is int
    assert log.counters()["graphs"] == 2


def _sizes_then_data(x):
    n = x.shape[0]
    x.data = torch.ones(2, 2)
    return torch.arange(n), x.shape, x + 1


def _sizes_then_in_place(x):
    n = x.shape[0]
    x.unsqueeze_(0)
    return torch.arange(n), x.shape, x + n


@pytest.mark.parametrize("fn", [_sizes_then_data, _sizes_then_in_place])
def test_sizes_are_those_at_entry(fn):
    counting = Counting()
    compiled = dynamo_lite.compile(fn, backend=counting, dynamic=True)
    for n in (5, 3, 8):
        want, got = fn(torch.ones(n, 4)), compiled(torch.ones(n, 4))
        torch.testing.assert_close(got[::2], want[::2])
        assert got[1] == want[1]
    assert len(counting.graphs) == 1


@torch.library.custom_op("dynamo_lite_tests::row_sums", mutates_args=())
def _row_sums(x: torch.Tensor) -> torch.Tensor:
    return x.sum(1)


@_row_sums.register_fake
def _(x):
    return x.new_empty(int(x.shape[0]))


def test_an_operator_that_needs_a_size_as_such_is_named(caplog):
    caplog.set_level(logging.INFO, "dynamo_lite.fallbacks")
    caplog.set_level(logging.INFO, "dynamo_lite.recompiles")
    assert compiled_for(lambda x: _row_sums(x).abs(), (5, 6), of_shape("n", 4)) == 2
    said = [r.getMessage() for r in caplog.records if r.name == "dynamo_lite.fallbacks"]
    assert len(said) == 2
    assert all("dynamo_lite_tests.row_sums.default, in `" in text and "_row_sums(x)" in text for text in said)
    (again,) = [r.getMessage() for r in caplog.records if r.name == "dynamo_lite.recompiles"]
    assert "x.shape[0] was 5, is 6, because of dynamo_lite_tests.row_sums.default, in `" in again


def _checkpointed(x):
    return checkpoint(lambda y: (y.view(y.shape[0] * 2, 2).sin() * y.shape[0]).reshape(y.shape), x, use_reentrant=False)


def _branches(x, cond=torch.cond):
    n = x.shape[0] * 2
    return cond(x.sum() > 0, lambda x: x.view(-1) * n, lambda x: x.reshape(-1) - n, (x,))


def _plain_branches(x):
    """In plain Python torch.cond calls torch.compile, which patches torch for good."""
    return _branches(x, lambda pred, true_fn, false_fn, operands: true_fn(*operands) if pred else false_fn(*operands))


def _transformed(x):
    n = x.shape[0] * 3
    return torch.func.grad(lambda y: (y.view(y.shape[0] * 2, 2) * n).sin().sum())(x)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("fn, plain", [
    (_checkpointed, _checkpointed), (_branches, _plain_branches), (_transformed, _transformed)])
def test_functions_that_torch_calls_compute_with_sizes(fn, plain, backend):
    compiled = dynamo_lite.compile(fn, backend=backend, dynamic=True)
    for n in (5, 3, 8):
        for sign in (1, -1):
            x, y = (torch.ones(n, 4).mul(sign).requires_grad_() for _ in range(2))
            want, got = plain(x), compiled(y)
            torch.testing.assert_close(got, want)
            if want.requires_grad:
                want.sum().backward()
                got.sum().backward()
                torch.testing.assert_close(y.grad, x.grad)
    assert log.counters()["graphs"] == 1


@pytest.mark.parametrize("limit", [7.5, 8.0])
def test_a_comparison_with_a_float_has_one_graph_for_each_side(limit):
    fns = (lambda x: x * 2 if x.shape[0] < limit else x - 1, lambda x: x * 2 if limit <= x.shape[0] else x - 1,
           lambda x: x * 2 if x.shape[0] == limit else x - 1)
    graphs = [compiled_for(fn, (3, 9, 8, 12, 7), of_shape("n", 5)) for fn in fns]
    # No size is 7.5.
    assert graphs == [2, 2, 1 if limit == 7.5 else 2]


def test_an_index_that_is_none_of_the_dimensions():
    compiled = dynamo_lite.compile(lambda x, y: x[y.shape[0]] + 1, backend="eager", dynamic=True)
    for n, m in ((5, 3), (9, 2), (3, 5), (4, 4), (7, 6)):
        x, y = torch.randn(n, 2), torch.randn(m)
        if m < n:
            torch.testing.assert_close(compiled(x, y), x[m] + 1)
        else:
            with pytest.raises(IndexError, match=f"index {m} is out of bounds for dimension 0 with size {n}"):
                compiled(x, y)


def test_a_comparison_whose_sides_are_numbers_of_any_size():
    """What the limits of such numbers say has to be exact: rounded, they said that the quotient is the larger one."""
    def fn(x, y, n, m):
        i = torch.sym_max((3 - y.shape[0]) % (abs(n) % 7 + 1), abs(m // -(abs(len(x)) % 7 + 1)))
        j = abs(i) % (abs(x.numel()) % 7 + 1) // (abs(x.shape[1] % (abs(i) % 7 + 1)) % 7 + 1)
        return i, j, y.unfold(0, 2, j % 3 + 1)

    with config.patch(capture_scalar_outputs=True):
        compiled = dynamo_lite.compile(fn, backend="eager", dynamic=True)
        for a, b, n, m in ((3, 16, 14, 1), (4, 2, 20, 8), (3, 3, -9, -3), (3, 6, -9, -3), (6, 9, -4, 19)):
            args = torch.zeros(a, b), torch.arange(float(a + b)), n, m
            torch.testing.assert_close(compiled(*args), fn(*args))
