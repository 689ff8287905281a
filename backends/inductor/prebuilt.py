"""Libraries that are compiled when the package is installed. They are the same for all graphs, and the first call would
otherwise spend most of its time on them.

They are in a folder beside this file, each named by a digest of its source and the compiler's flags. So a library of
another version is not found, and a library that is not found is built when a graph needs it.

Invariant: only the standard library is imported, because ``setup.py`` runs this file by itself.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).parent / "prebuilt"

BASE_FLAGS = (
    "-O3",
    "-std=c++17",
    "-fPIC",
    "-shared",
    "-fopenmp",
    # Rounding must be eager's: a product and a sum are rounded separately unless the source asks for fma.
    "-ffp-contract=off",
    # Integers wrap around, as torch's do.
    "-fwrapv",
    "-fno-math-errno",
    "-fno-trapping-math",
    # Kernels need neither unwinding nor the C++ runtime; without them a file is smaller and loads faster.
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-asynchronous-unwind-tables",
    "-fvisibility=hidden",
    "-w",
)
SIMD_FLAGS = {
    "avx512": ("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c", "-mbmi2",
               "-mprefer-vector-width=512"),
    "avx2": ("-mavx2", "-mfma", "-mf16c", "-mbmi2"),
    "scalar": (),
}


def flags_for(simd: str) -> tuple[str, ...]:
    """The compiler's flags for kernel sources."""
    return (*BASE_FLAGS, *SIMD_FLAGS[simd])


def kinds() -> tuple[str, ...]:
    """The vector instructions that this machine's compiler can generate for."""
    return tuple(SIMD_FLAGS) if platform.machine() in ("x86_64", "AMD64") else ("scalar",)


def file_name(source: str, flags: Sequence[str]) -> str:
    digest = hashlib.sha256("\0".join((platform.machine(), *flags, source)).encode())
    return digest.hexdigest() + ".so"


def find(source: str, flags: Sequence[str]) -> Path | None:
    """The library that was built from this source with these flags; None if there is none."""
    present = _present()
    name = file_name(source, flags) if present else ""
    return FOLDER / name if name in present else None


@functools.cache
def _present() -> frozenset[str]:
    try:
        return frozenset(name for name in os.listdir(FOLDER) if name.endswith(".so"))
    except OSError:
        return frozenset()


def build(source: str, flags: Sequence[str], compiler: Sequence[str], folder: Path) -> Path:
    """Compiles a source into ``folder``, unless its library is already there.

    Raises:
        OSError, subprocess.CalledProcessError: the compiler can't be run, or rejects the source.
    """
    path = folder / file_name(source, flags)
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        text, library = Path(made) / "library.cpp", Path(made) / "library.so"
        text.write_text(source, encoding="utf-8")
        command = [*compiler, *flags, "-o", str(library), str(text)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.replace(library, path)
    return path
