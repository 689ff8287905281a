"""Which versions of torch are refused, and that what a version lacks is asked of torch and not of its number."""
import subprocess
import sys

import pytest
import torch

from dynamo_lite import torch_versions


@pytest.mark.parametrize("version", ["2.11.0", "2.11.0a0+git1234567", "2.13.0+cpu", "2.15.0+cu132", "3.0.0", "main"])
def test_versions_that_are_accepted(version):
    assert torch_versions.refusal(version) is None


@pytest.mark.parametrize("version", ["1.13.1", "2.2.0+cu118", "2.9.1", "2.10.0"])
def test_versions_that_are_refused(version):
    assert torch_versions.refusal(version) == f"dynamo_lite needs torch 2.11 or later, and this is torch {version}"


def test_an_older_torch_is_refused_at_import():
    code = """
import torch
torch.__version__ = torch.torch_version.TorchVersion("2.10.0")
try:
    import dynamo_lite
except ImportError as error:
    print(error)
"""
    p = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert p.stdout == "dynamo_lite needs torch 2.11 or later, and this is torch 2.10.0\n", p.stderr


def test_the_apply_of_autograd_functions_is_what_a_class_finds():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    bound = Twice.apply
    assert getattr(bound, "__func__", None) is torch_versions.FUNCTION_APPLY or (
        bound == torch_versions.FUNCTION_APPLY.__get__(None, Twice))
