"""Matrix products by the template: values against eager in double, fusion behind them, odd sizes and strides."""
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

R = torch.randn


def check(fn, *args, kernels=None, library=0, dynamic=None):
    """``fn`` compiled is as near to the result in double as eager, has eager's strides, and takes so many kernels."""
    torch.manual_seed(0)
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        got, want = dynamo_lite.compile(fn, dynamic=dynamic)(*args), fn(*args)
        exact = fn(*[a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args])
    assert got.stride() == want.stride() and got.dtype is want.dtype
    error, theirs = ((x - exact).abs().max().item() for x in (got, want))
    assert error <= 3 * theirs + 1e-6, (error, theirs)
    metrics = dynamo_lite.metrics()
    assert sum(metrics["library_calls"].values()) == library, metrics["library_calls"]
    if kernels is not None:
        assert metrics["kernels"] == kernels


@pytest.mark.parametrize("simd", ["avx512", "avx2", "scalar"])
@pytest.mark.parametrize("m,k,n", [(128, 768, 96), (13, 50, 77), (8, 9, 8), (200, 1500, 64), (65, 33, 49), (48, 64, 6)])
def test_linear_at_odd_sizes(simd, m, k, n):
    with dynamo_lite.config.patch(cpp_simd=simd):
        check(lambda x, w, b: F.gelu(F.linear(x, w, b)), R(m, k), R(n, k), R(n), kernels=1 if n >= 8 else None,
              library=n < 8)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_the_number_of_threads(threads):
    x, w, b = R(130, 300), R(250, 300), R(250)
    compiled = dynamo_lite.compile(lambda x, w, b: F.linear(x, w, b).relu())
    with torch.no_grad():
        before = torch.get_num_threads()
        want = compiled(x, w, b)
        try:
            torch.set_num_threads(threads)
            assert torch.equal(compiled(x, w, b), want)
        finally:
            torch.set_num_threads(before)


PRODUCTS = {
    "linear of three dims, gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)) + 1, R(2, 64, 70), R(30, 70), R(30)),
    "residual": (lambda x, w, b, y: F.linear(x, w, b) + y, R(2, 64, 68), R(68, 68), R(68), R(2, 64, 68)),
    "residual that is also multiplied": (lambda x, w: F.linear(x, w) + x, R(2, 64, 68), R(68, 68)),
    "mm": (lambda x, y: (x @ y).relu(), R(100, 70), R(70, 90)),
    "mm, first transposed": (lambda x, y: x.t() @ y, R(70, 100), R(70, 90)),
    "mm, second transposed": (lambda x, y: x @ y.t(), R(100, 70), R(90, 70)),
    "mm, both transposed": (lambda x, y: x.t() @ y.t(), R(70, 100), R(90, 70)),
    "bmm": (lambda x, y: torch.bmm(x, y) * 2, R(5, 30, 70), R(5, 70, 33)),
    "bmm, transposed": (lambda x, y: torch.bmm(x, y.transpose(1, 2)) * 2, R(5, 30, 70), R(5, 33, 70)),
    "bmm, one for all": (lambda x, y: torch.bmm(x, y.expand(5, 70, 33)), R(5, 30, 70), R(70, 33)),
    "addmm": (lambda a, x, y: torch.addmm(a, x, y, beta=0.5, alpha=2), R(90), R(100, 70), R(70, 90)),
    "addmm, transposed": (lambda a, x, y: torch.addmm(a, x, y.t()), R(90), R(100, 70), R(90, 70)),
    "every other column": (lambda x, w: F.linear(x[:, ::2], w), R(128, 90), R(64, 45)),
    "slices": (lambda x, w: F.linear(x[:, 3:40], w[:, 3:40]), R(128, 90), R(64, 45)),
    "into heads": (lambda x, w: F.linear(x, w).view(2, 64, 3, 20).transpose(1, 2) + 1, R(2, 64, 68), R(60, 68)),
    "into heads, contiguous": (
        lambda x, w: F.linear(x, w).view(2, 64, 3, 20).transpose(1, 2).contiguous(), R(2, 64, 68), R(60, 68)),
    "gated": (lambda x, w, v: F.silu(F.linear(x, w)) * F.linear(x, v), R(64, 52), R(130, 52), R(130, 52)),
    "by column": (lambda x, w, v: F.linear(x, w) * v, R(64, 52), R(130, 52), R(64, 1)),
    "a sum over the result": (lambda x, w: F.linear(x, w).sum(-1), R(64, 52), R(130, 52)),
    "used twice": (lambda x, w: F.linear(x, w).exp() + F.linear(x, w).softmax(-1), R(64, 52), R(130, 52) / 50),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name):
    check(*PRODUCTS[name])


