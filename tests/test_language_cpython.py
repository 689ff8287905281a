"""A part of CPython's own tests, every method compiled; compiled_cpython.py runs all that the project looks at."""
import importlib.util
import json
import os
from pathlib import Path

import new_process
import pytest

MODULES = ["test_with", "test_property", "test_generators", "test_scope", "test_super", "test_patma",
           "test_augassign", "test_class"]


@pytest.mark.skipif(importlib.util.find_spec("test.test_with") is None, reason="this Python came without its tests")
@pytest.mark.parametrize("module", MODULES)
def test_passes_compiled(module, tmp_path):
    report = tmp_path / "report"
    program = f"import compiled_cpython as c\nwith open({str(report)!r}, 'w') as f: c.run_module({module!r}, [], 0, f)"
    done = new_process.run(program, env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)})
    assert done.returncode == 0, done.stderr[-2000:]
    ends = [line for line in map(json.loads, report.read_text().splitlines()) if line[0] == "end"]
    compiled = [outcome for _, _, how, outcome in ends if how == "compiled"]
    assert compiled and set(compiled) == {"pass"}, ends
