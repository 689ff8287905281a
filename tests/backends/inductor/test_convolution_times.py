"""Which convolutions are the library's with mode="max-autotune": times that are measured, kept, and told."""
from pathlib import Path

import pytest
import torch

import dynamo_lite
from dynamo_lite import log
from dynamo_lite.backends.inductor import target_info
from dynamo_lite.backends.inductor.codegen.cpp import convolution_times, library_times
from dynamo_lite.backends.inductor.codegen.cpp.library_times import Times

F = torch.nn.functional
R = torch.randn
CONVOLUTIONS = {
    "3 x 3": (lambda x, w: F.conv2d(x, w, padding=1), R(2, 32, 40, 40), R(48, 32, 3, 3)),
    "3 x 3, stride 2": (lambda x, w: F.conv2d(x, w, stride=2, padding=1), R(2, 32, 80, 80), R(48, 32, 3, 3)),
    "1 x 1": (lambda x, w: F.conv2d(x, w).relu(), R(2, 64, 40, 40), R(96, 64, 1, 1)),
    "1 x 1, one image": (lambda x, w: F.conv2d(x, w).relu(), R(1, 64, 56, 56), R(96, 64, 1, 1)),
    "groups": (lambda x, w: F.conv2d(x, w, dilation=2, groups=4), R(2, 32, 60, 60), R(48, 8, 3, 3)),
    "depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=64), R(4, 64, 80, 80), R(128, 1, 3, 3)),
    "depthwise, large": (lambda x, w: F.conv2d(x, w, padding=2, groups=8), R(4, 8, 300, 300), R(8, 1, 5, 5)),
    "one dim": (lambda x, w: F.conv1d(x, w, padding=2), R(2, 32, 3000), R(64, 32, 5)),
    "a line": (lambda x, w: F.conv1d(x, w, groups=32), R(2, 32, 30000), R(32, 1, 5)),
}


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """Tells times in place of measuring: of ours, of the library's; and what it was asked for."""
    told, asked = [Times(1e6, 1e6)], []
    monkeypatch.setattr(convolution_times, "_measured", lambda sizes, *rest: asked.append(sizes) or told[0])
    convolution_times._times.cache_clear()
    with dynamo_lite.config.patch(cache_dir=str(tmp_path / "cache")):
        yield told, asked
    convolution_times._times.cache_clear()


def library_calls(fn, *args, **settings):
    dynamo_lite.reset()
    dynamo_lite.reset_metrics()
    with torch.no_grad():
        got, want = dynamo_lite.compile(fn, dynamic=False, **settings)(*args), fn(*args)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)
    assert got.stride() == want.stride()
    metrics = dynamo_lite.metrics()
    assert metrics["graphs"] == 1 and not log.counters().get("recompiles")
    return sum(metrics["library_calls"].values())


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_the_faster_one_computes_a_convolution(clock, kind):
    told, asked = clock
    assert library_calls(*CONVOLUTIONS[kind]) == 0 and not asked, "ours, if it isn't asked for"
    for times, calls in ((Times(1e6, 1e6), 0), (Times(3e6, 1e6), 1), (Times(1.05e6, 1e6), 0)):
        told[0] = times
        convolution_times._times.cache_clear()
        with dynamo_lite.config.patch(cache_dir=f"{dynamo_lite.config.cache_dir}{times.ours}"):
            assert library_calls(*CONVOLUTIONS[kind], mode="max-autotune") == calls
    assert len(asked) == 3 and len(set(asked)) == 1


def test_convolutions_are_measured_once_kept_and_told(clock, caplog):
    told, asked = clock
    fn, x, w = CONVOLUTIONS["3 x 3"]
    told[0] = Times(3e6, 1e6)
    log.set_logs(tuning=True)
    try:
        assert library_calls(fn, x, w, mode="max-autotune") == 1
    finally:
        log.set_logs()
    assert "convolution of [2, 32, 40, 40] with [48, 32, 3, 3]: the library" in caplog.text
    assert len(list(Path(dynamo_lite.config.cache_dir).rglob("*.convolution"))) == 1
    # As another process would.
    convolution_times._times.cache_clear()
    assert library_calls(fn, x, w, mode="max-autotune") == 1 and len(asked) == 1
    small = R(1, 32, 4, 20)
    assert library_calls(fn, small, w, mode="max-autotune") == 0 and len(asked) == 1, "too small to be measured"


def test_symbolic_batches_are_ours(clock):
    _, asked = clock
    fn, x, w = CONVOLUTIONS["3 x 3"]
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(fn, dynamic=True, mode="max-autotune")
    with torch.no_grad():
        for n in (2, 5):
            image = R(n, *x.shape[1:])
            torch.testing.assert_close(compiled(image, w), fn(image, w), rtol=1e-4, atol=1e-3)
    assert not asked


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_a_convolution_alone_is_the_convolution(monkeypatch, tmp_path, kind):
    """What is measured is what a graph would do: the entry ``alone.cpp`` gives the results of the library."""
    fn, x, w = CONVOLUTIONS[kind]
    results, empty, found = [], torch.empty, {}

    def timed(ours, library):
        ours()
        found["ours"] = results[0].clone()
        found["library"] = library().flatten()
        assert torch.get_num_threads() == 1
        return Times(1.0, 1.0)

    def filled(*args, **given):
        made = empty(*args, **given)
        if given == {"dtype": torch.float32}:  # others are asked for in a process's first compile
            results.insert(0, made.fill_(7))
        return made

    monkeypatch.setattr(convolution_times, "timed", timed)
    monkeypatch.setattr(torch, "empty", filled)
    convolution_times._times.cache_clear()
    threads = torch.get_num_threads()
    with dynamo_lite.config.patch(cache_dir=str(tmp_path / "cache")):
        assert library_calls(fn, x, w, mode="max-autotune") == 0
    convolution_times._times.cache_clear()
    assert torch.get_num_threads() == threads
    torch.testing.assert_close(found["ours"], found["library"], rtol=1e-4, atol=1e-3)


def test_measuring(tmp_path):
    """On one thread, with nothing left behind."""
    threads = torch.get_num_threads()
    convolution_times._times.cache_clear()
    with dynamo_lite.config.patch(cache_dir=str(tmp_path / "cache")):
        library_calls(*CONVOLUTIONS["3 x 3"], mode="max-autotune")
        (kept,) = Path(tmp_path / "cache").rglob("*.convolution")
    assert kept.read_bytes().startswith(b"{") and torch.get_num_threads() == threads
    convolution_times._times.cache_clear()


def test_where_one_thread_can_not_be_had_convolutions_are_ours(monkeypatch, tmp_path):
    monkeypatch.setattr(library_times, "_of_torch", lambda name: None)
    convolution_times._times.cache_clear()
    with dynamo_lite.config.patch(cache_dir=str(tmp_path / "cache")):
        assert library_calls(*CONVOLUTIONS["3 x 3"], mode="max-autotune") == 0
        assert not list(Path(tmp_path / "cache").rglob("*.convolution"))
    convolution_times._times.cache_clear()
    assert target_info.current().library_call > 0
