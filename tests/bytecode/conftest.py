"""The bytecode layer needs no torch: where there is none, as under other versions of Python, it is tested alone.

    PYTHONPATH=(a folder with bytecode and pytest) python3.13 -m pytest --confcutdir=tests/bytecode tests/bytecode
"""

import importlib.util
import pathlib
import sys
import types

if importlib.util.find_spec("torch") is None and "dynamo_lite" not in sys.modules:
    # Its __init__ is the public interface, which needs all layers.
    _package = types.ModuleType("dynamo_lite")
    _package.__path__ = [str(pathlib.Path(__file__).resolve().parents[2] / "dynamo_lite")]
    sys.modules["dynamo_lite"] = _package
