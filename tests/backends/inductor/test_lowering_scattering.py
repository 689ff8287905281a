"""Writes into parts of tensors: generated code against eager, duplicates, faults, and inputs written in place."""
import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor.pipeline import target_named
from dynamo_lite.backends.inductor.scheduler import Kernel, schedule
from dynamo_lite.backends.inductor.scheduler.checker import check_kernel

pytestmark = pytest.mark.by_turns(3)

aten = torch.ops.aten


def numbers(*shape, dtype=torch.float32):
    torch.manual_seed(sum(shape))
    return (torch.randn(shape) * 5).to(dtype)


def places(high, *shape, low=0):
    torch.manual_seed(high + sum(shape))
    return torch.randint(low, high, shape)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8])
def test_scatter(check_many, dtype):
    cases, turn = [], (torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.uint8).index(dtype)
    for shape, index in (
        ((9,), (30,)), ((7, 5), (40, 5)), ((7, 5), (3, 4)), ((2, 33), (2, 90)), ((3, 4, 5), (2, 4, 60)),
    ):
        for d in range(len(shape)):
            size = tuple(n if k == d else min(n, shape[k]) for k, n in enumerate(index))
            i, src = places(shape[d], *size), numbers(*size, dtype=dtype)
            x = numbers(*shape, dtype=dtype)
            once = torch.argsort(torch.rand(shape), d).narrow(d, 0, min(2, shape[d]))
            turn += 1
            cases += thorough.share([
                (f"add {shape} {d}", lambda x, i, s, d=d: x.scatter_add(d, i, s), [x, i, src]),
                (f"sums {shape} {d}", lambda x, i, s, d=d: (x + 1).scatter_add(d, i // 2, s + s) - 1, [x, i, src]),
                (f"set {shape} {d}", lambda x, i, s, d=d: x.scatter(d, i, s), [x, once, numbers(*shape, dtype=dtype)]),
                (f"fill {shape} {d}", lambda x, i, d=d: x.scatter(d, i, 3), [x, i]),
            ], turn)
    half = dtype in (torch.bfloat16, torch.float16)
    check_many(cases, interpreted=dtype is torch.float32, library=["aten.scatter_add.default"] * half)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_by_slices(check_many, dtype):
    cases = []
    for shape in ((6, 7), (3, 6, 5), (2, 3, 40)):
        for d in range(len(shape)):
            x, i = numbers(*shape, dtype=dtype), places(shape[d], 11)
            other = i % shape[-1 - d]
            size = tuple(11 if k == d else n for k, n in enumerate(shape))
            once = torch.randperm(shape[d])[:2]
            more = numbers(*size, dtype=dtype)
            two = numbers(*(2 if k == d else n for k, n in enumerate(shape)), dtype=dtype)
            cases += [
                (f"add {shape} {d}", lambda x, i, s, d=d: x.index_add(d, i, s), [x, i, more]),
                (f"copy {shape} {d}", lambda x, i, s, d=d: x.index_copy(d, i, s), [x, once, two]),
                (f"fill {shape} {d}", lambda x, i, d=d: x.index_fill(d, i - 1, 4), [x, i]),
                (f"strided {shape} {d}", lambda x, i, d=d: x.index_fill(d, i, 4), [x.transpose(0, -1), other]),
            ]
    check_many(cases, library=["aten.index_add.default"] * (dtype is torch.bfloat16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool])
def test_index_put(check_many, dtype):
    x = numbers(6, 7, 8, dtype=dtype)
    i, j = places(6, 5, low=-6), places(7, 5, low=-7)
    once = torch.tensor([3, -6, 1, -1, 4])
    mask = numbers(6, 7) > 1
    cases = [
        ("rows", lambda x, i, v: x.index_put((i,), v), [x, once, numbers(5, 7, 8, dtype=dtype)]),
        ("pair", lambda x, i, j, v: x.index_put((i, j), v), [x, once, j, numbers(5, 8, dtype=dtype)]),
        ("one value", lambda x, i, v: x.index_put((i,), v), [x, i, numbers(1, dtype=dtype)[0]]),
        ("inside", lambda x, i, v: aten.index_put(x, [None, i], v), [x, j[:1], numbers(6, 1, 8, dtype=dtype)]),
        ("mask", lambda x, m, v: x.index_put((m,), v), [x, mask, numbers(1, dtype=dtype)[0]]),
        ("setitem", lambda x, i, v: _set(x, i, v), [x, once, numbers(5, 7, 8, dtype=dtype)]),
    ]
    if dtype is not torch.bool:
        cases += [
            ("sum", lambda x, i, v: x.index_put((i,), v, True), [x, i, numbers(5, 7, 8, dtype=dtype)]),
            ("sum of pairs", lambda x, i, j, v: x.index_put((i, j), v, True), [x, i, j, numbers(8, dtype=dtype)]),
        ]
    check_many(cases, tolerance={torch.float32: (1e-6, 1e-6), torch.float64: (1e-14, 1e-14)})


def test_layouts(check_many):
    i, s = places(6, 9), numbers(9, 7)
    wide, column = numbers(1, 7).expand(6, 7), numbers(7, 6).t()
    gaps = numbers(6, 14)[:, ::2]
    cases = []
    for name, x in (("expanded", wide), ("transposed", column), ("gaps", gaps)):
        cases += [
            (f"{name} add", lambda x, i, s: x.index_add(0, i, s), [x, i, s]),
            (f"{name} scatter", lambda x, i, s: x.scatter_add(0, i[:, None].expand(9, 7), s), [x, i, s]),
            (f"{name} put", lambda x, i, s: x.index_put((i[:1],), s[0]), [x, i, s]),
            (f"{name} fill", lambda x, i: x.index_fill(0, i, 2.0), [x, i]),
            (f"{name} copy", lambda x, i, s: x.index_copy(0, i[:1], s[:1]), [x, i, s]),
            (f"{name} own elements", lambda x, i: x.index_put((i[:2] * 0,), x[i[:1]] * 2), [x, i]),
        ]
    check_many(cases)


def test_an_input_written_with_its_own_elements():
    def fn(x, i, j):
        x[i] = x[j] + 1
        x.index_add_(0, j, x[:3] * 2)
        return x.sum(0)

    x, i, j = numbers(7, 5), torch.tensor([0, 3, -1]), torch.tensor([3, 0, 2])
    compiled = dynamo_lite.compile(fn)
    for _ in range(2):
        a, b = x.clone(), x.clone()
        torch.testing.assert_close(compiled(a, i, j), fn(b, i, j))
        assert torch.equal(a, b)


def _set(x, i, v):
    y = x.clone()
    y[i] = v
    y[:, 0] = y[:, 1]
    return y


def test_gradients_by_index(check_many):
    d, i = numbers(3, 9, 21), places(13, 3, 9)
    check_many([
        ("embedding", lambda d, i: aten.embedding_dense_backward(d, i, 13, -1, False), [d, i]),
        ("padding", lambda d, i: aten.embedding_dense_backward(d * 2, i, 13, 4, False), [d, i]),
        ("int32", lambda d, i: aten.embedding_dense_backward(d, i, 13, 4, False), [d, i.int()]),
        ("diagonal", lambda d: aten.diagonal_backward(d, [2, 5, 4], 1, 1, 2), [numbers(2, 3)]),
        ("diagonal scatter", lambda x, d: torch.diagonal_scatter(x, d, -1), [numbers(5, 4), numbers(4)]),
    ])


def test_kernels_are_well_formed(build):
    x, i, s = numbers(6, 7), places(6, 11), numbers(11, 7)
    built = build(lambda x, i, s: (x.index_add(0, i, s), x.scatter_add(0, i[:, None].expand(11, 7), s)), [x, i, s])
    kernels = [k for k in schedule(built.lowered, target_named("cpp").arrangement).steps if isinstance(k, Kernel)]
    assert len(kernels) == 2
    for kernel in kernels:
        check_kernel(kernel)


def test_long_updates_by_several_threads():
    x, i, s = numbers(50, 3000), places(50, 400), numbers(400, 3000)
    fn = dynamo_lite.compile(lambda x, i, s: x.index_add(0, i, s))
    assert torch.equal(fn(x, i, s), x.index_add(0, i, s))


@pytest.mark.parametrize("fn", [
    lambda x, i, s: x.index_put((i,), s), lambda x, i, s: x.index_copy(0, i, s),
    lambda x, i, s: x.index_fill(0, i, 1.0),
    lambda x, i, s: x.index_add(0, i, s), lambda x, i, s: x.scatter(0, i[:, None].expand(2, 5), s),
    lambda x, i, s: x.scatter_add(1, i[None].expand(2, 2), s), lambda x, i, s: x.index_put_((i,), s).clone(),
    lambda x, i, s: x.index_copy_(0, i, s) * 2, lambda x, i, s: x.index_add_(0, i, s) * 2,
], ids=range(9))
@pytest.mark.parametrize("index", [[1, 5], [-6, 0], [3, 2]], ids=str)
def test_faults(fn, index):
    x, s = numbers(5, 5), numbers(2, 5)
    compiled = dynamo_lite.compile(fn)
    a = x.clone()
    assert torch.equal(compiled(a, torch.tensor([1, 2]), s), fn(x.clone(), torch.tensor([1, 2]), s))
    a, b, i = x.clone(), x.clone(), torch.tensor(index)
    try:
        want = fn(b, i, s)
    except Exception as e:
        with pytest.raises(type(e)) as caught:
            compiled(a, i, s)
        assert str(caught.value) == str(e)
        assert torch.equal(a, b)
    else:
        assert torch.equal(compiled(a, i, s), want)
        assert torch.equal(a, b)


def test_an_input_is_written_in_place():
    """As a static cache of keys: what the call costs does not grow with the cache."""

    def step(cache, new, at):
        cache.index_copy_(2, at, new)
        return cache[:, :, :4].sum()

    cache, new = numbers(2, 4, 64, 8), numbers(2, 4, 3, 8)
    compiled = dynamo_lite.compile(step)
    mine, theirs = cache.clone(), cache.clone()
    for at in ([0, 1, 2], [3, 60, 63]):
        address = mine.data_ptr()
        torch.testing.assert_close(compiled(mine, new, torch.tensor(at)), step(theirs, new, torch.tensor(at)))
        assert torch.equal(mine, theirs) and mine.data_ptr() == address


def test_training_with_an_embedding():
    def fn(w, i):
        return torch.relu(F.embedding(i, w, padding_idx=2)).sum()

    w, i = numbers(11, 6), places(11, 4, 9)
    results = []
    for f in (fn, dynamo_lite.compile(fn)):
        leaf = w.clone().requires_grad_()
        f(leaf, i).backward()
        results.append(leaf.grad)
    assert torch.equal(*results)


@pytest.mark.filterwarnings("ignore:The reduce argument")
@pytest.mark.parametrize("dtype, included", [
    (torch.float32, True), (torch.float32, False), (torch.float64, True), (torch.int64, False), (torch.int64, True),
    (torch.uint8, False)])
def test_scatter_reduce(check_many, dtype, included):
    cases, turn = [], dtype.itemsize // 4 + included
    for shape, index in (((9,), (30,)), ((7, 5), (40, 5)), ((2, 33), (2, 90)), ((3, 4, 5), (2, 4, 60))):
        for d in range(len(shape)):
            size = tuple(n if k == d else min(n, shape[k]) for k, n in enumerate(index))
            x, i, src = numbers(*shape, dtype=dtype), places(shape[d], *size), numbers(*size, dtype=dtype)
            turn += 1
            for how in thorough.share(("sum", "prod", "amax", "amin", "mean"), turn, 3):
                if how != "mean" or dtype.is_floating_point:
                    cases.append((f"{how} {shape} {d}", lambda x, i, s, d=d, how=how: (x * 2).scatter_reduce(
                        d, i, s, how, include_self=included) + 1, [x, i, src]))
            cases += [(f"{how} {shape} {d}", lambda x, i, s, d=d, how=how: x.scatter(d, i, s, reduce=how), [x, i, src])
                      for how in thorough.share(("add", "multiply"), turn)]
            cases.append((f"values {shape} {d}", lambda x, i, d=d: x.scatter(d, i, 3, reduce="multiply"), [x, i]))
    check_many(cases, interpreted=dtype in (torch.float32, torch.int64))


def test_scatter_reduce_of_special_values(check_many):
    x = torch.tensor([0.0, torch.nan, 1, -torch.inf, torch.inf, -0.0])
    src = torch.tensor([torch.nan, 1, 2, torch.inf, -torch.inf, 0.0, 3, torch.nan, 0.5])
    i = torch.tensor([2, 1, 0, 3, 4, 5, 2, 3, 2])
    check_many([(f"{how} {included}", lambda x, i, s, how=how, included=included: x.scatter_reduce(
        0, i, s, how, include_self=included), [x, i, src])
        for how in ("sum", "prod", "amax", "amin", "mean") for included in (True, False)], interpreted=True)


def test_values_that_do_not_fit():
    def f(x, y):
        x[torch.tensor([0, 1])] = y
        return x

    compiled = dynamo_lite.compile(f)
    with config.patch(raise_internal_errors=True):
        for shape in ((4, 4), (3,), (1, 1, 2, 4)):
            want = got = None
            try:
                want = f(torch.zeros(4, 4), torch.ones(shape))
            except RuntimeError as e:
                want = str(e)
            try:
                got = compiled(torch.zeros(4, 4), torch.ones(shape))
            except RuntimeError as e:
                got = str(e)
            assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16, torch.bool])
