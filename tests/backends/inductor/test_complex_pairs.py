"""Complex numbers computed as pairs of real ones, and tensors whose memory holds conjugates or negatives."""
import itertools

import pytest
import thorough
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

import dynamo_lite
from dynamo_lite import config

pytestmark = pytest.mark.by_turns(3)

R = torch.randn
INFINITE, NAN = float("inf"), float("nan")


def C(*shape, dtype=torch.complex64):
    return torch.randn(*shape, dtype=dtype)


def pairs(x):
    return torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))


def turned(x, f):
    """Rotary positions, as Llama's reference computes them."""
    z = pairs(x.float())
    return torch.view_as_real(z * f.view(1, z.shape[1], 1, z.shape[-1])).flatten(3).type_as(x)


def attention(q, k, v, f):
    q, k = turned(q, f), turned(k, f)
    return F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)))


def several_views(a):
    z = a * 2 + 1
    return z, torch.view_as_real(z), z.imag, z.T


def copies_of_views(a):
    z = a * 2 + 1
    return z, torch.view_as_real(z).clone(), z.real.clone()


def written_in_part(a, b):
    z = a * 2 + 1
    z[:, 0] = b
    return z * 2


def written_real_part(a, b):
    z = a * 2 + 1
    z.real.copy_(b)
    return z * 2


def escape(c):
    z = c
    for _ in range(4):
        z = z * z + c
    return z.abs()


def magnitude(x):
    z = torch.stft(x, 16, window=torch.hann_window(16), return_complex=True)
    return torch.log1p(z.real**2 + z.imag**2)


