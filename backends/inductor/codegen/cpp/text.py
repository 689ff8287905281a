"""The text of a C++ file of kernels: the headers at its head, and the comments that name the user's code.

Invariant: these comments have no effect: sources that differ in nothing else are built as one library.
"""
from __future__ import annotations

import re

from dynamo_lite.backends.inductor.codegen.cpp.libraries import HEADERS, text

MARK = "//: "
"""Beginning of the comments that name the user's source lines."""


def header() -> str:
    """The text of the headers that every file of kernels begins with."""
    return "".join(map(text, HEADERS))


def without_comments(source: str) -> str:
    """The source as it is compiled, without the comments that name the user's lines: the same kernels are the same
    source, whichever code they were generated for and wherever that code has moved."""
    return re.sub(rf"^{MARK}.*\n", "", source, flags=re.MULTILINE)
