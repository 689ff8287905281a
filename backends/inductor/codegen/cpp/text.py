"""A C++ file of kernels as text: what stands at its head, and its comments.

Invariant: comments decide nothing: sources that differ in them alone are one library.
"""
from __future__ import annotations

import re

from dynamo_lite.backends.inductor.codegen.cpp.libraries import HEADERS, text

MARK = "//: "
"""Begins the comments that name the user's lines."""


def header() -> str:
    """The files at the head of each one with kernels."""
    return "".join(map(text, HEADERS))


def without_comments(source: str) -> str:
    """The source as it is compiled: kernels that differ in what asked for them alone are equal, wherever the user's
    lines are now."""
    return re.sub(rf"^{MARK}.*\n", "", source, flags=re.MULTILINE)