HOLES = torch.tensor([complex(INFINITE, 1), complex(0, NAN), -0.0j, complex(-0.0, 2)])
# A function of n and m rows and columns, its arguments, and how many library calls are left (None: some).
PROGRAMS = {
    "rotary positions": (turned, lambda n, m: [R(2, n, 3, 2 * m), C(n, m)], 0),
    "rotary positions of 16 bits": (turned, lambda n, m: [R(2, n, 3, 2 * m).bfloat16(), C(n, m)], 0),
    "attention": (attention, lambda n, m: [*(R(2, n, 3, 2 * m) for _ in range(3)), C(n, m)], 1),
    "chain": (lambda a, b: (a * b + a - b * 2 + 1j * a).sum(-1), lambda n, m: [C(n, m), C(m)], 0),
    "conjugates": (lambda a, b: ((a * b + 1).conj(), (a + b).conj() * 2), lambda n, m: [C(n, m), C(n, m)], None),
    "components": (lambda a, b: (a.conj() * b).real + (a * b.conj()).imag, lambda n, m: [C(n, m), C(n, m)], 0),
    "negatives": (lambda a, b: (a * b).conj().imag + a.conj().imag.exp(), lambda n, m: [C(n, m), C(n, m)], None),
    "several views": (several_views, lambda n, m: [C(n, m)], None),
    "copies of views": (copies_of_views, lambda n, m: [C(n, m)], None),
    "polar": (lambda r, t: torch.polar(r, t) * 2 + r, lambda n, m: [R(n, m).abs(), R(n, m)], 0),
    "rows by index": (lambda f, p, x: torch.view_as_real(pairs(x) * f[p]).flatten(-2),
                      lambda n, m: [C(20, m), torch.randint(0, 20, (n,)), R(n, 2 * m)], 0),
    "computed rows by index": (lambda f, p: ((f * 2 + 1)[p] + 1).real,
                               lambda n, m: [C(20, m), torch.randint(0, 20, (n,))], 0),
    "filter": (lambda x, h: torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(h).conj() + 1, n=8),
               lambda n, m: [R(n, 8), R(8)], None),
    "spectrum": (magnitude, lambda n, m: [R(n, 16 + m)], None),
    "joined": (lambda a, b: torch.cat([a * 2, b + 1]) * torch.stack([a * b, b], -1).sum(-1).sum(0),
               lambda n, m: [C(n, m), C(n, m)], 0),
    "chosen": (lambda a, b, c: torch.where(c > 0, a * b, b) * 2, lambda n, m: [C(n, m), C(n, m), R(n, 1)], 0),
    "beside real tensors": (lambda a, r: (a * r + r) - a * 3.5, lambda n, m: [C(n, m), R(m)], 0),
    "after real tensors": (lambda r, a: r - a * r, lambda n, m: [R(n, 1), C(m)], 0),
    "beside integers": (lambda a, r: (a * r + r).real, lambda n, m: [C(n, m), torch.arange(m)], 0),
    "from components": (lambda a, b: torch.complex(a.sin(), b) * torch.complex(b.expand_as(a), a),
                        lambda n, m: [R(n, m), R(m)], 0),
    "from a stack": (lambda a, b: torch.view_as_complex(torch.stack([a.sin(), b], -1)) * (a + 2j),
                     lambda n, m: [R(n, m), R(n, m)], 0),
    "of other types": (lambda a: (a.to(torch.complex128) * 2).to(torch.complex64) + a.new_zeros(1, dtype=torch.float32),
                       lambda n, m: [C(n, m)], None),
    "rows of a slice by index": (lambda x, p: (pairs(x.sin())[1:][p] * 2).real,
                                 lambda n, m: [R(20, 2 * m), torch.randint(0, 19, (n,))], 0),
    "64 bits": (lambda a, b: (a * b + 1).abs(), lambda n, m: [C(n, m, dtype=torch.complex128), C(m)], 0),
    "a number in a tensor": (lambda a, b: a * b + 1,
                             lambda n, m: [R(n, m), torch.tensor(2.5 + 1j, dtype=torch.complex128)], 0),
    "products of matrices": (lambda a, b: ((a * 2 + b) @ (b.mT + 1) * 2).real, lambda n, m: [C(n, m), C(n, m)], None),
    "means": (lambda a: ((a * a).mean(0) + a.sum()).mean(), lambda n, m: [C(n, m)], 0),
    "slices": (lambda a: (a[:, 1:] * a[:, :-1] + 1).sum(1), lambda n, m: [C(n, m)], 0),
    "transposed": (lambda a, b: a.T * b.T + 1, lambda n, m: [C(n, m), C(n, m)], 0),
    "quotients": (lambda a, b: ((a * b + 1) / (b + 2) / 3).real, lambda n, m: [C(n, m), C(n, m)], 0),
    "quotients of real numbers": (lambda a, r: (a / r + 2 / (a * 2) + r / (a + 1)) / (a * a).reciprocal(),
                                  lambda n, m: [C(n, m), R(m)], 0),
    "directions": (lambda a, b: (a * b).sgn() * (a + b).angle() + (a * b) / (a * b).abs(),
                   lambda n, m: [C(n, m), C(n, m)], None),
    "quotients of infinities": (lambda a, b, r: (a / (b * 1), (a + 0) / r, 1j / (a + 0), (b * 1) / 0, (a + 0).sgn()),
                                lambda n, m: [HOLES, torch.tensor([1 + 0j, 2j, 0, INFINITE]),
                                              torch.tensor([0.0, INFINITE, -0.0, 1.0])], 0),
    "exponentials": (lambda a: (torch.exp(1j * a) * a).real + 1, lambda n, m: [R(n, m)], None),
    "infinities": (lambda a, b, r: (a * b + 0, a * r + 0, a * 2 + 1j, a * b - r, r * 1j - a),
                   lambda n, m: [HOLES, torch.tensor([1 + 0j, 2j, 3, INFINITE]),
                                 torch.tensor([0.0, INFINITE, -0.0, 1.0])], 0),
    "no elements": (lambda a: (a * 2 + 1).sum(), lambda n, m: [C(0, m)], None),
    "written in part": (written_in_part, lambda n, m: [C(n, m), C(n)], None),
    "written real part": (written_real_part, lambda n, m: [C(n, m), R(n, m)], None),
    "signs": (lambda a: (-(a * 2) + (-a).conj(), 2 - a * 2, 2j - a, a * 2 - 1j), lambda n, m: [C(n, m)], 1),
    "escape times": (escape, lambda n, m: [C(n, m) * 0.3], 0),
}


def _flat(result):
    return result if isinstance(result, tuple) else (result,)


