"""What is handled while a compiled function is called: ``sys.exc_info()``, bare ``raise`` and contexts of exceptions.

Each program is called from a handler and from outside of one, in both orders: what holds of the first call must not be
taken for what holds of the next.
"""
from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
import torch

import dynamo_lite


class Enters:
    def __enter__(self) -> None: ...

    def __exit__(self, *error: Any) -> str:
        return repr(sys.exc_info()[1])


def handled(x):
    return x + 1, sys.exc_info()[0], sys.exception()


def raises_again(x):
    y = x + 1
    try:
        raise
    except Exception as e:
        return y, repr(e)


def context_of_the_interpreters(x):
    try:
        int("q")
    except ValueError as e:
        return x + 1, repr(e.__context__)


def contexts_in_a_row(x):
    try:
        raise KeyError(1)
    except KeyError:
        try:
            raise IndexError
        except IndexError as e:
            return x + 1, repr(e.__context__), repr(e.__context__.__context__)


def after_a_handler(x):
    try:
        raise KeyError(1)
    except KeyError as e:
        kept = repr(e)
    return x + 1, kept, repr(sys.exception())


def after_suppress(x):
    with contextlib.suppress(ValueError):
        raise ValueError
    return x + 1, sys.exc_info()[:2]


def in_a_generator(x):
    def values():
        yield repr(sys.exception())
        try:
            raise ValueError("in the generator")
        except ValueError:
            yield repr(sys.exception())
            yield repr(sys.exception())
    g = values()
    seen = [next(g), next(g), repr(sys.exception())]
    try:
        raise KeyError(1)
    except KeyError:
        return x + 1, seen, next(g), repr(sys.exception())


def in_exit(x):
    with Enters():
        y = x + 1
    return y, Enters().__exit__()


def thrown_into_a_generator(x):
    seen = []

    @contextlib.contextmanager
    def manager():
        try:
            yield
        except KeyError as e:
            seen.append(repr(e.__context__))
            raise IndexError from None
    try:
        with manager():
            raise KeyError(3)
    except IndexError as e:
        return x + 1, seen, repr(e.__context__), e.__suppress_context__


def _raised_and_caught():
    try:
        raise KeyError
    except KeyError as e:
        return repr(e.__context__)


def context_from_the_calling_function(x):
    try:
        raise ValueError("f")
    except ValueError:
        return x + 1, _raised_and_caught()


def _raises_again():
    raise


def bare_raise_in_a_called_function(x):
    try:
        raise KeyError(1)
    except KeyError as first:
        try:
            _raises_again()
        except Exception as e:
            return x + 1, repr(e), e.__context__, e is first


def bare_raise_of_nothing(x):
    try:
        _raises_again()
    except Exception as e:
        return x + 1, repr(e)


def raised_again_in_another_handler(x):
    try:
        try:
            raise ValueError("f")
        except ValueError:
            raise IndexError(2)
    except IndexError as e:
        saved = e
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        try:
            raise saved
        except IndexError as e:
            return x + 1, repr(e.__context__)


def no_cycle(x):
    try:
        raise ValueError("f")
    except ValueError as first:
        try:
            raise KeyError("k")
        except KeyError as second:
            try:
                raise first
            except ValueError as e:
                return x + 1, repr(e.__context__), repr(second.__context__)


def kept(x):
    try:
        raise KeyError(1)
    except KeyError as e:
        saved = e
    return x + 1, repr(saved), repr(saved.__context__)


def raised_to_the_caller(x):
    raise KeyError(x.shape)


def _asks_after_a_break(x):
    dynamo_lite.graph_break()
    return repr(sys.exception())


def a_break_in_a_called_function(x):
    try:
        int("q")
    except ValueError:
        return x + 1, _asks_after_a_break(x)


def outside(fn):
    try:
        return fn(torch.ones(2))
    except Exception as e:
        return repr(e), repr(e.__context__)


def inside(fn):
    try:
        raise ArithmeticError("outer")
    except ArithmeticError:
        return outside(fn)


PROGRAMS = [
    handled, raises_again, context_of_the_interpreters, contexts_in_a_row, after_a_handler, after_suppress,
    in_a_generator, in_exit, thrown_into_a_generator, context_from_the_calling_function,
    bare_raise_in_a_called_function, bare_raise_of_nothing, raised_again_in_another_handler, no_cycle, kept,
    raised_to_the_caller, a_break_in_a_called_function]


@pytest.mark.parametrize("calls", [(outside, inside, outside), (inside, outside, inside)], ids=["outside", "inside"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_as_in_plain_python(fn, calls):
    compiled = dynamo_lite.compile(fn, backend="eager")
    for call in calls:
        assert repr(call(compiled)) == repr(call(fn))


def test_a_trace_that_asks_nothing_serves_both():
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward

    def caught(x):
        try:
            raise KeyError(1)
        except KeyError:
            x = x * 2
        return x + 1

    compiled = dynamo_lite.compile(caught, backend=backend, fullgraph=True)
    assert outside(compiled).tolist() == inside(compiled).tolist() == [3.0, 3.0]
    assert len(seen) == 1


def test_one_graph_where_nothing_is_handled():
    seen = []

    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward

    compiled = dynamo_lite.compile(contexts_in_a_row, backend=backend, fullgraph=True)
    assert outside(compiled)[1:] == outside(compiled)[1:] == ("KeyError(1)", "None")
    assert len(seen) == 1
