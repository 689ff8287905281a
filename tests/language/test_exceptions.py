"""Exceptions, context managers, pattern matching.

PYTEST_DONT_REWRITE: asserts are programs here.
"""
from __future__ import annotations

import contextlib
import sys

import pytest
import torch
from language_support import Programs

program = Programs()


# ---------------------------------------------------------------- exceptions
class CustomError(Exception):
    def __init__(self, code, extra=None):
        super().__init__(f"code {code}")
        self.code = code
        self.extra = extra

    def __str__(self):
        return f"custom {self.code}"


class ChildError(CustomError):
    pass


@program
def try_except(x):
    out = []
    for action in (lambda: 1 / 0, lambda: [][1], lambda: {}["k"], lambda: int("q"), lambda: None.foo, lambda: "a" + 1):
        try:
            action()
        except ZeroDivisionError:
            out.append("zero")
        except (IndexError, KeyError) as e:
            out.append(type(e).__name__)
        except Exception as e:
            out.append(str(e))
        else:
            out.append("else")
        finally:
            out.append("f")
    return x + 1, out


@program
def custom_exceptions(x):
    try:
        raise ChildError(3, extra=x)
    except CustomError as e:
        return e.extra + e.code, str(e), e.args, isinstance(e, CustomError), repr(e.args)


@program
def reraise_and_chain(x):
    out = []
    try:
        try:
            raise KeyError("a")
        except KeyError as e:
            raise ValueError("b") from e
    except ValueError as e:
        out += [repr(e.__cause__), e.__suppress_context__, e.__context__ is e.__cause__]
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise ValueError("c")
    except ValueError as e:
        out += [repr(e.__context__), e.__cause__]
    try:
        try:
            raise KeyError("z")
        except KeyError:
            raise
    except KeyError as e:
        out.append(e.args)
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            raise ValueError("n") from None
    except ValueError as e:
        out += [e.__cause__, e.__suppress_context__, repr(e.__context__)]
    return x + 1, out


@program
def finally_order(x):
    out = []

    def f(kind):
        try:
            if kind == 0:
                return "try"
            if kind == 1:
                raise ValueError
        except ValueError:
            return "except"
        finally:
            out.append(kind)
        return "end"

    def override():
        try:
            return 1
        finally:
            return 2

    def swallow():
        try:
            raise ValueError
        finally:
            return 7

    def loop():
        for i in range(3):
            try:
                if i == 1:
                    continue
                if i == 2:
                    break
            finally:
                out.append(("l", i))

    loop()
    return x + 1, f(0), f(1), f(2), override(), swallow(), out


@program
def nested_try(x):
    def f():
        try:
            try:
                raise ValueError(1)
            finally:
                trace.append("inner")
        except ValueError as e:
            trace.append(e.args[0])
            try:
                raise TypeError(2)
            except TypeError:
                trace.append("type")
        return trace

    trace = []
    return x + 1, f()


@program
def exception_scope(x):
    e = 5
    try:
        raise ValueError
    except ValueError as e:
        pass
    try:
        return x, e
    except UnboundLocalError:
        return x + 1, "unbound"


@program
def assertions(x):
    assert x.shape[0] == 2, "rows"
    try:
        assert x.shape[0] == 3, "three"
    except AssertionError as e:
        return x + 1, str(e)


@program.breaks("python_exception_in_trace")
def uncaught(x):
    y = x + 1
    raise CustomError(4, extra=y.shape[0])


@program.breaks("python_exception_in_trace")
def uncaught_in_callee(x):
    def f(v):
        if v.dim() == 2:
            raise ValueError(f"bad {v.dim()}")
        return v

    return f(x * 2)


@program
def torch_error_caught(x):
    try:
        return x @ x
    except RuntimeError:
        return x + 1


@program
def suppressed(x):
    with contextlib.suppress(ZeroDivisionError):
        1 / 0
    return x + 1


