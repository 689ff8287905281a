"""What the environment fuzzer has found, made small, with its relatives: surroundings that change between two calls.

Each case is a setup, what the function reads, and the changes, one before each call but the first."""
from __future__ import annotations

import pytest

from fuzz import harness
from fuzz.environments import HEAD

MODULE = "lib = types.ModuleType('lib')\nlib.v = 2\n"
CLASSES = """class Meta(type): pass
class A(metaclass=Meta):
    def __init__(self, n=1): self.n = n
    def __add__(self, o): return "A.add"
    def __lt__(self, o): return "A.lt"
class B(A):
    def __radd__(self, o): return "B.radd"
    def __gt__(self, o): return "B.gt"
class C(metaclass=Meta):
    def __add__(self, o): return "C.add"
class E1(Exception): pass
class E2(E1): pass
class E3(Exception): pass
def caught(cls):
    try: raise cls("a")
    except E1: return 1
    except E3: return 2
def raised(cls):
    try: raise E2(cls)
    except (E3, E1) as error: return error.args[0] is cls
one, two = A(), B()
"""
CASES = {
    "a module without a name": (
        MODULE, "x + lib.v", ["vars(lib).clear()", "lib.v = 3", "lib.__name__ = 5", "del lib.v", "lib.__name__ = 'b'"]),
    "a module's missing attribute": (
        MODULE, "str(got(lambda: lib.w)) + str(x.shape)",
        ["lib.__name__ = 'other'", "del lib.__name__", "lib.__getattr__ = lambda n: n", "lib.w = 1", "del lib.w",
         "del lib.__getattr__"]),
    "a global that is deleted": (
        "K = 2\ndef drop():\n    global K\n    del K\n", "(got(drop), got(lambda: x + K), got(drop))",
        ["globals()['K'] = 3", "globals()['K'] = torch.ones(4)", "int()"]),
    "a builtin that is deleted": (
        "def drop():\n    global max\n    del max\n", "(got(lambda: max(2, 3)), got(drop), got(lambda: max(4, 3)))",
        ["globals()['max'] = min", "int()", "globals()['max'] = sum", "int()"]),
    "what a metaclass says of classes": (
        CLASSES,
        "(isinstance(one, A), isinstance(x, A), issubclass(int, A), isinstance(two, (int, A)), got(lambda: B(3).n))",
        ["Meta.__instancecheck__ = lambda cls, o: True", "Meta.__subclasscheck__ = lambda cls, c: True",
         "del Meta.__instancecheck__", "Meta.__subclasscheck__ = lambda cls, c: STEP == 5 and c is int", "int()",
         "Meta.__instancecheck__ = lambda cls, o: False", "del Meta.__subclasscheck__"]),
    "a metaclass's method is set in the call": (
        CLASSES,
        "(got(lambda: setattr(Meta, '__subclasscheck__', lambda cls, c: False)), B(6).n, got(lambda: raised(B)))",
        ["int()", "del Meta.__subclasscheck__"]),
    "bases that change": (
        CLASSES, "(one + two, one < two, two + one, caught(E2), super(A, two).__init__ is None, two + 1)",
        ["B.__bases__ = (C,)", "E2.__bases__ = (E3,)", "B.__bases__ = (A,)", "two.__class__ = A",
         "E2.__bases__ = (E1, E3)"]),
    "a tensor that only a weak reference knows": (
        "T = torch.ones(4)\nref = weakref.ref(T)\ndef drop():\n    global T\n    T = torch.zeros(4)\n",
        "(ref() is None, drop(), x * 2, ref() is None, 2 if ref() is None else x + ref())",
        ["globals()['ref'] = weakref.ref(T)", "int()"]),
    "constants of the code": (
        "P = (1, 2)\nD = {}\ndef pair(): return (1, 2)\ndef put(k): D[k] = (1, 2); return D[k]\n",
        "(pair() is pair(), pair() is P, put('a') is D.get('b'), put('b') is P, (3, (4, 5)), pair() is tuple([1, 2]))",
        ["globals()['P'] = tuple([1, 2])", "D['b'] = P", "globals()['P'] = pair()", "D.clear()"]),
}


def source(setup: str, read: str, changes: list[str]) -> str:
    made = "".join(f"def change_{n}():\n    {text}\n" for n, text in enumerate(changes, 1))
    seen = tuple({line.split(" = ")[0] for line in setup.splitlines() if " = " in line and line[0] not in " @"})
    return HEAD.format(seen=seen) + f"""
{setup}
{made}
def got(fn):
    try:
        return fn()
    except Exception as error:
        return type(error), error.args
def change(i):
    globals().get(f"change_{{STEP}}", int)()
    globals()["STEP"] += 1
def arguments(i):
    return [torch.ones(3, 4)]
def f(x):
    r = [x + 1]
    r.append({read})
    return r
"""


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("case", CASES)
def test_no_difference(case: str, backend: str) -> None:
    text = source(*CASES[case])
    options = harness.Options(backend)
    calls = tuple(range(len(CASES[case][2]) + 1))
    assert harness.plainly(text, options, calls), "no program"
    found = harness.compare(text, options, calls)
    assert found is None, found
