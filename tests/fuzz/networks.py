"""Programs that are networks: random layers of torch.nn and `layers`, trained, evaluated, without gradients or under
autocast, in several layouts and dtypes, with inputs whose sizes change; gradients of all parameters and the buffers
are part of what is compared.

Invariant: a seed decides the whole source, in which each layer is written out. """
from __future__ import annotations

import random

HEAD = '''
import torch
from torch import nn
from fuzz.layers import *
import dynamo_lite

SEEN = ()
'''
PROGRAM = '''
net = nn.Sequential(
    {layers}
){moved}
INPUTS = {inputs}
LAST = []


def arguments(i):
    size, train, wanted = INPUTS[i]
    net.train(train)
    net.zero_grad()
    LAST[:] = [({made}){layout}]
    if wanted and not {plain}:
        LAST[0].requires_grad_()
    return list(LAST)


def after(y):
    if isinstance(y, torch.Tensor) and y.requires_grad:
        weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape).to(y.dtype)
        (y * weights).sum().backward()
    grads = dict((name, p.grad) for name, p in net.named_parameters())
    return LAST[0].grad, grads, dict(net.named_buffers())


def f(x):
    {context}return net(x)
'''
STEPS = 4
ACTIVATIONS = ["nn.ReLU()", "nn.GELU()", "nn.SiLU()", "nn.Tanh()", "nn.Sigmoid()", "nn.ELU()", "nn.LeakyReLU()",
               "nn.Hardswish()", "nn.Softplus()", "nn.Mish()", "nn.ReLU6()", "nn.GELU(approximate='tanh')",
               "nn.ReLU(inplace=True)", "nn.Hardtanh()", "nn.Softsign()", "nn.CELU()", "nn.PReLU()", "nn.SELU()",
               "nn.LogSigmoid()", "nn.Tanhshrink()"]
# With the number of channels as `c`; `o`, `s`, `k` and `a` are drawn. A layer that ends in "-> o" has `o` channels.
ANY = ["{a}", "{a}", "nn.Dropout(0.3)", "Step({step!r})", "Step({step!r})"]
LINEAR = ["nn.Linear({c}, {o}, bias={flag}) -> o", "nn.Linear({c}, {o}) -> o", "nn.LayerNorm({c})", "nn.RMSNorm({c})",
          "Residual(nn.LayerNorm({c}), nn.Linear({c}, {o}), {a}, nn.Linear({o}, {c}))"]
LAYERS = {
    2: [*LINEAR, *ANY, "nn.BatchNorm1d({c}, affine={flag})", "nn.BatchNorm1d({c}, momentum=None)",
        "nn.utils.parametrizations.weight_norm(nn.Linear({c}, {o})) -> o"],
    3: [*LINEAR, *ANY, "Residual(Attention({c}, {attention!r}))", "Residual(Attention({c}, {attention!r}))",
        "First(nn.{recurrent}({c}, {o}, batch_first=True)) -> o", "First(nn.MultiheadAttention("
        "{c}, 2, batch_first=True, dropout=0.1), 3)", "Loop(nn.GRUCell({c}, {o}), {o}) -> o",
        "Loop(nn.RNNCell({c}, {o}), {o}) -> o", "Along(nn.Conv1d({c}, {o}, {k}, padding=1, stride={s})) -> o",
        "nn.TransformerEncoderLayer({c}, 2, {o}, batch_first=True, norm_first={flag})", "Along(nn.GroupNorm(2, {c}))",
        "Along(nn.AvgPool1d(2, 1, padding=1))", "Along(nn.MaxPool1d(2, 1, padding=1))"],
    4: [*ANY, "nn.Conv2d({c}, {o}, {k}, padding={k} // 2, stride={s}, bias={flag}) -> o",
        "nn.Conv2d({c}, {o}, {k}, padding={k} // 2) -> o", "nn.Conv2d({c}, {o}, 3, padding=1, groups=2) -> o",
        "nn.Conv2d({c}, {c}, 3, padding=1, groups={c})",
        "nn.Conv2d({c}, {o}, 3, padding=1, padding_mode='reflect') -> o",
        "nn.ConvTranspose2d({c}, {o}, {k}, stride={s}) -> o", "nn.BatchNorm2d({c})", "nn.BatchNorm2d({c})",
        "nn.BatchNorm2d({c}, track_running_stats={flag})", "nn.GroupNorm(2, {c})",
        "nn.InstanceNorm2d({c}, affine={flag})", "nn.Dropout2d(0.3)",
        "nn.AvgPool2d(2, ceil_mode=True)", "nn.MaxPool2d(2, ceil_mode=True)",
        "nn.MaxPool2d(3, 1, 1)", "nn.AvgPool2d(3, 1, 1, count_include_pad=False)",
        "nn.Upsample(scale_factor={scale}, mode={mode!r})", "Squeeze({c})", "nn.AdaptiveAvgPool2d({k})",
        "nn.ReflectionPad2d(1)", "nn.ZeroPad2d((1, 0, 0, 1))", "nn.ReplicationPad2d(1)"],
}
PARTS = {
    "o": ["4", "8", "12"], "s": ["1", "1", "2"], "k": ["1", "3"], "flag": ["True", "True", "False"],
    "scale": ["2", "1.5"], "a": ACTIVATIONS,
}
NAMES = {
    "step": ["gate", "halves", "softmax", "log_softmax", "normalize", "centred", "scaled", "where", "in place",
             "cumsum", "flip", "roll", "outer", "sort", "topk", "max", "logsumexp", "var", "cat", "einsum", "half",
             "detach", "pad", "index", "set", "view", "stack", "expand", "tensordot", "unfold"],
    "attention": ["products", "mask", "causal", "plain"], "recurrent": ["LSTM", "GRU", "RNN"],
    "mode": ["nearest", "bilinear", "bicubic"],
}
# These change how many channels there are.
_ENDS = ("halves", "unfold", "outer")


