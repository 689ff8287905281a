"""Closures, classes, parameters of every kind, frames that look at themselves."""

import sys

from zoo.support import CASES, Counting, Manager, case, note

# Functions inside


@case((3,))
def closures(x):
    y = x + 1

    def inner(z):
        return x + y + z

    y += 10
    return inner(1), (lambda: y)()


@case((2,))
def closure_with_nonlocal(n):
    count = 0

    def bump(by=1):
        nonlocal count, n
        count += by
        n -= 1
        return count

    while n:
        print(bump(by=n), count)
    return count, n, bump.__closure__[0].cell_contents


@case((2,))
def lambda_defaults(x):
    fs = [lambda a, i=i, *, k=x: (a, i, k) for i in range(x)]
    g = lambda *a, **k: (a, k)
    return [f(1) for f in fs], g(1, b=2)


@case((1,))
def annotated_function(x):
    def inner(a: int, b: str = "b", *, c: float = x) -> str:
        """Doc."""
        return f"{a}{b}{c}"

    total: int = x
    return inner(total), sorted(inner.__annotations__), inner.__kwdefaults__, inner.__doc__


@case((3,))
def decorated(x):
    def twice(k):
        def wrap(f):
            print("wrap", k)
            return lambda *a: k * f(*a)

        return wrap

    @twice(2)
    @twice(note(x))
    def g(a):
        return a + x

    return g(1)


@case((3,))
def class_in_function(x):
    class Base:
        factor = x

        def __init__(self, v):
            self.v = v * self.factor

        def get(self):
            return self.v

    class Derived(Base, metaclass=type):
        def __init__(self, v):
            super().__init__(v)
            self.w = [super(Derived, self).get(), x]

        def get(self):
            return super().get() + 1

    d = Derived(2)
    return d.get(), d.w, Derived.__name__


@case((3,))
def recursion(n):
    return 1 if n <= 1 else n * recursion(n - 1)


@case((4,))
def inner_recursion(n):
    def fib(k):
        return k if k < 2 else fib(k - 1) + fib(k - 2)

    return [fib(i) for i in range(n)]


@case((2,))
def unbound_cell(x):
    def inner():
        return later  # noqa: F821

    try:
        inner()
    except NameError as e:
        print(e)
    later = x
    print(inner())
    del later
    return inner()


@case((3,))
def cell_argument_deleted(x):
    def inner():
        return x

    print(inner())
    del x
    x = 4
    return inner()


@case((2,))
def many_cells(a):
    b, c, d = 1, 2, 3

    def f():
        nonlocal b, d
        b, d = d + a, b + c
        return [i + b for i in range(a)]

    return f(), b, c, d, f(), b


class Animal:
    kind = "animal"

    def __init__(self, name):
        self.name = name

    def speak(self, volume=1):
        return f"{self.name} {volume}"


class Dog(Animal):
    def __init__(self, name):
        print("dog")
        super().__init__(name)
        self.tricks = []

    def speak(self, volume=2, *extra, **more):
        said = super().speak(volume)
        if extra:
            self = None
        return said, extra, more

    def remember(self, trick):
        add = lambda: self.tricks.append(trick)
        add()
        said = super().speak(3)
        return said, self.tricks, super().kind

    @property
    def loud(self):
        print("loud")
        return super().speak(9)

    @classmethod
    def make(cls, name):
        made = cls(name)
        print(made.name, super().kind)
        return made

    @staticmethod
    def helper(x):
        return note(x)

    def __call__(self, x):
        return self.speak(x)[0], self.loud


@case(("rex",))
def methods(name):
    dog = Dog.make(name)
    return dog.speak(1, 2, z=3), dog.remember("roll"), dog.loud, dog(4), Dog.helper(5)


def _dog(name):
    dog = Dog.__new__(Dog)
    dog.name, dog.tricks = name, []
    return dog


CASES.extend(
    [
        (Dog.__init__, (_dog("a"), "b")),
        (Dog.speak, (_dog("c"), 1)),
        (Dog.speak, (_dog("c"), 1, 2)),
        (Dog.remember, (_dog("d"), "sit")),
        (Dog.__call__, (_dog("e"), 5)),
    ]
)


@case((1,), (1, 2, 3))
def star_parameters(a, *rest, **named):
    total = a
    for r in rest:
        total += r
    named["total"] = total
    return total, rest, named


def _all_kinds(a, /, b, *rest, c, d=4, **named):
    print(a, b, rest, c, d, named)
    inner = lambda: (a, rest, named)
    rest += (c,)
    return inner()


@case((1,))
def calls_all_kinds(x):
    return _all_kinds(x, 2, 3, c=5, e=6)


# Frames that look at themselves


@case((1,))
def looks_at_locals(x):
    y = x + 1
    names = sorted(locals())
    z = y
    return names, locals()["z"], eval("x + y + z")


@case((1,))
def looks_at_frame(x):
    names = sorted(name for name in sys._getframe().f_locals if not name.startswith("___"))
    return names, sys._getframe().f_code.co_name, sys._getframe().f_lineno, x


@case((0,), (1,))
def everything(n):
    total, log = 0, []
    for i in range(3):
        with Manager(f"m{i}", suppress=True):
            try:
                for j in Counting(2, 2 if i == 1 else -1):
                    total += i * j if j % 2 else -j
                    log.append(lambda total=total: (total, i, j))
                    if n and i == 2:
                        raise KeyError(i)
            except ValueError as e:
                log.append(lambda text=str(e): text)
                if n:
                    raise RuntimeError("again") from e
            finally:
                total += 100
    return total, [f() for f in log]


def _wide(count):
    """A function of many locals and constants, whose arguments and jumps need prefixes."""
    lines = ["def wide(x):"]
    lines += [f"    v{i} = x + {i + 1000}" for i in range(count)]
    lines += [
        "    total = 0",
        "    for i in range(2):",
        "        try:",
        "            if i == x:",
        "                raise KeyError",
    ]
    lines += [f"            total += v{i} * i" for i in range(count)]
    lines += ["        except KeyError:", "            total += v7", "    return total, (lambda: v5)()"]
    space = {"__name__": __name__}
    exec(compile("\n".join(lines), __file__, "exec"), space)
    return space["wide"]


wide = case((0,), (5,))(_wide(300))
