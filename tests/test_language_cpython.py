"""A part of CPython's own tests, every method compiled; compiled_cpython.py runs all that the project looks at."""
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ["test_with", "test_property", "test_generators", "test_scope", "test_super", "test_patma",
           "test_augassign", "test_class"]


@pytest.mark.skipif(importlib.util.find_spec("test.test_with") is None, reason="this Python came without its tests")
@pytest.mark.parametrize("module", MODULES)
def test_passes_compiled(module):
    script = Path(__file__).with_name("compiled_cpython.py")
    done = subprocess.run([sys.executable, str(script), module], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout
