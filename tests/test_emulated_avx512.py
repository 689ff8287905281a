"""Kernels of AVX-512 where the processor has AVX2 alone: a sample, ``make emulate`` runs the rest."""
import os
import pathlib
import re
import subprocess
import sys

import emulated_avx512
import pytest
import torch

import dynamo_lite
from dynamo_lite.backends.inductor import codecache, processor, target_info

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADERS = ROOT / "backends" / "inductor" / "codegen" / "cpp"
EMULATED = os.environ.get("DYNAMO_LITE_TEST_PROCESSOR") == "avx512"
SAMPLE = ("../../test_emulated_avx512.py::test_kernels_are_of_16_lanes",
          "test_cpp.py::test_every_function_at_every_width[avx512]",
          "test_cpp.py::test_quotients_by_constants_are_those_of_the_division[7-avx512]")


def test_every_builtin_of_wide_vectors_is_emulated():
    used = {name for path in HEADERS.iterdir() if path.suffix in (".h", ".cpp", ".py")
            for name in re.findall(r"__builtin_ia32_(\w+)", path.read_text())}
    wide = {name for name in used if "512" in name or name.endswith("_mask")}
    defined = set(re.findall(r"#define __builtin_ia32_(\w+)", emulated_avx512.HEADER.read_text()))
    assert wide and wide <= defined, wide - defined


@pytest.mark.skipif(not EMULATED, reason="this run of the tests is not one with AVX-512 emulated")
def test_kernels_are_of_16_lanes():
    """Compiled with the header, and not the kernels of AVX2 that a machine without AVX-512 gets otherwise."""
    x = torch.randn(5, 67)
    compiled = dynamo_lite.compile(lambda x: (x.exp() + 1).sum(-1))
    torch.testing.assert_close(compiled(x), (x.exp() + 1).sum(-1))
    assert str(emulated_avx512.HEADER) in codecache.build_flags() and target_info.current().lanes == 16
    assert not dynamo_lite.metrics()["library_calls"]


@pytest.mark.skipif(processor.simd_of(processor.cpu_features()) != "avx2", reason="AVX-512 is there, or AVX2 is not")
def test_a_sample():
    tests = [str(ROOT / "tests" / "backends" / "inductor" / name) for name in SAMPLE]
    p = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], cwd=ROOT,
                       capture_output=True, text=True, env={**os.environ, "DYNAMO_LITE_TEST_PROCESSOR": "avx512"})
    assert p.returncode == 0 and f"{len(SAMPLE)} passed" in p.stdout, p.stdout + p.stderr