def test_one_element_of_each_row(check_many, build, dtype):
    """Into a constant that is computed with: a comparison where it is read, and no memory."""
    i, rows = places(9, 5, 7, 1), numbers(5, 7, 3, dtype=dtype)

    def base():
        return torch.ones(5, 7, 9, dtype=dtype)

    cases = [
        ("value", lambda i: base().scatter(2, i, 3) * 2, [i]),
        ("source", lambda i, s: base().scatter(-1, i, s) * 2, [i, rows]),
        ("inside", lambda i: base().scatter(1, i.view(5, 1, 7)[:, :, :1].expand(5, 1, 9) % 7, 0) * 2, [i]),
        ("sums", lambda i: (F.one_hot(i[..., 0], 9).sum((0, 1)), F.one_hot(i[..., 0], 9).float().mean((0, 1))),
         [i]),
    ]
    check_many(cases)
    out_of_bounds = i.clone()
    out_of_bounds[2, 3] = 9
    call = build(lambda i: base().scatter(2, i, 3)[:1] * 2, [i])
    assert not any(kernel.stages[-1].ordered for kernel in call.program.steps if isinstance(kernel, Kernel))
    with pytest.raises(RuntimeError, match="index 9 is out of bounds for dimension 2 with size 9"):
        call.call(out_of_bounds)


