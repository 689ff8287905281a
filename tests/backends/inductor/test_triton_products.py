"""Matrix products as Triton kernels: values in its interpreter, the forms that compete, and how they are chosen.

Triton chooses its interpreter when it is imported, so tests of values are processes of their own.
"""
import dataclasses
import functools
import pathlib

import pytest
import torch
from triton_process import interpreted, needs_triton

from dynamo_lite.backends.inductor.codegen.triton.configurations import (
    CROWDED,
    HALF,
    LEAST,
    SINGLE,
    by_rule,
    suitable,
)
from dynamo_lite.backends.inductor.codegen.triton.tuning import Chooser
from dynamo_lite.backends.inductor.gpu_info import TYPICAL

HEAD = f"""
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).resolve().parent)!r})
import torch, torch.nn as nn, torch.nn.functional as F
from gpu_programs import *
torch.manual_seed(0)
""" + """
from dynamo_lite.backends.inductor.target import Tuning

def product(fn, *args, tolerance=1e-4, kernels=1, **options):
    compiled = dynamo_lite.compile(fn, options={"cpu_codegen": "triton", "products": "template"}, **options)
    with torch.no_grad():
        same(compiled(*args), fn(*args), tolerance)
    text = dynamo_lite.generated_code(compiled).rpartition("import triton\\n")[2]  # other calls have compiled others
    assert text.count("tl.dot") == kernels and text.count("= tl.program_id") == kernels, text
    return compiled

class Clock:  # which form is best is known to it, and nothing runs
    def __init__(self, best):
        self.best, self.measured = best, 0

    def name(self):
        return f"fake {self.best}"

    def ready(self):
        return True

    def measure(self, run):
        self.measured += 1
        return 1.0 + abs(self.measured - 1 - self.best)
"""


run = functools.partial(interpreted, HEAD)


@needs_triton
def test_values():
    """Odd sizes, strides, batches, epilogues, symbolic sizes; one kernel each."""
    run("""
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.float16, 1e-2), (torch.bfloat16, 5e-2)):
        def random(*sizes):
            return torch.randn(sizes).to(dtype)
        x, w, b, y, z = random(33, 47), random(21, 47), random(21), random(3, 19, 33), random(3, 19, 19)
        close = {"tolerance": tolerance}
        product(lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2, x, w, b, **close)
        product(lambda x, w: x @ w.t(), x, w, **close)
        product(lambda x, w: (x[:, ::2] @ w.t()[::2]).t(), x, w, **close)
        product(lambda x, w, b: torch.addmm(b, x, w.t(), alpha=0.5), x, w, b, **close)
        product(lambda x, w: (x @ w.t()).float() * 2, x, w, **close)
        product(lambda y, z: torch.baddbmm(z, y, y.transpose(1, 2), beta=0.5, alpha=2), y, z, **close)
        product(lambda y, z: torch.baddbmm(z, y, y.transpose(1, 2), beta=0), y, z * float("nan"), **close)
        product(lambda y, w: torch.bmm(y, w).sigmoid(), y, random(3, 33, 17), **close)
        product(lambda y, w: y @ w, y, random(33, 65), **close)
        product(lambda y, w, r: F.silu(F.linear(y, w)) + r, y, random(65, 33), random(3, 19, 65), **close)
        product(lambda y, w: y.transpose(1, 2) @ w, y, random(3, 19, 5), **close)
        product(lambda x: x @ x.t() + x[:, :1], x, **close)
        product(lambda x, w: x.expand(3, 33, 47) @ w.expand(3, 47, 21), x, w.t(), **close)
    x, w = torch.randn(150, 70), torch.randn(70, 200)
    product(lambda x, w: x @ w, x, w)
    c = product(lambda x, w: (x @ w).relu() + 1, x, w, dynamic=True)
    for n, k, m in ((2, 3, 5), (17, 16, 33), (128, 64, 2)):
        x, w = torch.randn(n, k), torch.randn(k, m)
        with torch.no_grad():
            same(c(x, w), (x @ w).relu() + 1, 1e-4)
    """)


@needs_triton
def test_what_stays_with_the_library():
    """One line, nothing to sum, other dtypes, and everything without the option."""
    run("""
    def library(fn, *args, **options):
        compiled = dynamo_lite.compile(fn, options={"cpu_codegen": "triton", **options})
        with torch.no_grad():
            same(compiled(*args), fn(*args), 1e-4)
        assert "tl.dot" not in dynamo_lite.generated_code(compiled)
    x, w = torch.randn(33, 47), torch.randn(47, 21)
    library(lambda x, w: x @ w + 1, x, w)
    library(lambda x, w: x @ w + 1, x[:1], w, products="template")
    library(lambda x, w: x @ w + 1, x[:, :0], w[:0], products="template")
    library(lambda x, w: x @ w + 1, x.double(), w.double(), products="template")
    library(lambda x, w: x @ w[:, 0] + 1, x, w, products="template")
    """)


