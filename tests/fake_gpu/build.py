"""Builds the fake GPU, and says with which environment a process has it.

    python tests/fake_gpu/build.py FOLDER program.py ...    runs a program with a GPU that computes nothing

torch's own build for CUDA and Triton's own launcher run on it: everything but what kernels compute. It needs gcc and
the headers of CUDA that come with torch and Triton. The fake libraries take the place of libcudart, libcuda and cuBLAS
by LD_PRELOAD; cuDNN, cuSOLVER and the like find no driver.
"""
from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
DRIVER, RUNTIME = "libcuda.so.1", "libcudart.so.13"


def package(name: str) -> pathlib.Path:
    """The folder of a package, which is not imported."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None, name
    return pathlib.Path(spec.origin).parent


def build(folder: pathlib.Path) -> dict[str, str]:
    """Builds the libraries in a folder; the environment of a process that loads them."""
    folder.mkdir(parents=True, exist_ok=True)
    torch = package("torch")
    headers = next(torch.parent.glob("nvidia/cu[0-9]*/include"))  # the version that torch is built for
    include = ["-I", str(headers), "-I", str(package("triton") / "backends/nvidia/include")]
    sources = [str(HERE / "fake_driver.c"), str(HERE / "fake_runtime.c")]
    defined = set(re.findall(r"\b(_*cu[A-Za-z_0-9]+)\(", "".join(pathlib.Path(s).read_text() for s in sources)))
    wanted = _wanted(torch / "lib")
    made = [folder / RUNTIME, folder / DRIVER]
    rest = sorted(wanted.get(RUNTIME, set()) - defined)
    _library(made[0], [*sources, _nothing(folder / "rest.c", rest)], RUNTIME, include)
    made[1].unlink(missing_ok=True)
    made[1].symlink_to(RUNTIME)
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        _library(folder / name, [_nothing(folder / f"{name}.c", sorted(wanted.get(name, set())))], name, [])
        made.append(folder / name)
    preload = [str(made[0]), *map(str, made[2:])]
    return {"LD_PRELOAD": os.pathsep.join(preload), "LD_LIBRARY_PATH": str(folder), "TRITON_LIBCUDA_PATH": str(folder)}


def _wanted(folder: pathlib.Path) -> dict[str, set[str]]:
    """What torch's libraries take from each of CUDA's."""
    found: dict[str, set[str]] = {}
    for path in folder.glob("lib*.so"):
        shown = subprocess.run(["nm", "-D", "--undefined-only", path], capture_output=True, text=True).stdout
        for symbol, library in re.findall(r" U (\w+)@(\S+)", shown):
            found.setdefault(library, set()).add(symbol)
    return found


def _nothing(path: pathlib.Path, symbols: list[str]) -> str:
    """A file of functions that do nothing, and say that all is well. What they are to make is an address of nothing."""
    lines = ["static long nothing[64];"]
    for symbol in symbols:
        creates = re.fullmatch(r"cublas(Lt)?Create(_v2)?", symbol) is not None
        body = "*out = nothing; return 0;" if creates else "return 0;"
        lines.append(f'__attribute__((visibility("default"))) int {symbol}(void **out) {{ {body} }}')
    path.write_text("\n".join([*lines, ""]))
    return str(path)


def _library(path: pathlib.Path, sources: list[str], name: str, options: list[str]) -> None:
    script = path.with_suffix(".map")
    script.write_text(f"{name} {{ global: *; }};\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-g", "-w", "-fno-strict-aliasing", f"-Wl,-soname,{name}",
                    f"-Wl,--version-script={script}", "-o", str(path), *options, *sources, "-ldl", "-lpthread"],
                   check=True)


def main() -> int:
    folder = pathlib.Path(sys.argv[1]).resolve()
    return subprocess.run([sys.executable, *sys.argv[2:]], env={**os.environ, **build(folder)}).returncode


if __name__ == "__main__":
    sys.exit(main())
