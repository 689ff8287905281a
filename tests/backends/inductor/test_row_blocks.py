"""Chains of a product, kernels of rows and a second product in one kernel of blocks of rows, compared with eager."""
import math

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.aot.record import record
from dynamo_lite.backends.inductor import pipeline
from dynamo_lite.backends.inductor.lowering import lower
from dynamo_lite.backends.inductor.scheduler import row_blocks, schedule
from dynamo_lite.backends.inductor.scheduler.checker import check_kernel, run_kernel
from dynamo_lite.backends.inductor.scheduler.kernel import Kernel
from dynamo_lite.runtime.storage_extent import storage_extent

pytestmark = pytest.mark.usefixtures("in_cpp")


def R(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed + sum(size)))


def plain(q, k, v):
    return (q @ k.transpose(-1, -2) * q.size(-1) ** -0.5).softmax(-1) @ v


def causal(q, k, v):
    allowed = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return (q @ k.transpose(-1, -2)).masked_fill(~allowed, -math.inf).softmax(-1) @ v


def window(q, k, v):
    i, j = torch.arange(q.size(-2))[:, None], torch.arange(k.size(-2))
    scores = torch.where((i >= j) & (i - j < 70), q @ k.transpose(-1, -2) * 0.3, -math.inf)
    return scores.softmax(-1) @ v


def given(q, k, v, allowed):
    return (q @ k.transpose(-1, -2)).masked_fill(~allowed, -math.inf).softmax(-1) @ v


def added(q, k, v, mask):
    return (q @ k.transpose(-1, -2) * 0.5 + mask).softmax(-1) @ v


def triangle(q, k, v):
    """As in the reference implementations of many models."""
    mask = torch.full((q.size(-2), k.size(-2)), -math.inf).triu(1)
    return ((q @ k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask).softmax(-1) @ v


def safe(q, k, v, allowed):
    """Rows without any score are 0."""
    scores = torch.where(allowed, q @ k.transpose(-1, -2), -math.inf)
    empty = (scores == -math.inf).all(-1, keepdim=True)
    return torch.where(empty, 0.0, scores.softmax(-1)) @ v, torch.where(empty[..., 0], 1.0, scores.logsumexp(-1))


def capped(q, k, v):
    return (20 * torch.tanh(q @ k.transpose(-1, -2) / 20)).softmax(-1) @ v * 2 + 1


def normed(x, a, b, w):
    return F.relu(F.layer_norm(x @ a, (a.size(1),), w)) @ b


def heads(x, w):
    """Heads are parts of the rows, as in most models."""
    n, t, width = x.shape
    q, k, v = (y.view(n, t, 4, width // 4).transpose(1, 2) for y in (x @ w).chunk(3, -1))
    return plain(q, k, v).transpose(1, 2).reshape(n, t, width)


def qkv(*size, keys=None, width=None):
    *batch, rows, depth = size
    keys = rows if keys is None else keys
    return R(*size), R(*batch, keys, depth, seed=1), R(*batch, keys, width or depth, seed=2)


def some(*size, seed=5):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed)) < 0.5


CHAINS = {
    "plain": (plain, *qkv(2, 3, 260, 32)),
    "one head": (plain, *qkv(700, 40)),
    "more keys": (plain, *qkv(3, 100, 16, keys=1031)),
    "few rows": (plain, *qkv(5, 20, 64, keys=3000)),
    "wide values": (plain, *qkv(4, 333, 24, width=200)),
    "causal": (causal, *qkv(2, 2, 301, 32)),
    "window": (window, *qkv(3, 500, 20)),
    "triangle": (triangle, *qkv(2, 2, 301, 32)),
    "given mask": (given, *qkv(2, 3, 257, 32), some(2, 1, 257, 257).tril() | torch.eye(257, dtype=torch.bool)),
    "mask of keys": (given, *qkv(2, 3, 257, 32), (torch.arange(257) < 130).expand(257, 257)),
    "added mask": (added, *qkv(2, 3, 257, 32), R(257, 257)),
    "empty rows": (safe, *qkv(2, 3, 259, 32), some(259, 259).tril(-100)),
    "capped": (capped, *qkv(2, 3, 200, 32)),
    "shared keys": (lambda q, k, v: plain(q, k.expand(3, -1, -1), v.expand(3, -1, -1)), R(3, 300, 32), R(1, 300, 32),
                    R(1, 300, 32, seed=3)),
    "heads": (heads, R(2, 300, 64), R(64, 192)),
    "norm": (normed, R(900, 48), R(48, 500), R(500, 60), R(500)),
}


def copies(fn):
    """The function as one of its own, as a cache entry belongs to a code object."""
    return type(fn)(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


def in_blocks(compiled):
    return dynamo_lite.generated_code(compiled).count("KERNEL blocks")


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_one_kernel(name, dynamic):
    fn, *args = CHAINS[name]
    compiled = dynamo_lite.compile(copies(fn), dynamic=dynamic)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), fn(*args), atol=2e-5, rtol=1e-4)
    assert in_blocks(compiled) == 1


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("simd", ["avx2", "scalar"])
@pytest.mark.parametrize("name", ["plain", "causal", "empty rows", "heads"])
def test_other_vectors(name, simd):
    fn, *args = CHAINS[name]
    with dynamo_lite.config.patch(cpp_simd=simd), torch.no_grad():
        compiled = dynamo_lite.compile(copies(fn))
        torch.testing.assert_close(compiled(*args), fn(*args), atol=2e-5, rtol=1e-4)
        assert in_blocks(compiled) == 1


