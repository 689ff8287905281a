"""Rarer operators: masks, special values, losses, batch norm and its gradient."""

import torch
import torch.nn.functional as F

aten = torch.ops.aten
LOOSE = {torch.float32: (1e-4, 1e-4)}


def test_elementwise(check_many, data):
    x, y, special = data.random(4, 6, 10), data.random(10, 6, 4).permute(2, 1, 0).contiguous(), data.special
    pairs = [special.repeat(16), special.repeat_interleave(16)]
    check_many(
        [
            ("masked_fill", lambda x, y: x.masked_fill(y > 0, -1e9), [x, y]),
            ("masked_fill by a tensor", lambda x, y: x.masked_fill(y > 0, y.sum()), [x, y]),
            ("nan_to_num", torch.nan_to_num, [special]),
            ("isposinf", torch.isposinf, [special]),
            ("signbit", torch.signbit, [special]),
            ("xlogy", torch.xlogy, pairs),
            ("heaviside", torch.heaviside, pairs),
            ("logaddexp", torch.logaddexp, pairs),
            ("logit", lambda x: torch.logit(x, 1e-3), [x.sigmoid()]),
            ("celu", lambda x: F.celu(x, 1.3), [x]),
            ("logsigmoid", F.logsigmoid, [x]),
            ("prelu", F.prelu, [x, data.random(6)]),
            ("glu", F.glu, [x]),
            ("smooth_l1", F.smooth_l1_loss, [x, y]),
            ("huber", F.huber_loss, [x, y]),
            ("count_nonzero", lambda x: (x > 0).float().count_nonzero(1), [x]),
            ("nansum", lambda x: x.nansum(), [special[6:8]]),
            ("clamp_min", lambda x, y: x.clamp_min(y), [x, y]),
            ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), [data.random(2, 8, 3, 5)]),
            ("unfold", lambda x: x.unfold(1, 3, 2) * 2, [x]),
            ("view_copy", lambda x: aten.view_copy(x, [24, 10]), [x]),
            ("permute_copy", lambda x: torch.permute_copy(x, (2, 0, 1)), [x]),
            ("hardswish_backward", lambda d, x: aten.hardswish_backward(d, x), [x, y]),
            ("hardsigmoid_backward", lambda d, x: aten.hardsigmoid_backward(d, x), [x, y]),
            ("softplus_backward", lambda d, x: aten.softplus_backward(d, x, 1.0, 20.0), [x, y]),
            ("dropout_backward", lambda d, x: aten.native_dropout_backward(d, x > 0, 2.0), [x, y]),
        ],
        data.CLOSE,
    )


def test_batch_norm(check_many, data):
    def forward(x, w, b, m, v):
        return aten._native_batch_norm_legit_functional(x, w, b, m, v, True, 0.1, 1e-5)

    def backward(d, x, w, m, i):
        return aten.native_batch_norm_backward(d, x, w, None, None, m, i, True, 1e-5, [True, True, True])

    x, d = data.random(4, 8, 5, 5), data.random(5, 5, 8, 4).permute(3, 2, 0, 1).contiguous()
    w, b, m, v = data.random(8), data.random(8) + 1, data.random(8) + 2, data.random(8).abs()
    last = torch.channels_last
    built = check_many([("forward", forward, [x, w, b, m, v])], LOOSE)
    assert built.kernels == 1
    check_many(
        [
            ("forward, channels last", forward, [x.to(memory_format=last), w, b, m, v]),
            ("backward", backward, [d, x, w, m, v]),
            ("backward, channels last", backward, [d.to(memory_format=last), x.to(memory_format=last), w, m, v]),
        ],
        LOOSE,
    )