@needs_triton
def test_a_training_step():
    run("""
    m = nn.Sequential(nn.Linear(17, 21), nn.GELU(), nn.Linear(21, 5))
    x, y = torch.randn(7, 17), torch.randint(0, 5, (7,))
    loss = lambda x, y: F.cross_entropy(m(x), y)
    c = dynamo_lite.compile(loss, options={"cpu_codegen": "triton", "products": "template"})
    got, want = (torch.autograd.grad(f(x, y), list(m.parameters())) for f in (c, loss))
    same(got, want, 1e-4)
    for form in (0, 1):
        gpu = check(loss, x, y, grad=True, tolerance=1e-4, backend=Gpu(tuning=Tuning("measured"), clock=Clock(form)))
        assert not gpu.artifacts[0].library_calls and "tl.dot" in gpu.artifacts[1].source
    """)


@needs_triton
def test_each_form_computes_the_same(tmp_path):
    """That of the library with a kernel behind, with the result as it is, and each configuration of the template."""
    run("""
    measured = Tuning("measured", "measured")
    x, w, b, r = torch.randn(70, 47), torch.randn(40, 47), torch.randn(40), torch.randn(70, 40)
    y, z = torch.randn(3, 19, 33), torch.randn(3, 33, 17)
    programs = [
        (lambda x, w, b, r: F.gelu(F.linear(x, w, b)) + r, (x, w, b, r)), (lambda x, w: x @ w.t(), (x, w)),
        (lambda x, w, b: F.linear(x, w, b), (x, w, b)), (lambda x, w, r: torch.addmm(r, x, w.t()) * 2, (x, w, r)),
        (lambda x, w: x @ w.t() * 0.5, (x, w)), (lambda y, z: torch.bmm(y, z), (y, z)),
        (lambda y, z: torch.baddbmm(y[:, :, :17], y, z), (y, z)), (lambda y, z: (y @ z[0]).relu(), (y, z)),
        (lambda x, w, b: (F.linear(x, w, b), F.linear(x, w, b).sum(1)), (x, w, b)),
        (lambda x: (x.softmax(1), x * 2 + 1), (x,))]
    for fn, args in programs:
        given = [a.half() for a in args] if len(args) > 2 else args
        count, at = 1, 0
        while at < min(count, 4):
            clock = Clock(at)
            gpu = Gpu(tuning=measured, clock=clock)
            check(fn, *given, tolerance=1e-4 if given is args else 1e-2, backend=gpu)
            count, at = max(count, clock.measured), at + 1
        assert count > 2 and "ALTERNATIVES" in gpu.artifacts[0].source, gpu.artifacts[0].source
    """, DYNAMO_LITE_CACHE_DIR=str(tmp_path))


@needs_triton
def test_sums_of_one_product_are_the_librarys():
    """As the gradient of a linear layer's weight is for a single row; there is no loop along the sum."""
    run("""
    x, y = torch.randn(40, 1), torch.randn(1, 33)
    gpu = check(lambda x, y: (x @ y) * 2, x, y, backend=Gpu(tuning=Tuning("template")))
    assert gpu.artifacts[0].library_calls == ("aten.mm.default",), gpu.artifacts[0].library_calls
    product(lambda x, y: (x @ y).relu(), torch.randn(40, 2), torch.randn(2, 33))
    """)


@needs_triton
def test_tf32_is_used_while_it_is_allowed():
    run("""
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    x, w = torch.randn(33, 47), torch.randn(47, 21)
    gpu = check(lambda x, w: x @ w, x, w, backend=Gpu(tuning=Tuning("template")), tolerance=1e-4)
    text = gpu.artifacts[0].source
    assert 'input_precision="tf32"' in text and 'input_precision="ieee"' in text, text
    assert [name for name, _ in gpu.launches] == ["kernel0"]
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    again = Gpu(tuning=Tuning("template"))
    check(lambda x, w: x @ w, x, w, backend=again, tolerance=1e-4)
    assert 'tf32' not in again.artifacts[0].source
    """)


