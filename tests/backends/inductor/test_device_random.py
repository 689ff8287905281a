"""Random numbers of kernels on a GPU, on a machine without one: against a reference of Philox, the known answers of
its authors, and ATen's loops over threads (``curand_reference.py``)."""
import functools
import pathlib

import numpy as np
import pytest
import torch
from curand_reference import Device, philox4x32, vector_of
from triton_process import interpreted

from dynamo_lite.backends.inductor import compile as compiling
from dynamo_lite.backends.inductor import device_random
from dynamo_lite.backends.inductor.device_random import reserve
from dynamo_lite.backends.inductor.ir.ops import philox

HERE = pathlib.Path(__file__).resolve().parent
GPU = torch.device("cuda", 0)
pytest.importorskip("triton")

# Of Random123, the authors' library: counter, key, what comes out.
KNOWN = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
)


@pytest.mark.parametrize("counter,key,drawn", KNOWN)
def test_known_answers(counter, key, drawn):
    assert tuple(map(int, philox4x32(np.array(counter), key))) == drawn
    low, high, seed = (signed(a | b << 32) for a, b in (counter[:2], counter[2:], key))
    got = philox(torch.tensor(low), torch.tensor(high), torch.tensor(seed), torch.arange(4))
    assert tuple(got.tolist()) == drawn


def signed(n):
    return n - (n >> 63 << 64)


@pytest.fixture
def generator(monkeypatch):
    made = Device(seed=0xFEDCBA9876543210)
    monkeypatch.setattr(device_random, "generator_of", lambda device: made)
    monkeypatch.setattr(device_random, "threads_of", lambda device: made.most_threads)
    return made


@pytest.mark.parametrize("count", [1, 255, 256, 257, 1000, 4096, 4100, 8194, 9001])
def test_numbers_by_place(generator, count):
    for vector, draw in ((1, generator.uniform), *((v, None) for v in (2, 4, 8) if count % v == 0)):
        generator.offset = start = 4 * 5
        state = reserve(count, GPU)
        after, generator.offset = generator.offset, start
        want = draw(count) if draw is not None else generator.dropout(count, vector)
        assert generator.offset == after
        got = device_random.numbers_at(torch.arange(count), state, vector)
        assert torch.equal(got, torch.from_numpy(want)), vector
    for itemsize in (2, 4):
        assert device_random.vector_of(count, itemsize) == vector_of(count, itemsize)


def test_offsets_beyond_32_bits(generator):
    generator.offset = start = 4 * (2**32 - 1)
    state = reserve(5000, GPU)
    generator.offset = start
    got = device_random.numbers_at(torch.arange(5000), state, 1)
    assert torch.equal(got, torch.from_numpy(generator.uniform(5000)))


def test_a_torch_that_draws_otherwise_draws_itself(monkeypatch):
    """The option is asked for; whether kernels may do it is found out on the device."""
    seen = []
    monkeypatch.setattr(device_random, "draws_as_kernels_do", lambda device: seen.append(device) or False)
    chosen = compiling._with_random({GPU}, {"random": "kernels"})
    assert chosen == {"random": "library"} and seen == [GPU]
    assert compiling._with_random({GPU}, chosen) == chosen and seen == [GPU]
    monkeypatch.setattr(device_random, "draws_as_kernels_do", lambda device: True)
    assert compiling._with_random({GPU}, {"random": "kernels"}) == {"random": "kernels"}


HEAD = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parents[1])!r}]
import numpy as np, torch, torch.nn.functional as F
from curand_reference import Device, vector_of
from gpu_programs import *
from dynamo_lite.backends.inductor import device_random
from dynamo_lite.backends.inductor.target import Tuning
device = Device(seed=0xFEDCBA9876543210, offset=12)
device_random.generator_of = lambda place: device
device_random.threads_of = lambda place: device.most_threads
KERNELS = Tuning(random="kernels")

def run(fn, *args):
    gpu = Gpu(tuning=KERNELS)
    with torch.no_grad():
        device.offset = 12
        got = dynamo_lite.compile(fn, backend=gpu, fullgraph=True)(*args)
        after, device.offset = device.offset, 12
    return gpu, got, after

def number(*shape):
    return torch.from_numpy(device.uniform(int(np.prod(shape)))).view(shape)

def reversed_(x):
    return torch.where(x == 1, 0.0, x)
