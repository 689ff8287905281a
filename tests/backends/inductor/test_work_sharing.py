"""How kernels' loops are shared out (``threads.h``): parts for any number of threads, and threads that have to wait."""
import ctypes

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.inductor import _runtime, codecache
from dynamo_lite.backends.inductor.codegen.cpp import text

_ENTRIES = """
#define ENTRY extern "C" __attribute__((visibility("default")))
ENTRY void parts(i64 n, i64 unit, int threads, i64* found) {
    parallel(n, unit, threads, n, [=](i64 begin, i64 end, int t) { found[2 * t] = begin, found[2 * t + 1] = end; });
}
static Seen states[64];
static Pause pause;
ENTRY int is_alone_now(int loop, i64 work, i64 now) { return is_alone(states[loop], pause, work, now); }
ENTRY void alone_took(int loop, i64 work, i64 took) { was_alone(states[loop], work, took); }
ENTRY void shared_took(int loop, i64 work, int threads, i64 begin, i64 end) {
    was_shared(states[loop], pause, work, threads, begin, end);
}
static SeenByWork places;
ENTRY int place_is_alone_now(i64 work, i64 now) { return is_alone(places.of(work), pause, work, now); }
ENTRY void place_alone_took(i64 work, i64 took) { was_alone(places.of(work), work, took); }
ENTRY void place_shared_took(i64 work, int threads, i64 begin, i64 end) {
    was_shared(places.of(work), pause, work, threads, begin, end);
}
ENTRY void forget() { places = SeenByWork(); for (auto& state : states) state = Seen(); pause = Pause(); }
ENTRY i64 paused_until() { return dynamo_lite_pause->until; }
ENTRY void pause_until(i64 until) { dynamo_lite_pause->until = until; }
"""


@pytest.fixture(scope="module")
def library():
    made = ctypes.CDLL(str(codecache.shared_library(text.header() + _ENTRIES)))
    loop, time = ctypes.c_int, ctypes.c_int64
    made.is_alone_now.argtypes = made.alone_took.argtypes = [loop, time, time]
    made.shared_took.argtypes = [loop, time, ctypes.c_int, time, time]
    made.place_is_alone_now.argtypes = made.place_alone_took.argtypes = [time, time]
    made.place_shared_took.argtypes = [time, ctypes.c_int, time, time]
    made.parts.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
    return made