def _layers(rng: random.Random, rank: int, channels: str) -> list[str]:
    layers: list[str] = []
    for _ in range(rng.randint(2, 6)):
        drawn = {name: rng.choice(choices) for name, choices in (PARTS | NAMES).items()}
        if drawn["step"] in _ENDS and rank != 2:
            drawn["step"] = "gate"
        drawn["a"] = drawn["a"].format(c=channels)
        text, _, changes = rng.choice(LAYERS[rank]).partition(" -> ")
        layers.append(text.format(c=channels, **drawn))
        channels = drawn["o"] if changes else channels
        if text.startswith("Step") and drawn["step"] in ("halves", "unfold"):
            layers.append(f"nn.LazyLinear({channels})")
    return layers


def program(seed: int, under: str) -> str:
    """The source of a program.

    Args:
        under: "training", "autocast", "no_grad" or "inference_mode".
    """
    rng = random.Random(f"networks {seed}")
    rank, channels = rng.choice([2, 3, 3, 4, 4]), rng.choice(["4", "8", "12"])
    layers = _layers(rng, rank, channels)
    batches = [rng.choice([1, 2, 3, 4, 5]) if i else 3 for i in range(STEPS)]
    sizes = [(b, int(channels), *[rng.randint(5, 9) for _ in range(2)])[:rank] for b in batches]
    if rank == 3:
        sizes = [(b, rng.randint(2, 7), int(channels)) for b in batches]
    inputs = [(size, under == "training" and rng.random() < 0.6, rng.random() < 0.7) for size in sizes]
    last = rank == 4 and rng.random() < 0.35
    layout = ".contiguous(memory_format=torch.channels_last)" if last else ""
    made, plain = "torch.randn(size)", under in ("no_grad", "inference_mode")
    if rank == 3 and rng.random() < 0.2:
        made = "torch.randn(size[1], size[0], size[2]).transpose(0, 1)"
    moved = ".to(memory_format=torch.channels_last)" if last else ""
    if not last and under != "autocast" and rng.random() < 0.15:
        moved, made = ".double()", f"{made}.double()"
    context = {"training": "", "autocast": "with torch.autocast('cpu', torch.bfloat16):\n        ",
               "no_grad": "with torch.no_grad():\n        ",
               "inference_mode": "with torch.inference_mode(), torch.autocast('cpu', torch.bfloat16):\n        "}[under]
    return HEAD + PROGRAM.format(layers=",\n    ".join(layers), moved=moved, inputs=inputs, made=made, layout=layout,
                                 plain=plain, context=context)