def _picked(n, *shape):
    return torch.randint(0, n, shape)


_EMBEDDINGS = torch.nn.Embedding(12, 6, padding_idx=2)
SYMBOLIC = {
    "index_add": (lambda n: (torch.randn(7, 5), _picked(7, n), torch.randn(n, 5)),
                  lambda x, i, s: x.index_add(0, i, s)),
    "index_add inside": (lambda n: (torch.randn(3, 7, 5), _picked(7, n), torch.randn(3, n, 5)),
                         lambda x, i, s: (x + 1).index_add(1, i, s * 2)),
    "index_add batch": (lambda n: (torch.randn(n, 7, 5), _picked(7, 4), torch.randn(n, 4, 5)),
                        lambda x, i, s: x.index_add(1, i, s)),
    "index_copy": (lambda n: (torch.randn(40, 5), torch.randperm(40)[:n], torch.randn(n, 5)),
                   lambda x, i, s: x.index_copy(0, i, s)),
    "index_fill": (lambda n: (torch.randn(n, 5), _picked(5, 4)), lambda x, i: x.index_fill(1, i - 1, 3.0)),
    "scatter_add": (lambda n: (torch.randn(n, 9), _picked(9, n, 4), torch.randn(n, 4)),
                    lambda x, i, s: x.scatter_add(1, i, s)),
    "scatter_add rows": (lambda n: (torch.randn(9, 4), _picked(9, n, 4), torch.randn(n, 4)),
                         lambda x, i, s: x.scatter_add(0, i, s)),
    "mean": (lambda n: (torch.randn(9, 4), _picked(9, n, 4), torch.randn(n, 4)),
             lambda x, i, s: x.scatter_reduce(0, i, s, "mean", include_self=False)),
    "amax": (lambda n: (torch.randn(n, 9), _picked(9, n, 4), torch.randn(n, 4)),
             lambda x, i, s: x.scatter_reduce(1, i, s, "amax")),
    "one_hot": (lambda n: (_picked(12, n),), lambda i: F.one_hot(i, 12).float().sum(0)),
    "index_put": (lambda n: (torch.randn(9, 4), _picked(9, n) - 4, torch.randn(n, 4)),
                  lambda x, i, s: x.index_put((i,), s, accumulate=True)),
    "index_put pair": (lambda n: (torch.randn(n, 9, 4), _picked(9, n) - 4, torch.randn(n, 4)),
                       lambda x, i, s: x.index_put((torch.arange(x.shape[0]), i), s, accumulate=True)),
    "embedding": (lambda n: (_picked(12, 3, n),), lambda i: _EMBEDDINGS(i).square().sum((0, 1))),
    "gather": (lambda n: (torch.randn(n, 6).requires_grad_(), _picked(6, n, 3)), lambda w, i: w.gather(1, i).square()),
    "rows": (lambda n: (torch.randn(11, 6).requires_grad_(), _picked(11, n)), lambda w, i: w[i].square()),
    "chosen": (lambda n: (torch.randn(20, 6), torch.rand(20) < n / 15),
               lambda x, m: x.clone().index_add_(0, m.nonzero().squeeze(-1), x[m] * 2)),
}