def _shared(tensors):
    """Which tensors share memory."""
    where = [t.untyped_storage().data_ptr() if t.numel() else None for t in tensors]
    return [(i, k) for k, a in enumerate(where) for i in range(k) if a == where[i] and a is not None]


def _assert_same(got, want):
    got, want = _flat(got), _flat(want)
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        assert (a.is_conj(), a.is_neg()) == (b.is_conj(), b.is_neg())
        tolerance = 2e-2 if a.dtype is torch.bfloat16 else 2e-5
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert _shared(got) == _shared(want)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    fn, make, library = PROGRAMS[name]
    with config.patch(raise_internal_errors=True), torch.no_grad():
        for n, m in thorough.share([(5, 8), (3, 37)], list(PROGRAMS).index(name)):
            torch.manual_seed(0)
            args = make(n, m)
            dynamo_lite.reset()
            dynamo_lite.reset_metrics()
            _assert_same(dynamo_lite.compile(fn, dynamic=False)(*args), fn(*args))
            seen = dynamo_lite.metrics()
            assert seen["graphs"] == 1 and (library is None or sum(seen["library_calls"].values()) == library)


# Of the programs one half is tried with symbolic sizes, the other one with gradients.
@pytest.mark.parametrize("name", thorough.share(list(PROGRAMS), 0))
def test_one_graph_for_all_sizes(name):
    fn, make, _ = PROGRAMS[name]
    compiled = dynamo_lite.compile(fn, dynamic=True)
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        for n, m in ((5, 8), (3, 37), (6, 4)):
            args = make(n, m)
            _assert_same(compiled(*args), fn(*args))
    if name != "spectrum":  # the pad's length is guarded
        assert dynamo_lite.metrics()["graphs"] == 1


NO_GRADIENTS = ("infinities", "quotients of infinities", "no elements")


@pytest.mark.parametrize("name", [n for n in thorough.share(list(PROGRAMS), 1) if n not in NO_GRADIENTS])
def test_gradients(name):
    fn, make, _ = PROGRAMS[name]
    torch.manual_seed(0)
    args = [a.requires_grad_() if a.is_floating_point() or a.is_complex() else a for a in make(5, 8)]
    wanted = [a for a in args if a.requires_grad]

    def gradients(function):
        results = [r for r in _flat(function(*args)) if r.requires_grad]
        squares = [torch.view_as_real(r.resolve_conj()) if r.is_complex() else r for r in results]
        return torch.autograd.grad(sum(s.float().square().sum() for s in squares), wanted, allow_unused=True)

    compiled = dynamo_lite.compile(fn, dynamic=False)
    with config.patch(raise_internal_errors=True):
        got, want = gradients(compiled), gradients(fn)
    for a, b in zip(got, want, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            rtol = 3e-2 if b.dtype is torch.bfloat16 else 1e-4
            torch.testing.assert_close(a, b, rtol=rtol, atol=1e-3)


SAMPLED = ("mul", "add", "sub", "div", "rsub", "neg", "abs", "sgn", "angle", "conj", "reciprocal", "sum", "mean",
           "where", "cat", "stack", "index_select", "view_as_real", "view_as_complex", "complex", "polar", "real",
           "imag", "slice_scatter", "select_scatter", "expand", "permute", "diagonal", "unfold")
SAMPLES = 4  # of each operator


@pytest.mark.parametrize("name", SAMPLED)
def test_samples_of_torch(name):
    """torch's own samples, followed by a complex operation: for each operator every other of the first ones."""
    for op in (op for op in op_db if op.name == name):
        dtype = torch.complex64 if torch.complex64 in op.supported_dtypes("cpu") else torch.float32
        samples = list(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES))
        for sample in thorough.share(samples, 0 if len(samples) < 3 else SAMPLED.index(name)):
            def function(*args, op=op, sample=sample):
                return op.op(*args, **sample.kwargs) * 2 + 1j

            args = [sample.input, *sample.args]
            dynamo_lite.reset()
            with torch.no_grad(), config.patch(raise_internal_errors=True):
                _assert_same(dynamo_lite.compile(function)(*args), function(*args))


