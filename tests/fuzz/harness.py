"""A program run in plain Python and compiled, call by call, and where what can be seen differs.

A program is source text that defines ``f`` and ``arguments(i)``, and may define ``change(i)``, which runs before call
*i*, and ``after(result)``, which runs behind it in plain Python and gives more to be seen. Each of the two runs
executes the source afresh, so that neither sees the other's globals.

Invariant: a reported difference is the compiler's. Programs whose results plain Python doesn't repeat, or whose
results jump when the arguments change in their last digits (a comparison of sums that are equal but for rounding),
are no programs to compare by. """
from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import io
import linecache
import random
import resource
import signal
import sys
import types
import warnings
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy
import torch

import dynamo_lite

from .observe import ADDRESS, Observer, difference, gradients, raised, same

NUDGE = 1 + 2.0**-18
MEMORY = 1 << 30    # bytes that a program may take
LIMIT = 2000    # recursion that goes on for longer is not what is tried here
end_cycles = False  # after each call; a process with little in it, such as the fuzzer's workers, has the time
IMPORTS = "<frozen importlib._bootstrap>"    # the file of the import system's own frames
SECONDS = 2     # of the processor's time: nor programs that take longer in plain Python


# Twice with the same arguments: what is compiled, and what is found again. The others need other guards.
CALLS = (0, 0, 1, 1, 0, 2)


@dataclasses.dataclass(frozen=True)
class Options:
    """How a program is compiled and compared, and which calls are made.

    Attributes:
        in_handler: whether calls of odd numbers are made while an exception is handled.
        exact: whether numbers are to be the same to the last bit with any backend.
        within: how far numbers may be apart otherwise, relative to the largest beside them.
    """

    backend: str = "eager"
    grad: bool = False
    settings: tuple[tuple[str, Any], ...] = ()
    dynamic: bool | None = None
    calls: tuple[int, ...] = CALLS
    in_handler: bool = False
    exact: bool = False
    within: float = 2e-4

    @property
    def tolerance(self) -> float:
        return 0.0 if self.exact or self.backend == "eager" else self.within


@dataclasses.dataclass
class Found:
    """A program that differs, and where."""

    source: str
    options: Options
    call: int
    where: str
    # What a smaller program has to have in common with this one to show the same.
    kind: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.options}, call {self.call}\n{self.source}\n{self.where}\n"


def _plain(fn: Callable[..., Any], args: list[Any]) -> Any:
    return fn(*args)


def _in_handler(fn: Callable[..., Any], args: list[Any]) -> Any:
    try:
        raise ArithmeticError("outer")
    except ArithmeticError:
        return fn(*args)


class Program:
    """A loaded program: its own module, and its calls one after the other."""

    count = 0

    def __init__(self, source: str, wrap: Callable[[Any], Any], options: Options, nudge: float = 1.0) -> None:
        Program.count += 1
        self.name = f"<fuzz {Program.count}>"
        self.module = types.ModuleType(f"fuzz_{Program.count}")
        self.options, self.nudge = options, nudge
        sys.modules[self.module.__name__] = self.module
        linecache.cache[self.name] = (len(source), None, source.splitlines(True), self.name)
        self.code = compile(source, self.name, "exec", dont_inherit=True)
        random.seed(0)
        torch.manual_seed(0)
        exec(self.code, self.scope)
        self.fn = wrap(self.scope["f"])

    @property
    def scope(self) -> dict[str, Any]:
        return vars(self.module)

    def close(self) -> None:
        del sys.modules[self.module.__name__], linecache.cache[self.name]
        self.scope.clear()

    def call(self, i: int) -> Any:
        """All that can be seen of call *i*."""
        for seed in (torch.manual_seed, random.seed, numpy.random.seed):
            seed(i)
        change = self.scope.get("change")
        if change is not None:
            with contextlib.suppress(Exception):
                change(i)
        args = self.scope["arguments"](i)
        leaves = []
        for k, a in enumerate(args):
            if isinstance(a, torch.Tensor) and a.is_floating_point():
                if self.nudge != 1.0:
                    a.mul_(self.nudge)
                if self.options.grad and k != 0:
                    # Leaves can't be written, results can: programs get the latter.
                    leaves.append(a.requires_grad_())
                    args[k] = a.view_as(a) if k % 2 else a * 1
        observer = Observer(lambda cls: cls.__module__ == self.module.__name__)
        before = [a._version if isinstance(a, torch.Tensor) else None for a in args]
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                result: Any = (_in_handler if self.options.in_handler and i % 2 else _plain)(self.fn, args)
        except dynamo_lite.exc.InternalError:
            raise
        except Exception as error:
            result = error
            ended = raised(error)
        else:
            ended = ("returned",)
        if end_cycles:
            gc.collect()  # what is left in cycles ends here in both runs
        written = [isinstance(a, torch.Tensor) and a._version > v for a, v in zip(args, before)]
        grad_mode = torch.is_grad_enabled()
        drawn = (torch.rand(1), random.random(), float(numpy.random.rand()))
        scope = {k: v for k, v in self.scope.items() if k in self.scope.get("SEEN", ())}
        seen = [ended, ("arguments", observer.see(args)), ("written", written), ("result", observer.see(result)),
                ("globals", observer.see(scope)), ("random", drawn), ("grad mode", grad_mode),
                ("printed", ADDRESS.sub("0x", printed.getvalue()))]
        with torch.enable_grad():
            seen.append(("gradients", gradients(observer.differentiable, leaves)))
            if "after" in self.scope:
                seen.append(("after", observer.see(self.scope["after"](result))))
        return seen


