"""Keeps the Triton kernels that a process and those that it starts generate, as for a GPU, for ``triton_offline.py``.

Python imports a module of this name when it starts: put this folder on ``PYTHONPATH``, and in
``DYNAMO_LITE_COLLECT`` the folder in which the files are to be. Kernels that the interpreter runs are written once more
in the form for a GPU; those that there are library calls there (writes by index that join otherwise than by a sum) are
left out, and counted in a file ``left_out``.

Invariant: what the process computes is the same.
"""
from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import os
import pathlib
import sys
from typing import Any

SOURCE = "dynamo_lite.backends.inductor.codegen.triton.source"


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module that writes kernels as the others would, and puts a function around its door."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != SOURCE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_wrap(module: Any) -> None:
            execute(module)
            module.write_source = _collecting(module.write_source)

        spec.loader.exec_module = execute_and_wrap  # type: ignore[method-assign]
        return spec


_JOINING = ("multiply", "maximum", "minimum", "mul", "and", "or", "prod", "amax", "amin")  # modes of such writes


def _collecting(write_source: Any) -> Any:
    def collected(kernels: Any, gpu: bool = False, *args: Any, **kwargs: Any) -> Any:
        made = write_source(kernels, gpu, *args, **kwargs)
        folder = pathlib.Path(os.environ["DYNAMO_LITE_COLLECT"])
        try:
            text = made[0] if gpu else write_source(kernels, True, *args, **kwargs)[0]
        except AssertionError as error:
            if error.args[:1] == () or error.args[0] not in _JOINING:
                raise
            with open(folder / "left_out", "a") as file:
                file.write(".")
            return made
        if text:
            path = folder / f"k{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
            if not path.exists():
                path.write_text(text)
        return made

    return collected


if os.environ.get("DYNAMO_LITE_COLLECT"):
    sys.meta_path.insert(0, _Finder())