def test_one_graph_for_all_lengths():
    compiled = dynamo_lite.compile(copies(causal), dynamic=True)
    with torch.no_grad():
        for rows in (300, 17, 1, 640, 1031):
            args = qkv(2, 3, rows, 32)
            torch.testing.assert_close(compiled(*args), causal(*args), atol=2e-5, rtol=1e-4)
    assert in_blocks(compiled)


def test_no_keys():
    compiled = dynamo_lite.compile(copies(plain), dynamic=True)
    with torch.no_grad():
        for keys in (300, 0):
            args = qkv(2, 300, 32, keys=keys)
            assert torch.allclose(compiled(*args), plain(*args), atol=2e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_bits_do_not_depend_on_threads(threads):
    fn, *args = CHAINS["causal"]
    before = torch.get_num_threads()
    results = []
    try:
        for n in (2, threads):
            torch.set_num_threads(n)
            with torch.no_grad():
                results.append(dynamo_lite.compile(copies(fn))(*args))
            dynamo_lite.reset()
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize("fn", [causal, triangle])
@pytest.mark.parametrize("bad", [math.inf, math.nan, -3e38])
@pytest.mark.parametrize("which", range(3), ids=["query", "key", "value"])
def test_special_values_where_no_score_counts(which, bad, fn):
    """Eager multiplies values by weights of 0, too, and adds minus infinity to whatever score there is."""
    args = list(qkv(2, 300, 32))
    args[which] = args[which].clone()
    args[which][:, 250, 3] = bad
    compiled = dynamo_lite.compile(copies(fn))
    with torch.no_grad():
        got, want = compiled(*args), fn(*args)
    assert torch.equal(got.isnan(), want.isnan())
    torch.testing.assert_close(got, want, equal_nan=True, atol=2e-5, rtol=1e-4)


def test_rows_without_scores_are_nan_as_in_eager():
    fn, *args = CHAINS["given mask"]
    args[3] = args[3].clone()
    args[3][:, :, 40:200] = False
    compiled = dynamo_lite.compile(copies(fn))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), fn(*args), equal_nan=True, atol=2e-5, rtol=1e-4)


def test_scores_that_are_returned_are_stored():
    def fn(q, k, v):
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        return weights @ v, weights

    args = qkv(2, 300, 32)
    compiled = dynamo_lite.compile(fn)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), fn(*args), atol=2e-5, rtol=1e-4)
    assert not in_blocks(compiled)


