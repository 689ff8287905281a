"""Generators, coroutines and asynchronous generators: consumed, escaping, sent to, thrown into, closed, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import types

from zoo.support import Manager, case, fail, note


def counting(n):
    try:
        for i in range(3):
            got = yield i + n
            if got is not None:
                print("got", got)
    except KeyError as error:
        print("thrown", error)
        yield "after throw"
    finally:
        print("closing")
    return "returned", n


@case((1,))
def generator_driven_by_hand(x):
    g = counting(x)
    seen = [next(g), g.send("a")]
    try:
        seen.append(g.throw(KeyError("k")))
        seen.append(next(g))
    except StopIteration as stop:
        seen.append(stop.value)
    return seen


@case((2,))
def generator_closed_early(x):
    g = counting(x)
    total = next(g)
    g.close()
    try:
        next(g)
    except StopIteration:
        print("exhausted")
    return total


def delegating(x):
    got = yield from counting(x)
    print("inner gave", got)
    yield got
    return 5


@case((1,))
def generator_that_delegates(x):
    g = delegating(x)
    seen = []
    while True:
        try:
            seen.append(next(g))
        except StopIteration as stop:
            return seen, stop.value


@case((1,))
def generator_that_escapes(x):
    g = counting(x)
    print(next(g))
    note("between")
    return list(g)


@case((1,))
def generator_expression_with_a_call(x):
    squares = (note(i) * x for i in range(3) if i != 1)
    print("lazy")
    return sum(squares) + x


@case((1,))
def generator_of_the_frame(x):
    def inner():
        nonlocal x
        for i in range(2):
            x = x + i
            yield x
        raise LookupError("end")

    seen = []
    try:
        for value in inner():
            seen.append(value)
    except LookupError as error:
        seen.append(str(error))
    return seen, x


@case((1,))
def generator_with_managers(x):
    def inner():
        with Manager("outer"), Manager("inner", suppress=True):
            yield x
            fail(KeyError, "inside")
        yield x + 1

    return list(inner())


async def answer(x):
    print("answer")
    await asyncio.sleep(0)
    return x + 1


async def several(x):
    first = await answer(x)
    try:
        second = await asyncio.wait_for(answer(first), 10)
    finally:
        print("finally")
    rest = await asyncio.gather(answer(1), answer(2))
    return first, second, rest


@case((1,))
def coroutine_run(x):
    return asyncio.run(several(x))


async def failing(x):
    try:
        await answer(x)
        fail(ValueError, "in coroutine")
    except ValueError as error:
        print("caught", error)
        raise LookupError("new") from error
    finally:
        await asyncio.sleep(0)
        print("cleanup")


@case((1,))
def coroutine_that_fails(x):
    try:
        return asyncio.run(failing(x))
    except LookupError as error:
        return str(error), str(error.__cause__)


async def numbers(n):
    for i in range(3):
        await asyncio.sleep(0)
        yield i + n
    print("exhausted")


@contextlib.asynccontextmanager
async def resource(name):
    print("acquire", name)
    try:
        yield name
    finally:
        print("release", name)


async def loops(x):
    seen = [value async for value in numbers(x)]
    async with resource("r") as name, resource("s"):
        async for value in numbers(x):
            if len(seen) > 3:
                break
            seen.append(value)
        else:
            print("else")
    return seen, name


@case((1,))
def asynchronous_loops(x):
    return asyncio.run(loops(x))


@case((1,))
def coroutine_driven_by_hand(x):
    @types.coroutine
    def wait():
        got = yield "waiting"
        return got

    async def main():
        return x, await wait()

    c = main()
    print(c.send(None))
    try:
        c.send("sent")
    except StopIteration as stop:
        return stop.value


@case((1,))
def coroutine_never_awaited(x):
    c = answer(x)
    c.close()
    return type(c).__name__


@case((2,))
def comprehension_in_a_class_body(x):
    class Table:
        rows = [note(i) for i in range(x if isinstance(x, int) else 2)]
        total = sum(rows)
        names = {f"r{i}": i for i in rows}

    return Table.rows, Table.total, Table.names


@case((0,), (1,), (2,))
def returns_in_finally_and_loops(x):
    def inner():
        for i in range(3):
            try:
                if x == 1:
                    return "try"
                if x == 2:
                    fail()
            finally:
                print("finally", i)
                if i == 1:
                    return "finally"
                if x == 2:
                    continue
        return "end"

    return inner()