"""


run = functools.partial(interpreted, HEAD)


def test_kernels_draw_what_eager_draws():
    run("""
    x = torch.randn(33, 41)
    gpu, got, after = run(lambda x: (torch.rand(33, 41), torch.rand_like(x) * x, torch.bernoulli(x, 0.25),
                                     torch.empty(90, 60).uniform_(0, 3), torch.empty(7).uniform_(-1, 1),
                                     F.dropout(x, 0.3)), x)
    want = (reversed_(number(33, 41)), reversed_(number(33, 41)) * x, (number(33, 41) < 0.25).float(),
            number(90, 60) * 3, number(7) * 2 - 1, x * ((number(33, 41) < 0.7).float() / 0.7))
    for a, b in zip(got, want):
        assert torch.equal(a, b), (a - b).abs().max()
    assert after == device.offset
    (made,) = gpu.artifacts
    assert set(made.library_calls) == {"reserve"}, made.library_calls
    assert "philox(" in made.source and ".tolist()" in made.source, made.source
    for dtype in (torch.bfloat16, torch.float16):
        gpu, (got, part), after = run(lambda: (torch.rand(5000, dtype=dtype), torch.empty(9).uniform_(-1, 1)))
        want, rest = number(5000).to(dtype), number(9) * 2 - 1
        assert torch.equal(got, torch.where(want == 1, torch.zeros((), dtype=dtype), want))
        assert torch.equal(part, rest) and after == device.offset
    """)


def test_dropout_of_each_width():
    run("""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape in ((40, 104), (3, 1000), (7, 3, 2), (33, 41), (1,)):
            x = torch.randn(shape, dtype=dtype)
            def program(x):
                y, mask = torch.native_dropout(x + 1, 0.3, True)
                return y, mask, y * 2
            gpu, got, after = run(program, x)
            count = x.numel()
            drawn = torch.from_numpy(device.dropout(count, vector_of(count, dtype.itemsize))).view(shape)
            kept = torch.tensor(1 - 0.3, dtype=torch.float32)
            mask = drawn < kept
            scale = torch.tensor(1 / kept.double().item(), dtype=torch.float32)
            want = ((x + 1).float() * mask.float() * scale).to(dtype)
            assert torch.equal(got[0], want) and torch.equal(got[1], mask) and torch.equal(got[2], want * 2)
            assert after == device.offset and gpu.artifacts[0].library_calls == ("reserve",)
    """)


def test_draws_beside_products_and_sums():
    """Behind a template's product, in rows that a block holds and in longer ones, where a mask is summed up."""
    run("""
    x, w = torch.randn(48, 32), torch.randn(40, 32)
    def dropped(x):
        drawn = torch.from_numpy(device.dropout(x.numel(), 4)).view(x.shape)
        return x * (drawn < 0.75) * (1 / torch.tensor(0.75)), drawn < 0.75
    def linear(x, w, drop):
        return drop(F.linear(x, w))
    def sums(x, w, drop):
        y, mask = drop(x * 2)
        return y.sum(1), y.sum(), torch.softmax(y, -1), mask.sum(0)
    def native(x):
        return torch.native_dropout(x, 0.25, True)
    for tuning in (Tuning("template", random="kernels"), KERNELS):
        for fn in (linear, sums):
            device.offset = 12
            gpu = Gpu(tuning=tuning)
            with torch.no_grad():
                got = dynamo_lite.compile(lambda x, w: fn(x, w, native), backend=gpu, fullgraph=True)(x, w)
                device.offset = 12
                same(got, fn(x, w, dropped), 1e-5)
            assert "philox" in gpu.artifacts[0].source
            assert ("tl.dot" in gpu.artifacts[0].source) is (fn is linear and tuning.products == "template")
    gpu, got, _ = run(lambda: torch.rand(3, 9000).softmax(-1))
    same(got, reversed_(number(3, 9000)).softmax(-1), 1e-5)
    """)


def test_what_the_library_draws():
    run("""
    x = torch.randn(64, 64)
    cases = {
        "normal": lambda x: torch.randn(3, 4) + x.sum(),
        "a range that rounds": lambda x: torch.empty(5).uniform_(-0.1, 0.3),
        "float64": lambda x: torch.rand(5, dtype=torch.float64),
        "an input's own memory": lambda x: torch.native_dropout(x, 0.3, True)[0],
        "a part of a tensor": lambda x: torch.native_dropout((x + 1)[1:], 0.3, True)[0],
        "no dropout": lambda x: torch.native_dropout(x + 1, 0.3, False)[0],
    }
    for what, fn in cases.items():
        gpu = Gpu(tuning=KERNELS)
        with torch.no_grad():
            dynamo_lite.compile(fn, backend=gpu, fullgraph=True)(x)
        assert "philox" not in gpu.artifacts[0].source and gpu.artifacts[0].library_calls, what
    def written(x):
        x.mul_(2)
        y = x + 1
        y[1:].mul_(3)
        return torch.native_dropout(x, 0.5, True)[0], torch.native_dropout(y[1:], 0.5, True)[0]
    gpu = Gpu(tuning=KERNELS)
    with torch.no_grad():
        dynamo_lite.compile(written, backend=gpu, fullgraph=True)(x)
    assert gpu.artifacts[0].library_calls.count("aten.native_dropout.default") == 2, gpu.artifacts[0].library_calls
    assert "philox" not in gpu.artifacts[0].source
    # By default all is the library's.
    gpu = check(lambda x: torch.rand(4) * 0, x)
    assert gpu.artifacts[0].library_calls == ("aten.rand.default",)
    """)


def test_draws_keep_their_order():
    """Those of kernels and of the library, whether their numbers are read or not; a call that draws is not recorded."""
    run("""
    from recorder_on_cpu import RecorderOnCpu
    order = []
    reserve = device_random.reserve
    def fn(x):
        a = torch.rand(10)
        b = torch.randn(10)
        torch.rand(300)
        c = torch.empty(1030).uniform_(0, 4)
        return c.sum() + a.sum(), b
    gpu, _, after = run(fn, torch.ones(3))
    calls = gpu.artifacts[0].library_calls
    text = gpu.artifacts[0].wrapper.python
    at = [text.index(word) for word in ("reserve(10,", "randn(", "reserve(300,", "reserve(1030,")]
    assert at == sorted(at), text
    device.uniform(10), device.uniform(300), device.uniform(1030)
    assert after == device.offset
    gpu = Gpu(tuning=KERNELS, recorder=RecorderOnCpu())
    with torch.no_grad():
        dynamo_lite.compile(fn, backend=gpu)(torch.ones(3))
    assert "random numbers" in gpu.artifacts[0].replay.refusal
    """)
