"""Runs the frame hook many times over and asserts that memory stays: python frame_stress.py <times> [<part>...]

Each part calls what it tests often, in plain Python without torch: hits, breaks, exceptions, generators, recursion to
the limit, threads, and frames that begin a piece of the interpreter's stack. References and allocated blocks are
counted before and after; under PYTHONMALLOC=debug or valgrind a wrong access shows.
"""

import asyncio
import gc
import resource
import sys
import threading

import extensions_alone  # noqa: F401

from dynamo_lite import _eval_frame as E
from dynamo_lite import _guards as G

ANY = G.GuardProgram([], 0, 0)
FIRST = G.GuardProgram([("load_local", 0, 0), ("collect", 0, 0)], 1, 1)


def guarded(source, needs_hook=True, program=ANY, **names):
    namespace = {"Continuation": E.Continuation, **names}
    exec(source, namespace)
    return program, namespace["guarded"].__code__, needs_hook, namespace


class Answers:
    """A compile callback: an answer by the name of the code; new code, and so a miss, now and then."""

    def __init__(self, **table):
        self.table, self.hook = table, E.FrameHook(self)

    def __call__(self, code, globals, builtins, closure, args, func):
        answer = self.table.get(code.co_name, E.SKIP)
        if not isinstance(answer, tuple):
            return answer() if callable(answer) else answer
        program, own, needs_hook, namespace = answer
        globals.update({k: v for k, v in namespace.items() if k not in ("__builtins__", "guarded")})
        return E.GuardedCode(program, own.replace(co_name=code.co_name), needs_hook)

    def compile(self, fn):
        return E.CompiledFunction(fn, self.hook)


def leaf(x, *args, key=None, **kwargs):
    return x


def caller(x):
    return leaf(x), leaf(x, 1, key=2, other=3)


def hits(times):
    inputs = "def guarded(x, key, args, kwargs, inputs):\n    return inputs[0]"
    answers = Answers(leaf=guarded(inputs, False, FIRST))
    f, g = answers.compile(leaf), answers.compile(caller)
    for _ in range(times):
        x = object()
        assert f(x) is x and f(x, x, key=x, other=x) is x and g(x) == (x, x)


