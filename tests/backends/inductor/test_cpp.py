"""Generated C++: every vector width, tails, threads, the functions' accuracy, readable text."""

import ctypes
import math
import re
from pathlib import Path

import pytest
import thorough
import torch
import torch.nn.functional as F

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor import codecache, target_info
from dynamo_lite.backends.inductor.codegen.cpp import functions, source
from dynamo_lite.backends.inductor.codegen.cpp import kernel as cpp_kernel
from dynamo_lite.backends.inductor.codegen.cpp.source import write_source
from dynamo_lite.backends.inductor.codegen.cpp.text import header
from dynamo_lite.backends.inductor.ir import index as ix
from dynamo_lite.backends.inductor.ir.loops import Buffer, LoopNest
from dynamo_lite.backends.inductor.ir.nodes import Builder
from dynamo_lite.backends.inductor.lowering import LoweredGraph
from dynamo_lite.backends.inductor.pipeline import target_named
from dynamo_lite.backends.inductor.scheduler import Kernel, schedule

pytestmark = pytest.mark.by_turns(3)

DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
)
SIMD = ("avx512", "avx2", "scalar")


def test_each_function_of_the_headers_has_a_name_of_its_own():
    """An overload for one type would be preferred to another header's template, unseen."""
    found = {}
    defined = re.compile(r"^(?:template <.*?> )?(?:INLINE|static|NOINLINE)\b[^(;={]*?(\w+)\(", re.MULTILINE)
    for path in sorted(Path(cpp_kernel.__file__).parent.glob("*.h")):
        for name in defined.findall(path.read_text()):
            found.setdefault(name, set()).add(path.name)
    assert len(found) > 50
    assert not {name: files for name, files in found.items() if len(files) > 1}


