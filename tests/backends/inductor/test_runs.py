"""Where runs of kernels end, so that memory is no higher than kernel by kernel."""
import random

import pytest
import torch

from dynamo_lite.backends.aot.graph import ValueOutput
from dynamo_lite.backends.inductor import artifact, codecache
from dynamo_lite.backends.inductor.codegen.wrapper import runs, write_wrapper
from dynamo_lite.backends.inductor.codegen.wrapper.lifetimes import plan_memory
from dynamo_lite.backends.inductor.program import BufferRef, BufferSpec, ExternCall, KernelCall, Program, View

MB = 1 << 20


def spec(name, megabytes):
    n = int(megabytes * MB) // 4
    return BufferSpec(name, (n,), (1,), torch.float32)


def kernel(reads, writes, inplace=()):
    return KernelCall("k", (*reads, *writes), tuple(writes), inplace=tuple(inplace))


def program(inputs, steps, outputs, sizes):
    p = Program(tuple(inputs), {}, {}, {n: spec(n, s) for n, s in sizes.items()}, steps, tuple(outputs))
    p.check()
    return p


def run_of(p, given=()):
    return plan_memory(p, set(given)).run_of


def test_a_small_program_is_one_run():
    p = program("x", [kernel("x", "a"), kernel("a", "b"), kernel("b", "c")], "c",
                {"x": .01, "a": .01, "b": .01, "c": .01})
    assert run_of(p) == [0, 0, 0]


def test_a_large_result_does_not_lie_beside_what_the_run_has_used_up():
    # a and b are dead where the result is made, but made by a library, so that no run can place them itself.
    steps = [ExternCall(torch.neg, (BufferRef("x"),), {}, ("a",)), kernel("a", "b"), kernel("b", "c")]
    sizes = {"x": 4, "a": 4, "b": .01, "c": 16}
    assert run_of(program("x", steps, "c", sizes)) == [0, 1, 2]
    # What is needed to the end lies beside it in any case.
    assert run_of(program("x", steps, "ca", sizes)) == [0, 1, 1]


def test_inputs_to_let_go_of_end_a_run_and_others_do_not():
    steps = [kernel("x", "a"), kernel("a", "b")]
    p = program("x", steps, "b", {"x": 4, "a": .01, "b": 16})
    assert run_of(p) == [0, 0]
    assert run_of(p, "x") == [0, 1]


def test_what_is_local_to_a_run_is_counted_at_its_fullest():
    # a dies before c is made: one piece of memory serves both.
    steps = [kernel("x", "a"), kernel("a", "b"), kernel("b", "c"), kernel("c", "d")]
    p = program("x", steps, "d", {"x": .1, "a": 4, "b": .1, "c": 4, "d": .1})
    assert run_of(p) == [0, 0, 0, 0]


def test_views_hold_memory_of_their_base():
    steps = [ExternCall(torch.neg, (BufferRef("x"),), {}, ("a",)), View("v", "a"), kernel("v", "b"), kernel("b", "c")]
    sizes = {"x": 4, "a": 4, "v": 4, "b": .01, "c": 16}
    assert run_of(program("x", steps, "c", sizes)) == [0, 1, 1, 3]
    steps[-1] = kernel("bv", "c")
    assert run_of(program("x", steps, "c", sizes)) == [0, 1, 1, 1]


@pytest.mark.parametrize("seed", range(30))
def test_the_peak_is_that_of_single_kernels_and_every_stop_is_needed(seed):
    rng = random.Random(seed)
    names, steps, sizes = ["x", "y"], [], {"x": rng.choice([.1, 4]), "y": rng.choice([.1, 4])}
    for i in range(rng.randrange(3, 12)):
        name, reads = f"b{i}", rng.sample(names[-5:], 2)
        steps.append(ExternCall(torch.add, tuple(map(BufferRef, reads)), {}, (name,)) if rng.random() < .2
                     else kernel(reads, [name]))
        names.append(name)
        sizes[name] = rng.choice([.01, .1, 1, 3, 8])
    p = program("xy", steps, [names[-1], *rng.sample(names[2:], 2)], sizes)
    found = run_of(p, {"x"})
    assert all(found[found[at]] == found[at] <= at for at in range(len(found)))

    def peak(starts):
        """By its definition: a run makes all at its beginning, its own memory packed; it lets go at its end."""
        last = {n: len(steps) for n in p.outputs} | {"y": len(steps)}
        for at, step in enumerate(steps):
            for n in (*(step.reads() if isinstance(step, ExternCall) else step.args), *step.outputs):
                last[n] = max(last.get(n, -1), at)
        born = {n: at for at, step in enumerate(steps) for n in step.outputs} | {"x": -1}
        most = 0
        for at in range(len(steps)):
            start = starts[at]
            end = max(i for i in range(len(steps)) if starts[i] == start)
            total = 0
            for n, first in born.items():
                local = first >= start and last[n] < end + (last[n] == end) and last[n] <= end
                alive = first <= at <= last[n] if local else first <= end and last[n] >= start
                total += alive * p.buffers[n].size[0] * 4
            most = max(most, total)
        return most

    lowest = peak(list(range(len(steps))))
    assert peak(found) <= lowest + runs.TOLERANCE
    for stop in {*found} - {0}:
        if isinstance(steps[stop], KernelCall) and isinstance(steps[stop - 1], KernelCall):
            before = found[stop - 1]
            end = next((i for i in range(stop, len(steps)) if found[i] != stop), len(steps))
            longer = [before if before <= i <= stop else f for i, f in enumerate(found)]
            longer = [i if stop < i < end and f == stop else f for i, f in enumerate(longer)]
            assert peak(longer) > lowest + runs.TOLERANCE


def test_values_are_right_across_the_stop():
    n = MB
    source = """
    #include <stdint.h>
    extern "C" void half(const void *a, void *o)
    { for (int i = 0; i < 16; i++) ((float *)o)[i] = ((const float *)a)[i] / 2; }
    extern "C" void spread(const void *a, void *o)
    { for (int i = 0; i < 4 << 20; i++) ((float *)o)[i] = ((const float *)a)[i % 16]; }
    """
    steps = [ExternCall(torch.neg, (BufferRef("x"),), {}, ("a",)), KernelCall("half", ("a", "b"), ("b",)),
             KernelCall("spread", ("b", "c"), ("c",))]
    buffers = {"x": (n,), "a": (n,), "b": (16,), "c": (4 * n,)}
    p = Program(("x",), {}, {}, {k: BufferSpec(k, s, (1,), torch.float32) for k, s in buffers.items()}, steps, ("c",),
                source)
    wrapper = write_wrapper(p, (ValueOutput(0),))
    assert len(wrapper.entry_specs) == 2
    call = artifact._load(wrapper, codecache.shared_library(p.source + wrapper.entries))
    x = torch.randn(n)
    torch.testing.assert_close(call(x)[0], (-x / 2)[:16].repeat(n // 4), rtol=0, atol=0)
