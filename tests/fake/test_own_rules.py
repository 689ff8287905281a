"""Operators without a metadata rule in torch: results as eager lays them out, one graph, eager's gradients."""
import pytest
import torch
from torch.utils import _pytree as pytree

import dynamo_lite
from dynamo_lite import config
from dynamo_lite.fake import own_rules
from dynamo_lite.fake.mode import TraceFakeMode

aten = torch.ops.aten
TRUE = torch.tensor([1])


def _scales(x):
    return torch.rand(x.shape[1]) + 0.1, torch.zeros(x.shape[1])


CALLS = {
    aten._aminmax.default: lambda x: (x,),
    aten._aminmax.dim: lambda x: (x, -1, True),
    aten.fake_quantize_per_tensor_affine_cachemask.default: lambda x: (x, 0.1, 0, 0, 255),
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default:
        lambda x: (x, torch.tensor(0.1), torch.tensor(0), TRUE, 0, 255),
    aten.fake_quantize_per_channel_affine_cachemask.default: lambda x: (x, *_scales(x), 1, 0, 255),
    aten._fake_quantize_learnable_per_tensor_affine.default: lambda x: (x, torch.rand(1), torch.zeros(1), 0, 255),
    aten._fake_quantize_learnable_per_channel_affine.default: lambda x: (x, *_scales(x), 1, 0, 255),
    aten._fake_quantize_learnable_per_tensor_affine_backward.default:
        lambda x: (x, x, torch.rand(1), torch.zeros(1), 0, 255),
    aten._fake_quantize_learnable_per_channel_affine_backward.default: lambda x: (x, x, *_scales(x), 1, 0, 255),
    aten.histogram.bin_ct: lambda x: (x, 4),
    aten.histogram.bins_tensor: lambda x: (x, torch.arange(5.0)),
    aten._histogramdd_bin_edges.default: lambda x: (x, [2] * x.shape[-1]),
    aten._histogramdd_from_bin_cts.default: lambda x: (x, [2] * x.shape[-1]),
    aten._histogramdd_from_bin_tensors.default: lambda x: (x, [torch.arange(3.0)] * x.shape[-1]),
    aten._standard_gamma_grad.default: lambda x: (x.abs() + 1, x.abs() + 1),
    aten._dirichlet_grad.default: lambda x: (x.sigmoid(), x.abs() + 1, x.abs() + 3),
    aten._sample_dirichlet.default: lambda x: (x.abs() + 1,),
    aten.binomial.default: lambda x: (x.abs().ceil(), x.sigmoid()),
    aten._masked_softmax.default: lambda x: (x, torch.zeros(x.shape, dtype=torch.bool), None, 2),
    aten._masked_softmax_backward.default: lambda x: (x, x.softmax(-1), torch.zeros(x.shape, dtype=torch.bool)),
    aten.geqrf.default: lambda x: (x,),
}
OTHERS = {
    aten._transform_bias_rescale_qkv.default: (torch.randn(2, 3, 12), torch.randn(12), 2),
    aten._compute_linear_combination.default: (torch.randn(3, 4, 4).mT, torch.randn(5, 3)),
    aten.multi_margin_loss_backward.default:
        (torch.tensor(1.0), torch.randn(4, 3).t().contiguous().t(), torch.tensor([0, 1, 2, 0]), 1, 1.0),
    aten.multilabel_margin_loss_backward.default:
        (torch.tensor(1.0), torch.randn(1, 3), torch.tensor([[0, 1, -1]]), 1, torch.zeros(1, 3)),
}
LAYOUTS = {
    "rows": lambda: torch.randn(4, 3), "columns": lambda: torch.randn(3, 4).t(),
    "gaps": lambda: torch.randn(8, 6)[::2, ::2],
    "channels last": lambda: torch.randn(2, 3, 4, 2).to(memory_format=torch.channels_last),
}


