"""The user's lines that graph nodes were made for.

Invariant: they are read from the text that a node carries, so they outlive the trace, and hold nothing of the program's.
"""
from __future__ import annotations

import re
import traceback
from pathlib import Path

from torch import fx

_OWN_FOLDER = str(Path(__file__).parent)
_PLACE = re.compile(r'^  File "(.*)", line (\d+), in (.*)$', re.MULTILINE)


def stack_of(node: fx.Node) -> list[traceback.FrameSummary]:
    """Where the program was, outermost call first, without functions of ours that stand in for others."""
    found = [(file, int(line), name) for file, line, name in _PLACE.findall(node.stack_trace or "")]
    return [traceback.FrameSummary(file, line, name, lookup_line=False) for i, (file, line, name) in enumerate(found)
            if not i or not file.startswith(_OWN_FOLDER)]
