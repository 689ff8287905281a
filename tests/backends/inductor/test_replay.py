"""Calls by recordings (``mode="reduce-overhead"``), with a recorder that works on a CPU.

What a GPU records is in ``test_cuda.py``.
"""
import gc
import threading

import pytest
import torch
from recorder_on_cpu import RecorderOnCpu

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends import metrics
from dynamo_lite.backends.inductor import replay
from dynamo_lite.backends.inductor.replay import PER_CALL, SMALL, replayed
from dynamo_lite.backends.inductor.replay_plan import ReplayPlan

LARGE = SMALL // 4 + 1  # elements of float32


@pytest.fixture(autouse=True)
def no_old_counts():
    dynamo_lite.reset_metrics()


class Calls:
    """A function of the wrapper's kind, its replays, and how often it ran by itself."""

    def __init__(self, fn, **plan):
        self.plain, self.fn, self.device = 0, fn, RecorderOnCpu()
        self.run = replayed(self._call, ReplayPlan("", **plan), self.device)

    def _call(self, *inputs):
        self.plain += 1
        return self.fn(*inputs)

    def __call__(self, *inputs):
        return self.run(*inputs)

    def seen(self):
        """Calls that ran without, recordings, replays."""
        return self.plain - self.device.recorded, self.device.recorded, self.device.replays


def refusals():
    return [name for name in metrics.metrics()["fallbacks"] if name.startswith("no CUDA graph")]


def test_the_second_call_is_recorded():
    calls = Calls(lambda w, x: (w @ x + 1, x.sum()), fixed=(0,), copied=(1,))
    w = torch.randn(5, 5)
    results = []
    for n in range(6):
        x = torch.randn(5, 5)
        a, b = calls(w, x)
        results.append((a, b, w @ x + 1, x.sum()))
        w.mul_(0.5)  # updated in place: seen
    for a, b, c, d in results:  # all of them, at the end
        assert torch.equal(a, c) and torch.equal(b, d)
    assert calls.seen() == (1, 1, 5)
    w2 = torch.randn(5, 5)
    for count in ((2, 1, 5), (2, 2, 6), (2, 2, 7)):  # weights elsewhere are another recording
        assert torch.equal(calls(w2, x)[0], w2 @ x + 1) and calls.seen() == count
    assert torch.equal(calls(w, x)[0], w @ x + 1) and calls.seen() == (2, 2, 8)


def test_large_results_are_not_written_while_somebody_holds_them():
    calls = Calls(lambda x: (x * 2,), copied=(0,))
    x = torch.randn(LARGE)
    (y,) = calls(x)
    for n in range(8):
        (y,) = calls(x + n)  # the last one is alive meanwhile: two recordings take turns
        assert torch.equal(y, (x + n) * 2)
    assert calls.seen() == (1, 2, 8)
    held = [calls(x + n)[0][1:] for n in range(8)]  # views count as well
    for n, view in enumerate(held):
        assert torch.equal(view, ((x + n) * 2)[1:])
    assert calls.device.recorded == PER_CALL and calls.plain - calls.device.recorded > 1
    assert "still in use" in refusals()[0]
    del held, view
    before = calls.seen()
    del y
    (y,) = calls(x)
    assert torch.equal(y, x * 2) and calls.seen() == (before[0], before[1], before[2] + 1)


def test_autograd_holds_what_it_saves():
    calls = Calls(lambda x: (x.exp(),), copied=(0,))
    w = torch.ones((), requires_grad=True)
    losses = []
    for n in range(4):
        losses.append((calls(torch.full((LARGE,), float(n)))[0] * w).sum())
    for n, loss in enumerate(losses):
        w.grad = None
        loss.backward()
        assert w.grad.item() == pytest.approx(torch.full((LARGE,), float(n)).exp().sum().item(), rel=1e-4)


def test_inputs_that_are_written():
    def step(cache, x):
        cache.add_(x)
        return cache.sum(), cache[1:]

    calls = Calls(step, fixed=(0,), copied=(1,), written=(0,))
    cache, want = torch.zeros(4), torch.zeros(4)
    for n in range(5):
        version = cache._version
        total, view = calls(cache, torch.full((4,), float(n)))
        want += n
        assert torch.equal(cache, want) and total == want.sum() and cache._version > version
        assert view.data_ptr() == cache[1:].data_ptr()
    assert calls.seen() == (1, 1, 4)