def _layouts(value):
    return [(type(t), t.dtype, tuple(t.shape), t.stride()) for t in pytree.tree_leaves(value)], isinstance(value, list)


def _promised(func, args):
    fakes = TraceFakeMode()
    with fakes:
        made = func(*pytree.tree_map_only(torch.Tensor, fakes.from_tensor, args))
    leaves = pytree.tree_leaves(made)
    return [(torch.Tensor, t.dtype, tuple(t.shape), t.stride()) for t in leaves], isinstance(made, list)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("func", CALLS, ids=str)
def test_results_are_laid_out_as_eager_does(func, layout):
    args = CALLS[func](LAYOUTS[layout]())
    assert _promised(func, args) == _layouts(func(*args))


@pytest.mark.parametrize("func", OTHERS, ids=str)
def test_results_of_others(func):
    assert _promised(func, OTHERS[func]) == _layouts(func(*OTHERS[func]))


def test_every_rule_is_tried():
    fused = {aten._transformer_encoder_layer_fwd.default}  # in tests of encoders
    assert set(own_rules._RULES) == {*CALLS, *OTHERS, *fused}


def _quantized(x, scale):
    by_tensor = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
    given = torch.fake_quantize_per_tensor_affine(x, scale[0].detach(), torch.tensor(0), 0, 15)
    by_channel = torch.fake_quantize_per_channel_affine(x, scale.detach(), torch.zeros(4, dtype=torch.int32), 0, 0, 15)
    learned = torch._fake_quantize_learnable_per_tensor_affine(x, scale[:1], torch.zeros(1), 0, 15, 0.5)
    channels = torch._fake_quantize_learnable_per_channel_affine(x, scale, torch.zeros(4), 0, 0, 15, 0.5)
    return by_tensor + given * by_channel + learned * channels


def _leaves(columns):
    torch.manual_seed(columns)
    return torch.randn(4, columns, requires_grad=True), (torch.rand(4) + 0.1).requires_grad_()


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
def test_gradients_of_fake_quantization(backend):
    compiled = dynamo_lite.compile(_quantized, backend=backend, fullgraph=True)
    for columns in (5, 5, 6, 7):
        want, got = _leaves(columns), _leaves(columns)
        # The gradients' formulas, which are in C++, ask for numbers.
        with config.patch(error_on_recompile=columns == 7 and backend == "eager"):
            a, b = _quantized(*want), compiled(*got)
        torch.testing.assert_close(b, a)
        a.square().sum().backward()
        b.square().sum().backward()
        for w, g in zip(want, got):
            torch.testing.assert_close(g.grad, w.grad)


def test_what_elements_decide_is_refused_when_it_runs():
    def quantized(x, zero_point):
        x.add_(1)
        return torch.fake_quantize_per_channel_affine(x, torch.ones(2), zero_point, 0, 0, 15)

    compiled = dynamo_lite.compile(quantized, backend="eager", fullgraph=True)
    good, bad = torch.zeros(2, dtype=torch.int32), torch.full((2,), 99, dtype=torch.int32)
    assert torch.equal(compiled(torch.ones(2, 3), good), torch.full((2, 3), 2.0))
    x = torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="zero_point"):
        compiled(x, bad)
    assert torch.equal(x, torch.full((2, 3), 2.0))  # added once


def test_histograms_are_one_graph():
    def histograms(x):
        counts, edges = torch.histogram(x, 4)
        return counts, edges, torch.histogram(x, edges).hist, torch.histogramdd(x, [3, 2]).hist, torch._aminmax(x, 1)

    compiled = dynamo_lite.compile(histograms, backend="eager", fullgraph=True)
    x = torch.randn(6, 2)
    for got, want in zip(pytree.tree_leaves(compiled(x)), pytree.tree_leaves(histograms(x))):
        assert torch.equal(got, want)
    with pytest.raises(RuntimeError, match="empty|no identity|zero"):
        dynamo_lite.compile(lambda x: torch._aminmax(x), backend="eager")(torch.ones(0))
