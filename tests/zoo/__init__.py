"""Programs with every kind of control flow, for tests that interrupt them at every place.

Each is a function of plain numbers that prints what it does, returns or raises. ``CASES`` lists the functions with
arguments that drive them down their different paths. The arithmetic works on tensors of one element too:
``cases(lift)`` turns each number into what `lift` makes of it.
"""

from __future__ import annotations

import importlib.util

from zoo import exceptions, expressions, functions, loops, suspended
from zoo.support import CASES, cases

if importlib.util.find_spec("torch") is not None:
    from zoo import modes  # noqa: F401

__all__ = ["CASES", "cases", "exceptions", "expressions", "functions", "loops", "suspended"]
