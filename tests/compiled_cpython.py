"""CPython's own tests with every test method compiled: python compiled_cpython.py [module ...]

A method that passes in eager has to pass compiled, unless it does not pass in eager a second time. Each module runs in
a process of its own, which reports every test as it starts and as it ends: where the interpreter crashes or hangs, that
test is written down and a new process goes on behind it. Prints a table, n of N per module, and the methods that
differ; the exit status says whether any did.
"""
from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Iterator
from typing import Any

MODULES = (
    "test_list test_tuple test_dict test_set test_generators test_contextlib test_itertools test_functools "
    "test_collections test_dataclasses test_enum test_exceptions test_with test_patma test_grammar test_scope "
    "test_super test_property test_descr test_fstring test_operator test_math test_sort test_iter "
    "test_class test_augassign test_types test_binop test_compare test_decorators test_dictcomps test_dictviews "
    "test_dynamicclassattribute test_except_star test_exception_group test_exception_hierarchy "
    "test_exception_variations test_generator_stop test_genericalias test_genericclass test_global test_hash "
    "test_index test_isinstance test_keywordonlyarg test_named_expressions test_numeric_tower test_opcodes "
    "test_positional_only_arg test_pow test_range test_slice test_reprlib test_string test_subclassinit "
    "test_threading_local test_typechecks test_unary test_unpack test_weakset test_abc test_abstract_numbers "
    "test_bool test_int test_float test_complex test_enumerate test_heapq test_bisect test_textwrap "
    "test_userstring test_copyreg test_graphlib test_context test_contextlib_async test_copy test_coroutines "
    "test_traceback test_fractions test_statistics test_json test_struct test_warnings test_array test_memoryview "
    "test_format test_defaultdict test_deque test_ordered_dict test_logging test_bytes test_pickle"
).split()
SECONDS_PER_TEST = 20  # of CPU time, so that what else runs does not matter; ten times as much on the clock
SECONDS_PER_MODULE = 1200


# ---------------------------------------------------------------- in the module's process
class TestTookTooLong(BaseException):
    """A test ran into its time limit; no Exception, so that no handler of the test takes it for its own."""


def methods(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """The test methods of a suite; doctests are left out."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from methods(test)
        elif type(test).__name__ not in ("DocTestCase", "DocFileCase") and hasattr(test, "_testMethodName"):
            yield test


def _too_long(*_: Any) -> None:
    raise TestTookTooLong(f"more than {SECONDS_PER_TEST} s of CPU time")


def run(test: unittest.TestCase) -> str:
    """pass, skip, or the last line of what went wrong."""
    result = unittest.TestResult()
    signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_TEST)
    signal.alarm(10 * SECONDS_PER_TEST)
    try:
        test.run(result)
    except TestTookTooLong as error:
        return str(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
    for failures in (result.errors, result.failures):
        if failures:
            return failures[0][1].strip() if VERBOSE else failures[0][1].strip().splitlines()[-1][:200]
    return "skip" if result.skipped else "pass"


VERBOSE = bool(os.environ.get("COMPILED_CPYTHON_VERBOSE"))


def run_module(name: str, patterns: list[str], skipped: int, report: Any) -> None:
    """Runs a module's tests both ways, in this process; the first `skipped` have been run by another."""
    import dynamo_lite

    def say(*what: Any) -> None:
        print(json.dumps(what), file=report, flush=True)

    module = importlib.import_module(f"test.{name}")
    signal.signal(signal.SIGALRM, _too_long)
    signal.signal(signal.SIGPROF, _too_long)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, tests raise it
    for number, test in enumerate(methods(unittest.TestLoader().loadTestsFromModule(module))):
        if patterns and not any(fnmatch.fnmatch(test.id(), f"*{p}*") for p in patterns) or number < skipped:
            continue
        say("start", number, test.id())
        eager = run(test)
        if eager != "pass":
            say("end", number, "eager", eager)
            continue
        again = type(test)(test._testMethodName)
        dynamo_lite.reset()
        captured = dynamo_lite.compile(getattr(type(again), again._testMethodName), backend="eager")
        setattr(again, again._testMethodName, lambda test=again, captured=captured: captured(test))
        outcome = run(again)
        if outcome not in ("pass", "skip") and run(type(test)(test._testMethodName)) != "pass":
            say("end", number, "eager", "fails when it is run once more")  # what it leaves behind is in its own way
        else:
            say("end", number, "compiled", outcome)


# ---------------------------------------------------------------- the processes
@dataclasses.dataclass
class Count:
    """What came of a module.

    Args:
        eager: how many tests pass in eager.
        passed: how many of these pass compiled.
        differ: the others, and why.
    """

    eager: int = 0
    passed: int = 0
    differ: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, test: str, how: str, outcome: str) -> None:
        """Counts one test; how: eager where the result is that of eager, which is not compared."""
        if how == "eager":
            return
        self.eager += 1
        if outcome == "pass":
            self.passed += 1
        else:
            self.differ[test] = outcome


def run_process(name: str, patterns: list[str]) -> Count:
    """Runs a module in as many processes as it takes."""
    count = Count()
    skipped = 0
    deadline = time.monotonic() + SECONDS_PER_MODULE
    while True:
        command = [sys.executable, __file__, "--one", name, "--skip", str(skipped)]
        read, write = os.pipe()
        command += ["--report", str(write)] + [a for p in patterns for a in ("-k", p)]
        running: tuple[int, str] | None = None
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
                              if not VERBOSE else None, pass_fds=(write,), text=True) as process:
            os.close(write)
            timer = _kill_at(process, deadline)
            with os.fdopen(read) as lines:
                for line in lines:
                    what, number, *rest = json.loads(line)
                    if what == "start":
                        running = (number, rest[0])
                    else:
                        assert running is not None
                        count.add(running[1], *rest)
                        running = None
            _, errors = process.communicate()
            timer.cancel()
        if process.returncode == 0:
            return count
        late = time.monotonic() >= deadline
        reason = "more time than a module has" if late else f"the interpreter ended with status {process.returncode}"
        if running is None:
            count.eager += 1
            count.differ[f"{name} as a whole"] = f"{reason}: {' '.join((errors or '').split())[-200:]}"
            return count
        count.eager += 1
        count.differ[running[1]] = reason
        if late:
            return count
        skipped = running[0] + 1


def _kill_at(process: subprocess.Popen[str], deadline: float) -> Any:
    timer = threading.Timer(max(0.0, deadline - time.monotonic()), process.kill)
    timer.daemon = True
    timer.start()
    return timer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("-k", dest="patterns", action="append", default=[], help="only tests whose id contains this")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with os.fdopen(options.report, "w") as report:
            run_module(options.modules[0], options.patterns, options.skip, report)
        return 0
    counts = {}
    print(f"{'module':<20} {'eager':>6} {'compiled':>9} {'seconds':>8}", flush=True)
    for name in options.modules:
        started = time.monotonic()
        count = counts[name] = run_process(name, options.patterns)
        print(f"{name:<20} {count.eager:>6} {count.passed:>9} {time.monotonic() - started:>8.0f}", flush=True)
        for test, why in count.differ.items():
            print(f"    {test}: {why}", flush=True)
    eager, passed = sum(c.eager for c in counts.values()), sum(c.passed for c in counts.values())
    print(f"{'all':<20} {eager:>6} {passed:>9}")
    return 0 if passed == eager else 1


if __name__ == "__main__":
    sys.exit(main())
