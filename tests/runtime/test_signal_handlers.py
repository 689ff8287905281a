"""What a signal handler raises while something is compiled reaches the program, whatever the compiler was about, and
the next call is compiled."""

import functools
import importlib
import signal

import pytest
import thorough
import torch

import dynamo_lite
from dynamo_lite import config, log
from dynamo_lite.runtime import signal_handlers


class Late(Exception):
    """As a program's time limit has it."""


class Handler:
    def __init__(self, cls):
        self.cls = cls

    def __call__(self, number, frame):
        raise self.cls("over")


def function(cls):
    def over(number, frame):
        raise cls("over")
    return over


KINDS = {
    "function": function, "object": Handler, "method": lambda cls: Handler(cls).__call__,
    "partial": lambda cls: functools.partial(lambda c, n, f: function(c)(n, f), cls),
}
PLACES = [
    "dynamo_lite.interpreter.translator:Translator.step", "dynamo_lite.fake.mode:TraceFakeMode.dispatch_here",
    "dynamo_lite.frame.convert_frame:_attempts", "dynamo_lite.frame.convert_frame:emit_code",
    "dynamo_lite.backends.inductor.training:record_joint", "dynamo_lite.backends.inductor.pipeline:lower",
    "dynamo_lite.backends.inductor.pipeline:schedule", "dynamo_lite.backends.inductor.toolchain:_started",
    "dynamo_lite.backends.inductor.private_files:folder", "dynamo_lite.backends.inductor.training:partition",
]


@pytest.fixture
def interrupt(monkeypatch):
    """Has a function of the compiler's send the signal when it is called, once."""
    def at(place, handler):
        module, _, path = place.partition(":")
        owner = importlib.import_module(module)
        *parts, name = path.split(".")
        for part in parts:
            owner = getattr(owner, part)
        plain, sent = getattr(owner, name), []

        def sending(*args, **kwargs):
            if not sent:
                sent.append(True)
                signal.raise_signal(signal.SIGUSR1)
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, sending)
        signal.signal(signal.SIGUSR1, handler)
        return sent

    before = signal.getsignal(signal.SIGUSR1)
    yield at
    signal.signal(signal.SIGUSR1, before)


def fn(x, n):
    y = (x[:n] * n).softmax(-1)
    with torch.no_grad():
        z = y.sum() + n
    return y @ y.t(), z


@pytest.mark.parametrize("place, cls", [
    (place, cls) for turn, place in enumerate(PLACES)
    for cls in thorough.share([Late, TimeoutError, RuntimeError], turn, 3)])
def test_what_a_handler_raises_reaches_the_program(interrupt, tmp_path, place, cls):
    dynamo_lite.reset()
    log.reset_counters()
    x = torch.randn(5, 7, requires_grad=True)
    compiled = dynamo_lite.compile(fn)
    with config.patch(cache_dir=str(tmp_path)):
        sent = interrupt(place, KINDS["function"](cls))
        with pytest.raises(cls, match="over"):
            compiled(x, 3)
        assert sent and torch.is_grad_enabled()
        for n in (3, 4, 5):
            for got, want in zip(compiled(x, n), fn(x, n)):
                torch.testing.assert_close(got, want)
    counters = log.counters()
    assert counters["graphs"] <= 3 and "internal_errors" not in counters
    assert not dynamo_lite.metrics()["fallbacks"]


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_handlers(interrupt, kind):
    dynamo_lite.reset()
    compiled = dynamo_lite.compile(fn, backend="eager")
    interrupt(PLACES[0], KINDS[kind](Late))
    with pytest.raises(Late, match="over"):
        compiled(torch.randn(5, 7), 3)


def test_other_exceptions_are_not_taken_for_a_handlers():
    try:
        raise Late
    except Late as error:
        signal_handlers.pass_on(error)


def test_what_it_was_raised_from_is_raised(interrupt):
    signal.signal(signal.SIGUSR1, function(Late))
    with pytest.raises(Late):
        try:
            try:
                signal.raise_signal(signal.SIGUSR1)
            except Late as error:
                raise ValueError("wrapped") from error
        except ValueError as error:
            signal_handlers.pass_on(error)


