"""Straight lines, expressions, imports, names that are unbound or deleted."""

from __future__ import annotations

from zoo.support import BadBool, Noisy, Point, case, note, takes

SOME_GLOBAL = 5

# Straight lines and expressions


@case((3, 4))
def straight(x, y):
    a = x + y
    b = a * 2 - y
    c = (a, b, [x, y], {"k": a})
    return c


@case((1, 2), (2, 1), (0, 0))
def chained_comparison(x, y):
    r = 0 <= x < y <= 2
    return r, (x if x < y else y), (x and y), (x or y), not x


@case((3,))
def deep_stack(x):
    return takes(x, [1, (2, note(x, 1) + note(2)), {3: note(4)}], *[note(5), note(6)], c=note(7), d=note(8))


@case((2,))
def keyword_calls(x):
    return takes(b=note(x), a=note(1), c=takes(note(2), c=note(3), z=note(4)), y=Noisy(x).method(key=note(5)))


@case((2,))
def star_calls(x):
    args, kwargs = [x, 1, 2], {"c": x, "q": 1}
    takes(*args)
    takes(*args, *args, **kwargs)
    takes(x, *args, c=4, **{"w": 1})
    return takes(**{"a": 1}, **kwargs)


@case((2,))
def star_calls_fail(x):
    try:
        takes(x, **{"a": 1})
    except TypeError as e:
        print(e)
    try:
        takes(*x.nothing)
    except AttributeError as e:
        print(type(e))
    try:
        takes(*5)
    except TypeError as e:
        print(e)
    return takes(x, **{"c": 1}, **{"c": 2})


@case((3,))
def method_calls(x):
    n = Noisy(x)
    words = "a b c".split()
    words.append(n.method(2))
    words.extend(reversed([n.method(a=1, key=3), n(1, k=2)]))
    return ",".join(map(str, words)), words.index("b")


@case((3,), (-1,))
def walrus(x):
    if (n := note(x) + 1) > 2 and (m := n * 2):
        return n, m
    return [y := 1, y**2, n]


@case((3.14159,))
def f_strings(x):
    n = Noisy(2)
    return f"{x:.2f} {x!r:>10} {n} {n:abc{note(1)}} {{}} {'nested ' + f'{x:.1f}'}"


@case((4,))
def subscripts(x):
    a = list(range(10))
    a[x] = a[1:x] + a[x : x + 2] + a[::3]
    a[0], a[1] = a[1], a[0]
    del a[2]
    del a[3:5]
    n = Noisy(1)
    n[x, 1:2] = n[x]
    del n[x]
    return a, a[-1]


@case((4,))
def augmented(x):
    n, d, a = Noisy(1), {"k": 1}, [1, 2]
    n += x
    n.value += 1
    d["k"] += x
    a[0] -= x
    a += [3]
    x **= 2
    x //= 3
    x %= 4
    x |= 8
    x <<= 1
    x ^= 3
    x &= 31
    x >>= 1
    return n.value, d, a, x


@case((4,))
def attributes(x):
    n = Noisy(x)
    n.other = n.some + n.value
    del n.other
    p = Point(x, n)
    p.x = p.y.value
    return p.x, n.bad


@case(((1, 2, 3, 4),), ((1, 2),), ((),))
def unpacking(seq):
    first, *rest = seq
    a, (b, c) = first, (2, [3])
    *head, last = rest
    [d, e] = [a, b]
    return first, rest, head, last, c, d, e


@case((2,))
def displays(x):
    s = {x, 1, *[3, 4]}
    d = {"a": x, **{"b": 1}, "c": [*range(x), x]}
    t = (*s, *d)
    return s, d, t, {**d, "z": 1}, slice(x, None)


@case((1,))
def shadowed_global(x):
    global SOME_GLOBAL
    SOME_GLOBAL += x
    y = SOME_GLOBAL
    SOME_GLOBAL = 5
    return y


@case((1,))
def missing_global(x):
    print("before")
    return x + no_such_name  # noqa: F821


@case((3,))
def operators_that_fail(x):
    try:
        x + "a"
    except TypeError as e:
        print(e)
    try:
        -[x]
    except TypeError as e:
        print(e)
    try:
        [1][x]
    except IndexError as e:
        print(e)
    return x @ 2


@case((1,))
def identity_and_membership(x):
    n = Noisy(x)
    return x is None, x is not None, x in n, 7 not in n, n < 3, n < 0, x == 1 != 2


@case()
def imports():
    import os.path as p
    from collections import OrderedDict, deque

    try:
        from collections import nothing_such  # noqa: F401
    except ImportError as e:
        print(type(e).__name__)
    return p.join("a", "b"), OrderedDict, deque([1])


@case((1,), (0,))
def assertions(x):
    assert x >= 0
    assert x, f"x is {x}"
    return x


@case((2,), (-2,))
def conditional_returns(x):
    if x > 0:
        if x > 1:
            return note("big")
        elif x == 1:
            return "one"
    else:
        note("negative")
    return "end"


@case((True,), (False,))
def truth_that_fails(inner):
    try:
        if BadBool():
            return "never"
    except TypeError as e:
        print(e)
    if inner:
        return [1 for _ in (1,) if BadBool()]
    return not BadBool()


# Unbound and deleted names


@case((0,), (1,))
def perhaps_unbound(x):
    if x:
        y = 1
    print("middle")
    return y


@case((0,), (1,))
def deletion(x):
    y = [x]
    print(y)
    del y
    if x:
        y = 2
    try:
        return y
    except UnboundLocalError as e:
        print(e)
    z = 1
    del z
    del z  # noqa: F821


@case((3,))
def unbound_in_loop(n):
    for i in range(n):
        if i:
            print(last)  # noqa: F821
        last = i
    return last
