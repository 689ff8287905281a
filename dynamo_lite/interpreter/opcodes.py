"""Selection of the instruction handlers of the running Python: the families' and its version's.

The only module that reads ``sys.version_info`` to choose handlers. Invariant: importing this module fills
``registry.HANDLERS``.
"""
from __future__ import annotations

import sys

from ..bytecode.instructions import shown_names
from . import ops_class, ops_flow, ops_stack, ops_values
from .registry import use

if sys.version_info[:2] == (3, 11):
    from .py311 import TABLE
elif sys.version_info[:2] == (3, 12):
    from .py312 import TABLE
elif sys.version_info[:2] == (3, 13):
    from .py313 import TABLE
elif sys.version_info[:2] == (3, 14):
    from .py314 import TABLE
else:
    from .py315 import TABLE

# The families register their handlers.
assert ops_class and ops_flow and ops_stack and ops_values
use(TABLE, shown_names())
