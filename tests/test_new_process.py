"""Forks of a process that has imported torch are like processes of their own."""
import os
import subprocess
import sys

import new_process
import pytest


def test_what_a_program_sees():
    done = new_process.run("""
import sys, os, torch, threading
print(__name__, sys.argv, os.environ.get('A'), os.getcwd(), threading.active_count())
print('dynamo_lite' in sys.modules, vars(sys.modules[__name__]) is globals())
print('other', file=sys.stderr)
""", 1, "b", env={**os.environ, "A": "x"}, cwd="/")
    assert done.returncode == 0 and done.stderr == "other\n"
    assert done.stdout == "__main__ ['-c', '1', 'b'] x / 1\nFalse True\n"
    assert new_process.run("import os; print(os.environ.get('A'))").stdout == "None\n"


def test_how_a_program_ends():
    assert new_process.run("raise SystemExit(3)").returncode == 3
    failed = new_process.run("print('said'); 1 / 0")
    assert failed.returncode == 1 and failed.stdout == "said\n" and "ZeroDivisionError" in failed.stderr
    assert new_process.run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == -9
    assert new_process.run("import atexit; atexit.register(print, 'last')").stdout == "last\n"
    with pytest.raises(subprocess.TimeoutExpired):
        new_process.run("import time; time.sleep(100)", timeout=0.5)
    assert new_process.run("print(1)").stdout == "1\n"


def test_an_environment_that_is_read_early_is_that_of_another_process():
    code = "import os; print(hash('a'), os.environ['PYTHONHASHSEED'])"
    for seed in ("1", "2", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        assert new_process.run(code, env=env).stdout == alone.stdout != ""


def test_modules_that_a_program_names_are_there_before_it_begins():
    code = "import os, sys; print('torch' in sys.modules, sys.modules['colorsys'].__name__, os.environ.get('A'))"
    for value in ("x", "y"):
        env = {**os.environ, "A": value}
        assert new_process.run(code, modules=("colorsys",), env=env).stdout == f"False colorsys {value}\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")
def test_a_program_of_another_user():
    code = """
import os
print(os.getresuid(), os.getresgid(), os.getgroups())
try:
    os.setuid(0)
except PermissionError:
    print("refused")
"""
    assert new_process.run(code, user=12345).stdout == f"{(12345,) * 3} {(12345,) * 3} []\nrefused\n"


def test_modules_are_those_of_an_import_of_torch():
    code = """
import sys, torch
print(sorted(m for m in sys.modules if m.partition('.')[0] in ('torch', 'triton', 'dynamo_lite')))
"""
    alone = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert new_process.run(code).stdout == alone.stdout
