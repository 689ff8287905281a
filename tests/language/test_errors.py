"""Many constructs of the language in one program each, mixed with tensors: exceptions and side effects.

PYTEST_DONT_REWRITE: asserts are programs here.
"""

from __future__ import annotations

import collections

import pytest
import torch
from language_support import Programs

program = Programs()


class Thing:
    def __init__(self, k=1):
        self.k = k


OBJ = Thing()


# --- exceptions
class CE(Exception):
    def __init__(self, code, *a):
        super().__init__(code, *a)
        self.code = code
        self.hist = []

    def __str__(self):
        return f"CE{self.code}"


@program
def exc_notes(x):
    try:
        e = ValueError("v")
        e.add_note("n1")
        raise e
    except ValueError as e:
        r = e.__notes__
    return x + 1, r


@program.breaks("exception_handling")
def exc_group(x):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as eg:
        out.append(len(eg.exceptions))
    except* KeyError as eg:
        out.append("key")
    return x + 1, out


@program
def exc_torch(x):
    try:
        x @ torch.ones(7, 7)
    except RuntimeError as e:
        return x + 1, str(e)[:40]


@program
def exc_torch2(x):
    out = []
    for f in (
        lambda: x.view(5, 5),
        lambda: torch.cat([x, torch.ones(7, 7)]),
        lambda: x[10],
        lambda: x.sum(dim=9),
        lambda: x + torch.ones(5),
        lambda: x.nosuch,
        lambda: torch.zeros(-1),
        lambda: x.to("nodev"),
        lambda: x.reshape(4, 4),
    ):
        try:
            f()
        except Exception as e:
            out.append((type(e).__name__, str(e)[:60]))
    return x + 1, out


@program
def exc_assert(x):
    try:
        assert x.shape[0] == 99, f"bad {x.shape[0]}"
    except AssertionError as e:
        return x + 1, str(e), e.args


@program
def exc_raise_class(x):
    out = []
    for r in (ValueError, ValueError(), CE(1), KeyError("k", 2)):
        try:
            raise r
        except Exception as e:
            out.append((type(e).__name__, e.args))
    try:
        raise 5
    except TypeError as e:
        out.append(str(e))
    return x + 1, out


@program
def exc_uncaught(x):
    y = x + 1
    d = {}
    return d["missing"]


@program
def exc_custom_uncaught(x):
    raise CE(3, "x")


@program
def exc_reraise(x):
    l = []
    try:
        try:
            raise CE(1)
        except CE as e:
            e.hist.append(1)
            raise
    except CE as e:
        l = e.hist
    return x + 1, l


@program
def exc_nested_names(x):
    try:
        undefined_name
    except NameError as e:
        a = str(e)
    try:
        del zz
        zz = 1
    except UnboundLocalError as e:
        b = str(e)
    except NameError as e:
        b = str(e)
    try:
        (1)()
    except TypeError as e:
        c = str(e)
    try:
        [][3]
    except IndexError as e:
        d = str(e)
    try:
        "a" + 1
    except TypeError as e:
        f = str(e)
    try:
        {}[[]]
    except TypeError as e:
        g = str(e)
    try:
        None.x
    except AttributeError as e:
        h = str(e)
    try:
        a, b2 = [1]
    except ValueError as e:
        i = str(e)
    try:
        int("q")
    except ValueError as e:
        j = str(e)
    try:
        len(3)
    except TypeError as e:
        k = str(e)
    try:
        Thing(1, 2, 3)
    except TypeError as e:
        l = str(e)
    try:
        (lambda a: a)()
    except TypeError as e:
        m = str(e)
    try:
        for_ = iter(3)
    except TypeError as e:
        n = str(e)
    try:
        Thing()[1]
    except TypeError as e:
        o = str(e)
    try:
        Thing().zzz
    except AttributeError as e:
        p = str(e)
    try:
        3 < "a"
    except TypeError as e:
        q = str(e)
    try:
        Thing() < Thing()
    except TypeError as e:
        r = str(e)
    try:
        -"a"
    except TypeError as e:
        s = str(e)
    try:
        with_ = Thing().__enter__
    except AttributeError as e:
        t = str(e)
    try:
        [1, 2]["a"]
    except TypeError as e:
        u = str(e)
    try:
        (1, 2)[9]
    except IndexError as e:
        v = str(e)
    try:
        "abc"[9]
    except IndexError as e:
        w = str(e)
    try:
        a, b2 = 1, 2, 3
    except ValueError as e:
        y = str(e)
    try:
        a, b2 = 3
    except TypeError as e:
        z = str(e)
    return x + 1, a, b, c, d, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z


