"""CPython's own tests with every test method compiled: python compiled_cpython.py [module ...]

A method that passes in eager has to pass compiled. Each module runs in a process of its own; `--one module` is that
process. Prints n of N per module and the methods that differ.
"""
from __future__ import annotations

import argparse
import collections
import importlib
import io
import json
import signal
import subprocess
import sys
import unittest
from collections.abc import Iterator
from typing import Any

MODULES = (
    "test_list test_tuple test_dict test_set test_generators test_contextlib test_itertools test_functools "
    "test_collections "
    "test_dataclasses test_enum test_exceptions test_with test_patma test_grammar test_scope test_super test_property "
    "test_descr test_fstring test_operator test_math test_sort test_iter"
).split()
SECONDS_PER_TEST = 20
SECONDS_PER_MODULE = 600


def methods(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """The test methods of a suite; doctests are left out."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from methods(test)
        elif type(test).__name__ != "DocTestCase" and hasattr(test, "_testMethodName"):
            yield test


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"more than {SECONDS_PER_TEST} s")


def run(test: unittest.TestCase) -> str:
    """pass, skip, or the last line of what went wrong."""
    result = unittest.TestResult()
    signal.alarm(SECONDS_PER_TEST)
    try:
        test.run(result)
    finally:
        signal.alarm(0)
    for failures in (result.errors, result.failures):
        if failures:
            return failures[0][1].strip().splitlines()[-1][:200]
    return "skip" if result.skipped else "pass"


def run_module(name: str) -> dict[str, Any]:
    """Runs a module's tests both ways, in this process."""
    import dynamo_lite

    module = importlib.import_module(f"test.{name}")
    signal.signal(signal.SIGALRM, _too_long)
    loader = unittest.TestLoader()
    eager, compiled = {}, {}
    for test in list(methods(loader.loadTestsFromModule(module))):
        eager[test.id()] = run(test)
    for test in methods(loader.loadTestsFromModule(module)):
        if eager[test.id()] != "pass":
            continue
        dynamo_lite.reset()
        function = getattr(type(test), test._testMethodName)
        captured = dynamo_lite.compile(function, backend="eager")
        setattr(test, test._testMethodName, lambda test=test, captured=captured: captured(test))
        compiled[test.id()] = run(test)
    return {"passed": sum(r == "pass" for r in compiled.values()), "of": len(compiled),
            "differ": {k: v for k, v in compiled.items() if v != "pass"}}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--one", action="store_true")
    options = parser.parse_args()
    if options.one:
        out, sys.stdout = sys.stdout, io.StringIO()
        report = run_module(options.modules[0])
        print(json.dumps(report), file=out)
        return 0
    total: collections.Counter[str] = collections.Counter()
    for name in options.modules:
        try:
            done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True,
                                  timeout=SECONDS_PER_MODULE)
        except subprocess.TimeoutExpired:
            print(f"{name}: more than {SECONDS_PER_MODULE} s", flush=True)
            total["broken"] += 1
            continue
        if done.returncode != 0 or not done.stdout.strip():
            print(f"{name}: exit code {done.returncode}: {done.stderr.strip()[-500:]}", flush=True)
            total["broken"] += 1
            continue
        report = json.loads(done.stdout.strip().splitlines()[-1])
        print(f"{name}: {report['passed']} of {report['of']}", flush=True)
        for test, why in report["differ"].items():
            print(f"    {test}: {why}", flush=True)
        total.update(passed=report["passed"], of=report["of"])
    print(f"all: {total['passed']} of {total['of']}, {total['broken']} modules without a result")
    return 0 if total["passed"] == total["of"] and not total["broken"] else 1


if __name__ == "__main__":
    sys.exit(main())
