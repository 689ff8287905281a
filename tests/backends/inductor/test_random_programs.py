"""Random programs in every way that there is: eager, the loop nests interpreted, the kernels interpreted, C++ for each
kind of vector.

Values are small whole numbers, also in floats, so that every order of operations has one exact result. The checkers run
behind lowering and behind scheduling. ``DYNAMO_LITE_TEST_PROGRAMS`` says how many programs to try, or which ("5-9").
"""
import os
import random

import pytest
import torch

from dynamo_lite import config
from dynamo_lite.backends.aot.decompositions import FOR_KERNELS
from dynamo_lite.backends.aot.record import record
from dynamo_lite.backends.inductor import artifact, pipeline
from dynamo_lite.backends.inductor.ir.checker import check_nest
from dynamo_lite.backends.inductor.ir.interpreter import run_nests
from dynamo_lite.backends.inductor.ir.loops import LoopNest
from dynamo_lite.backends.inductor.lowering import lower
from dynamo_lite.backends.inductor.pipeline import target_named
from dynamo_lite.backends.inductor.scheduler import Kernel, schedule
from dynamo_lite.backends.inductor.scheduler.checker import check_kernel, run_kernel
from dynamo_lite.runtime.storage_extent import storage_extent

DTYPES = [torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool]
SIZES = [1, 2, 3, 4, 5, 8, 16, 17, 33]


# ---------------------------------------------------------------- programs
def tensor(rng, shape, dtype):
    generator = torch.Generator().manual_seed(rng.randrange(10**6))
    low = 0 if dtype in (torch.uint8, torch.bool) else -4
    x = torch.randint(low, 5, shape, generator=generator).to(dtype)
    kind = rng.randrange(5)
    if kind == 1 and x.ndim > 1:
        x = x.transpose(0, -1).contiguous().transpose(0, -1)
    elif kind == 2 and x.ndim:
        x = torch.stack([x, x], -1)[..., 0]
    elif kind == 3 and x.ndim:
        x = x[:1].expand(shape)
    return x


def is_number(x):
    return x.dtype is not torch.bool


def tame(x):
    """Keeps numbers small, so that float arithmetic stays exact."""
    return x.clamp(0 if x.dtype is torch.uint8 else -4, 4) if is_number(x) else x