@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
def test_rows_that_are_split_between_two_loops(dynamic):
    """Heads share their keys, so that the rows of the product are those of all heads; the next kernel has two loops."""
    def fn(q, k, v):
        k, v = k.expand(q.size(0), -1, -1), v.expand(q.size(0), -1, -1)
        later = torch.arange(q.size(1))[:, None] < torch.arange(k.size(1))
        scores = torch.einsum("...qd,...kd->...qk", q, k).masked_fill(later, -math.inf)
        scores[..., -1] = -math.inf
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        return (weights / weights.sum(-1, keepdim=True)) @ v

    args = R(2, 300, 40), R(1, 300, 40), R(1, 300, 17)
    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(fn, dynamic=dynamic)
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), fn(*args), atol=2e-5, rtol=1e-4)
    assert not dynamo_lite.metrics()["fallbacks"]


def test_inputs_that_are_written_meanwhile():
    def fn(q, k, v):
        scores = q @ k.transpose(-1, -2)
        k.mul_(2)
        return scores.softmax(-1) @ v

    args, same = qkv(2, 300, 32), qkv(2, 300, 32)
    with torch.no_grad():
        torch.testing.assert_close(dynamo_lite.compile(fn)(*args), fn(*same), atol=2e-5, rtol=1e-4)
    assert torch.equal(args[1], same[1])


# ---------------------------------------------------------------- columns that are left out
def counted(q, k, v, allowed):
    """Each weight depends on how many scores there are."""
    scores = torch.where(allowed, q @ k.transpose(-1, -2), -math.inf)
    return (scores.softmax(-1) / (scores == -math.inf).sum(-1, keepdim=True)) @ v


def offset(q, k, v, allowed):
    scores = torch.where(allowed, q @ k.transpose(-1, -2), -math.inf)
    return (scores.softmax(-1) + 0.01) @ v


def uniform(q, k, v, allowed):
    """Rows without any score have equal weights."""
    scores = torch.where(allowed, q @ k.transpose(-1, -2), -math.inf)
    return torch.where((scores == -math.inf).all(-1, keepdim=True), 1 / k.size(-2), scores.softmax(-1)) @ v


def clamped(q, k, v, allowed):
    return torch.where(allowed, q @ k.transpose(-1, -2), -math.inf).clamp(min=-4).softmax(-1) @ v


def finite(q, k, v, allowed):
    return torch.where(allowed, q @ k.transpose(-1, -2), -1e9).softmax(-1) @ v


def both_ways(q, k, v, allowed):
    """The mask does not hold where the scores are used a second time."""
    scores = q @ k.transpose(-1, -2)
    return (scores.masked_fill(~allowed, -math.inf).softmax(-1) * scores) @ v


def added_bool(q, k, v, allowed):
    return (q @ k.transpose(-1, -2) * 0.5 + torch.where(allowed, 0.0, -math.inf)).softmax(-1) @ v


def added_twice(q, k, v, allowed):
    """A position's own number might be infinite."""
    scores = q @ k.transpose(-1, -2) + v[:, :, None, :, 0] + torch.where(allowed, 0.0, -math.inf)
    return scores.softmax(-1) @ v


def added_to_exponentials(q, k, v, allowed):
    """Scores overflow, and the sum of infinity and minus infinity is NaN."""
    return ((q @ k.transpose(-1, -2) * 40).exp() + torch.where(allowed, 0.0, -math.inf)).softmax(-1) @ v


def added_to_quotients(q, k, v, allowed):
    scores = q @ k.transpose(-1, -2)
    return (scores / (scores > 1) + torch.where(allowed, 0.0, -math.inf)).softmax(-1) @ v


def times_a_reciprocal(q, k, v, allowed):
    """The sum of weights is denormal, and its reciprocal infinite."""
    weights = torch.where(allowed, q @ k.transpose(-1, -2) * 0.01 - 100, -math.inf).exp()
    return (weights * (1 / weights.sum(-1, keepdim=True))) @ v


