"""Sums over rows, a result for each column: blocks of columns, and one row times a matrix whose rows lie in memory."""

import new_process
import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

pytestmark = pytest.mark.by_turns(3)

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
CLOSE = {torch.float32: (1e-5, 2e-5), torch.float64: (1e-12, 1e-12), torch.bfloat16: (2e-2, 2e-2),
         torch.float16: (3e-3, 3e-3)}


def in_blocks(build, fn, *inputs):
    """Whether a program's kernel sums up blocks of columns."""
    return "for_groups" in build(fn, list(inputs)).program.source.split("KERNEL")[-1]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(17, 9), (33, 64), (100, 3000), (1000, 41), (40, 3, 130), (16, 50), (530, 4100)])
def test_sums_over_rows(check_many, dtype, shape):
    torch.manual_seed(0)
    x = torch.randn(shape).to(dtype)
    w = torch.randn(shape[-1]).to(dtype)
    every = tuple(range(len(shape) - 1))
    cases = [
        ("sum", lambda x, w: x.sum(every), [x, w]),
        ("kept", lambda x, w: x.sum(0, keepdim=True) * 2, [x, w]),
        ("squares", lambda x, w: (x * x).mean(every), [x, w]),
        ("what depends on the column", lambda x, w: (x * w).sum(every) + w, [x, w]),
        ("dear, and stored", lambda x, w: (x.sigmoid(), x.sigmoid().sum(every)), [x, w]),
        ("two sums", lambda x, w: (x.sum(every), (x * x).sum(every)), [x, w]),
        ("a function of the column", lambda x, w: (x * w.exp().log1p()).sum(every), [x, w]),
        ("a part", lambda x, w: x[..., 1:-3].sum(every) - w[1:-3], [x, w]),
        ("transposed", lambda x, w: x.transpose(0, -1).sum(-1), [x, w]),
    ]
    check_many(cases, tolerance=CLOSE)


def test_special_values_of_sums_over_rows(check_many):
    x = torch.zeros(40, 21)
    x[:, 0] = -0.0
    x[3, 1], x[4, 2], x[5, 3], x[6, 3] = float("nan"), float("inf"), float("inf"), -float("inf")
    check_many([("sum", lambda x: (x.sum(0), torch.signbit(x.sum(0))), [x])], tolerance={})


def test_kernels_that_sum_up_blocks(build, in_cpp):
    x, g = torch.randn(64, 300), torch.randn(64, 300)
    assert in_blocks(build, lambda x: x.sum(0), x)
    assert in_blocks(build, lambda x, g: (x.tanh() * g, (x.tanh() * g).sum(0)), x, g)
    assert not in_blocks(build, lambda x: x.sum(1), x)
    assert not in_blocks(build, lambda x: x.amax(0), x)
    assert not in_blocks(build, lambda x: x[:8].sum(0), x)  # no cascade


def test_gradients_of_parameters():
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(nn.Linear(45, 77), nn.GELU(), nn.LayerNorm(77), nn.Linear(77, 9))
    x = torch.randn(60, 45)
    compiled = dynamo_lite.compile(module)
    found = []
    for f in (module, compiled):
        module.zero_grad()
        f(x).square().sum().backward()
        found.append([p.grad.clone() for p in module.parameters()])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_sizes_that_change():
    compiled = dynamo_lite.compile(lambda x, w: ((x * w).sum(0), x.exp().sum(0)), dynamic=True)
    for rows, columns in ((5, 7), (40, 300), (16, 5000), (100, 33)):
        x, w = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(compiled(x, w), ((x * w).sum(0), x.exp().sum(0)), rtol=1e-5, atol=1e-4)
    assert dynamo_lite.metrics()["graphs"] == 1


PRODUCTS = [(1, 768, 2304), (1, 64, 192), (1, 65, 17), (1, 8, 8), (1, 300, 5001), (1, 9, 4096), (1, 2000, 12)]


@pytest.mark.parametrize("sizes", PRODUCTS, ids=str)
def test_one_row_times_a_matrix_in_rows(check_many, sizes):
    lines, depth, columns = sizes
    torch.manual_seed(0)
    x, w, b = torch.randn(lines, depth), torch.randn(depth, columns), torch.randn(columns)
    far = torch.randn(depth, columns + 3)[:, 1:-2]
    apart = torch.randn(depth, lines).t()
    scale = 1e-6 * depth ** 0.5
    cases = [
        ("mm", lambda x, w, b: x @ w, [x, w, b]),
        ("addmm", lambda x, w, b: torch.addmm(b, x, w), [x, w, b]),
        ("scaled", lambda x, w, b: torch.addmm(b, x, w, beta=0.5, alpha=-2), [x, w, b]),
        ("gelu", lambda x, w, b: F.gelu(torch.addmm(b, x * 2, w)) + 1, [x, w, b]),
        ("lines apart", lambda x, w, b: x @ w + b, [x, far, b]),
        ("columns", lambda x, w, b: x @ w + b, [apart, w, b]),
        ("a view", lambda x, w, b: torch.addmm(b, x.view(-1, depth), w).view(1, 1, columns), [x[None], w, b]),
    ]
    check_many(cases, tolerance={torch.float32: (1e-5, 20 * scale)}, library=())


def test_special_values_of_one_row(check_many):
    x, w = torch.ones(1, 40), torch.ones(40, 24)
    inf = float("inf")
    x[0, 3], w[3, 5], w[3, 6], w[8, 7], w[9, 7], w[4, 8] = 0.0, inf, float("nan"), inf, -inf, 3e38
    check_many([("mm", lambda x, w: x @ w, [x, w])], tolerance={})


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_one_row_of_other_types_is_the_librarys(dtype):
    x, w = torch.randn(1, 64).to(dtype), torch.randn(64, 40).to(dtype)
    assert torch.equal(dynamo_lite.compile(lambda x, w: x @ w)(x, w), x @ w)


def test_the_same_bits_for_any_number_of_threads():
    program = """
import sys, torch
torch.set_num_threads(int(sys.argv[1]))
import dynamo_lite, hashlib
torch.manual_seed(0)
x, w, y = torch.randn(1, 1000), torch.randn(1000, 3007), torch.randn(700, 2501)
def f(x, w, y):
    return x @ w, y.sum(0), (y.sigmoid(), y.sigmoid().sum(0))
a, b, (c, d) = dynamo_lite.compile(f)(x, w, y)
print(hashlib.sha256(b"".join(t.numpy().tobytes() for t in (a, b, c, d))).hexdigest())
"""
    found = set()
    for threads in (1, 2, 3, 8):
        done = new_process.run(program, threads)
        assert done.returncode == 0, done.stderr
        found.add(done.stdout.strip())
    assert len(found) == 1


def test_widths_of_kernels_that_share_their_text(check_many):
    x = [torch.randn(64, n) for n in (40, 60, 300, 1000, 3000, 9000)]
    check_many([(str(y.shape), lambda y: y.sum(0) * 2, [y]) for y in x], tolerance=CLOSE)