def unary(rng, x):
    choices = [lambda x: x.clone(), lambda x: x == 2, lambda x: x.to(rng.choice(DTYPES)), lambda x: torch.zeros_like(x)]
    if is_number(x):
        choices += [lambda x: tame(x + 1), lambda x: tame(x * 2), lambda x: x.relu(), lambda x: x.sign(),
                    lambda x: tame(x * x), lambda x: x.clamp(1, 3), lambda x: torch.where(x > 1, x, x.clamp(max=0))]
        if x.dtype.is_signed:
            choices += [lambda x: -x, lambda x: x.abs(), lambda x: x - 2]
        if x.dtype.is_floating_point:
            choices += [lambda x: (x / 2).floor(), lambda x: (x * 0.5).round(), lambda x: (x / 4).trunc(),
                        lambda x: torch.remainder(x, 3), lambda x: x.isnan()]
        else:
            choices += [lambda x: x // 3, lambda x: x % 3, lambda x: x & 3, lambda x: x ^ 1, lambda x: x << 1]
    else:
        choices += [lambda x: ~x, lambda x: x.logical_not()]
    return rng.choice(choices)(x)


def binary(rng, x, y):
    choices = [lambda a, b: a == b, lambda a, b: a < b, torch.maximum, torch.minimum,
               lambda a, b: torch.where(a == 1, a, b), torch.logical_and]
    if is_number(x) and is_number(y):
        choices += [lambda a, b: tame(a + b), lambda a, b: tame(a * b), lambda a, b: tame(a - b)]
    else:
        choices += [lambda a, b: a.bool() ^ b.bool()]
    return rng.choice(choices)(x, y)


def view(rng, x):
    d = rng.randrange(x.ndim) if x.ndim else 0
    choices = [lambda x: x.unsqueeze(d), lambda x: x.reshape(-1), lambda x: x.squeeze()]
    if x.ndim:
        n = x.shape[d]
        cut = rng.randrange(n)
        choices += [
            lambda x: x.flip(d), lambda x: x.narrow(d, cut, n - cut), lambda x: x.select(d, cut),
            lambda x: x.transpose(0, d), lambda x: x[..., ::2], lambda x: torch.cat([x, x.flip(d)], d),
            lambda x: torch.roll(x, cut, d), lambda x: torch.stack([x, x], d), lambda x: x.unflatten(d, (n, 1)),
            lambda x: torch.nn.functional.pad(x, (cut % 3, 1)), lambda x: x.flatten(), lambda x: x.repeat(*[1] * d, 2),
        ]
    if x.ndim == 2:
        choices += [lambda x: x.tril(), lambda x: x.triu(1), lambda x: x.t(), lambda x: x.diagonal()]
    out = rng.choice(choices)(x)
    return out if 0 < out.numel() <= 4000 and out.ndim < 5 else x


def reduction(rng, x):
    if not x.ndim:
        return x
    d, keep = rng.randrange(x.ndim), rng.random() < 0.5
    choices = [lambda x: x.amax(d, keep), lambda x: x.amin(d, keep), lambda x: x.bool().any(d, keep),
               lambda x: x.bool().all(d, keep)]
    if is_number(x):
        choices += [lambda x: x.argmax(d, keep), lambda x: x.argmin(d, keep), lambda x: tame(x.sum(d, keep)),
                    lambda x: tame(x.sum()), lambda x: x.max(d, keep)[0], lambda x: x.amax(),
                    lambda x: tame(x - x.amax(d, True)),
                    lambda x: tame(x * 2 - x.sum(d, True).clamp(-3, 3).to(x.dtype)),
                    lambda x: tame(x.sign().prod(d, keep))]
    return rng.choice(choices)(x)


def write(rng, x, y):
    """A write into a part of a copy."""
    out = x.clone()
    if not out.ndim:
        return out
    d = rng.randrange(out.ndim)
    at = rng.randrange(out.shape[d])
    part = out.narrow(d, at, out.shape[d] - at)
    part.copy_(y.reshape(-1)[:1].to(out.dtype).reshape([1] * out.ndim).expand_as(part))
    if is_number(out):
        out.select(d, 0).add_(1).clamp_(0, 4)
    return out


class Program:
    """A function of some tensors that does the same every time: its choices come from a seed."""

    def __init__(self, seed):
        self.seed = seed
        rng = random.Random(seed)
        rank = rng.choice([1, 2, 2, 3])
        shape = [rng.choice(SIZES) for _ in range(rank)]
        self.inputs = [tensor(rng, [rng.choice([n, n, 1]) for n in shape], rng.choice(DTYPES)) for _ in range(3)]
        self.inputs[0] = tensor(rng, shape, rng.choice(DTYPES[:6]))

    def __call__(self, *inputs):
        rng = random.Random(self.seed + 1)
        values = list(inputs)
        for _ in range(rng.randrange(4, 14)):
            x = rng.choice(values[-3:])
            y = rng.choice(values)
            kind = rng.random()
            if kind < 0.3:
                values.append(unary(rng, x))
            elif kind < 0.55:
                fits = self._broadcasts(x, y)
                values.append(binary(rng, x, y if fits else x))
            elif kind < 0.75:
                values.append(view(rng, x))
            elif kind < 0.9:
                values.append(reduction(rng, x))
            else:
                values.append(write(rng, x, y))
        results = values[len(inputs):]
        return tuple(dict.fromkeys([results[-1], *rng.sample(results, min(2, len(results)))]))

    @staticmethod
    def _broadcasts(x, y):
        try:
            return torch.broadcast_shapes(x.shape, y.shape).numel() <= 4000
        except RuntimeError:
            return False


# ---------------------------------------------------------------- ways to run them
def tensors(lowered, memory):
    buffers = [lowered.buffers[name] for name in lowered.outputs]
    return [memory[b.name].as_strided(b.size, b.stride) for b in buffers]


def flat(inputs, names):
    out = {}
    for name, t in zip(names, inputs):
        out[name] = t.as_strided((storage_extent(t.shape, t.stride()),), (1,), t.storage_offset())
    return out


def by_nests(lowered, inputs):
    for operation in lowered.operations:
        assert isinstance(operation, LoopNest), operation
        check_nest(operation)
    memory = flat(inputs, lowered.inputs)
    run_nests(lowered.operations, memory)
    return tensors(lowered, memory)


def by_kernels(lowered, inputs):
    memory = flat(inputs, lowered.inputs)
    for step in schedule(lowered, target_named("cpp").arrangement).steps:
        assert isinstance(step, Kernel), step
        check_kernel(step)
        run_kernel(step, memory)
    return tensors(lowered, memory)


def only_loops(lowered):
    return all(isinstance(operation, LoopNest) for operation in lowered.operations) and not lowered.constants


def generated(aten, inputs, kernels, simd):
    with config.patch(cpp_simd=simd):
        program = pipeline.lower_and_schedule(aten.graph, aten.constants, pipeline.target_named(kernels))
        scopes = {"no_grad": False, "no_autocast": False, "inference": False}
        return artifact.start(artifact.write(aten, program, scopes))(*inputs)


def seeds():
    first, _, last = os.environ.get("DYNAMO_LITE_TEST_PROGRAMS", "24").rpartition("-")
    return range(int(first or 0), int(last))


def outcome(fn, inputs):
    try:
        return fn(*inputs), None
    except (RuntimeError, IndexError) as e:
        return None, e


@pytest.mark.parametrize("seed", seeds())
def test_program(seed, backend_check, kernels):
    program = Program(seed * 10)
    inputs = program.inputs

    def run(*inputs):
        return program(*inputs)

    with torch.no_grad():
        want, error = outcome(run, inputs)
        if error is not None:
            pytest.skip(f"eager refuses it: {error}")
        gm, fakes = backend_check.capture(run, inputs)
        aten = record(gm, fakes, FOR_KERNELS)
        runs = {}
        if only_loops(lower(aten.graph, aten.constants)):
            nests = lower(aten.graph, aten.constants)
            runs["nests"] = by_nests(nests, inputs)
            runs["kernels"] = by_kernels(lower(aten.graph, aten.constants), inputs)
            values = [recipe.index for recipe in aten.outputs if hasattr(recipe, "index")]
            if len(values) != len(want) or any("Value" not in type(r).__name__ for r in aten.outputs):
                runs.clear()  # results that are views of each other or of inputs: the wrapper's affair
            else:
                runs = {how: [got[i] for i in values] for how, got in runs.items()}
        for simd in ("scalar", "avx2", "avx512") if kernels == "cpp" else ("scalar",):
            runs[simd] = generated(aten, inputs, kernels, simd)
    for how, got in runs.items():
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            assert a.dtype is b.dtype and a.shape == b.shape, (how, i)
            assert how in ("nests", "kernels") or a.stride() == b.stride(), (how, i)
            torch.testing.assert_close(a, b, rtol=0, atol=0, msg=lambda m, how=how, i=i: f"{how}, result {i}: {m}")
