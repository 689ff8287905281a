"""Selects the facts about the running Python's bytecode; the only module that reads ``sys.version_info`` to do so.

Invariant: each version's module has the same names (``tests/bytecode/test_facts.py``).
"""

from __future__ import annotations

import sys

if sys.version_info[:2] == (3, 11):
    from dynamo_lite.bytecode import py311 as facts
elif sys.version_info[:2] == (3, 12):
    from dynamo_lite.bytecode import py312 as facts
elif sys.version_info[:2] == (3, 13):
    from dynamo_lite.bytecode import py313 as facts
elif sys.version_info[:2] == (3, 14):
    from dynamo_lite.bytecode import py314 as facts
elif sys.version_info[:2] == (3, 15):
    from dynamo_lite.bytecode import py315 as facts
else:
    raise ImportError(
        "dynamo_lite knows the bytecode of Python 3.11 to 3.15; this is Python "
        + ".".join(map(str, sys.version_info[:3]))
    )

__all__ = ["facts"]
