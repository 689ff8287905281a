"""Programs with every kind of control flow, for tests that interrupt them at every place.

Each is a function of plain numbers that prints what it does, returns or raises. ``CASES`` lists the functions with
arguments that drive them down their different paths. The arithmetic works on tensors of one element too:
``cases(lift)`` turns each number into what `lift` makes of it.
"""

from __future__ import annotations

from zoo import exceptions, expressions, functions, loops, modes, suspended
from zoo.support import CASES, cases

__all__ = ["CASES", "cases", "exceptions", "expressions", "functions", "loops", "modes", "suspended"]