def test_inputs_that_are_written():
    """Memory that the graph writes is read as complex numbers by the library, in order."""
    def complex_input(a, b):
        a.mul_(b)
        a.add_(1)
        return a * 2

    def real_input(x, f):
        x.add_(1)
        y = torch.view_as_real(pairs(x) * f + 1).sum()
        x.mul_(2)
        return y

    def through_a_view(x, f):
        torch.view_as_complex(x.view(3, 4, 2)).mul_(2j)
        return x * 2

    for fn, make in ((complex_input, lambda: [C(3, 4), C(3, 4)]), (real_input, lambda: [R(3, 8), C(4)]),
                     (through_a_view, lambda: [R(3, 8), C(4)])):
        torch.manual_seed(0)
        args = make()
        copies = [a.clone() for a in args]
        _assert_same(dynamo_lite.compile(fn)(*args), fn(*copies))
        _assert_same(tuple(args), tuple(copies))


def test_complex_numbers_are_not_copied(in_cpp):
    """Rotary positions are one kernel, and neither their operands nor the result is made as complex numbers."""
    compiled = dynamo_lite.compile(turned, dynamic=False)
    x, f = R(1, 6, 4, 64), C(6, 32)
    compiled(x, f)
    text = str(dynamo_lite.generated_code(compiled))
    wrapper = text[text.rindex("def call"):]
    assert "view_as" not in wrapper and text.count("KERNEL kernel") == 1
    body = text[text.rindex("KERNEL"):]
    assert body.count("load_every<L, 2>") == 4 and body.count("store_side_by_side") == 1


def test_components_of_a_stack_are_not_stored():
    def function(a, b):
        z = torch.view_as_complex(torch.stack([a.sin(), b], -1))
        return (z * z).real.sum(-1)

    a, b = R(5, 40), R(5, 40)
    dynamo_lite.reset_metrics()
    torch.testing.assert_close(dynamo_lite.compile(function)(a, b), function(a, b))
    assert dynamo_lite.metrics()["kernels"] == 1


def test_a_product_between_library_calls_is_the_library_s():
    compiled = dynamo_lite.compile(lambda x, h: torch.fft.ifft(torch.fft.fft(x) * h))
    x, h = C(3, 8), C(8)
    torch.testing.assert_close(compiled(x, h), torch.fft.ifft(torch.fft.fft(x) * h))
    assert "KERNEL" not in str(dynamo_lite.generated_code(compiled))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_components_of_inputs_are_views_of_them(requires_grad):
    def function(z):
        return z.imag, torch.view_as_real(z)

    z = C(5).requires_grad_(requires_grad)
    for result in dynamo_lite.compile(function)(z):
        assert result.untyped_storage().data_ptr() == z.untyped_storage().data_ptr()

    def reals(z):
        w = z * 2
        return w.imag, torch.view_as_real(w), w.real

    assert _shared(dynamo_lite.compile(reals)(z)) == _shared(reals(z))


NEGATIVE = {
    "double": lambda x: x * 2,
    "exponential": lambda x: x.exp() * 2,
    "sum": lambda x: x.sum(0),
    "product": lambda x: x @ x.T,
    "sorted": lambda x: (x.sort()[0], x + 1),
    "view": lambda x: (x.T, x[0] * 2),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_negative_bit(name):
    """An imaginary part of a conjugate is a real tensor whose memory holds the negatives."""
    fn, x = NEGATIVE[name], C(4, 4).conj().imag
    assert x.is_neg()
    compiled = dynamo_lite.compile(fn)
    _assert_same(compiled(x), fn(x))
    plain = x.clone()
    _assert_same(compiled(plain), fn(plain))
    _assert_same(compiled(x), fn(x))
    _assert_same(dynamo_lite.compile(lambda: fn(x))(), fn(x))


def test_negative_bit_of_a_written_input():
    def step(x):
        x.mul_(2)
        return x + 1

    for part in (lambda z: z.imag, lambda z: z):
        ours, theirs = (torch.tensor([1 + 2j, 2 + 3j]).conj() for _ in range(2))
        _assert_same(dynamo_lite.compile(step)(part(ours)), step(part(theirs)))
        _assert_same(ours, theirs)