def misses(times):
    answers = Answers(leaf=guarded("def guarded(x, key, args, kwargs, inputs):\n    return x"))
    f = answers.compile(caller)
    for i in range(times // 100):
        assert f(i) == (i, i)
        E.reset_code(leaf.__code__) if i % 2 else E.reset()


def fails():
    raise LookupError("in the callback")


def wrong_answers(times):
    def no_parameters(x, inputs):
        return None

    wrong = [
        fails,
        lambda: 5,
        lambda: E.GuardedCode(ANY, no_parameters.__code__, True),
        lambda: E.GuardedCode(G.GuardProgram([("load_local", 0, 0), ("const", 0, 1)], 0, 1), None, True),
    ]
    hooks = [Answers(leaf=answer) for answer in wrong]
    for i in range(times // 10):
        try:
            hooks[i % len(hooks)].compile(caller)(object())
        except (LookupError, TypeError, RuntimeError):
            pass
        else:
            raise AssertionError
        if i % 50 == 0:
            E.reset()


def broken(x, y):
    return x, y


def rest(x, y, n):
    return (x, y) if n == 0 else rest(x, y, n - 1)


def breaks(times):
    """A frame, three continuations, each a hit of its own or not."""
    first = "def guarded(x, y, inputs):\n    return Continuation(rest, x, y, 3)"
    more = "def guarded(x, y, n, inputs):\n    return Continuation(rest, x, y, n - 1) if n else (x, y)"
    for table in ({}, {"rest": guarded(more)}, {"rest": E.RUN_ORIGINAL}):
        answers = Answers(broken=guarded(first, rest=rest), **table)
        f = answers.compile(broken)

        def by_hook(x, y):
            return broken(x, y)

        g = answers.compile(by_hook)
        for _ in range(times // 4):
            x, y = object(), [0]
            assert f(x, y) == g(x, y) == (x, y)
            assert sys.getrefcount(y) <= 4
        E.reset()


def raises(x):
    raise KeyError(x)


def through(x):
    try:
        return raises(x)
    except KeyError as error:
        return error


def exceptions(times):
    source = "def guarded(x, inputs):\n    y = [x]\n    raise KeyError(y)"
    answers = Answers(raises=guarded(source))
    f, g = answers.compile(through), answers.compile(raises)
    kept = []
    for _ in range(times // 2):
        error = f(object())
        assert isinstance(error.args[0], list)
        kept.append(error.__traceback__)
        try:
            g(object())
        except KeyError as raised:
            kept.append(raised.__traceback__.tb_next.tb_frame.f_locals)
        if len(kept) > 100:
            kept.clear()
    E.reset()


def numbers(n):
    try:
        for i in range(n):
            yield leaf(i)
    except ValueError:
        yield "thrown"


def sums(n):
    g = numbers(3)
    total = sum(numbers(n)) + next(g) + sum(leaf(i) for i in range(2))
    assert g.throw(ValueError) == "thrown"
    g.close()
    return total


async def awaits(n):
    return sum([leaf(i) async for i in asynchronous(n)])


async def asynchronous(n):
    for i in range(n):
        yield await coroutine(i)


async def coroutine(x):
    return leaf(x)


def runs(n):
    try:
        awaits(n).send(None)
    except StopIteration as stop:
        return stop.value


def generators(times):
    answers = Answers(leaf=guarded("def guarded(x, key, args, kwargs, inputs):\n    return x"))
    f, g = answers.compile(sums), answers.compile(runs)
    for i in range(times // 20):
        assert f(4) == 7 and g(4) == 6
        kept = numbers(2)
        next(kept)  # one that is left suspended
        if i % 500 == 0:
            assert asyncio.run(awaits(3)) == 3
    E.reset()


def infinite(x):
    return infinite(x + 1)


def down(n, *rest):
    return 0 if n == 0 else 1 + down(n - 1, *rest)


def recursion(times):
    own = guarded("def guarded(x, inputs):\n    return infinite(x + 1)", infinite=infinite)
    hooks = [Answers(), Answers(infinite=own), Answers(infinite=E.RUN_ORIGINAL)]
    for i in range(times // 2000 + 3):
        f = hooks[i % 3].compile(infinite)
        for _ in range(3):
            try:
                f(0)
            except RecursionError:
                continue
            raise AssertionError
    E.reset()


def pieces_of_the_stack(times):
    """The interpreter's stack grows by pieces: a frame of every size begins one somewhere."""
    for extra in range(0, 60, 3):
        locals_ = "".join(f"    v{i} = n\n" for i in range(extra))
        namespace = {}
        exec(f"def wide(n):\n    if n == 0: return 0\n{locals_}    return 1 + wide(n - 1)", namespace)
        wide = namespace["wide"]
        own = f"def guarded(n, inputs):\n    if n == 0: return 0\n{locals_}    return 1 + wide(n - 1)"
        own = guarded(own, wide=wide)
        brk = guarded("def guarded(n, inputs):\n    return Continuation(less, n)", wide=wide)
        namespace["less"] = lambda n, wide=wide: 0 if n == 0 else 1 + wide(n - 1)
        for answer in (own, brk, E.RUN_ORIGINAL):
            f = Answers(wide=answer).compile(wide)
            for i in range(times // 10000 + 1):
                assert f(100 + i % 60) == 100 + i % 60
        E.reset()


def closures(times):
    def outer(free):
        def inner(a, b):
            def use():
                return free, a, b

            return use()

        return inner

    own = """
def make(free, leaf):
    def guarded(a, b, inputs):
        def use():
            return free, a, b
        return use()
    return guarded
"""
    namespace = {}
    exec(own, namespace)
    program = G.GuardProgram([], 0, 0)
    code = namespace["make"](1, 2).__code__
    hook = E.FrameHook(lambda c, *a: E.GuardedCode(program, code, True) if c.co_name == "inner" else E.SKIP)
    for _ in range(times // 10):
        free, a, b = object(), object(), object()
        assert E.CompiledFunction(outer(free), hook)(a, b) == (free, a, b)


def threads(times):
    failed = []

    def run(part):
        try:
            part(times // 16)
        except BaseException as error:
            failed.append(error)

    parts = [hits, generators, exceptions, breaks, closures, recursion, hits, generators]
    # Resetting in one thread only makes others miss.
    workers = [threading.Thread(target=run, args=(part,)) for part in parts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failed, failed


PARTS = [hits, misses, wrong_answers, breaks, exceptions, generators, recursion, pieces_of_the_stack, closures, threads]


def measure(part, times):
    part(times)
    E.reset()
    gc.collect()
    return sys.getallocatedblocks()


def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(times, names):
    for part in [part for part in PARTS if not names or part.__name__ in names]:
        small = max(times // 5, 4000)  # until free lists and caches are full
        measure(part, small)
        before, at_first = measure(part, small), resident()
        references = [sys.getrefcount(o) for o in (leaf, infinite.__code__, None.__class__, part.__code__)]
        after, at_last = measure(part, times), resident()
        assert [sys.getrefcount(o) for o in (leaf, infinite.__code__, None.__class__, part.__code__)] == references
        assert after <= before + 300, (part.__name__, before, after)
        assert at_last - at_first < (16 << 20), (part.__name__, at_first, at_last)
        print(part.__name__, after - before, at_last - at_first, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