def test_beta_zero_ignores_what_it_scales():
    nan = torch.full((5, 30, 33), float("nan"))
    check(lambda a, x, y: torch.baddbmm(a, x, y, beta=0, alpha=0.1), nan, R(5, 30, 70), R(5, 70, 33))


def test_what_follows_is_computed_on_the_tiles():
    check(lambda x, w, b, y: F.gelu(F.linear(x, w, b)) * 0.5 + y, R(64, 70), R(90, 70), R(90), R(64, 90), kernels=1)
    check(lambda x, w: F.linear(x, w).softmax(-1), R(64, 70), R(90, 70), kernels=2)


def test_what_follows_takes_the_lines_apart():
    """As linear layers of three dims are recorded where gradients are wanted."""
    x, w, b = R(6 * 20, 40), R(24, 40), R(24)
    check(lambda x, w, b: F.gelu(torch.addmm(b, x, w.t()).view(6, 20, 24)), x, w, b, kernels=1)
    check(lambda x, w, b, p: torch.addmm(b, x, w.t()).view(6, 20, 24).relu() + p, x, w, b, R(20, 24), kernels=1)
    check(lambda x, w, b, p: torch.addmm(b, x, w.t()).view(6, 4, 5, 24).tanh() * p, x, w, b, R(4, 1, 1), kernels=1)
    # Heads: the columns of a line are taken apart, and are neighbours still.
    check(lambda x, w, p: (x @ w.t()).view(6, 20, 3, 8) * p, x, w, R(3, 8), kernels=1)
    check(lambda x, w, p: (x @ w.t()).view(6, 20, 3, 8).transpose(1, 2) * p, x, w, R(3, 1, 1))
    check(lambda x, w: (torch.bmm(x, w).view(2, 3, 20, 24) * 2).relu(), R(6, 20, 40), R(6, 40, 24), kernels=1)


def test_what_follows_takes_symbolic_lines_apart():
    w, b = R(24, 40), R(24)

    def fn(x, w, b, p):
        return F.gelu(torch.addmm(b, x.flatten(0, 1), w.t()).view(x.shape[0], x.shape[1], 24)) + p

    compiled = dynamo_lite.compile(fn, dynamic=True)
    dynamo_lite.reset_metrics()
    for shape in ((6, 20), (20, 6), (3, 31), (33, 2)):
        x, p = R(*shape, 40), R(shape[1], 24)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, w, b, p), fn(x, w, b, p))
    assert dynamo_lite.metrics()["kernels"] == 1 and dynamo_lite.metrics()["graphs"] == 1


def test_training_steps_have_activations_on_the_tiles():
    model = torch.nn.Sequential(torch.nn.Linear(40, 24), torch.nn.GELU(), torch.nn.Linear(24, 40), torch.nn.ReLU())
    compiled, x = dynamo_lite.compile(model), R(6, 20, 40)
    dynamo_lite.reset_metrics()
    compiled(x).sum().backward()
    got = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(x).sum().backward()
    torch.testing.assert_close(got, [p.grad for p in model.parameters()])
    # Nine if what follows the first product, and the product of its gradient, are kernels of their own.
    assert dynamo_lite.metrics()["kernels"] == 7


