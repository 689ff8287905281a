"""The bytecode layer and resume functions need no torch: where there is none, as under other versions of Python, they
are tested alone.

    PYTHONPATH=(a folder with bytecode and pytest) python3.13 -m pytest --confcutdir=tests/bytecode tests/bytecode
"""

import importlib.util
import pathlib
import sys
import types
from typing import Any


class Continuation:
    """In place of the extension's: what a broken frame returns."""

    def __init__(self, fn: Any, *args: Any) -> None:
        self.fn = fn
        self.args = args


if importlib.util.find_spec("torch") is None and "dynamo_lite" not in sys.modules:
    # Its __init__ is the public interface, which needs all layers.
    _package = types.ModuleType("dynamo_lite")
    _package.__path__ = [str(pathlib.Path(__file__).resolve().parents[2] / "dynamo_lite")]
    sys.modules["dynamo_lite"] = _package
    _extension: Any = types.ModuleType("dynamo_lite._eval_frame")
    _extension.Continuation = Continuation
    sys.modules["dynamo_lite._eval_frame"] = _extension