CONSTANTS = {
    "triangle of ones": lambda n, m: torch.ones(n, m).tril(),
    "triangle of double": lambda n, m: torch.ones(n, m, dtype=torch.float64).triu(1),
    "triangle of integers": lambda n, m: torch.ones(n, m, dtype=torch.int64).tril(-1),
    "triangle of 16 bits": lambda n, m: torch.full((n, m), 1.5, dtype=torch.bfloat16).tril(2),
    "mask": lambda n, m: torch.ones(n, m, dtype=torch.bool).tril(1),
    "additive mask": lambda n, m: torch.full((n, m), float("-inf")).triu(1),
    "identity": lambda n, m: torch.eye(n, m) * 3,
    "positions": lambda n, m: torch.arange(n)[:, None] * 10 - torch.arange(m),
    "comparison": lambda n, m: (torch.arange(n)[:, None] >= torch.arange(m)).float(),
    "band": lambda n, m: ((torch.arange(n)[:, None] - torch.arange(m)).abs() < 3).to(torch.int32).cumsum(1),
    "row sums": lambda n, m: torch.ones(n, m).tril().sum(1),
    "numbers of 64 bits": lambda n, m: torch.full((n, m), 7, dtype=torch.int64),
    "choice of 64 bits": lambda n, m: torch.where(torch.arange(n)[:, None] * 3 >= torch.arange(m), 7, -2),
    "choice of doubles": lambda n, m: torch.where(torch.eye(n, m) > 0, 0.5, -2.25).double(),
    "largest": lambda n, m: (torch.ones(n, m).tril() * torch.arange(m)).amax(1),
    "positions of the largest": lambda n, m: (torch.ones(n, m).tril() * torch.arange(m)).argmax(1),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("simd", SIMD)
def test_what_is_known_when_it_is_compiled(simd, name):
    """g++ computes whole vectors of these itself: it got 512-bit constants wrong that were stored as integers."""
    for n, m in ((16, 17), (13, 16), (9, 64)):
        with config.patch(cpp_simd=simd):
            got = dynamo_lite.compile(lambda: CONSTANTS[name](n, m), dynamic=False)()
        torch.testing.assert_close(got, CONSTANTS[name](n, m), rtol=0, atol=0)


@pytest.mark.parametrize("simd", SIMD)
def test_bytes_of_any_float(simd):
    """Those beyond 32 and 64 bits too, infinities and NaN."""
    x = torch.randint(-2**31, 2**31, (100_003,), dtype=torch.int32).view(torch.float32)
    edges = torch.tensor([2.0**31, 2.0**31 - 128, -2.0**31, 3e9, -1.0, -255.5, 256.0, 300.7])
    for given in (x, x.double() * 1.7, edges):
        with config.patch(cpp_simd=simd):
            got = dynamo_lite.compile(lambda x: x.to(torch.uint8), dynamic=False)(given)
        assert torch.equal(got, given.to(torch.uint8))


def mixed(x, w):
    h = F.layer_norm(x, x.shape[-1:], w)
    return (
        torch.softmax(F.gelu(h), -1) + x,
        x.argmax(-1),
        (x.sin() + x.tanh().exp()).sum(0),
        x.double().mean(),
        x.t() * 2,
        x > 0,
    )


@pytest.mark.parametrize("simd", SIMD)
def test_every_instruction_set(simd, check_many, data):
    with config.patch(cpp_simd=simd):
        cases = [(f"{simd} {n}", mixed, [data.random(5, n), data.random(n)]) for n in (2, 3, 8, 16, 17, 33, 67)]
        check_many(cases, {torch.float32: (1e-5, 1e-5), torch.float64: (1e-7, 1e-7)})
        x = data.random(7, 67)
        casts = [
            (f"{simd} {a} to {b}", lambda x, b=b: x.to(b).t().contiguous(), [(x * 10).to(a)])
            for a in DTYPES
            for b in thorough.share(DTYPES, DTYPES.index(a) + SIMD.index(simd), 3)
            if not (a is torch.float64 and b is torch.uint8)
        ]
        check_many(casts)


RESULTS = {
    "of all widths": lambda x: (x + 1, x.bfloat16(), x > 0, x.double(), x.to(torch.uint8)),
    "wider than registers": lambda x: (x + 1, torch.full_like(x, 3, dtype=torch.int64)),
}


@pytest.mark.parametrize("results", RESULTS)
@pytest.mark.parametrize("n", list(range(1, 36)))
def test_nothing_is_written_past_the_end(n, results, build):
    """Results lie in the middle of larger tensors, whose other elements must stay."""
    built = build(RESULTS[results], [torch.ones(n)])
    program = built.program
    library = codecache.shared_library(program.source + "void* anchor;")
    for call in program.kernel_calls():
        frames = {}
        for name in call.args:
            dtype = program.buffers[name].dtype if name not in program.inputs else torch.float32
            frames[name] = torch.full((n + 128,), 1 if name in program.inputs else 77, dtype=dtype)
        entry = getattr(ctypes.CDLL(str(library)), call.symbol)
        entry(*[ctypes.c_void_p(t.data_ptr() + 64 * t.element_size()) for t in frames.values()])
        for name in call.outputs:
            t = frames[name]
            expected = torch.full_like(t, 77)
            assert torch.equal(t[:64], expected[:64]) and torch.equal(t[64 + n :], expected[64 + n :])


FUNCTIONS = {
    "exp": torch.exp,
    "expm1": torch.expm1,
    "tanh": torch.tanh,
    "erf": torch.erf,
    "log": torch.log,
    "log1p": torch.log1p,
    "sin": torch.sin,
    "cos": torch.cos,
}


def _every_function(x, y):
    """Each function of the loop IR, once of float32 and once beside float64, which halves the number of lanes."""
    one = [torch.exp, torch.exp2, torch.expm1, torch.log, torch.log2, torch.log10, torch.log1p, torch.sin, torch.cos,
           torch.tan, torch.asin, torch.acos, torch.atan, torch.sinh, torch.cosh, torch.tanh, torch.asinh, torch.acosh,
           torch.atanh, torch.erf, torch.lgamma, torch.erfc, F.gelu]
    two = [torch.pow, torch.atan2, torch.hypot, torch.fmod, torch.nextafter]
    found = [f(x) for f in one] + [f(x, x + 0.25) for f in two]
    found += [f(x) * y for f in one] + [f(x, x + 0.25) * y for f in two] + [f(y) for f in one]
    return tuple(found)


@pytest.mark.parametrize("simd", SIMD)
def test_every_function_at_every_width(simd, check_many, data):
    with config.patch(cpp_simd=simd):
        cases = [(f"{simd} {n}", _every_function, [data.random(n).sigmoid(), data.random(n).sigmoid().double()])
                 for n in thorough.share((5, 21, 40), SIMD.index(simd))]
        check_many(cases, {torch.float32: (1e-5, 1e-5), torch.float64: (1e-5, 1e-5)})


@pytest.mark.parametrize("simd", ["avx512", "avx2"])
def test_functions_that_torch_lacks_are_computed_by_lane(simd, check_many, data, monkeypatch):
    """A null address was called where libtorch_cpu does not export a function for a width."""
    monkeypatch.setattr(functions, "_exported", lambda symbol: "cosh" not in symbol)
    with config.patch(cpp_simd=simd):
        check_many([(simd, lambda x: (torch.cosh(x), torch.sinh(x)), [data.random(37)])], {torch.float32: (1e-5, 0)})


@pytest.mark.parametrize("simd", ["avx512", "avx2"])
def test_functions_in_line_are_within_two_ulps(simd, build):
    bits = torch.arange(0, 2**32, 9973, dtype=torch.int64)
    x = (bits - 2**31).to(torch.int32).view(torch.float32)
    with config.patch(cpp_simd=simd):
        results = build(lambda x: tuple(f(x) for f in FUNCTIONS.values()), [x]).call(x)
    for (name, fn), got in zip(FUNCTIONS.items(), results):
        exact = fn(x.double())
        want = exact.float()
        ulp = torch.nextafter(want.abs(), torch.tensor(torch.inf)) - want.abs()
        fine = (want == got) | (want.isnan() & got.isnan()) | ((got.double() - exact).abs() <= 2 * ulp.double())
        # The largest numbers may round to infinity.
        fine |= (exact.abs() > 3.4028e38) & (exact.abs() < 3.4029e38)
        assert fine.all(), (name, x[~fine][:5], got[~fine][:5], want[~fine][:5])
        assert torch.equal(want.signbit() | want.isnan(), got.signbit() | want.isnan()), name


@pytest.mark.parametrize("simd", ["avx512", "avx2"])
def test_one_and_the_error_function(simd, build):
    """What ``gelu`` is made of, by the sum's size: for large negative numbers it is no difference of two near one."""
    bits = torch.arange(0, 2**32, 9973, dtype=torch.int64)
    x = torch.cat([(bits - 2**31).to(torch.int32).view(torch.float32), torch.linspace(-8, 8, 1 << 20)])
    with config.patch(cpp_simd=simd):
        (got,) = build(lambda x: (F.gelu(x),), [x]).call(x)
    exact = F.gelu(x.double())
    finite = exact.isfinite() & x.isfinite() & (x.abs() > 1e-30) & (x.abs() < 1e38)
    error = (got.double() - exact).abs()[finite] / x[finite].double().abs()
    half = (exact / x).abs()[finite].clamp_min(0.05)  # of 1 + erf
    assert (error <= 5e-7 * half).all(), (error / half).max()
    assert torch.equal(got.isnan(), F.gelu(x).isnan())
    low = finite & (x < -8)
    assert (got[low] == 0).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads(threads, build, data):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        shapes = [(300, 1000), (3, 100003), (300001,), (100003, 3), (64, 33, 100)]
        for shape in thorough.share(shapes, threads):
            x = data.random(*shape)
            built = build(lambda x: (x * 2 + 1, x.sum(), x.sum(-1), x.sum(0), x.argmax(), x.softmax(-1), x.amax()), [x])
            for got, fn in zip(
                built.call(x),
                (
                    lambda x: x * 2 + 1,
                    lambda x: x.sum(),
                    lambda x: x.sum(-1),
                    lambda x: x.sum(0),
                    lambda x: x.argmax(),
                    lambda x: x.softmax(-1),
                    lambda x: x.amax(),
                ),
            ):
                torch.testing.assert_close(got, fn(x), rtol=1e-4, atol=2e-3)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not torch.int16])
