"""Views feed loops without copies, whatever they do; layouts of results are eager's."""

import pytest
import torch
import torch.nn.functional as F

import dynamo_lite

VIEWS = {
    "t": lambda x: x.t() + 1,
    "t contiguous": lambda x: x.t().contiguous().relu(),
    "view": lambda x: x.view(2, 3, 10) * 2,
    "flat": lambda x: x.view(-1)[5:55:3] + 1,
    "permute": lambda x: x.view(2, 3, 10).permute(2, 0, 1).contiguous(),
    "expand": lambda x: x[:, None, :].expand(6, 4, 10) + x[:, :1, None],
    "select": lambda x: x[2] * x[3],
    "unsqueeze": lambda x: x.unsqueeze(1) * x.unsqueeze(0),
    "flip": lambda x: x.flip(1) + 1,
    "diagonal": lambda x: x.diagonal(1) * 2,
    "reshape of t": lambda x: x.t().reshape(6, 10) + 1,
    "two reshapes": lambda x: x.t().reshape(20, 3) * x.view(20, 3),
    "repeat": lambda x: x.repeat(2, 3) + 0.5,
    "unbind": lambda x: sum(x.unbind(1)),
    "split": lambda x: (lambda a, b, c: a * 2 + b)(*x.split(4, 1)),
    "squeeze": lambda x: x.view(6, 1, 10, 1).squeeze() + 1,
    "tril": lambda x: x.tril(),
    "triu": lambda x: x.triu(1),
    "arange": lambda x: x + torch.arange(10),
    "halves": lambda x: x[:, :5] * 2 - x[:, 5:],
    "not affine": lambda x: x.t().reshape(-1) * x.reshape(-1),
    "as_strided": lambda x: (x + 1).as_strided((3, 4), (2, 1)).relu(),
    "movedim": lambda x: x.view(2, 3, 10).movedim(0, 2) * 1,
    "full": lambda x: torch.full_like(x, 3) * x,
}
JOINS = {
    "rows": lambda x: torch.cat([x, x * 2], 0),
    "columns": lambda x: torch.cat([x, x[:, :3] * 2, x + 1], 1),
    "stack": lambda x: torch.stack([x, x + 1], 1),
    "stack last": lambda x: torch.stack([x, -x], -1),
    "rotate": lambda x: x * 2 + torch.cat([-x[:, 5:], x[:, :5]], -1),
    "pad": lambda x: F.pad(x, (1, 2)),
    "pad both": lambda x: F.pad(x, (1, 2, 3, 0), value=1.5) + 1,
    "crop": lambda x: F.pad(x, (-1, 2)),
    "roll": lambda x: x.roll(3, 1),
    "roll both": lambda x: x.roll((1, -2), (0, 1)) * 2,
    "summed": lambda x: torch.cat([x, x * 2], 1).sum(1),
    "summed over": lambda x: torch.cat([x, x * 2], 0).sum(0),
    "twice": lambda x: torch.cat([torch.cat([x, x + 1], 1), torch.cat([x - 1, x], 1)], 0),
    "seen as flat": lambda x: torch.cat([x, x * 2], 1).view(-1) + 1,
    "transposed": lambda x: torch.cat([x, x * 2], 1).t().contiguous(),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, 2:5] * 3, 1, 2, 5),
    "select_scatter": lambda x: torch.select_scatter(x, x[0], 0, 2),
    "every second": lambda x: torch.slice_scatter(x, x[:, 1::2] * 3, 1, 0, None, 2),
    "every third row, from the second": lambda x: torch.slice_scatter(x, x[2::3] * 3, 0, 1, 5, 3),
    "every fifth of the last": lambda x: torch.slice_scatter(x, x[:, :2] + 1, -1, 3, 9, 5),
    "one column": lambda x: torch.cat([x[:, :1], x], 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_views(dtype, check_many, data):
    fns = (
        VIEWS
        if dtype in (torch.float32, torch.bfloat16)
        else {n: VIEWS[n] for n in ("flat", "permute", "expand", "repeat", "tril")}
    )
    cases = [
        (n, f, [data.random(6, 10, dtype=dtype)])
        for n, f in fns.items()
        if dtype is not torch.bool or n in ("permute", "tril")
    ]
    check_many(cases, interpreted=True)


def test_views_of_a_transposed_input(check_many, data):
    check_many(
        [
            (n, f, [data.random(10, 6).t()])
            for n, f in VIEWS.items()
            if "view" not in n and n not in ("permute", "flat", "two reshapes", "squeeze", "movedim")
        ]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_joins(dtype, check_many, data):
    tolerance = {torch.float32: (1e-6, 1e-6), torch.bfloat16: (1e-2, 1e-2)}
    check_many([(n, f, [data.random(6, 10, dtype=dtype)]) for n, f in JOINS.items()], tolerance, interpreted=True)
    check_many([(n, f, [data.random(10, 6, dtype=dtype).t()]) for n, f in JOINS.items()], tolerance)


def test_writes_to_every_nth_element(check_many, build):
    """Interleaved parts, as complex numbers and rotary embeddings keep them; where the steps do not make up the
    dimension, the operation is the library's."""
    def interleaved(x):
        y = x + 1
        y[..., ::2], y[..., 1::2] = x[..., 1::2] * 2, x[..., ::2] - 1
        return y

    def quarters(x):
        y = torch.zeros_like(x)
        y[:, 3::4] = x[:, ::4].abs()
        return y * 2

    inputs = {
        "rows": torch.randn(3, 8, 12), "transposed": torch.randn(12, 8, 3).transpose(0, 2),
        "numbers": torch.randint(-9, 9, (3, 8, 12)), "expanded": torch.randn(3, 1, 12).expand(3, 8, 12),
    }
    for name, x in inputs.items():
        for fn in (interleaved, quarters):
            assert not build(fn, [x]).library, name
            check_many([(name, fn, [x])])
    x = torch.randn(3, 8)
    for start, step in ((0, 5), (2, 2), (0, 7), (7, 8)):
        def fn(x, start=start, step=step):
            return torch.slice_scatter(x, x[:, start::step] * 2, 1, start, None, step)

        built = build(fn, [x])
        assert torch.equal(built.call(x)[0], fn(x)) and bool(built.library) == ((start, step) != (7, 8))


def test_gradients_of_writes_to_every_nth_element():
    def fn(x, y):
        z = x * 2
        z[:, 1::2] = y.sin()
        z[::3] *= 2
        return z * x

    x, y = torch.randn(6, 10, requires_grad=True), torch.randn(6, 5, requires_grad=True)
    compiled = dynamo_lite.compile(fn)
    weights = torch.randn(6, 10)
    for inputs in ((x, y), (x.detach().t().contiguous().t().requires_grad_(), y)):
        expected = torch.autograd.grad((fn(*inputs) * weights).sum(), inputs)
        torch.testing.assert_close(torch.autograd.grad((compiled(*inputs) * weights).sum(), inputs), expected)


def test_layouts_are_kept(check_many, data):
    x = data.random(2, 8, 5, 5).to(memory_format=torch.channels_last)
    check_many(
        [
            ("channels last", lambda x: x.relu() + 1, [x]),
            ("bias", lambda x, b: x + b.view(1, -1, 1, 1), [x, data.random(8)]),
            ("mixed", lambda x, y: x + y, [x, data.random(2, 8, 5, 5)]),
            ("cat", lambda x: torch.cat([x, x * 2], 1), [x]),
            ("permuted", lambda x: x.permute(1, 0, 2, 3) * 2, [x]),
        ]
    )


def test_views_reach_the_library_without_a_copy(build, data):
    # Of double precision, whose products are the library's.
    x, w = data.random(4, 6, 8).double(), data.random(8, 8).double()
    built = build(lambda x, w: x[1:].transpose(0, 1)[2] @ w.t(), [x, w])
    assert built.kernels == 0 and built.library
    torch.testing.assert_close(built.call(x, w)[0], x[1:].transpose(0, 1)[2] @ w.t())


def test_rotary_embedding_is_one_kernel_without_a_test_in_its_loops(build, data, in_cpp):
    def rope(q, c, s):
        q = q.view(2, 16, 4, 64).transpose(1, 2)
        return q * c + torch.cat((-q[..., 32:], q[..., :32]), -1) * s

    q, c, s = data.random(2, 16, 256), data.random(1, 1, 16, 64), data.random(1, 1, 16, 64)
    built = build(rope, [q, c, s])
    assert built.kernels == 1
    body = built.program.source.split("KERNEL kernel0")[1]
    # Where threads share the rows, the step from one to the next is a test.
    steps = [line for line in body.splitlines() if not line.lstrip().startswith("if (++")]
    assert not any("sel(" in line or "if (" in line for line in steps)
    torch.testing.assert_close(built.call(q, c, s)[0], rope(q, c, s), rtol=0, atol=0)


def test_inputs_that_are_overwritten(backend_check, data):
    def swap(x, y):
        old = x + 0
        x.copy_(y)
        y.copy_(old)
        return x * 2

    backend_check.compare(swap, [data.random(4, 5), data.random(4, 5)])

    def step(p, g, m):
        m.mul_(0.9).add_(g)
        p.sub_(0.1 * m)
        return p.sum()

    backend_check.compare(step, [data.random(40), data.random(40), data.random(40)], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int64])
def test_a_librarys_product_of_three_dimensions_is_handed_out_as_it_is(dtype):
    def product(x, w):
        return x @ w

    def several(x, w):
        y = x @ w
        return y, y[0], y.view(-1), y.reshape(6, 4).t(), y * 2

    def twice(x, w):
        y = (x @ w).clone()
        return y, (x @ w).reshape(3, 8), y.sum()

    x, w = (torch.randn(2, 3, 5) * 9).to(dtype), (torch.randn(5, 4) * 9).to(dtype)
    for fn in (product, several, twice):
        compiled = dynamo_lite.compile(fn, fullgraph=True)
        for _ in range(2):
            got, want = compiled(x, w), fn(x, w)
            got, want = (v if isinstance(v, tuple) else (v,) for v in (got, want))
            for a, b in zip(got, want):
                torch.testing.assert_close(a, b)
                assert (a.stride(), a._is_view(), a._version) == (b.stride(), b._is_view(), b._version)
        assert [a.data_ptr() == got[0].data_ptr() for a in got] == [b.data_ptr() == want[0].data_ptr() for b in want]
        if fn is product:
            assert "KERNEL" not in "".join(map(str, dynamo_lite.generated_code(compiled)))
    if dtype is not torch.int64:
        v = x.clone().requires_grad_()
        compiled(v, w)[0].sum().backward()
        got, v.grad = v.grad, None
        twice(v, w)[0].sum().backward()
        torch.testing.assert_close(got, v.grad)
