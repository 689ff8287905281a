"""The package builds and installs as users do it: from a clean tree, as a wheel, in place, without a compiler."""
import ctypes
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
import zipfile

import pytest
import thorough

import dynamo_lite
from dynamo_lite.backends.inductor import prebuilt
from dynamo_lite.backends.inductor.codegen.cpp.libraries import LIBRARIES

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = ["setup.py", "pyproject.toml", "README.md", "LICENSE", "dynamo_lite", "backends"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The sources alone, as a clean clone has them."""
    tree = tmp_path_factory.mktemp("tree")
    for name in OURS:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.pyc"))
        elif source.exists():
            shutil.copy(source, tree / name)
    return tree


def run(*command, cwd, ok=True, **env):
    p = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280, env={**os.environ, **env})
    assert not ok or p.returncode == 0, p.stdout[-3000:] + p.stderr[-3000:]
    return p


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    """A C++ compiler that gives out what the installed package's build has compiled: the same sources and flags.

    Other builds find out where libraries go and what says so, and compile none again; what is not there it compiles.
    """
    path = tmp_path_factory.mktemp("compiler") / "compiler"
    path.write_text(f"""#!{sys.executable} -S
import os, pathlib, runpy, shutil, sys
*flags, _, library, source = sys.argv[1:]
here = runpy.run_path({prebuilt.__file__!r})
built = here["FOLDER"] / here["file_name"](pathlib.Path(source).read_text(encoding="utf-8"), flags)
if not built.exists():
    os.execvp("g++", ["g++", *sys.argv[1:]])
shutil.copy(built, library)
""")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def wheel(tree, compiler, tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), ".", cwd=tree,
        CXX=compiler)
    (wheel,) = out.glob("*.whl")
    return wheel


def test_wheel_holds_the_package(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {
        *(f"dynamo_lite/{p.relative_to(ROOT / 'dynamo_lite')}" for p in (ROOT / "dynamo_lite").rglob("*.py*")),
        *(f"dynamo_lite/backends/{p.relative_to(ROOT / 'backends')}" for p in (ROOT / "backends").rglob("*.py")),
        *(f"dynamo_lite/backends/{p.relative_to(ROOT / 'backends')}" for p in (ROOT / "backends").rglob("*.h")),
    }
    expected = {name for name in expected if "__pycache__" not in name}
    assert expected <= names, expected - names
    assert "dynamo_lite/py.typed" in names
    info = f"dynamo_lite-{dynamo_lite.__version__}.dist-info/"
    assert info + "METADATA" in names and any(n.startswith(info) and n.endswith("/LICENSE") for n in names)
    assert b"License-Expression: BSD-3-Clause" in zipfile.ZipFile(wheel).read(info + "METADATA")
    for module in ("_eval_frame", "_guards"):
        assert any(name.startswith(f"dynamo_lite/{module}.") and name.endswith(".so") for name in names)
    assert all(name.startswith(("dynamo_lite/", "dynamo_lite-")) for name in names), names
    libraries = [name for name in names if name.startswith("dynamo_lite/backends/inductor/prebuilt/")]
    assert len(libraries) == len(prebuilt.kinds()) * len(LIBRARIES), libraries


def test_what_the_wheel_has_built_is_found(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    inductor = tmp_path / "dynamo_lite" / "backends" / "inductor"
    unpacked = runpy.run_path(str(inductor / "prebuilt.py"))
    sources = runpy.run_path(str(inductor / "codegen" / "cpp" / "libraries.py"))["library_source"]
    for simd in unpacked["kinds"]():
        for name in LIBRARIES:
            path = unpacked["find"](sources(name, simd), unpacked["flags_for"](simd))
            assert path is not None and path.parent == inductor / "prebuilt"
            ctypes.CDLL(str(path))


def test_wheel_works_where_it_is_unpacked(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "import dynamo_lite._eval_frame as e, dynamo_lite.backends as b; print(e.__file__); print(b.__file__)"
    out = run(sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path)).stdout.split()
    assert all(path.startswith(str(tmp_path)) for path in out), out


@pytest.mark.slow
@pytest.mark.skipif(not thorough.ALL, reason="make install has done so; DYNAMO_LITE_TESTS=all")
def test_editable_install_in_an_environment_of_its_own(tree, compiler, tmp_path):
    # Without pip: it would bring the setuptools of ensurepip, which is older than the build asks for.
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env"), cwd=tree)
    python = str(tmp_path / "env" / "bin" / "python")
    # What is installed here, torch above all, without what is installed in editable form.
    (site,) = (tmp_path / "env").glob("lib/*/site-packages")
    (site / "outer.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))
    options = ["-q", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    run(python, "-m", "pip", "install", *options, "-e", ".", cwd=tree, CXX=compiler)
    code = "import dynamo_lite._guards as e, dynamo_lite.backends as b; print(e.__file__); print(b.__path__[0])"
    out = run(python, "-c", code, cwd=tmp_path).stdout.split()
    assert out[0].startswith(str(tree / "dynamo_lite")) and out[1] == str(tree / "backends")
    built = list((tree / "backends" / "inductor" / "prebuilt").glob("*.so"))
    assert len(built) == len(prebuilt.kinds()) * len(LIBRARIES)


def test_a_missing_compiler_is_one_clear_sentence(tree):
    build = [sys.executable, "setup.py", "build_ext", "-b", "out", "-t", "tmp"]
    p = run(*build, cwd=tree, ok=False, CC="no-such-compiler")
    last = p.stderr.strip().splitlines()[-1]
    assert p.returncode != 0 and "needs a C compiler" in last and "no-such-compiler" in last, p.stderr
    assert "Traceback" not in p.stderr


def test_the_extensions_need_no_torch(tree, compiler):
    code = "import sys, runpy; sys.modules['torch'] = None; runpy.run_path('setup.py', run_name='__main__')"
    run(sys.executable, "-c", code, "build_ext", "-b", "out2", "-t", "tmp2", cwd=tree, CXX=compiler)
    assert len(list((tree / "out2" / "dynamo_lite").glob("*.so"))) == 2
    built = list((tree / "out2" / "dynamo_lite" / "backends" / "inductor" / "prebuilt").glob("*.so"))
    assert len(built) == len(prebuilt.kinds()) * len(LIBRARIES)