INSIDE = [*PLACES, "dynamo_lite.fake.mode:TraceFakeMode._dispatch_new"]


@pytest.mark.parametrize("place", INSIDE)
def test_handlers_compute_as_outside_of_the_compile(interrupt, tmp_path, place):
    dynamo_lite.reset()
    seen = []

    def handler(number, frame):
        w = torch.ones(3, requires_grad=True)
        y = (w * 2 + torch.ones(3)).sum() + torch.eye(3).matmul(torch.ones(3, 3)).sum()
        y.backward()
        seen.append((type(y), y.item(), w.grad.tolist(), torch.is_grad_enabled(), torch.get_default_device().type,
                     torch.is_autocast_enabled("cpu"), (torch.ones(3) * w).requires_grad))

    def work(x, n):
        with torch.autocast("cpu"):
            y = (x[:n] + n).softmax(-1)
            with torch.no_grad():
                z = y @ y.t() + torch.add(y[:, :5], 1)
            return z @ y

    x = torch.randn(5, 7, requires_grad=True)
    compiled = dynamo_lite.compile(work)
    with config.patch(cache_dir=str(tmp_path)):
        sent = interrupt(place, handler)
        torch.testing.assert_close(compiled(x, 5), work(x, 5))
    assert sent and seen == [(torch.Tensor, 18.0, [2.0] * 3, True, "cpu", False, True)]
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert not dynamo_lite.metrics()["fallbacks"]


def test_handlers_are_outside_of_an_inference_mode_of_the_trace(interrupt, tmp_path):
    dynamo_lite.reset()
    seen = []

    def handler(number, frame):
        w = torch.ones(3, requires_grad=True)
        seen.append((torch.ones(3).is_inference(), (w * 2).requires_grad, torch.is_inference_mode_enabled()))

    def work(x):
        with torch.inference_mode():
            y = x * 2
        return y

    with config.patch(cache_dir=str(tmp_path)):
        sent = interrupt("dynamo_lite.backends.inductor.scalar_split:_subgraph", handler)
        assert dynamo_lite.compile(work)(torch.ones(3)).is_inference()
    assert sent and seen == [(False, True, False)]


def test_handlers_that_are_replaced_while_they_run(interrupt):
    """What a handler sets stays; the handler that it replaces is called in any state later."""
    dynamo_lite.reset()
    kept = []

    def first(number, frame):
        kept.append(signal.signal(signal.SIGUSR1, second))

    def second(number, frame):
        kept.append(torch.is_grad_enabled())

    interrupt(PLACES[0], first)
    dynamo_lite.compile(fn, backend="eager")(torch.randn(5, 7), 3)
    assert signal.getsignal(signal.SIGUSR1) is second
    with torch.no_grad():
        signal.raise_signal(signal.SIGUSR1)
        signal.signal(signal.SIGUSR1, kept[0])
        signal.raise_signal(signal.SIGUSR1)
    assert len(kept) == 3 and kept[1] is False


def test_what_a_handler_changes_of_what_is_guarded(interrupt):
    """No fault of the compiler's: the call runs in plain Python, and later ones are compiled."""
    dynamo_lite.reset()
    log.reset_counters()
    box = [1]

    def work(x):
        return x * box[0]

    def handler(number, frame):
        box[0] += 1
        signal.signal(signal.SIGUSR1, handler)

    compiled = dynamo_lite.compile(work, backend="eager")
    module = importlib.import_module("dynamo_lite.frame.convert_frame")
    plain = module.make_entry

    def made(*args):
        signal.raise_signal(signal.SIGUSR1)
        return plain(*args)

    signal.signal(signal.SIGUSR1, handler)
    module.make_entry = made
    try:
        assert compiled(torch.ones(2)).tolist() == [3, 3]
    finally:
        module.make_entry = plain
    assert "internal_errors" not in log.counters()
    assert compiled(torch.ones(2)).tolist() == [3, 3] and log.counters()["graphs"] == 2
