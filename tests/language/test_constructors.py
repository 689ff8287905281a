"""Arguments that constructors of builtin bases refuse, or that one of ``__new__`` and ``__init__`` takes."""
from __future__ import annotations

import _queue

import pytest
import torch

import dynamo_lite
from dynamo_lite import log


class Plain:
    pass


class Both:
    def __new__(cls, *args, **kwargs):
        return super().__new__(cls, *args, **kwargs)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class Init:
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)


class New:
    def __new__(cls, *args, **kwargs):
        return super().__new__(cls)


class InitError(OSError):
    def __init__(self, message, more=None):
        self.more = more
        super().__init__(message)


class NewError(OSError):
    def __new__(cls, message, more=None):
        self = super().__new__(cls, message)
        self.more = more
        return self


class InitFirst(InitError, NewError):
    pass


class NewFirst(NewError, InitError):
    pass


class NoArguments(OSError):
    def __init__(self):
        pass


class Numbered(OSError):
    def __new__(cls, *args):
        return super().__new__(cls, 2, "no", "file")


def check(asked):
    def program(x):
        y = x + 1
        try:
            return y * 2, asked()
        except Exception as error:
            return y * 2, type(error).__name__, str(error)

    want = program(torch.ones(2))
    dynamo_lite.reset()
    log.reset_counters()
    compiled = dynamo_lite.compile(program, backend="eager", fullgraph=True)
    for _ in range(2):
        got = compiled(torch.ones(2))
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]
    assert log.counters().get("graphs", 0) == 1 and not log.counters().get("recompiles", 0)


@pytest.mark.parametrize("asked", [
    lambda: Plain(42), lambda: Plain(a=1), lambda: Plain.__new__(Plain, 42), lambda: Plain().__init__(42),
    lambda: object.__new__(Plain, 42), lambda: object.__init__(Plain(), 42),
    lambda: Both(42), lambda: type(Both()), lambda: Both.__new__(Both, 42), lambda: object.__new__(Both, 42),
    lambda: Init(42), lambda: type(Init()), lambda: Init().__init__(42), lambda: object.__init__(Init(), 42),
    lambda: type(New(1, a=2)), lambda: New(1).__init__(3), lambda: object.__init__(New(), 3),
])
def test_arguments_of_object(asked):
    check(asked)


@pytest.mark.parametrize("made", [
    lambda: InitError("m", "b"), lambda: InitError("m", more="b"), lambda: NewError("m", "b"),
    lambda: InitFirst("m", "b"), lambda: NewFirst("m", "b"), lambda: NoArguments(), lambda: Numbered(),
    lambda: Numbered(3),
    lambda: OSError(2, "no", "file"), lambda: OSError(), lambda: FileNotFoundError(2, "no"),
])
def test_arguments_of_os_errors(made):
    def asked():
        error = made()
        return type(error).__name__, error.args, str(error), error.errno, error.strerror, error.filename

    check(asked)


class Whole(bytes):
    pass


class Other(bytes):
    pass


class Giving(str):
    def __new__(cls, given):
        made = super().__new__(cls, "text")
        made.given = given
        return made

    def __bytes__(self):
        return self.given


@pytest.mark.parametrize("given", [b"abc", Whole(b"abc"), Other(b"abc")])
def test_of_what_another_subclass_gives(given):
    def program(x):
        made, plain = Whole(Giving(given)), bytes(Giving(given))
        return x + 1, made, type(made), made is given, plain, type(plain)

    compiled = dynamo_lite.compile(program, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(2))[1:] == program(torch.ones(2))[1:]


def test_methods_that_want_their_class_stay_bound():
    """Such a method is bound again behind a break (``get`` of a queue would end the interpreter without a class)."""
    def program(x, queue):
        y = x + 1
        queue.put(1)
        return y, queue.get()

    compiled = dynamo_lite.compile(program, backend="eager")
    for _ in range(2):
        y, got = compiled(torch.ones(2), _queue.SimpleQueue())
        assert y.tolist() == [2.0, 2.0] and got == 1
