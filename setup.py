"""Builds the two C extensions and lists the packages; all other metadata stands in pyproject.toml.

`backends/` lives beside `dynamo_lite/` in the source tree and is installed as `dynamo_lite.backends`. The extensions
are built against `Python.h` alone, so a build takes seconds and needs no torch. Where there is a C++ compiler, the
libraries that generated kernels share are built too, for each kind of vector instructions.
"""

from __future__ import annotations

import os
import runpy
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, find_namespace_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, PlatformError

ROOT = Path(__file__).resolve().parent
GUARD_PARTS = ("module", "steps", "eval", "values", "dicts", "watchers", "lines", "tensor",
               "torch_parts", "state", "set_members", "set_tables", "sizes")
C_FLAGS = ["-std=c11", "-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]


def packages() -> list[str]:
    # Also folders that hold only data or have no __init__.py: what works from the tree must be in the wheel.
    found = find_namespace_packages(
        str(ROOT), include=["dynamo_lite", "dynamo_lite.*", "backends", "backends.*"], exclude=["*.__pycache__"]
    )
    return [name if name.startswith("dynamo_lite") else "dynamo_lite." + name for name in found]


def sources(*stems: str) -> list[str]:
    return [f"dynamo_lite/{stem}.c" for stem in stems]


def headers() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / "dynamo_lite" / "csrc").rglob("*.h"))


def extension(name: str, *stems: str) -> Extension:
    return Extension(
        f"dynamo_lite.{name}", sources(*stems), depends=headers(), extra_compile_args=C_FLAGS, libraries=LIBRARIES
    )


class BuildExtensions(build_ext):
    """build_ext that says in one sentence what is missing when there is no compiler or no Python.h."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or True  # the extensions side by side, on all processors

    def run(self) -> None:
        if "t" in getattr(sys, "abiflags", ""):
            raise PlatformError(
                "dynamo_lite needs the global interpreter lock; free-threaded builds of Python are not supported."
            )
        super().run()
        self._build_libraries()

    def build_extensions(self) -> None:
        command = getattr(self.compiler, "compiler", None)
        if command:
            self._require_compiler(command)
        super().build_extensions()

    def _build_libraries(self) -> None:
        """The libraries that generated kernels call into, so that no first call has to wait for them."""
        inductor = ROOT / "backends" / "inductor"
        prebuilt = runpy.run_path(str(inductor / "prebuilt.py"))
        libraries = runpy.run_path(str(inductor / "codegen" / "cpp" / "libraries.py"))
        built = Path(self.build_lib) / "dynamo_lite" / "backends" / "inductor" / "prebuilt"
        # While extensions are built, ``inplace`` is off; an editable install copies them afterwards, as this run does.
        folder = prebuilt["FOLDER"] if self.inplace or getattr(self, "editable_mode", False) else built
        compiler = shlex.split(os.environ.get("CXX") or "g++")

        def build(name: str, simd: str) -> Path | None:
            source, flags = libraries["library_source"](name, simd), prebuilt["flags_for"](simd)
            try:
                return prebuilt["build"](source, flags, compiler, folder)  # type: ignore[no-any-return]
            except (OSError, subprocess.CalledProcessError) as error:
                self.warn(f"the library {name!r} ({simd}) is built when a graph first needs it: {error}")
                return None

        wanted = [(name, simd) for simd in prebuilt["kinds"]() for name in libraries["LIBRARIES"]]
        with ThreadPoolExecutor(os.cpu_count()) as workers:
            made = set(workers.map(build, *zip(*wanted)))
        for old in set(folder.glob("*.so")) - made:
            old.unlink()

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except CompileError as error:
            include_dirs = [Path(path) for path in self.compiler.include_dirs]
            if not any((path / "Python.h").exists() for path in include_dirs):
                raise PlatformError(
                    "dynamo_lite needs Python.h to build its C extensions: install the development headers of this "
                    "Python (for example the package python3-dev)."
                ) from error
            raise

    def _require_compiler(self, command: list[str]) -> None:
        try:
            subprocess.run([command[0], "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise PlatformError(
                f"dynamo_lite needs a C compiler to build its extensions, and {command[0]!r} does not run: install gcc "
                "(for example the package build-essential) or name another compiler in the environment variable CC."
            ) from error


LIBRARIES = ["dl"] if os.name == "posix" else []

setup(
    packages=packages(),
    package_dir={"dynamo_lite.backends": "backends"},
    package_data={"": ["*.pyi", "py.typed", "*.h", "*.cpp"]},
    ext_modules=[
        extension("_eval_frame", "_eval_frame", "csrc/threads", "csrc/frame_cache", "csrc/guarded_code",
                  "csrc/compiled_function", "csrc/compiled_graph", "csrc/unhooked_generators"),
        Extension(
            "dynamo_lite.backends.inductor._runtime",
            ["backends/inductor/_runtime.c", "backends/inductor/kept_memory.c",
             "backends/inductor/kept_memory_methods.c"],
            depends=[*headers(), "backends/inductor/kept_memory.h", "backends/inductor/kept_memory_methods.h"],
            extra_compile_args=C_FLAGS,
            libraries=LIBRARIES,
        ),
        Extension(
            "dynamo_lite.backends.inductor._random",
            ["backends/inductor/_random.c"],
            extra_compile_args=C_FLAGS,
        ),
        extension("_guards", *(f"csrc/guards/{part}" for part in GUARD_PARTS)),
    ],
    cmdclass={"build_ext": BuildExtensions},
)
