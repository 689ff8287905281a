"""The libraries that generated kernels call into: their sources are the same for all graphs, so they are built once,
when the package is installed or else when a graph first needs one.

Invariant: nothing but the standard library is imported, as ``setup.py`` runs this file by itself.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

HEADERS = ("vec.h", "lanes.h", "threads.h")
"""What stands at the head of every file: vectors, tails and casts; lanes joined and loops over lanes; loops shared out
to threads."""

# By name, the files of which each is made, behind ``HEADERS`` and ``contraction.h``.
LIBRARIES = {
    "products": ("tiles.h", "panels.h", "packed.h", "exchanged.h", "winograd.h", "contraction.cpp", "alone.cpp"),
    "depthwise": ("tiles.h", "depthwise.cpp", "alone.cpp"),
    "probe": ("tiles.h", "panels.h", "packed.h", "winograd.h", "measuring.h", "probe.cpp"),
    "cores": ("tiles.h", "panels.h", "measuring.h", "cores.cpp"),
    "recurrent": ("math.h", "tiles.h", "recurrent.cpp"),
}


@functools.cache
def text(name: str) -> str:
    """A file beside this one."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@functools.cache
def library_symbol(name: str, simd: str) -> str:
    """A library's entry: its name says what it does exactly, as several builds may be loaded at once."""
    parts = (*HEADERS, "contraction.h", *LIBRARIES[name])
    digest = hashlib.sha256("".join(map(text, parts)).encode())
    return f"dynamo_lite_{name}_{simd}_{digest.hexdigest()[:16]}"


def alone_symbol(name: str, simd: str) -> str:
    """The entry of a library of products that computes one with nothing behind it (``alone.cpp``)."""
    return library_symbol(name, simd) + "_alone"


def library_header(simd: str) -> str:
    """What a kernel file that calls a library needs."""
    names = "".join(f"#define {name.upper()} {library_symbol(name, simd)}\n" for name in LIBRARIES)
    return names + text("contraction.h")


def library_source(name: str, simd: str) -> str:
    """One library's whole source."""
    own = f"#define WHOLE {library_symbol(name, simd)}\n#define ALONE {alone_symbol(name, simd)}\n"
    return "".join(map(text, HEADERS)) + library_header(simd) + own + "".join(map(text, LIBRARIES[name]))
