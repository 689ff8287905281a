"""A C++ file of kernels taken apart, so that several compilers make one library side by side: most of a first call is
spent waiting for one.

Lines that begin with ``MARK`` stand before each kernel and behind the last; a compiler takes them for comments. Each
part is the head of the file (before the first mark) and some of the kernels; the first part has what stands behind the
last mark too, and declares the kernels of the others. Kernels that call a common function stay together.

Invariant: the parts, linked, are the library that the whole source makes: each kernel is compiled once, and none could
have been put in line elsewhere, as kernels are visible functions of position-independent code.
"""
from __future__ import annotations

import re
from collections.abc import Sequence

MARK = "//--\n"
LATER_PART = "#define LATER_PART\n"
"""Stands before all else in parts but the first, which do not define what a library has once (``threads.h``)."""

# A part costs another reading of the head, about 0.15 s, and takes 0.03 s for each 1,000 characters from the others.
LEAST = 6000

_SHARED = re.compile(r"\bshared\d+(?=\()")


def parts_of(source: str, most: int) -> list[str]:
    """The source as at most ``most`` sources, of which each is worth a compiler of its own."""
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
    """The kernels, those that call one function together, in the order of the source."""
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