# ---------------------------------------------------------------- context managers
class Shape:
    """A context manager that counts."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.size += 10
        return self

    def __exit__(self, *exc):
        self.size += 100
        return exc[0] is ValueError


@contextlib.contextmanager
def managed(log, swallow=False):
    log.append("enter")
    try:
        yield len(log)
    except ValueError:
        log.append("error")
        if not swallow:
            raise
    finally:
        log.append("exit")


@program
def context_managers(x):
    log = []
    with managed(log) as n:
        x = x + n
    with managed(log, swallow=True):
        raise ValueError
    try:
        with managed(log):
            raise ValueError("out")
    except ValueError as e:
        log.append(str(e))
    s = Shape(1)
    with s as t, contextlib.nullcontext(4) as four:
        inside = t.size
    with Shape(1):
        raise ValueError
    return x, log, inside, s.size, four


@program
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(managed(log))
        stack.callback(log.append, "cb")
        log.append("body")
    return x + 1, log


@managed([])
def decorated_by_manager(x):
    return x * 2


@program.breaks("recompiled, since a list grows")
def manager_as_decorator(x):
    return decorated_by_manager(x)


@program
def closing(x):
    class_like = Shape(2)
    with contextlib.redirect_stdout(None) if False else contextlib.nullcontext():
        y = x * class_like.size
    return y


# ---------------------------------------------------------------- pattern matching
class P:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


@program
def patterns(x):
    def kind(v):
        match v:
            case 0 | 1:
                return "small"
            case int(n) if n > 100:
                return f"big {n}"
            case [1, *rest]:
                return ("list", rest)
            case {"k": k, **others}:
                return ("map", k, others)
            case P(1, b=c):
                return ("P", c)
            case P(a, b):
                return a, b
            case (str() as s) | [s]:
                return s
            case None:
                return "none"
            case torch.Tensor():
                return "tensor"
            case _:
                return "other"

    return x + 1, [kind(v) for v in (0, 500, [1, 2, 3], {"k": 5, "z": 1}, P(1, 9), P(3, 4), "t", ["u"], None, 2.5,
        (1, 2))]


@program
def stop_iteration_that_leaves_a_generator(x):
    def bad():
        yield 1
        raise StopIteration(3)

    try:
        list(bad())
    except RuntimeError as error:
        cause = error.__cause__
        return x + 1, str(error), repr(cause), cause is error.__context__, error.__suppress_context__, cause.value


@program
def words_of_keywords(x):
    def f(a, **rest):
        return a

    said = []
    for action in (lambda: f(a=1, **{"a": 2}), lambda: f(**3), lambda: dict(a=1, **{"a": 2}), lambda: max(**[1])):
        try:
            action()
        except TypeError as error:
            said.append(str(error))
    return x + len(said), said


# ---------------------------------------------------------------- tracebacks that the program sets
def _length(traceback):
    return 0 if traceback is None else 1 + _length(traceback.tb_next)


@program.breaks("exception_handling")
def with_traceback(x):
    def go(error):
        try:
            raise error
        except ValueError as caught:
            return caught

    try:
        raise IndexError(1)
    except IndexError as error:
        given = error.__traceback__
    again = go(ValueError(4))
    again.__traceback__ = given
    longer = _length(go(ValueError(2).with_traceback(given)).__traceback__)
    return (
        x + 1, ValueError(1).with_traceback(given).__traceback__ is given, CustomError(1).with_traceback(given).code,
        go(ValueError(3)).with_traceback(None).__traceback__, again.__traceback__ is given, longer,
    )


@program.breaks("exception_handling")
def with_traceback_leaves(x):
    try:
        raise IndexError(1)
    except IndexError as error:
        given = error.__traceback__
    made = ValueError(x.shape[0]).with_traceback(given)
    return x + 1, made.__traceback__ is given


@program.breaks("exception_handling")
def traceback_of_exc_info_for_another(x):
    try:
        raise IndexError(1)
    except IndexError:
        given = sys.exc_info()[2]
    try:
        raise ValueError(x.shape[0]).with_traceback(given)
    except ValueError as error:
        return x + 1, _length(error.__traceback__)


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
