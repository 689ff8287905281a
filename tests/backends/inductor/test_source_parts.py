"""Long sources are compiled in parts side by side; the library is the same."""
import re

import pytest
import torch

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.backends.inductor import codecache, source_parts, toolchain
from dynamo_lite.backends.inductor.codegen.cpp import libraries

KERNEL = "KERNEL kernel{n}(void* a, i64* b) {{ {body} }}\n"


def source(*bodies):
    kernels = [KERNEL.format(n=n, body=body) for n, body in enumerate(bodies)]
    return source_parts.MARK.join(["head\n", *kernels, "entries\n"])


LONG = "x" * source_parts.LEAST


@pytest.mark.parametrize("bodies, most, count", [
    ((LONG, LONG), 2, 2), ((LONG, LONG), 1, 1), ((LONG, "y"), 2, 1), ((LONG,), 4, 1), ((LONG,) * 5, 4, 4), ((), 2, 1),
])
def test_a_part_is_worth_a_compiler(bodies, most, count):
    assert len(source_parts.parts_of(source(*bodies), most)) == count


def test_each_kernel_is_in_one_part_and_known_to_the_first():
    first, *others = parts = source_parts.parts_of(source(LONG, LONG, LONG, "y"), 3)
    for n in range(4):
        assert sum(f"kernel{n}(void* a, i64* b) {{" in part for part in parts) == 1
        assert len(re.findall(rf"kernel{n}\(void\* a, i64\* b\)", first)) == 1
    assert first.endswith("entries\n") and not any("entries" in part for part in others)
    assert all(part.startswith(source_parts.LATER_PART + "head\n") for part in others)


def test_kernels_that_call_one_function_stay_together():
    parts = source_parts.parts_of(source("shared0(" + LONG, LONG, "shared0(a)", "shared1(" + LONG, "shared1(b)"), 3)
    for name in ("shared0", "shared1"):
        assert sum(name in part for part in parts) == 1


def test_a_source_without_marks_is_one_part():
    assert source_parts.parts_of(LONG * 3, 4) == [LONG * 3]


def test_constants_of_the_header_may_be_in_all_parts():
    """In GCC 16 those of a template are external, where they do not say that they are inline."""
    text = "".join(map(libraries.text, libraries.HEADERS))
    constants = re.findall(r"^template <[^{}\n]*constexpr[^{}\n]*=.*$", text, re.M)
    assert constants and all("> inline constexpr " in line for line in constants)


@pytest.fixture
def commands(monkeypatch):
    runs = []
    real = toolchain.run_all
    monkeypatch.setattr(toolchain, "run_all", lambda c, *a: (runs.append(len(c)), real(c, *a)))
    return runs


@pytest.mark.parametrize("workers, expected", [(2, [2, 1]), (1, [1])])
def test_a_long_graph(tmp_path, commands, monkeypatch, workers, expected):
    monkeypatch.setattr(source_parts, "LEAST", 1000)

    def f(x, y, w):
        a = torch.softmax(x, -1).sum(0)
        b = torch.nn.functional.layer_norm(y, (y.shape[-1],)) @ w
        return a, b.tanh(), x.cumsum(1), y.amax(1), torch.softmax(y, 0)

    x, y, w = torch.randn(30, 40), torch.randn(50, 60), torch.randn(60, 20)
    with config.patch(cache_dir=str(tmp_path), num_compile_workers=workers):
        found = dynamo_lite.compile(f)(x, y, w)
    torch.testing.assert_close(found, f(x, y, w))
    assert commands == expected
    assert not list(tmp_path.rglob("*.o"))


def test_the_first_part_that_fails_is_the_error(tmp_path):
    bodies = ("return;" + " " * source_parts.LEAST, "no_such_name;" + " " * source_parts.LEAST)
    text = source(*bodies).replace("head", "#define KERNEL extern \"C\" void\ntypedef long i64;").replace("entries", "")
    with config.patch(cache_dir=str(tmp_path), num_compile_workers=2):
        with pytest.raises(dynamo_lite.exc.CacheError, match="no_such_name"):
            codecache.shared_library(text)
    assert not list(tmp_path.rglob("part*"))


def test_what_the_linker_says_is_the_error(tmp_path):
    bodies = ("return;" + " " * source_parts.LEAST,) * 2
    text = source(*bodies).replace("head", "#define KERNEL extern \"C\" void\ntypedef long i64; int twice;")
    with config.patch(cache_dir=str(tmp_path), num_compile_workers=2):
        with pytest.raises(dynamo_lite.exc.CacheError, match="multiple definition of .?twice"):
            codecache.shared_library(text.replace("entries", ""))