@pytest.mark.parametrize("threads", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("n, unit", [(1, 1), (7, 16), (100, 16), (1000, 1), (1001, 8)])
def test_parts_are_the_same_whatever_threads_there_are(library, n, unit, threads):
    found = (ctypes.c_int64 * (2 * threads))()
    had = torch.get_num_threads()
    try:
        for workers in (1, 2, 5):
            torch.set_num_threads(workers)
            library.parts(n, unit, threads, ctypes.addressof(found))
            parts = list(zip(found[::2], found[1::2]))
            assert parts[0][0] == 0 and parts[-1][1] == n
            assert all(a[1] == b[0] for a, b in zip(parts, parts[1:]))
            assert all(begin % unit == 0 for begin, _ in parts if begin < n)
            sizes = [-(-(end - begin) // unit) for begin, end in parts]
            assert max(sizes) - min(sizes) <= 1
    finally:
        torch.set_num_threads(had)


class Machine:
    """A machine with two processors, one of which another process keeps between two times. Each loop in turn takes
    10 us in two threads, 16 in one, and 4 ms in two if one has to wait."""

    def __init__(self, library, busy, work=1000, loops=1):
        self.library, self.busy, self.work, self.loops, self.now, self.turn = library, busy, work, loops, 0, 0
        library.forget()

    def call(self):
        loop, self.turn = self.turn % self.loops, self.turn + 1
        if self.library.is_alone_now(loop, self.work, self.now):
            took = 16_000
            self.library.alone_took(loop, self.work, took)
        else:
            took = 4_000_000 if self.busy[0] <= self.now < self.busy[1] else 10_000
            self.library.shared_took(loop, self.work, 2, self.now, self.now + took)
        self.now += took
        return took

    def calls(self, until):
        found = []
        while self.now < until:
            found.append(self.call())
        return found


@pytest.mark.parametrize("loops", [1, 3, 50])
def test_threads_that_have_to_wait_are_waited_for_seldom(library, loops):
    """However many loops there are: none finds out for itself alone."""
    machine = Machine(library, (1_000_000, 1_000_000_000), loops=loops)
    assert set(machine.calls(1_000_000)) == {10_000}
    during = machine.calls(1_000_000_000)
    waited = sum(t for t in during if t == 4_000_000)
    assert waited < 1_000_000_000 / 8 and during.count(16_000) > 50_000
    # One long pause at most, and all threads run again.
    machine.calls(1_000_000_000 + 16 * 4_000_000)
    assert set(machine.calls(1_200_000_000)) == {10_000}


@pytest.mark.parametrize("loops", [1, 50])
def test_threads_that_wait_now_and_then(library, loops):
    """Another process that works in turns of 30 ms, and sleeps as long between them."""
    machine = Machine(library, (0, 0), loops=loops)
    machine.calls(2_000_000)
    found = []
    for turn in range(20):
        machine.busy = (machine.now, machine.now + 30_000_000)
        found += machine.calls(machine.now + 60_000_000)
    # As many calls as one thread would do at least, though one call in several threads can take 250 times as long.
    assert len(found) * 16_000 > sum(found)


@pytest.mark.parametrize("loops", [1, 50])
@pytest.mark.parametrize("between", [20_000_000, 100_000_000])
def test_interruptions_that_cost_less_than_threads_save(library, between, loops):
    """A service that wakes for a moment, again and again: one thread alone would be slower than waiting for it."""
    machine = Machine(library, (0, 0), loops=loops)
    found = []
    for turn in range(40):
        machine.busy = (machine.now, machine.now + 1)
        found += machine.calls(machine.now + between)
    lost = 4_000_000 * 40
    # What each costs: its own time, and as long in one thread instead of two.
    assert found.count(4_000_000) == 40 and found.count(16_000) <= 1.1 * lost / 16_000
    assert len(found) * 10_000 > sum(found) - 2 * lost


@pytest.mark.parametrize("loops", [1, 50])
def test_one_slow_call_costs_its_own_time_again_at_most(library, loops):
    machine = Machine(library, (1_000_000, 1_000_001), loops=loops)
    found = machine.calls(20_000_000)
    assert found.count(4_000_000) == 1 and found.count(16_000) <= 4_000_000 // 16_000 + 1
    assert set(found[-100:]) == {10_000}


def test_a_loop_that_is_better_off_alone_stops_no_other(library):
    """In two threads it takes half as long again as in one."""
    library.forget()
    library.alone_took(0, 1000, 16_000)
    now, alone = 0, 0
    for _ in range(10_000):
        if library.is_alone_now(0, 1000, now):
            library.alone_took(0, 1000, 16_000)
            now, alone = now + 16_000, alone + 1
        else:
            library.shared_took(0, 1000, 2, now, now + 24_000)
            now += 24_000
        assert not library.is_alone_now(1, 1000, now)
    assert alone > 8_000


def test_loops_of_another_size_begin_anew(library):
    machine = Machine(library, (1_000_000, 1_000_001))
    machine.calls(1_000_000)
    machine.call()
    # All loops do without other threads for a while; then this one alone may.
    assert library.is_alone_now(0, 1000, machine.now) and library.is_alone_now(1, 2000, machine.now)
    library.alone_took(0, 2000, 30_000)
    assert not library.is_alone_now(0, 2000, machine.now + 100_000_000)


def test_sizes_that_share_a_function_have_nothing_to_tell_one_another(library):
    """As kernels that are alike do: a layer of 1024 x 1024 would never take as little as one of 1024 x 10."""
    library.forget()
    alone = {10_240: 2_000, 262_144: 40_000, 1_048_576: 160_000}
    shared = {10_240: 3_000, 262_144: 22_000, 1_048_576: 85_000}
    for work, took in alone.items():
        library.place_alone_took(work, took)
    now, found = 0, {work: 0 for work in alone}
    for _ in range(1000):
        for work in alone:
            if library.place_is_alone_now(work, now):
                library.place_alone_took(work, alone[work])
                found[work] += 1
                now += alone[work]
            else:
                library.place_shared_took(work, 2, now, now + shared[work])
                now += shared[work]
    assert found[262_144] == found[1_048_576] == 0


def test_kernels_of_one_process_have_one_pause(library, data):
    """The loader has a library's loops heed what those of others have seen."""
    compiled = [dynamo_lite.compile(fn) for fn in (lambda x: x.exp().sum(1), lambda x: (x * 2 + 1).cos())]
    x = data.random(7, 300_001)
    want = [fn(x) for fn in compiled]
    files = [str(codecache.shared_library(text.header() + _ENTRIES + end)) for end in ("\n", "\n\n")]
    one, other = (ctypes.CDLL(name, handle=_runtime.load(name)) for name in files)
    other.paused_until.restype = ctypes.c_int64
    one.pause_until.argtypes = [ctypes.c_int64]
    try:
        one.pause_until(2**62)
        assert other.paused_until() == 2**62
        assert all(torch.equal(fn(x), y) for fn, y in zip(compiled, want))
    finally:
        one.pause_until(0)


def test_results_do_not_depend_on_who_computes_the_parts(data):
    """Sums whose parts are shared out have the same bits in one worker as in several."""
    x = data.random(7, 300_001)

    def fn(x):
        return (x * 1.5).sum(1), x.exp().mean(), x.amax(0)

    compiled = dynamo_lite.compile(fn)
    want = compiled(x)
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(compiled(x), want))