# ---------------------------------------------------------------- configurations
def test_configurations_fit_their_problems():
    for table, itemsize in ((HALF, 2), (SINGLE, 4)):
        for lines, columns, depth in ((2, 2, 1), (4, 4096, 1024), (333, 555, 77), (8192, 8192, 8192), ("n", 64, "k")):
            rows = suitable(lines, columns, depth, itemsize)
            assert rows and all(LEAST <= n for row in rows for n in (row.lines, row.columns, row.depth))
            assert all(row.lines < 2 * max(lines, LEAST) for row in rows if isinstance(lines, int))
            chosen = by_rule(1, lines, columns, depth, itemsize)
            assert chosen in rows and chosen.shared(itemsize) <= TYPICAL.shared
        assert by_rule(1, 8192, 8192, 8192, itemsize).lines >= 128
        assert by_rule(1, 4, 4096, 4096, itemsize).lines == 16
    # Beside functions of the products, or symbols, a thread has fewer of them.
    assert all(row.results <= CROWDED for itemsize in (2, 4) for row in suitable("n", 64, "k", itemsize))
    for sizes in ((4, 4096, 1024), (333, 555, 77), (8192, 8192, 8192), ("n", 64, "k")):
        rows = suitable(*sizes, 2, functions=True)
        assert rows and all(row.results <= CROWDED and row.warps <= 16 for row in rows)
        assert by_rule(1, *sizes, 2, functions=True) in rows
        assert suitable(*sizes, 4, functions=True) == suitable(*sizes, 4)
    large = dataclasses.replace(TYPICAL, shared=227 << 10)
    assert by_rule(1, 8192, 8192, 8192, 2, large).shared(2) > TYPICAL.shared
    # Small blocks where large ones would leave most of the device idle.
    assert by_rule(1, 512, 512, 512, 2).lines * by_rule(1, 512, 512, 512, 2).columns <= 64 * 64


# ---------------------------------------------------------------- the choice
class Clock:
    """Each form takes the time that it is said to."""

    def __init__(self, times, can=True):
        self.times, self.can, self.measured = times, can, 0

    def name(self):
        return "a device"

    def ready(self):
        return self.can

    def measure(self, run):
        run()
        self.measured += 1
        return self.times[(self.measured - 1) % len(self.times)]


@pytest.fixture
def forms(tmp_path, monkeypatch):
    """Three forms that add 1 to their output, and what ran; choices are kept in a folder of the test's own."""
    pytest.importorskip("triton")
    monkeypatch.setattr("dynamo_lite.config.cache_dir", str(tmp_path))
    ran = []

    def form(name):
        def launch(stream, a, out, *sizes):
            ran.append(name)
            out.add_(a)
        return launch

    def make(clock, sizes=0, functions=None, digest="x"):
        names = ("one", "two", "three")
        given = functions or [form(name) for name in names]
        return Chooser(digest, names, given, frozenset({1}), sizes, clock)

    return ran, make


def test_the_fastest_form_is_kept(forms):
    ran, make = forms
    clock = Clock([3.0, 1.0, 2.0])
    a, out = torch.ones(3), torch.zeros(3)
    launch = make(clock).launcher()
    launch(0, a, out)
    assert out.tolist() == [1.0] * 3 and ran == ["one", "two", "three", "two"]  # measured on copies, then run
    launch(0, a, out)
    assert out.tolist() == [2.0] * 3 and ran[4:] == ["two"] and clock.measured == 3
    again = make(clock).launcher()  # as in another process
    again(0, a, out)
    assert ran[5:] == ["two"] and clock.measured == 3
    make(clock, digest="y").launcher()(0, a, out)
    assert clock.measured == 6  # another kernel


def test_a_choice_holds_for_sizes_of_its_kind(forms):
    ran, make = forms
    clock = Clock([2.0, 1.0, 3.0, 1.0, 2.0, 3.0])
    a, out = torch.ones(3), torch.zeros(3)
    launch = make(clock, sizes=1).launcher()
    for n, form, measured in ((100, "two", 3), (128, "two", 3), (65, "two", 3), (129, "one", 6), (64, "two", 9)):
        launch(0, a, out, n)
        assert (ran[-1], clock.measured) == (form, measured)


def test_what_cannot_be_measured_runs_by_rule(forms):
    ran, make = forms
    clock = Clock([2.0, 1.0, 3.0], can=False)
    a, out = torch.ones(3), torch.zeros(3)
    launch = make(clock).launcher()
    launch(0, a, out)
    assert ran == ["one"] and clock.measured == 0
    clock.can = True
    launch(0, a, out)
    assert ran[-1] == "two" and out.tolist() == [2.0] * 3


def test_a_form_that_fails_is_left_out(forms):
    ran, make = forms

    def fails(stream, a, out):
        raise RuntimeError("out of shared memory")

    def works(stream, a, out):
        ran.append("works")
        out.add_(a)

    a, out = torch.ones(3), torch.zeros(3)
    make(Clock([1.0]), functions=[fails, works, fails]).launcher()(0, a, out)
    assert set(ran) == {"works"} and out.tolist() == [1.0] * 3