def test_results_that_are_inputs_or_share_memory():
    def fn(x):
        y = x + 1
        return x, x[1], y, y[0], 5, x.t()

    calls = Calls(fn, copied=(0,))
    for _ in range(3):
        x = torch.randn(3, 3)
        a, b, y, z, five, t = calls(x)
        assert a is x and b.data_ptr() == x[1].data_ptr() and five == 5 and t.stride() == (1, 3)
        assert torch.equal(y, x + 1) and z.data_ptr() == y.data_ptr()
        y.zero_()
        assert z.sum() == 0 and torch.equal(b, x[1])
    assert calls.seen() == (1, 1, 2)


def test_layouts_of_inputs():
    calls = Calls(lambda x, y: (x + y,), copied=(0, 1))
    for n in range(4):
        base = torch.randn(4, 6)
        x, y = base[:, ::2], torch.randn(4, 1).expand(4, 3)
        assert torch.equal(calls(x, y)[0], x + y)
    assert calls.seen() == (1, 1, 3)
    overlapping = Calls(lambda x: (x * 2,), copied=(0,))
    for n in range(3):
        x = torch.randn(9).as_strided((4, 3), (2, 1))
        assert torch.equal(overlapping(x)[0], x * 2)
    assert overlapping.seen() == (1, 1, 2)


def test_alignment_is_that_of_the_call_before():
    addresses = []
    calls = Calls(lambda x: (addresses.append(x.data_ptr() % 16), x + 1)[1:], copied=(0,))
    base = torch.randn(9)
    for x in (base[:8], base[1:], base[1:], base[:8]):
        assert torch.equal(calls(x)[0], x + 1)
    assert addresses == [0, 4, 4] and calls.seen() == (2, 1, 2)


def test_sizes_and_numbers_are_ways_to_call():
    calls = Calls(lambda n, x: (x + n, x.sum(0)), numbers=(0,), copied=(1,), layouts=(1,))
    for size in (3, 4, 3, 4, 3, 4):
        x = torch.randn(size, 2)
        assert torch.equal(calls(size, x)[0], x + size)
    assert calls.seen() == (2, 2, 4)
    with config.patch(cuda_graph_limit=2):
        for _ in range(3):
            assert torch.equal(calls(9, x)[0], x + 9)
    assert calls.device.recorded == 2 and "cuda_graph_limit" in refusals()[0]


def test_streams_and_recordings_of_the_callers_own():
    calls = Calls(lambda x: (x + 1,), copied=(0,))
    x = torch.randn(4)
    for order in (7, 7, 8, 8, 7, None, None):
        calls.device.order = order
        assert torch.equal(calls(x)[0], x + 1)
    assert calls.seen() == (4, 2, 3)


def test_boxed_inputs_are_let_go_of():
    def fn(box):
        x, w = box
        box.clear()
        return (x + w,)

    calls = Calls(fn, copied=(0,), fixed=(1,), boxed=True)
    w = torch.ones(4)
    for n in range(3):
        x = torch.randn(4)
        box = [x, w]
        assert torch.equal(calls(box)[0], x + w) and not box
    assert calls.seen() == (1, 1, 2)


def test_large_results_of_recordings_are_read_where_they_are():
    first = Calls(lambda x: (x * 2,), copied=(0,))
    second = Calls(lambda y: (y.sum(),), copied=(0,))
    x = torch.randn(LARGE)
    for n in range(6):
        (y,) = first(x + n)
        assert torch.equal(second(y)[0], ((x + n) * 2).sum())
        del y
    (made,) = second.run.__closure__[0].cell_contents._recordings.values()
    assert [len(recording._targets) for recording in made] == [0] and first.device.recorded == 1
    for n in range(3):  # elsewhere
        assert torch.equal(second(x)[0], x.sum())
    gc.collect()  # recordings of other tests
    count = len(replay._places)
    del first, made
    gc.collect()
    assert len(replay._places) == count - 1


def test_what_cannot_be_recorded_runs_without():
    calls = Calls(lambda x: (x + 1,), copied=(0,))
    calls.device.fails = True
    for _ in range(3):
        assert calls(torch.ones(2))[0].tolist() == [2, 2]
    assert calls.seen() == (3, 0, 0) and "not permitted when stream is capturing" in refusals()[0]

    def wrong(x):
        raise ValueError("of the program's")

    calls = Calls(wrong, copied=(0,))
    for _ in range(3):
        with pytest.raises(ValueError, match="of the program's"):
            calls(torch.ones(2))


def test_from_several_threads():
    calls = Calls(lambda x: (x * 2, x.sum()), copied=(0,))
    wrong = []

    def loop(k):
        for n in range(50):
            x = torch.full((100,), float(k * 1000 + n))
            y, total = calls(x)
            if not (torch.equal(y, x * 2) and total == x.sum()):
                wrong.append((k, n))

    threads = [threading.Thread(target=loop, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and calls.device.replays > 0
