"""Loops, comprehensions, generators, match."""

from __future__ import annotations

from zoo.support import Counting, Manager, Point, case, fail

# Loops


@case((3,), (0,))
def for_range(n):
    total = 0
    for i in range(n):
        total += i
    else:
        print("else")
    return total


@case((3, 2), (0, 1))
def nested_loops(n, m):
    out = []
    for i in range(n):
        for j in range(m):
            if j == i:
                continue
            if i + j > 3:
                break
            out.append((i, j))
        else:
            out.append("inner")
    return out


@case((5,), (0,))
def while_loop(n):
    steps = 0
    while n > 0:
        n -= 1
        if n == 3:
            continue
        steps += 1
    else:
        steps += 100
    return steps


@case((3,))
def while_true(n):
    while True:
        n -= 1
        if not n:
            break
        print(n)
    return n


@case((3, -1), (3, 2))
def own_iterator(stop, bad):
    total = 0
    for i in Counting(stop, bad):
        total += i
        print(total)
    return total


@case((3,))
def loop_over_many(n):
    out = []
    for i, (a, b) in enumerate(zip(range(n), "xyz")):
        out.append((i, a, b))
    for k, v in sorted({"p": n, "q": 2}.items()):
        out.append(k * v)
    for w in (x * 2 for x in range(n)):
        out.append(w)
    return out


@case((2,))
def loop_with_return(n):
    for i in range(5):
        for j in [i, i + 1]:
            with Manager(f"{i}{j}"):
                if i * j >= n:
                    return i, j


@case((4,))
def for_with_try(n):
    seen = []
    for i in range(n):
        try:
            if i == 1:
                continue
            if i == 2:
                fail(KeyError, str(i))
            if i == 3:
                break
            seen.append(i)
        except KeyError as e:
            seen.append(str(e))
        finally:
            seen.append(("finally", i))
    return seen


# Comprehensions and generators


@case((4,))
def comprehensions(n):
    a = [i * n for i in range(n) if i % 2]
    b = {i: j for i in range(2) for j in range(i)}
    c = {i + n for i in a}
    d = sum(i for i in c)
    return a, b, sorted(c), d, [[j for j in range(i)] for i in range(n)]


@case((3,))
def comprehension_with_walrus(n):
    a = [last := i for i in range(n)]
    return a, last


@case((3,))
def generator_inside(n):
    def numbers():
        for i in range(n):
            got = yield i
            print("got", got)
        return "done"

    g = numbers()
    out = [next(g), g.send("x")]
    try:
        g.throw(ValueError, ValueError("thrown"))
    except ValueError as e:
        out.append(str(e))
    out.extend(numbers())
    return out


# match


@case((1,), ((1, 2),), ([1, 2, 3],), ({"k": 1, "z": 2},), (Point(1, 2),), (Point(0, 5),), ("text",), (None,))
def matching(x):
    match x:
        case 1 | 2:
            return "small"
        case (a, b):
            return "pair", a, b
        case [first, *rest] if len(rest) > 1:
            return "list", first, rest
        case {"k": value, **others}:
            return "dict", value, others
        case Point(x=0, y=y):
            return "axis", y
        case Point(px, py):
            return "point", px, py
        case str() as s:
            return "str", s
        case _:
            return "other"


@case((3,))
def match_in_loop(n):
    out = []
    for item in [("add", 1), ("sub", 2), ("stop",), ("add", 5)]:
        match item:
            case ("add", k):
                n += k
            case ("sub", k):
                n -= k
            case ("stop",):
                break
        out.append(n)
    return out
