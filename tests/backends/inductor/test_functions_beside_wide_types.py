"""Functions of float32 in kernels that hold 64-bit values as well, and so take half as many lanes as the processor has:
libtorch exports no function of Sleef's of four floats, which AVX2 would need there."""
from __future__ import annotations

import pytest
import torch

import dynamo_lite
from dynamo_lite import config

FUNCTIONS = {
    "remainder": lambda x: torch.remainder(x * 9, -2), "fmod": lambda x: torch.fmod(x, 0.7), "sin": torch.sin,
    "large_sin": lambda x: torch.sin(x * 1e6), "large_cos": lambda x: torch.cos(x * 1e6), "exp": torch.exp,
    "log": lambda x: torch.log(x.abs()), "pow": lambda x: torch.pow(x.abs(), 1.3),
    "atan2": lambda x: torch.atan2(x, x + 1),
    "sinh": torch.sinh, "erf": torch.erf, "lgamma": torch.lgamma, "tan": torch.tan, "asinh": torch.asinh,
    "expm1": torch.expm1, "log1p": lambda x: torch.log1p(x.abs()), "hypot": lambda x: torch.hypot(x, x + 1),
    "tanh": torch.tanh, "acos": lambda x: torch.acos(x.clamp(-1, 1)),
}


@pytest.mark.parametrize("simd", ["auto", "avx2"])  # on a processor with more, too
@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_a_kernel_of_whole_numbers_of_64_bits(name, simd):
    def program(x):
        return FUNCTIONS[name](x), (x > 0).long()

    torch.manual_seed(0)
    x = torch.randn(8, 19)
    with config.patch(cpp_simd=simd):
        got, want = dynamo_lite.compile(program, backend="inductor_lite")(x), program(x)
    torch.testing.assert_close(got, want, atol=2e-6, rtol=2e-5)
