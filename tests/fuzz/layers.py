"""Layers that random networks are made of, beside those of torch.nn: attention, gates, recurrent and residual blocks.

Invariant: each keeps the rank of its input; what a network is made of stands in its own source, not here."""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def _first_set(x: Tensor) -> Tensor:
    y = x.clone()
    y[:1] = y[-1:] * 0.5
    return y


STEPS = {
    "gate": lambda x: torch.sigmoid(x) * x, "halves": lambda x: x.chunk(2, -1)[0] * x.chunk(2, -1)[-1].sigmoid(),
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1),
    "normalize": lambda x: F.normalize(x, dim=-1), "centred": lambda x: x - x.mean(-1, keepdim=True),
    "scaled": lambda x: x / (x.std(-1, keepdim=True) + 1), "where": lambda x: torch.where(x > 0, x, x * 0.1),
    "in place": lambda x: x.clone().clamp_(-1, 1).mul_(2).add_(1), "cumsum": lambda x: x.cumsum(-1) * 0.1,
    "flip": lambda x: x.flip(-1), "roll": lambda x: x.roll(1, 0),
    "outer": lambda x: (x.unsqueeze(-1) * x.unsqueeze(-2)).sum(-1), "sort": lambda x: x.sort(-1)[0],
    "topk": lambda x: x + x.topk(1, -1)[0], "max": lambda x: x + x.max(-1, keepdim=True)[0],
    "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True),
    "var": lambda x: x * x.var(0, unbiased=False, keepdim=True), "cat": lambda x: torch.cat([x, x * 2], 0)[1:],
    "einsum": lambda x: torch.einsum("b...,b...->b...", x, x), "half": lambda x: x.bfloat16().to(x.dtype),
    "detach": lambda x: x + x.detach().abs(), "pad": lambda x: F.pad(x, (1, 1))[..., 1:-1],
    "index": lambda x: x[torch.arange(x.shape[0] - 1, -1, -1)], "set": _first_set,
    "view": lambda x: x.contiguous().view(-1).view(x.shape) * 1.5, "stack": lambda x: torch.stack([x, -x]).amax(0),
    "expand": lambda x: x.mean(0, keepdim=True).expand_as(x) + x, "tensordot": lambda x: x + torch.tensordot(
        x.flatten(1), x.flatten(1), ([0, 1], [0, 1])) * 1e-3, "unfold": lambda x: x.unfold(-1, 2, 1).mean(-1),
}


class Step(nn.Module):
    """One of STEPS."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        return STEPS[self.name](x)


class Residual(nn.Module):
    """A layer, added to its input where the shapes agree."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if y.shape == x.shape else y


class Along(nn.Module):
    """A layer of channels first, for (batch, time, channels)."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x.transpose(1, 2))
        return y.transpose(1, 2)


class Attention(nn.Module):
    """Attention with two heads: torch's with several masks, or by products."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.split, self.out, self.kind = nn.Linear(width, 3 * width), nn.Linear(width, width), kind

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        q, k, v = self.split(x).view(batch, time, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        if self.kind == "products":
            weights = (q @ k.transpose(-1, -2)) / (width // 2) ** 0.5
            later = torch.ones(time, time, dtype=torch.bool).triu(1)
            weights = weights.masked_fill(later, float("-inf")).softmax(-1)
            y = F.dropout(weights, 0.1, self.training) @ v
        else:
            mask = torch.zeros(time, time, dtype=q.dtype).tril() if self.kind == "mask" else None
            y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=self.kind == "causal")
        out: Tensor = self.out(y.transpose(1, 2).reshape(batch, time, width))
        return out


class First(nn.Module):
    """The first of a layer's results: of a recurrent network, or of attention to itself."""

    def __init__(self, layer: nn.Module, times: int = 1) -> None:
        super().__init__()
        self.layer, self.times = layer, times

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(*[x] * self.times)[0]
        return y


class Loop(nn.Module):
    """A recurrent cell, step by step."""

    def __init__(self, cell: nn.Module, width: int) -> None:
        super().__init__()
        self.cell, self.width = cell, width

    def forward(self, x: Tensor) -> Tensor:
        state, seen = x.new_zeros(x.shape[0], self.width), []
        for t in range(min(3, x.shape[1])):
            state = self.cell(x[:, t], state)
            seen.append(state)
        return torch.stack(seen, 1)


class Squeeze(nn.Module):
    """Channels weighted by their means (squeeze and excitation)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(width, 2, 1), nn.Conv2d(2, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.up(F.relu(self.down(x.mean((2, 3), keepdim=True)))))