@pytest.mark.parametrize("shape", [(40, 50), (16, 16), (17, 33), (8, 100)])
def test_transposes(dtype, shape, check_many, data):
    x, y = data.random(*shape, dtype=dtype), data.random(*shape[::-1], dtype=dtype)
    check_many(
        [
            ("plus", lambda x, y: (x.t() & y) if x.dtype is torch.bool else x.t() + y, [x, y]),
            ("copy", lambda x: x.t().contiguous(), [x]),
        ]
    )


def test_results_over_inputs(build, data):
    def f(x, w):
        h = x.sort(0)[0].relu() + w
        return h.sort(0)[0].softmax(-1)

    built = build(f, [data.random(8, 8), data.random(8, 8)])
    assert all(call.inplace for call in built.program.kernel_calls())
    x, w = data.random(8, 8), data.random(8, 8)
    torch.testing.assert_close(built.call(x, w)[0], f(x, w))
    assert not any(c.inplace for c in build(lambda x: x.flip(0) + 1, [data.random(8, 8)]).program.kernel_calls())
    assert not any(
        c.inplace for c in build(lambda x: x / x.sum(0) + x.roll(1, 0), [data.random(8, 8)]).program.kernel_calls()
    )


def test_the_text_says_what_it_computes(build, data):
    source = build(lambda x: torch.relu(x) * 2, [data.random(8, 8)]).program.source.removeprefix(header())
    assert "//: relu, mul" in source and "#include" not in header()


