"""What the tests of the frame hook share: a compile callback in a few lines of Python, code for it to return."""

import contextlib
import textwrap

import pytest

from dynamo_lite import _eval_frame as E
from dynamo_lite import _guards as G

ANY = G.GuardProgram([], 0, 0)


def code_of(source, name="guarded", free=()):
    """The code of a function, as guarded code: its last parameter takes the inputs."""
    namespace = {}
    source = textwrap.dedent(source)
    if free:
        head = f"def make({', '.join(free)}):\n"
        exec(head + textwrap.indent(source, "    ") + f"\n    return {name}", namespace)
        return namespace["make"](*free).__code__
    exec(source, namespace)
    return namespace[name].__code__


def guard_on(index, value):
    """Argument `index` is `value`; it is also the only input."""
    return G.GuardProgram([("load_local", 0, index), ("const", 0, value), ("collect", 0, 0)], 1, 1)


class Hook:
    """A compile callback that answers from a table by code name, and notes what it was asked."""

    def __init__(self, table=None, default=E.SKIP):
        self.table = table or {}
        self.default = default
        self.asked = []
        self.hook = E.FrameHook(self)

    def __call__(self, code, globals, builtins, closure, args, func):
        assert E.in_compile() and E.active_hook() is None
        if "site-packages" not in code.co_filename:  # audit hooks of libraries, which run in the midst of what is tried
            self.asked.append(code.co_name)
        answer = self.table.get(code.co_name, self.default)
        if callable(answer):
            answer = answer(code, globals, builtins, closure, args, func)
        return answer

    @contextlib.contextmanager
    def active(self):
        previous = E.set_active(self.hook)
        try:
            yield
        finally:
            assert E.set_active(previous) is self.hook

    def compile(self, fn):
        return E.CompiledFunction(fn, self.hook)


def entry(source, program=ANY, needs_hook=False, free=()):
    def make(*_):
        return E.GuardedCode(program, code_of(source, free=free), needs_hook)

    return make


@pytest.fixture(autouse=True)
def nothing_stays_active():
    E.reset()
    assert E.active_hook() is None
    yield
    assert E.active_hook() is None and not E.in_compile()
    E.reset()