def divided_by_a_constant(q, k, v, allowed):
    return (((q @ k.transpose(-1, -2)) / 7 / 20).tanh() * 20 + torch.where(allowed, 0.0, -math.inf)).softmax(-1) @ v


@pytest.mark.parametrize("fn, skips", [(counted, False), (offset, False), (uniform, False), (clamped, False),
                                       (finite, False), (both_ways, False), (given, True), (safe, True),
                                       (added_bool, True), (added_twice, False), (added_to_exponentials, False),
                                       (added_to_quotients, False), (times_a_reciprocal, False),
                                       (divided_by_a_constant, True)])
def test_columns_are_left_out_only_where_they_do_not_matter(fn, skips):
    allowed = torch.ones(300, 300, dtype=torch.bool).tril()
    allowed[150:200] = False
    args = *qkv(2, 2, 300, 32), allowed
    compiled = dynamo_lite.compile(copies(fn))
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args), fn(*args), atol=2e-5, rtol=1e-4, equal_nan=True)
    assert ("columns_that_count(300" in dynamo_lite.generated_code(compiled)) == skips


def test_a_mask_added_to_scores_of_float16():
    """A score above 65,504 is infinite, and its sum with minus infinity NaN."""
    def fn(q, k, v, mask):
        return ((q @ k.transpose(-1, -2)).half() + mask).float().softmax(-1) @ v

    q, k, v = qkv(2, 300, 32)
    q[:, 3], k[:, 280] = 300.0, 300.0
    mask = torch.full((300, 300), -math.inf, dtype=torch.float16).triu(1)
    compiled = dynamo_lite.compile(fn)
    with torch.no_grad():
        got, want = compiled(q, k, v, mask), fn(q, k, v, mask)
    assert want[:, 3].isnan().all() and not want[:, 4].isnan().any()
    torch.testing.assert_close(got, want, atol=1e-2, rtol=1e-2, equal_nan=True)
    assert "columns_that_count(300" not in dynamo_lite.generated_code(compiled)


# ---------------------------------------------------------------- the parts
SMALL = {
    "plain": (plain, *qkv(2, 20, 16, keys=33)),
    "one head": (plain, *qkv(34, 16)),
    "causal": (causal, *qkv(2, 33, 16)),
    "window": (window, *qkv(1, 80, 16)),
    "empty rows": (safe, *qkv(2, 33, 16), some(33, 33).tril(-2)),
    "heads": (heads, R(2, 18, 64), R(64, 192)),
    "norm": (normed, R(20, 16), R(16, 40), R(40, 17), R(40)),
}


@pytest.mark.parametrize("name", SMALL)
def test_parts_mean_what_the_kernels_mean(backend_check, monkeypatch, name):
    """Interpreted, in blocks of other sizes than in C++."""
    fn, *args = SMALL[name]
    monkeypatch.setattr(row_blocks, "is_small", lambda *of: False)

    def flat(*inputs):
        out = fn(*inputs)
        return out if isinstance(out, tuple) else (out,)

    with torch.no_grad():
        gm, fakes = backend_check.capture(flat, args)
        aten = record(gm, fakes, FOR_KERNELS)
    lowered = lower(aten.graph, aten.constants)
    steps = [s for s in schedule(lowered, pipeline.target_named("cpp").arrangement).steps if isinstance(s, Kernel)]
    assert sum(step.blocks is not None for step in steps) == 1
    memory = {n: t.as_strided((storage_extent(t.shape, t.stride()),), (1,)) for n, t in zip(lowered.inputs, args)}
    for step in steps:
        check_kernel(step)
        run_kernel(step, memory)
    with torch.no_grad():
        want = flat(*args)
    for buffer, expected in zip((lowered.buffers[o] for o in lowered.outputs), want):
        got = memory[buffer.name].as_strided(buffer.size, buffer.stride)
        torch.testing.assert_close(got.reshape(expected.shape), expected, atol=2e-5, rtol=1e-4)
