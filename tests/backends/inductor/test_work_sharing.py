"""How kernels' loops are shared out (``threads.h``): parts for any number of threads, and threads that have to wait."""
import ctypes

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.inductor import codecache
from dynamo_lite.backends.inductor.codegen.cpp import text

_ENTRIES = """
#define ENTRY extern "C" __attribute__((visibility("default")))
ENTRY void parts(i64 n, i64 unit, int threads, i64* found) {
    parallel(n, unit, threads, [=](i64 begin, i64 end, int t) { found[2 * t] = begin, found[2 * t + 1] = end; });
}
static Seen state;
ENTRY int is_alone_now(i64 volume, i64 now) { return is_alone(state, volume, now); }
ENTRY void alone_took(i64 took) { was_alone(state, took); }
ENTRY void shared_took(i64 volume, int threads, i64 begin, i64 end) { was_shared(state, volume, threads, begin, end); }
ENTRY void forget() { state = Seen(); }
"""


@pytest.fixture(scope="module")
def library():
    made = ctypes.CDLL(str(codecache.shared_library(text.header() + _ENTRIES)))
    for name in ("is_alone_now", "alone_took", "shared_took"):
        getattr(made, name).argtypes = {"is_alone_now": [ctypes.c_int64] * 2, "alone_took": [ctypes.c_int64]}.get(
            name, [ctypes.c_int64, ctypes.c_int, ctypes.c_int64, ctypes.c_int64])
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
    """A machine with two processors, one of which another process keeps between two times; the loop takes 10 us in two
    threads, 16 in one, and 4 ms in two if one has to wait."""

    def __init__(self, library, busy, volume=1000):
        self.library, self.busy, self.volume, self.now = library, busy, volume, 0
        library.forget()

    def call(self):
        if self.library.is_alone_now(self.volume, self.now):
            took = 16_000
            self.library.alone_took(took)
        else:
            took = 4_000_000 if self.busy[0] <= self.now < self.busy[1] else 10_000
            self.library.shared_took(self.volume, 2, self.now, self.now + took)
        self.now += took
        return took

    def calls(self, until):
        found = []
        while self.now < until:
            found.append(self.call())
        return found


def test_threads_that_have_to_wait_are_waited_for_seldom(library):
    machine = Machine(library, (1_000_000, 1_000_000_000))
    assert set(machine.calls(1_000_000)) == {10_000}
    during = machine.calls(1_000_000_000)
    waited = sum(t for t in during if t == 4_000_000)
    assert waited < 1_000_000_000 / 8 and during.count(16_000) > 50_000
    # One long pause at most, and all threads run again.
    machine.calls(1_000_000_000 + 16 * 4_000_000)
    assert set(machine.calls(1_200_000_000)) == {10_000}


def test_one_slow_call_costs_its_own_time_again_at_most(library):
    machine = Machine(library, (1_000_000, 1_000_001))
    found = machine.calls(20_000_000)
    assert found.count(4_000_000) == 1 and found.count(16_000) <= 4_000_000 // 16_000 + 1
    assert set(found[-100:]) == {10_000}


def test_loops_of_another_size_begin_anew(library):
    machine = Machine(library, (1_000_000, 1_000_001))
    machine.calls(1_000_000)
    machine.call()
    assert library.is_alone_now(1000, machine.now) and not library.is_alone_now(2000, machine.now)


def test_results_do_not_depend_on_who_computes_the_parts(data):
    """Sums whose parts are shared out have the same bits in one worker as in several."""
    x = data.random(7, 300_001)

    def fn(x):
        return (x * 1.5).sum(1), x.exp().mean(), x.amax(0)

    compiled = dynamo_lite.compile(fn)
    want = compiled(x)
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(compiled(x), want))