@program.breaks("unsupported_builtin")
def exc_call_errors(x):
    def f(a, b, /, c, *, d):
        pass

    out = []
    for args, kw in [
        ((), {}),
        ((1,), {}),
        ((1, 2, 3), {}),
        ((1, 2, 3, 4), {"d": 1}),
        ((1, 2), {"c": 1, "d": 2, "e": 3}),
        ((1, 2, 3), {"c": 4, "d": 1}),
        ((1,), {"b": 2, "c": 1, "d": 1}),
    ]:
        try:
            f(*args, **kw)
        except TypeError as e:
            out.append(str(e))

    def g(a, b=1):
        pass

    for args, kw in [((1, 2, 3), {}), ((), {}), ((1,), {"z": 1})]:
        try:
            g(*args, **kw)
        except TypeError as e:
            out.append(str(e))
    for f in (
        lambda: len(),
        lambda: len(1, 2),
        lambda: [].append(),
        lambda: {}.get(),
        lambda: int(1, 2, 3),
        lambda: "a".join(3),
        lambda: max(),
        lambda: isinstance(1),
        lambda: range(),
        lambda: {}.pop("z"),
        lambda: [].pop(),
        lambda: [1].remove(2),
        lambda: next(iter([])),
        lambda: set().remove(1),
        lambda: zip(3),
        lambda: sum(["a"]),
        lambda: sorted([1, "a"]),
        lambda: dict([1]),
        lambda: "".format(),
        lambda: "{}".format(*[]),
        lambda: "%d" % "a",
        lambda: chr(-1),
        lambda: [1].index(5),
        lambda: (1).foo,
        lambda: list(3),
        lambda: tuple(1, 2),
        lambda: object(1),
        lambda: getattr(1),
        lambda: reversed(3),
        lambda: enumerate(3),
        lambda: dict(1),
        lambda: float("q"),
        lambda: ord("ab"),
        lambda: abs("a"),
        lambda: round("a"),
        lambda: bytes(-1),
    ):
        try:
            f()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return x + 1, out


# --- side effects
G1 = {"n": 0}
GLST = [1]
gv = 0


@program
def side(x):
    global gv
    gv, G1["n"], GLST[:] = 0, 0, [1]
    gv += 1
    G1["n"] += 1
    GLST.append(x.shape[0])
    GLST[0] = gv
    OBJ.k = gv
    o = Thing()
    o.self = o
    l = [o]
    l.append(l)
    d = {"l": l}
    t = (l, d)
    del GLST[1:]
    y = x.clone()
    y[0] = 5
    y.add_(1)
    return y, gv, dict(G1), list(GLST), OBJ.k, l[1] is l, t[0] is t[1]["l"], o.self is o


class Box:
    pass


BX = Box()
BX.items = []


@program
def side2(x):
    a = []
    b = a
    b.append(1)
    BX.items.append(a)
    BX.last = a
    a.append(x * 2)
    n = len(BX.items)
    BX.items.clear()
    return x + 1, BX.last is a, n, a[0]


@program
def side_del(x):
    d = {"a": 1, "b": 2}
    del d["a"]
    l = [1, 2, 3]
    del l[::2]
    o = Thing()
    del o.k
    v = 1
    del v
    return x + 1, d, l, hasattr(o, "k")


@program
def side_cells(x):
    c = []

    def add(v):
        c.append(v)
        return c

    add(1)
    r = add(x)
    return r[1] + 1, r is c


def said(*actions):
    """What each of these raises, in words."""
    found = []
    for action in actions:
        try:
            found.append(action())
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found


@program
def words_of_containers(x):
    return x + 1, said(
        lambda: [1] + (2,), lambda: (1,) + [2], lambda: b"a" + [1], lambda: "a" + [1], lambda: [1] * "b",
        lambda: 1.5 * (1,),
        lambda: 1 + [1], lambda: [].index([1]), lambda: (1,).index(2), lambda: dict([1]), lambda: dict([(1, 2, 3)]),
        lambda: {}.update([(1, 2), "abc"]), lambda: isinstance(1, 2), lambda: isinstance(1, (str, "a")),
        lambda: collections.deque([1]) + [2],
    )


@program
def words_of_calls(x):
    def f(*args, **kwargs):
        return args

    def cause():
        raise KeyError from 3

    return x + 1, said(lambda: f(*3), lambda: f(*[1], *None), lambda: [*OBJ], lambda: OBJ.missing(*3), cause)


@program
def words_of_properties(x):
    class Fixed:
        @property
        def p(self):
            return 1

        q = property(None, lambda self, value: None)

    o = Fixed()
    return x + 1, said(lambda: setattr(o, "p", 2), lambda: delattr(o, "p"), lambda: o.q)


@program.breaks("unsupported_attribute")
def words_of_deletion(x):
    o = Thing()
    return x + 1, said(lambda: delattr(o, "missing")), said(lambda: delattr(o, "k"))


class Slotted:
    __slots__ = ("a",)


@program
def a_dict_that_is_not_there(x):
    o = Slotted()
    return x + 1, hasattr(o, "__dict__"), said(lambda: o.__dict__, lambda: vars(o)), hasattr(Thing(), "__dict__")


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    program.check(name)
