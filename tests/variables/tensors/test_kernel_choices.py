"""``sdpa_kernel`` and other switches of torch's, and the enums of C++ that name their positions."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from language_support import Programs, same
from torch.nn.attention import SDPBackend, sdpa_kernel

import dynamo_lite
from dynamo_lite import log

program = Programs()
CHOICE = SDPBackend.MATH


@program
def attention_by_one_kernel(x):
    q = x.reshape(1, 1, 2, 3)
    with sdpa_kernel(SDPBackend.MATH):
        inside = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
        y = F.scaled_dot_product_attention(q, q, q)
    return y, inside, torch.backends.cuda.flash_sdp_enabled()


@program
def attention_by_several_kernels(x):
    q = x.reshape(1, 1, 2, 3)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
        y = F.scaled_dot_product_attention(q, q, q)
        order = torch._C._get_sdp_priority_order()
    return y, order, torch._C._get_sdp_priority_order()


@program
def members_of_enums(x):
    table = {SDPBackend.MATH: 1, SDPBackend.FLASH_ATTENTION: 2}
    return (
        x + table[CHOICE], CHOICE == SDPBackend.MATH, CHOICE is SDPBackend.MATH, CHOICE != SDPBackend.FLASH_ATTENTION,
        SDPBackend.CUDNN_ATTENTION in table, CHOICE.name, int(CHOICE.value), isinstance(CHOICE, SDPBackend),
        {CHOICE, SDPBackend.MATH}, CHOICE, [CHOICE],
    )


@program.breaks("data_dependent_branch")
def a_break_under_a_choice(x):
    q = x.reshape(1, 1, 2, 3)
    with sdpa_kernel(SDPBackend.MATH):
        if x.sum() > 3:
            q = q * 2
        y = F.scaled_dot_product_attention(q, q, q), torch.backends.cuda.flash_sdp_enabled()
    return y, torch.backends.cuda.flash_sdp_enabled()


@program
def libraries_of_another_device(x):
    cudnn = torch.backends.cudnn
    before = cudnn.enabled, cudnn.benchmark, cudnn.deterministic
    with torch.no_grad(), cudnn.flags(enabled=False, deterministic=True, fp32_precision="ieee"):
        y = x @ x.t()
        inside = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic, torch._C._get_cudnn_allow_tf32(),
                  torch._C._get_fp32_precision_getter("cuda", "all"))
    return y, before, inside, cudnn.enabled, cudnn.deterministic, torch._C._get_cudnn_allow_tf32()


@program.breaks("data_dependent_branch")
def a_break_inside_of_it(x):
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, fp32_precision="ieee"):
        if x.sum() > 3:
            x = x * 2
        inside = torch.backends.cudnn.benchmark, torch._C._get_fp32_precision_getter("cuda", "all")
    return x, inside, torch.backends.cudnn.benchmark, torch._C._get_fp32_precision_getter("cuda", "all")


@program.breaks("torch_state")
def switches_that_no_graph_holds(x):
    with torch.backends.mkldnn.flags(enabled=False):
        return x @ x.t(), torch.backends.mkldnn.enabled


@pytest.mark.parametrize("name", program.names())
def test_program(name):
    before = torch._C._get_flash_sdp_enabled(), torch._C._get_sdp_priority_order(), torch._C._get_mkldnn_enabled()
    program.check(name)
    after = torch._C._get_flash_sdp_enabled(), torch._C._get_sdp_priority_order(), torch._C._get_mkldnn_enabled()
    assert after == before


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_the_choice_around_a_call_is_guarded(backend):
    def f(x, choice):
        with sdpa_kernel(choice):
            y = x + torch.backends.cuda.math_sdp_enabled()
        return y, torch.backends.cuda.flash_sdp_enabled()

    compiled = dynamo_lite.compile(f, backend=backend, fullgraph=True)
    x = torch.arange(3.0)
    for choice in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, [SDPBackend.MATH]):
        assert same(compiled(x, choice), f(x, choice))
        with sdpa_kernel(SDPBackend.MATH):
            assert same(compiled(x, choice), f(x, choice))
        assert same(compiled(x, choice), f(x, choice))


def test_attention_by_the_kernel_chosen_around_the_call():
    compiled = dynamo_lite.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
    q = torch.randn(2, 3, 16, 8)
    flash, inside, again = compiled(q, q, q), None, None
    with sdpa_kernel(SDPBackend.MATH):
        inside, expected = compiled(q, q, q), F.scaled_dot_product_attention(q, q, q)
    again = compiled(q, q, q)
    assert torch.equal(flash, again) and torch.equal(flash, F.scaled_dot_product_attention(q, q, q))
    torch.testing.assert_close(inside, expected, rtol=1e-6, atol=1e-6)
    assert log.counters()["recompiles"] == 1