@contextlib.contextmanager
def _own_modes() -> Iterator[None]:
    """Programs may change torch's modes; the next one starts with today's."""
    dtype, grad = torch.get_default_dtype(), torch.is_grad_enabled()
    deterministic, autocast = torch.are_deterministic_algorithms_enabled(), torch.is_autocast_enabled("cpu")
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.use_deterministic_algorithms(deterministic)
        torch.set_autocast_enabled("cpu", autocast)


def outcomes(source: str, wrap: Callable[[Any], Any], options: Options, calls: tuple[int, ...],
             nudge: float = 1.0) -> Generator[Any, None, None]:
    """What can be seen of each call, in turn."""
    program = Program(source, wrap, options, nudge)
    old = sys.getrecursionlimit()
    try:
        with warnings.catch_warnings(), _own_modes():
            warnings.simplefilter("ignore")
            sys.setrecursionlimit(LIMIT)
            for i in calls:
                yield program.call(i)
    finally:
        sys.setrecursionlimit(old)
        program.close()


def plainly(source: str, options: Options, calls: tuple[int, ...], nudge: float = 1.0) -> list[Any] | None:
    """What can be seen of each call in plain Python; None if that takes more than a program may."""
    try:
        with limited(), contextlib.closing(outcomes(source, lambda f: f, options, calls, nudge)) as made:
            seen = list(made)
    except (Exception, TooLong):
        return None    # also arguments or globals that can't be made
    return None if any(call[0][:2] == ("raised", "MemoryError") for call in seen) else seen


def compare(source: str, options: Options, calls: tuple[int, ...] | None = None,
            plain: list[Any] | None = None) -> Found | None:
    """The first difference between plain Python and the compiled program; None also if plain Python doesn't run it.
    `plain` is what `plainly` has seen of it, if that is known."""
    calls = options.calls if calls is None else calls
    plain = plainly(source, options, calls) if plain is None else plain
    if plain is None:
        return None    # no program
    dynamo_lite.reset()
    try:
        with dynamo_lite.config.patch(**{"raise_internal_errors": True, **dict(options.settings)}):
            def compiled_as(f: Any) -> Any:
                return dynamo_lite.compile(f, backend=options.backend, dynamic=options.dynamic)

            # Closed here: an exception that a program keeps holds the frames below it, this one too, and the modes
            # would be put back whenever the collector finds that, amid another program.
            with contextlib.closing(outcomes(source, compiled_as, options, calls)) as compiled:
                for call, (want, got) in enumerate(zip(plain, compiled)):
                    # A write that is counted though there was none may come of running again; one that is not hides
                    # errors.
                    counted = zip(want[2][1], got[2][1])
                    # Setting .data makes another tensor of it, whose own writes do not count; nor does a kernel count
                    # one that writes what is there (y.copy_(y)), where nothing is saved for a backward pass.
                    uncounted = ".data = " in source or options.backend != "eager" and not options.grad
                    got[2] = want[2] if uncounted else ("written", [a and b for a, b in counted])
                    if not same(want, got, options.tolerance):
                        if not _well_posed(source, options, calls, plain):
                            return None
                        first = next(k for k, (p, q) in enumerate(zip(want, got)) if not same(p, q, options.tolerance))
                        kind = (first, want[0][:2], got[0][:2])
                        return Found(source, options, call, difference(want, got, options.tolerance), kind)
    except Exception as error:
        text = f"the compiler failed: {type(error).__name__}: {error}"
        return Found(source, options, -1, text, ("failed", type(error)))
    finally:
        dynamo_lite.reset()
    return None


class TooLong(BaseException):
    """A program has run for longer than a program may; its own handlers don't catch it."""


def _importing(frame: types.FrameType | None) -> bool:
    while frame is not None and frame.f_code.co_filename != IMPORTS:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def limited() -> Iterator[None]:
    # use_deterministic_algorithms() imports this, which takes two seconds; they are none of a program's.
    importlib.import_module("torch._inductor.config")
    running = True

    def stop(_: int, frame: types.FrameType | None) -> None:
        # A module whose import is cut short stays half made, and each program behind this one fails for it.
        if running and not _importing(frame):
            raise TooLong

    # The processor's time, so that a loaded machine has the same programs as a quiet one. Again and again, as `finally:
    # continue` swallows what is raised in its body, but not what is raised in the jump.
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS, SECONDS / 50)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    try:
        yield
    finally:
        running = False
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _well_posed(source: str, options: Options, calls: tuple[int, ...], plain: list[Any]) -> bool:
    for tolerance, nudge in ((0.0, 1.0), (options.tolerance, NUDGE)):
        again = plainly(source, options, calls, nudge) if tolerance or nudge == 1.0 else plain
        if again is None or not all(map(lambda a, b: same(a, b, tolerance), plain, again)):
            return False
    return True
