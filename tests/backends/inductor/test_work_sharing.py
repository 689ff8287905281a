"""How kernels' loops are shared out (``threads.h``): parts for any number of threads, and threads that have to wait."""
import contextlib
import ctypes

import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.inductor import _runtime, codecache
from dynamo_lite.backends.inductor.codegen.cpp import text
from dynamo_lite.backends.inductor.codegen.cpp.kernel import WHOLE_LINES

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
ENTRY int parts_of(i64 work) { return parts_for(work); }
ENTRY void in_parts_of(i64 n, i64 unit, int parts, int threads, i64* found) {
    in_parts(n, unit, parts, threads, n, [=](i64 begin, i64 end, int t) {
        found[3 * t] = begin, found[3 * t + 1] = end, found[3 * t + 2] = omp_get_thread_num();
    });
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
    made.in_parts_of.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    made.parts_of.argtypes = [ctypes.c_int64]
    return made


@contextlib.contextmanager
def threads_of(n):
    """torch may use so many, more than the machine has if need be."""
    had = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(had)


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


@pytest.mark.parametrize("threads", [1, 2, 8, 64])
@pytest.mark.parametrize("n", [100_000, 1 << 20, 12_345_678])
def test_shares_of_a_reduction(library, threads, n):
    """Parts follow from the work alone; neighbours are the same thread's, and none has more than others by much. A
    machine of 8 or 64 processors is simulated by as many threads."""
    parts = library.parts_of(4 * n)
    assert parts == min(64, 1 << ((4 * n) >> 15).bit_length() - 1)
    found = (ctypes.c_int64 * (3 * parts))()
    with threads_of(threads):
        library.in_parts_of(n, 64, parts, threads, ctypes.addressof(found))
    begins, ends, owners = found[::3], found[1::3], found[2::3]
    assert begins[0] == 0 and ends[-1] == n and list(begins[1:]) == list(ends[:-1])
    assert owners == sorted(owners), "neighbouring parts have the same owner"
    used = min(threads, parts)
    shares = {t: sum(e - b for b, e, o in zip(begins, ends, owners) if o == t) for t in set(owners)}
    # One thread computes all parts where others had to wait for one just before (``Seen``).
    assert len(shares) in (1, used)
    assert max(shares.values()) <= 1.05 * n / len(shares)


def test_few_operations_are_no_parts(library):
    assert [library.parts_of(work) for work in (0, 65_535, 65_536, 1 << 40)] == [1, 1, 2, 64]


@pytest.mark.parametrize("threads", [2, 8, 64])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_no_two_threads_write_one_line_of_the_caches(library, threads, itemsize):
    """Of loops whose vectors are shared out: their bounds are whole lines of any type."""
    found = (ctypes.c_int64 * (2 * threads))()
    library.parts(1_000_003, int(WHOLE_LINES), threads, ctypes.addressof(found))
    lines = [set(range(begin * itemsize // 64, (end * itemsize - 1) // 64 + 1))
             for begin, end in zip(found[::2], found[1::2])]
    assert sum(map(len, lines)) == len(set.union(*lines))


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


F = torch.nn.functional
OF_ANY_NUMBER_OF_THREADS = {
    "a whole tensor": lambda x, w, k: (x.sum(), x.exp().mean(), x.var(), x.amax(), x.argmax(), (x * x).sum()),
    "few rows": lambda x, w, k: (x.view(3, -1).sum(1), x.view(3, -1).std(1), x.view(3, -1).argmin(1)),
    "many rows": lambda x, w, k: (torch.softmax(x.view(600, -1), 1), F.layer_norm(x.view(600, -1), (512,))),
    "columns": lambda x, w, k: (x.view(600, -1).sum(0), x.view(-1, 12).amax(0)),
    "products": lambda x, w, k: (
        x.view(600, -1) @ w, F.linear(x.view(600, -1)[:70], w.t()).relu(), x.view(600, -1).t() @ x.view(600, -1)),
    "convolutions": lambda x, w, k: (
        F.conv2d(x.view(12, 64, 20, 20), k), F.conv2d(x.view(12, 64, 20, 20), k[:, :, :1, :1]).sin(),
        F.conv2d(x.view(12, 64, 20, 20), k[:64, :1], padding=1, groups=64)),
}


@pytest.mark.parametrize("kind", OF_ANY_NUMBER_OF_THREADS)
def test_results_have_the_same_bits_for_any_number_of_threads(data, kind):
    fn = OF_ANY_NUMBER_OF_THREADS[kind]
    args = data.random(12 * 64 * 400), data.random(512, 300), data.random(96, 64, 3, 3)
    found = []
    for threads in (1, 2, 8, 64):
        dynamo_lite.reset()
        with threads_of(threads), torch.no_grad():
            found.append(dynamo_lite.compile(fn)(*args))
    for a, b in zip(found[0], fn(*args)):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    for several in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], several))


def test_results_have_the_same_bits_whatever_threads_cost(data):
    """What is measured decides who computes a part, and not what the parts are."""
    x, found = data.random(300_001), []
    for wake in (1, 1e6):
        dynamo_lite.reset()
        with dynamo_lite.config.patch(target={"wake": wake, "awake": wake}), threads_of(2):
            found.append(dynamo_lite.compile(lambda x: (x.sum(), x.exp().mean()))(x))
    assert all(torch.equal(a, b) for a, b in zip(*found))