@pytest.mark.parametrize("name", thorough.share(list(SYMBOLIC), 0))
def test_symbolic_sizes(name):
    """Kernels for all sizes, and none of them the library's."""
    make, fn = SYMBOLIC[name]
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    compiled = dynamo_lite.compile(fn, dynamic=True)
    for n in (5, 8, 3, 13, 2, 0, 1):
        if n == 0:  # what follows has graphs of its own
            counted = dynamo_lite.metrics()
        torch.manual_seed(n)
        mine = make(n)
        theirs = [t.detach().clone().requires_grad_(t.requires_grad) for t in mine]
        got, want = compiled(*mine), fn(*theirs)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
        if want.requires_grad and want.numel():
            leaves = [(a, b) for a, b in zip(mine, theirs) if a.requires_grad] or [
                (_EMBEDDINGS.weight, _EMBEDDINGS.weight)]
            for a, b in leaves:
                torch.testing.assert_close(torch.autograd.grad(got.sum(), a), torch.autograd.grad(want.sum(), b))
    assert not counted["library_calls"] and not counted["fallbacks"], counted


def test_symbolic_sizes_that_eager_refuses():
    compiled = dynamo_lite.compile(lambda x, i, s: x.index_add(0, i, s), dynamic=True)
    x = torch.zeros(7, 5)
    compiled(x, _picked(7, 4), torch.randn(4, 5))
    for index, source in ((_picked(7, 4), torch.randn(6, 5)), (torch.tensor([1, 9, 2]), torch.randn(3, 5)),
                          (torch.tensor([-1, 2, 2]), torch.randn(3, 5))):
        with pytest.raises((RuntimeError, IndexError)) as eager:
            x.index_add(0, index, source)
        with pytest.raises(type(eager.value)) as ours:
            compiled(x, index, source)
        assert str(ours.value).split("\n")[0] == str(eager.value).split("\n")[0]