@pytest.mark.parametrize("batch, lines", [(6, 20), (64, 8), (9, 1), (1, 30), (20, 3), (5, 40)])
def test_a_matrix_that_a_whole_batch_shares_is_one_product(batch, lines):
    x, w, b = R(lines, batch, 40), R(24, 40), R(24)
    # Lines that are not equally far apart: eager makes one product for each entry of the batch of it.
    check(lambda x, w, b: F.linear(x.transpose(0, 1), w, b).relu(), x, w, b)
    check(lambda x, w: torch.bmm(x.transpose(0, 1), w.t().expand(x.shape[1], -1, -1)), x, w)
    check(lambda x, w: torch.bmm(x.transpose(0, 1), (w * 2).t()[None].expand(x.shape[1], -1, -1)), x, w)
    check(lambda x, w: x.transpose(0, 1) @ w.t()[None], x, w)
    compiled = dynamo_lite.compile(lambda x, w: x.transpose(0, 1) @ w.t(), dynamic=True)
    for n in (batch, 7, 9):
        x = R(lines, n, 40)
        torch.testing.assert_close(compiled(x, w), x.transpose(0, 1) @ w.t())


def test_a_changed_weight_is_seen():
    linear = torch.nn.Linear(40, 30)
    compiled = dynamo_lite.compile(linear)
    x = R(20, 40)
    with torch.no_grad():
        compiled(x)
        linear.weight.data[3, 5] += 1.0  # no version counter sees this
        linear.weight.detach().numpy()[7, 2] = 5.0
        assert torch.allclose(compiled(x), linear(x), atol=1e-5)


def test_nothing_to_multiply():
    for m, k, n in ((0, 20, 30), (20, 0, 30), (20, 30, 0), (1, 1, 1), (3, 2, 1)):
        x, w = R(m, k), R(n, k)
        assert torch.equal(dynamo_lite.compile(lambda x, w: F.linear(x, w) + 1)(x, w), F.linear(x, w) + 1)


def test_infinities_and_nans_stay_where_they_are():
    x, w = R(64, 70), R(90, 70)
    x[3, 4], x[5, 6] = float("inf"), float("nan")
    with torch.no_grad():
        got, want = dynamo_lite.compile(lambda x, w: F.linear(x, w) + 0.0)(x, w), F.linear(x, w)
    assert torch.equal(got.isnan(), want.isnan()) and torch.equal(got.isinf(), want.isinf())


@pytest.mark.parametrize("lines", [1, 2, 7])
def test_few_lines(lines):
    check(lambda x, w, b: F.gelu(F.linear(x, w, b)), R(lines, 300), R(90, 300), R(90))
    check(lambda x, w: F.linear(x, w).softmax(-1), R(1, lines, 65), R(33, 65))


@pytest.mark.parametrize("simd", ["avx512", "avx2"])
def test_deep_products_that_threads_share(simd):
    """Sums that are kept between the pieces of a deep operand; the threads' rows are no multiples of the tiles'."""
    x, w, b = torch.randn(131, 1300), torch.randn(259, 1300), torch.randn(259)
    before = torch.get_num_threads()
    dynamo_lite.reset()
    with dynamo_lite.config.patch(cpp_simd=simd), torch.no_grad():
        compiled = dynamo_lite.compile(lambda x, w, b: torch.relu(torch.nn.functional.linear(x, w, b)))
        try:
            torch.set_num_threads(2)
            alone = compiled(x, w, b)
            for threads in (1, 3):
                torch.set_num_threads(threads)
                assert torch.equal(compiled(x, w, b), alone)
        finally:
            torch.set_num_threads(before)
    torch.testing.assert_close(alone, torch.relu(x.double() @ w.double().T + b).float(), rtol=1e-4, atol=1e-4)


def test_a_factor_whose_elements_are_nowhere_neighbours():
    check(lambda x, w: torch.relu(x @ w[:, ::2][::3]), R(20, 30), R(90, 44), kernels=1, library=0)
    check(lambda x, w: torch.relu(x[:, ::2] @ w[:, ::2][::3]), R(20, 60), R(90, 44), kernels=1, library=0)


ALWAYS, NEVER = (dict.fromkeys(("strided_left", "streamed_left", "aliased_left"), cost) for cost in (60.0, 1e-9))
FORMS = {
    "as it stands": (lambda x, y: x @ y + 1, False, False),
    "first transposed": (lambda x, y: x.t() @ y + 1, True, False),
    "second transposed": (lambda x, y: x @ y.t() + 1, False, True),
    "both transposed": (lambda x, y: x.t() @ y.t() + 1, True, True),
}


