"""Divides a C++ file of kernels into parts, which several compilers compile in parallel to one library: most of a first
call is spent waiting for the compiler.

Lines that begin with ``MARK`` (comments in C++) precede each kernel and follow the last one. Each part is the head of
the file (everything before the first mark) and some of the kernels; the first part also has the text after the last
mark, and declares the kernels of the others. Kernels that call a common function stay together.

Invariant: the linked parts equal the library that the whole source gives: each kernel is compiled once, and none could
have been inlined elsewhere, because kernels are visible functions of position-independent code.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

MARK = "//--\n"
LATER_PART = "#define LATER_PART\n"
"""The first line of all parts but the first; they omit definitions that a library has only once (``threads.h``)."""

# Each part reads the head again, about 0.15 s, and saves the others 0.03 s for each 1,000 characters of its own.
LEAST = 6000

_SHARED = re.compile(r"\bshared\d+(?=\()")


def parts_of(source: str, most: int) -> list[str]:
    """Divides the source into at most ``most`` parts, each long enough to be worth a compiler of its own."""
    head, *kernels = source.split(MARK)
    if len(kernels) < 3:
        return [source]
    *kernels, rest = kernels
    count = min(most, sum(map(len, kernels)) // LEAST)
    groups = _groups(kernels) if count > 1 else []
    count = min(count, len(groups))
    if count < 2:
        return [source]
    shares: list[list[str]] = [[] for _ in range(count)]
    for group in sorted(groups, key=_length, reverse=True):
        min(shares, key=_length).extend(group)
    first, *others = shares
    declared = "".join(_signature(kernel) for share in others for kernel in share)
    return ["".join([head, declared, *first, rest]), *("".join([LATER_PART, head, *share]) for share in others)]


def _groups(kernels: Sequence[str]) -> list[list[str]]:
    """The kernels in the source's order, grouped so that those that call a common function are together."""
    groups: dict[str, list[str]] = {}
    for at, kernel in enumerate(kernels):
        found = _SHARED.search(kernel)
        groups.setdefault(found.group() if found else str(at), []).append(kernel)
    return list(groups.values())


def _length(kernels: Sequence[str]) -> int:
    return sum(map(len, kernels))


def _signature(kernel: str) -> str:
    begin = kernel.index("KERNEL ")
    return kernel[begin:kernel.index(")", begin)] + ");\n"
