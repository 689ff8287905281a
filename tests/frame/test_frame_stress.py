"""Memory and references stay where they are over many calls, breaks, exceptions, generators, recursions and threads."""

import os
import subprocess
import sys

import extensions_alone
import pytest


@pytest.mark.parametrize("allocator, times", [("pymalloc", 50_000), ("debug", 5_000)])
def test_frames_over_and_over(allocator, times):
    script = os.path.join(os.path.dirname(extensions_alone.__file__), "frame_stress.py")
    env = os.environ | {"PYTHONMALLOC": allocator}
    p = subprocess.run([sys.executable, script, str(times)], capture_output=True, text=True, timeout=280, env=env)
    assert p.returncode == 0 and p.stdout.count("\n") == 10, p.stdout + p.stderr[-3000:]
