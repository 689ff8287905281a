"""nn.Transformer and nn.MultiheadAttention: one graph, whatever masks are given, and eager's values, zeros in place of
padding included."""
import contextlib

import pytest
import torch
from torch import nn

import dynamo_lite
from dynamo_lite import config

CAUSAL = nn.Transformer.generate_square_subsequent_mask
END = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]]).bool()
MIDDLE = torch.tensor([[0, 1, 0, 1, 1], [0, 0, 0, 0, 1]]).bool()
NONE = torch.zeros(2, 5).bool()


def check(model, calls, inference, backend):
    """Every call equals eager's, in one graph; the second time nothing is compiled."""
    torch.manual_seed(0)
    model.train(not inference)
    graphs = []

    def counted(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = dynamo_lite.compile(model, backend=counted if backend == "eager" else backend, fullgraph=True)
    for turn in range(2):
        with config.patch(error_on_recompile=turn > 0), torch.no_grad() if inference else contextlib.nullcontext():
            for args, kwargs in calls:
                want, got = model(*args, **kwargs), compiled(*args, **kwargs)
                torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    if backend == "eager":
        assert len(graphs) == 1


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("inference", [False, True])
def test_causal_masks(inference, backend):
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)
    other = torch.randn(4, 4)
    calls = [((torch.randn(2, 5, 16), torch.randn(2, 4, 16)), {"tgt_mask": mask}) for mask in (CAUSAL(4), other)]
    check(model, calls, inference, backend)
    padded = [(args, {**kwargs, "src_key_padding_mask": END, "memory_key_padding_mask": END}) for args, kwargs in calls]
    check(model, padded, inference, backend)


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("norm", [None, nn.LayerNorm(16)])
def test_padding_is_dropped_where_eager_drops_it(norm, inference, backend):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 2, norm)
    calls = [((torch.randn(2, 5, 16),), {"src_key_padding_mask": mask}) for mask in (END, MIDDLE, NONE)]
    check(model, calls, inference, backend)
    if inference and norm is None:
        with torch.no_grad():
            out = dynamo_lite.compile(model, backend=backend)(*calls[0][0], **calls[0][1])
        assert (out[END] == 0).all() and (out[~END] != 0).all()


@pytest.mark.parametrize("options", [{"mask_check": False}, {"enable_nested_tensor": False}])
def test_options_of_encoders(options):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 1, **options)
    check(model, [((torch.randn(2, 5, 16),), {"src_key_padding_mask": END})], True, "eager")
    check(model, [((torch.randn(2, 5, 16),), {"mask": torch.zeros(5, 5)})], True, "eager")


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("inference", [False, True])
def test_attention_alone(inference, backend):
    model = nn.MultiheadAttention(16, 4, batch_first=True)
    x, y = torch.randn(2, 5, 16), torch.randn(2, 5, 16)
    check(model, [((x, x, x), {}), ((y, y, y), {})], inference, backend)
    check(model, [((x, x, x), {"key_padding_mask": END}), ((x, x, x), {"key_padding_mask": NONE})], inference, backend)
    check(model, [((x, y, y), {"need_weights": False, "attn_mask": CAUSAL(5)})], inference, backend)
    check(model, [((x, y, y), {"need_weights": False, "attn_mask": CAUSAL(5), "is_causal": True})], inference, backend)


def test_padding_where_the_encoder_is_a_frame_of_its_own():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 1).eval()
    compiled = dynamo_lite.compile(model.forward, backend="eager")
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        for mask in (END, MIDDLE, END):
            torch.testing.assert_close(compiled(x, None, mask), model(x, None, mask))


@pytest.mark.parametrize("backend", ["eager", "inductor_lite"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_where_the_fast_path_puts_its_result(norm_first, backend):
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=norm_first).eval()
    inputs = [torch.randn(2, 5, 16), torch.randn(5, 2, 16).transpose(0, 1), torch.randn(2, 16, 7).transpose(1, 2),
              torch.randn(2, 1, 16).expand(2, 5, 16), torch.randn(2, 0, 16), torch.randn(0, 16, 5).transpose(1, 2),
              torch.randn(1, 16, 1).transpose(1, 2)]
    compiled = dynamo_lite.compile(lambda x: (layer(x), layer(x).stride()), backend=backend, fullgraph=True)
    with torch.no_grad():
        for x in inputs + inputs:
            (got, strides), want = compiled(x), layer(x)
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
            assert got.stride() == strides == want.stride()


def test_the_fast_path_is_compiled_once_for_all_lengths():
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True).eval()
    compiled = dynamo_lite.compile(layer, fullgraph=True)
    with torch.no_grad():
        for n in (5, 7, 9, 3):
            x = torch.randn(2, n, 16)
            torch.testing.assert_close(compiled(x), layer(x), rtol=1e-5, atol=1e-5)
    assert dynamo_lite.metrics()["recompiles"] == 1
