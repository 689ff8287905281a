"""What a signal handler raises while something is compiled reaches the program, whatever the compiler was about, and
the next call is compiled."""

import functools
import importlib
import signal

import pytest
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


@pytest.mark.parametrize("cls", [Late, TimeoutError, RuntimeError])
@pytest.mark.parametrize("place", PLACES)
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
