"""Sources and symbol names of the libraries that generated kernels call, and of those that measure the machine. The
sources are the same for all graphs, so each library is built once: when the package is installed, or else when a graph
first needs it.

Invariant: this module imports nothing but the standard library, because ``setup.py`` runs it by itself.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

HEADERS = ("vec.h", "lanes.h", "threads.h")
"""Headers at the head of every file: vectors, tails and casts; reductions of lanes and loops over lanes; loops that
threads share."""

# The name of each library and the files that it consists of, after ``HEADERS`` and ``contraction.h``.
LIBRARIES = {
    "products": ("tiles.h", "panels.h", "packed.h", "exchanged.h", "winograd.h", "contraction.cpp", "alone.cpp"),
    "depthwise": ("tiles.h", "depthwise.cpp", "alone.cpp"),
    "probe": ("tiles.h", "panels.h", "packed.h", "winograd.h", "measuring.h", "probe.cpp"),
    "cores": ("tiles.h", "panels.h", "measuring.h", "cores.cpp"),
    "recurrent": ("math.h", "tiles.h", "recurrent.cpp"),
}


@functools.cache
def text(name: str) -> str:
    """The text of a file in this module's folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


@functools.cache
def library_symbol(name: str, simd: str) -> str:
    """The name of a library's entry function. It contains a digest of the source, as a process may load several builds
    of the same library."""
    parts = (*HEADERS, "contraction.h", *LIBRARIES[name])
    digest = hashlib.sha256("".join(map(text, parts)).encode())
    return f"dynamo_lite_{name}_{simd}_{digest.hexdigest()[:16]}"


def alone_symbol(name: str, simd: str) -> str:
    """The name of the function that computes a product or a convolution without an epilogue (``alone.cpp``)."""
    return library_symbol(name, simd) + "_alone"


def library_header(simd: str) -> str:
    """Declarations for a source file whose kernels call a library: the symbols' names and ``contraction.h``."""
    names = "".join(f"#define {name.upper()} {library_symbol(name, simd)}\n" for name in LIBRARIES)
    return names + text("contraction.h")


def library_source(name: str, simd: str) -> str:
    """The complete source of one library."""
    own = f"#define WHOLE {library_symbol(name, simd)}\n#define ALONE {alone_symbol(name, simd)}\n"
    return "".join(map(text, HEADERS)) + library_header(simd) + own + "".join(map(text, LIBRARIES[name]))
