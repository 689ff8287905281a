"""Comments of kernels: which operations one computes, and the user's lines that asked for them.

Invariant: a comment is whole lines, each begun by the mark of the language, so that it can be taken out again.
"""
from __future__ import annotations

import textwrap
from collections.abc import Sequence


def comment(origin: Sequence[str], mark: str) -> str:
    """The lines of a kernel's comment; ``origin`` as a kernel has it."""
    by_line: dict[str, list[str]] = {}
    for o in origin:
        name, _, line = o.partition(" <- ")
        by_line.setdefault(line, []).append(name)
    out = []
    for line, names in by_line.items():
        text = ", ".join(names) + (f": {line}" if line else "")
        # In C++ a line that ends with a backslash would go on.
        out += [mark + part.rstrip("\\") for part in textwrap.wrap(text.replace("\n", " "), 115) or [""]]
    return "".join(f"{o}\n" for o in out)
