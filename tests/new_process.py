"""Programs in processes of their own that have torch already: forks of one that has imported it and done nothing.

An import of torch takes seconds of a processor, which every program in a process of its own would pay.

Invariant: a program sees what it would see as ``python -c``: a ``__main__`` of its own, its environment, arguments and
folder, no thread, and of modules those that importing torch brings. Where its environment differs from this process's
in what is read before (``_EARLY``), it is a process that begins from nothing.
"""
from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

# Variables that Python, its libraries or torch read when they are loaded.
_EARLY = ("PYTHON", "LD_", "OMP_", "GOMP_", "MKL_", "MALLOC_", "GLIBC_", "TORCH", "ATEN_", "LC_", "LANG", "PATH")

_TEMPLATE = """
import json, os, sys, types, warnings
import torch
def served():
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            return request
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    os._exit(0)
request = served()
nothing = os.open(os.devnull, os.O_RDONLY)
for path, number in ((request["out"], 1), (request["err"], 2)):
    os.dup2(os.open(path, os.O_WRONLY), number)
os.dup2(nothing, 0)
os.environ.clear()
os.environ.update(request["environment"])
os.chdir(request["folder"])
sys.argv[:] = ["-c", *request["arguments"]]
for action in request["warnings"]:
    warnings.simplefilter(action)
main = sys.modules["__main__"] = types.ModuleType("__main__")
exec(compile(request["code"], "<string>", "exec"), main.__dict__)
"""


class _Template:
    """The process that is forked; it has one fork at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", _TEMPLATE], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, start_new_session=True)
        atexit.register(self.process.kill)

    def answer(self, timeout: float) -> int | None:
        """Its next number, or None if it takes longer."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return None
        return int(self.process.stdout.readline())

    def run(self, request: dict[str, object], timeout: float) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        pid = self.answer(60)
        assert pid is not None, "the process that is forked does not answer"
        status = self.answer(timeout)
        if status is None:
            os.kill(pid, signal.SIGKILL)
            self.answer(60)
            raise subprocess.TimeoutExpired("a fork", timeout)
        return status


@functools.cache
def _template() -> _Template:
    return _Template()


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_EARLY)}


def run(code: str, *arguments: object, env: Mapping[str, str] | None = None, timeout: float = 280,
        cwd: object = None, warnings: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The program's exit status and what it wrote.

    Args:
        code: the program.
        arguments: behind ``-c`` in its ``sys.argv``.
        env: its whole environment; this process's, if there is none.
        timeout: seconds, after which it is killed.
        cwd: its folder.
        warnings: filters for all warnings, such as "ignore".

    Raises:
        subprocess.TimeoutExpired: after that time.
    """
    environment = dict(os.environ if env is None else env)
    given = [str(argument) for argument in arguments]
    if _early(environment) != _early(os.environ):
        options = [option for action in warnings for option in ("-W", action)]
        return subprocess.run([sys.executable, *options, "-c", code, *given], capture_output=True, text=True,
                              timeout=timeout, env=environment, cwd=cwd)  # type: ignore[call-overload]
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        for path in (out, err):
            path.touch()
        status = _template().run({
            "code": code, "arguments": given, "environment": environment, "folder": str(cwd or os.getcwd()),
            "out": str(out), "err": str(err), "warnings": warnings}, timeout)
        return subprocess.CompletedProcess(["-c", *given], status, out.read_text(), err.read_text())
