"""Measuring processes from the outside: started, asked by turns, ended.

Invariant: only one of them works at a time; whatever it does, it costs no more than the time it was given, and its
figures or its last words come back.
"""
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time
from typing import Any

from systems import SYSTEMS

HERE = pathlib.Path(__file__).resolve().parent


class Failed(Exception):
    """The process gave no figures; the message says why."""


class Measurement:
    """A process that measures one system on one workload (`measure.py`).

    Args:
        caches: the folder for the caches that the system's variables name.
        timeout: seconds that each answer may take.
    """

    def __init__(self, workload: str, system: str, caches: pathlib.Path, timeout: float) -> None:
        environment = dict(os.environ)
        for variable in SYSTEMS[system].environment:
            environment[variable] = str(caches / workload / variable)
        self._timeout = timeout
        self._said = tempfile.TemporaryFile()
        self._rest = b""
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "measure.py"), workload, system], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._said, env=environment)

    def answer(self) -> dict[str, Any]:
        """The next line of figures.

        Raises:
            Failed: the process has ended, or has taken too long.
        """
        assert self._process.stdout is not None
        until = time.monotonic() + self._timeout
        while True:
            line, end, rest = self._rest.partition(b"\n")
            if end:
                self._rest = rest
                # Whatever else the program prints stands on lines of its own.
                if line.startswith(b"{"):
                    return json.loads(line)
                continue
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self.close()
                raise Failed(f"took longer than {self._timeout:.0f} s")
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                raise Failed(self._last_words(self._process.wait()))
            self._rest += more

    def calls(self, seconds: float) -> dict[str, Any]:
        """Figures of calls for so long."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{seconds}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Failed(self._last_words(self._process.wait())) from None
        return self.answer()

    def last(self) -> dict[str, Any]:
        """What the process finds when nothing more is asked; it ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        found = self.answer()
        self._process.wait()
        return found

    def close(self) -> None:
        """End the process, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._said.close()

    def _last_words(self, status: int) -> str:
        self._said.seek(0)
        words = [line for line in self._said.read().decode(errors="replace").splitlines() if line.strip()]
        # The last line that names an exception says more than the hints that follow it.
        named = [line for line in words if line[:1].isalpha() and ("Error" in line or "Unsupported" in line)]
        return (named or words or [f"exit status {status}"])[-1].strip()[:300]