@pytest.mark.parametrize("simd", ["avx512", "avx2", "scalar"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("m,k,n", [
    (48, 256, 64), (131, 1300, 259), (97, 515, 33), (9, 300, 500), (9, 9, 1037), (50, 257, 18)])
def test_whether_the_left_operand_is_packed_changes_nothing(simd, form, m, k, n):
    """Blocks, pieces and groups with something left over; sums that are kept; a few columns beyond whole vectors."""
    fn, first, second = FORMS[form]
    x, y = R(k, m) if first else R(m, k), R(n, k) if second else R(k, n)
    for left in (ALWAYS, NEVER):
        with dynamo_lite.config.patch(cpp_simd=simd, target=left):
            check(fn, x, y, kernels=1)


@pytest.mark.parametrize("simd", ["avx512", "avx2", "scalar"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("m, k, n", [(9, 300, 700), (131, 1301, 259), (48, 513, 1030), (30, 330, 98)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_right_operands_from_memory_are_prefetched(simd, form, m, k, n, dynamic):
    """Values with a small L2 cache: groups of few panels, shallow pieces, the last ones smaller; decided when the graph
    is compiled, and at the call. What is decided is tested in ``test_threads.py``."""
    fn, first, second = FORMS[form]
    x, y = R(k, m) if first else R(m, k), R(n, k) if second else R(k, n)
    with dynamo_lite.config.patch(cpp_simd=simd, target={**ALWAYS, "l2": 1 << 17}):
        check(fn, x, y, kernels=1, dynamic=dynamic)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("left", [ALWAYS, NEVER], ids=["packed", "where it is"])
def test_packed_products_have_the_same_bits_in_any_number_of_threads(form, left):
    fn, first, second = FORMS[form]
    before = torch.get_num_threads()
    try:
        for m, k, n in ((131, 1300, 259), (700, 270, 100)):
            x, y = R(k, m) if first else R(m, k), R(n, k) if second else R(k, n)
            found = []
            for threads in (1, 2, 3, 8):
                dynamo_lite.reset()
                torch.set_num_threads(threads)
                with dynamo_lite.config.patch(target=left), torch.no_grad():
                    found.append(dynamo_lite.compile(fn)(x, y))
            assert all(torch.equal(found[0], other) for other in found[1:])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("left", [ALWAYS, NEVER], ids=["packed", "where it is"])
@pytest.mark.parametrize("fn, x, y", [
    (lambda x, y: torch.bmm(x.transpose(1, 2), y), R(3, 70, 50), R(3, 70, 33)),
    (lambda x, y: torch.bmm(x.transpose(1, 2), y.transpose(1, 2)), R(3, 600, 50), R(3, 33, 600)),
    (lambda x, y: torch.bmm(x.transpose(1, 2), y.expand(3, 70, 33)), R(3, 70, 50), R(70, 33)),
    (lambda x, y: x[:, ::2].t() @ y[:, 1:], R(90, 101), R(90, 65)),
    (lambda x, y: x[3:, 5:].t() @ y[3:], R(93, 65), R(93, 40)),
    (lambda x, y: (x.t() @ y).t().contiguous(), R(90, 65), R(90, 40)),
])
def test_strided_operands_with_the_left_one_packed(left, fn, x, y):
    with dynamo_lite.config.patch(target=left):
        check(fn, x, y)
        check(lambda *args: fn(*args).relu() * 0.5, x, y)


@pytest.mark.parametrize("left", [ALWAYS, NEVER], ids=["packed", "where it is"])
def test_the_library_decides_for_sizes_that_no_compile_knew(left):
    dynamo_lite.reset()
    with dynamo_lite.config.patch(target=left), torch.no_grad():
        for fn, first, second in FORMS.values():
            compiled = dynamo_lite.compile(fn, dynamic=True)
            for m, k, n in ((20, 30, 40), (131, 1300, 259), (97, 515, 33), (60, 60, 600)):
                x, y = R(k, m) if first else R(m, k), R(n, k) if second else R(k, n)
                exact = fn(x.double(), y.double())
                assert (compiled(x, y) - exact).abs().max() <= 3 * (fn(x, y) - exact).abs().max() + 1e-6
