"""try, with, and both in loops."""

from __future__ import annotations

import contextlib
import sys
import warnings

from zoo.support import Manager, case, fail, generator_manager, note

# try


@case((0,), (1,), (2,), (3,))
def try_full(x):
    try:
        print("try")
        if x == 1:
            raise ValueError("one")
        if x == 2:
            raise KeyError("two")
        if x == 3:
            raise RuntimeError("three")
    except ValueError:
        print("value")
    except (KeyError, IndexError) as e:
        print("key", e)
    else:
        print("else")
    finally:
        print("finally")
    return x


@case((0,), (1,))
def finally_return(x):
    try:
        if x:
            fail()
        return "try"
    finally:
        print("finally")
        if x:
            return "finally"


@case((1,))
def finally_overrides(x):
    for _ in range(2):
        try:
            return x
        finally:
            continue
    while True:
        try:
            fail()
        finally:
            break
    return "end"


@case((1,), (0,))
def nested_try(x):
    try:
        try:
            fail(ValueError, "inner")
        except ValueError as e:
            print("inner handler", e)
            if x:
                fail(KeyError, "from handler")
            raise
        finally:
            print("inner finally", sys.exc_info()[0])
    except KeyError as e:
        print("context", repr(e.__context__), e.__cause__)
    print(sys.exc_info())
    return x


@case((0,), (1,), (2,))
def reraises(x):
    try:
        try:
            fail()
        except ValueError as e:
            if x == 0:
                raise
            if x == 1:
                raise KeyError("new") from e
            raise RuntimeError("bare")
    except KeyError as e:
        print(repr(e.__cause__), repr(e.__context__), e.__suppress_context__)
        raise e from None


@case()
def state_in_handlers():
    print(sys.exc_info()[1])
    try:
        fail(ValueError, "outer")
    except ValueError:
        print(sys.exc_info()[1])
        try:
            fail(KeyError, "inner")
        except KeyError:
            print(sys.exc_info()[1], repr(sys.exc_info()[1].__context__))
        print(sys.exc_info()[1])
        for i in range(2):
            print(i, sys.exc_info()[1])
    print(sys.exc_info()[1])
    return sys.exc_info()


@case()
def bare_raise_without_exception():
    note("nothing active")
    raise


@case((1,))
def handler_unbinds_name(x):
    e = "before"
    try:
        fail()
    except ValueError as e:
        print(e)
    try:
        return e
    except UnboundLocalError as error:
        return str(error)


@case((0,), (1,))
def try_in_loop_with_break(x):
    out = []
    for i in range(3):
        try:
            try:
                if i == 1:
                    fail(IndexError, "one")
                out.append(i)
            finally:
                out.append("f")
                if x and i:
                    break
        except IndexError:
            out.append("handled")
            continue
    return out


@case((0,))
def return_in_handler(x):
    for i in range(3):
        try:
            1 / x
        except ZeroDivisionError as e:
            return i, str(e), note("returning")


@case((3,))
def handler_in_handler(n):
    def go(depth):
        try:
            fail(ValueError, f"depth {depth}")
        except ValueError as e:
            if depth:
                go(depth - 1)
            print(depth, e, sys.exc_info()[1])

    go(n)
    try:
        fail(KeyError)
    except KeyError:
        go(1)
        raise


@case((0,), (1,), (2,))
def exception_groups(x):
    try:
        errors = [ValueError("v"), KeyError("k")][: x + 1]
        if x == 2:
            errors.append(OSError("o"))
        raise ExceptionGroup("group", errors)
    except* ValueError as group:
        print("values", group.exceptions)
    except* KeyError as group:
        print("keys", group.exceptions, sys.exc_info()[1])
    return "end"


@case((0,), (1,))
def exception_group_reraised(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError("v"), KeyError("k")])
        except* ValueError:
            if x:
                raise RuntimeError("in star handler")
            raise
    except ExceptionGroup as g:
        return [type(e).__name__ for e in g.exceptions]


@case((1,))
def custom_exceptions(x):
    class Mine(Exception):
        def __init__(self, value):
            super().__init__(value)
            self.value = value

    try:
        raise Mine(x)
    except Mine as e:
        print(e.value, e.args)
    raise Mine(x + 1)


@case((1,))
def raises_class_and_bad_cause(x):
    try:
        raise ValueError
    except ValueError as e:
        print(repr(e))
    try:
        raise 5
    except TypeError as e:
        print(e)
    try:
        fail()
    except x:
        pass


@case()
def assertion_in_finally():
    try:
        note("body")
    finally:
        try:
            assert not note(1), "inner"
        except AssertionError as e:
            print(e)


# with


@case((0,), (1,))
def with_simple(x):
    with Manager("a") as m:
        print(m.name)
        if x:
            fail()
    return m.name


@case((0,), (1,))
def with_suppressing(x):
    with Manager("a", suppress=True):
        if x:
            fail()
        print("not reached" if x else "reached")
    return "after"


@case((0,), (1,), (2,))
def with_several(x):
    with Manager("a", suppress=x == 2) as a, Manager("b") as b, contextlib.suppress(KeyError):
        print(a.name, b.name)
        if x:
            fail(ValueError if x == 2 else KeyError)
        return "inside"
    return "after"


@case((0,), (1,), (2,))
def with_generator_manager(x):
    with generator_manager("g") as name:
        print(name)
        if x == 1:
            fail(KeyError, "k")
        if x == 2:
            fail(IndexError, "i")
        return "returned"
    return "after"


@case((0,), (1,))
def with_exit_stack(x):
    with contextlib.ExitStack() as stack:
        for i in range(3):
            stack.enter_context(Manager(str(i), suppress=i == 1))
        stack.callback(print, "callback", x)
        if x:
            fail()
    return "after"


@case((2,))
def with_in_loop(n):
    for i in range(n + 1):
        with Manager(str(i), suppress=True):
            if i == 0:
                continue
            if i == 1:
                fail()
            with Manager("inner"):
                break
    return i


@case()
def with_failing_enter():
    class Bad:
        def __enter__(self):
            fail(RuntimeError, "enter")

        def __exit__(self, *args):
            print("never")

    try:
        with Manager("outer"), Bad():
            print("never")
    except RuntimeError as e:
        print(e)
    with 5:
        pass


@case()
def with_failing_exit():
    class Bad:
        def __enter__(self):
            return self

        def __exit__(self, *args):
            print(args[0])
            raise KeyError("exit")

    try:
        with Bad():
            pass
    except KeyError as e:
        print(repr(e.__context__))
    with Bad():
        fail(ValueError, "body")


@case((1,))
def with_unpacking(x):
    with contextlib.nullcontext((x, [2, 3])) as (a, [b, c]):
        return a + b + c


@case((2,))
def with_in_handler(x):
    try:
        fail()
    except ValueError:
        with Manager("h", suppress=True):
            print(sys.exc_info()[1])
            raise
        print(sys.exc_info()[1])
        with Manager("k"):
            return sys.exc_info()[1] is not None


@case()
def warnings_and_stdout():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("quiet")
        with contextlib.redirect_stdout(sys.stdout):
            print("redirected")
    return "ok"
