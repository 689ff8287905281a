"""Programs whose kernels run in Triton's interpreter. Triton chooses it when it is imported, so they are processes of
their own.

Invariant: no kernel of a program that ends well was refused by the interpreter (its graph would run in plain Python).
"""
from __future__ import annotations

import importlib.util
import os
import textwrap

import new_process
import pytest

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def interpreted(head: str, code: str, interpret: str = "1", timeout: int = 480, **env: str) -> str:
    """What the program, ``head`` and ``code``, has printed.

    Args:
        interpret: "0" runs the program without the interpreter.
        env: further variables of its environment.
    """
    environment = {**os.environ, "TRITON_INTERPRET": interpret, "DYNAMO_LITE_CACHE_GRAPHS": "0", **env}
    done = new_process.run(head + textwrap.dedent(code), timeout=timeout, env=environment, warnings=("ignore",),
                           modules=new_process.KERNELS)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "InterpreterError" not in done.stderr, done.stderr[-4000:]
    return done.stdout + done.stderr