def test_sizes_that_are_symbols_are_arguments():
    """Loops over a symbolic size: one function serves every size."""
    builder = Builder()
    s = ix.atom(ix.Sym("s0"))
    rows, columns = ix.Var("i0", s), ix.Var("i1", 67)
    at = ix.dot((ix.atom(rows), ix.atom(columns)), (67, 1))
    x = builder.load("x", at, torch.float32)
    buffers = {
        "x": Buffer("x", (s, 67), (67, 1), torch.float32),
        "twice": Buffer("twice", (s, 67), (67, 1), torch.float32),
        "sums": Buffer("sums", (s,), (1,), torch.float32),
        "columns": Buffer("columns", (67,), (1,), torch.float32),
    }
    nests = [
        LoopNest(buffers["twice"], (rows, columns), builder.op("add", x, x), at),
        LoopNest(buffers["sums"], (rows, columns), x, ix.atom(rows), "sum", (columns,)),
        LoopNest(buffers["columns"], (rows, columns), x, ix.atom(columns), "sum", (rows,)),
    ]
    lowered = LoweredGraph(builder, ("x",), {}, buffers, list(nests), ("twice", "sums", "columns"), {}, {})
    kernels = [step for step in schedule(lowered, target_named("cpp").arrangement).steps if isinstance(step, Kernel)]
    assert len(kernels) == 2 and all(k.symbols() == ("s0",) for k in kernels)
    source, symbols = write_source(kernels, target_info.current())
    library = ctypes.CDLL(str(codecache.shared_library(source)))
    for n in (2, 5, 1000):
        memory = {
            "x": torch.randn(n, 67),
            "twice": torch.empty(n, 67),
            "sums": torch.empty(n),
            "columns": torch.empty(67),
        }
        for kernel, symbol in zip(kernels, symbols):
            pointers = [ctypes.c_void_p(memory[b].data_ptr()) for b in kernel.buffers]
            getattr(library, symbol)(*pointers, ctypes.c_int64(n))
        torch.testing.assert_close(memory["twice"], memory["x"] * 2)
        torch.testing.assert_close(memory["sums"], memory["x"].sum(-1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(memory["columns"], memory["x"].sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("by", [3, 6, 7, 48, 49, 1000, 1024, 2.5, 1025])
def test_quotients_by_constants_are_those_of_the_division(simd, by):
    torch.manual_seed(0)
    x = (1 + torch.rand(100_003)) * 2.0 ** torch.randint(-99, 127, (100_003,)) * (torch.rand(100_003) - 0.5).sign()
    x[10:30_000] = torch.randint(0, 40 << 23, (29_990,), dtype=torch.int32).view(torch.float32)  # down to the smallest
    x[:10] = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 3.4e38, -3.4e38, 1e-20, 6.0, -6.0])
    dynamo_lite.reset()
    with config.patch(cpp_simd=simd):
        got = dynamo_lite.compile(lambda x: x / by)(x)
    want = x / by
    assert torch.equal(got.nan_to_num(7.5), want.nan_to_num(7.5)) and torch.equal(got.signbit(), want.signbit())


def test_divisions_by_different_numbers_are_no_arguments(check_many, data):
    """Kernels that differ in sizes only are one function of them; what a template is made for stays in the text."""
    x, y = data.random(3, 40), data.random(5, 48)
    check_many([("by 3", lambda x: (x / 3).relu(), [x]), ("by 5", lambda y: (y / 5).relu(), [y])])


def test_shared_loops_that_differ_in_sizes_are_one_function(data):
    """What differs reaches the loop's function through the struct that holds its arguments."""
    x, y = data.random(300, 70), data.random(200, 130)
    compiled = dynamo_lite.compile(lambda x, y: tuple(z - z.amax(1, keepdim=True) for z in (x, y)))
    with config.patch(target={"wake": 1, "awake": 1, "elements": 1}):
        found = compiled(x, y)
    source = "".join(map(str, dynamo_lite.generated_code(compiled))).split("//--")[1:]
    assert sum(part.count("share_loop(&") for part in source) == 1
    for value, z in zip(found, (x, y)):
        assert torch.equal(value, z - z.amax(1, keepdim=True))


def test_small_kernels_have_threads_if_others_keep_them_awake():
    small, large = torch.randn(100, 300), torch.randn(1000, 1001)

    def shared_out(fn, *args):
        compiled = dynamo_lite.compile(fn)
        compiled(*args)
        source = "".join(map(str, dynamo_lite.generated_code(compiled)))
        kernels = source.split("KERNEL kernel0")[1]
        return kernels.count("threads_for(") + kernels.count("share_loop(")

    with config.patch(target={"wake": 6500, "awake": 1600, "elements": 10}):
        assert shared_out(lambda x: x.sum(1), small) == 0
        assert shared_out(lambda x: (x.exp() + 1).sin(), large) == 1
        assert shared_out(lambda x, y: (x.sum(1), (y.exp() + 1).sin()), small, large) == 2


def long_body(x, w, i):
    y = x.float()
    for k in range(6):
        y = torch.sin(y) + torch.tanh(y * 0.5) - torch.exp(-y.abs()) * (k + 1)
    y = torch.where(x > 0, y, w[i] * y)
    return y.to(x.dtype), y > 0.5, y.sum(-1), y.amax(0), (y * 8).long(), y.t() * 2


@pytest.mark.parametrize("simd", SIMD)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_long_bodies_and_functions_that_are_called_give_the_same_bits(simd, dtype, data, monkeypatch):
    inputs = [(data.random(m, n).to(dtype), data.random(n), torch.arange(n).flip(0))
              for m, n in ((5, 33), (40, 67))]

    def results(cost, in_line):
        monkeypatch.setattr(cpp_kernel, "MIN_LONG_COST", cost)
        monkeypatch.setattr(source, "MOST_IN_LINE", in_line)
        dynamo_lite.reset()
        compiled = dynamo_lite.compile(long_body, dynamic=False)
        found = [compiled(*given) for given in inputs]
        return found, dynamo_lite.debug.generated_code(compiled)

    with config.patch(cpp_simd=simd, recompile_limit=len(inputs)):
        long, long_text = results(0, 0)
        short, short_text = results(1 << 30, 1 << 30)
    assert ("_once<L>" in long_text) and "_once<L>(0" not in short_text
    assert ("static NOINLINE vec" in long_text) == (simd != "scalar") and "static NOINLINE vec" not in short_text
    for a, b in zip(long, short):
        assert all(torch.equal(p, q) and p.stride() == q.stride() for p, q in zip(a, b))
    for given, found in zip(inputs, long):
        torch.testing.assert_close(found[2], long_body(*given)[2], rtol=1e-2, atol=1e-2)
