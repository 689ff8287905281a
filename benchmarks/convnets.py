"""Convolution networks in plain torch, as the papers give them: ResNet-50 (He et al., 2016, the strides in the 3x3
convolutions), ResNeXt-50 32x4d (Xie et al., 2017) and MobileNetV3-large (Howard et al., 2019)."""
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn


def _conv(channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1,
          activation: Callable[[], nn.Module] | None = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False),
                               nn.BatchNorm2d(out)]
    return nn.Sequential(*layers, *([activation()] if activation else []))


class _Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, out: int, stride: int, groups: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, width, 1), _conv(width, width, 3, stride, groups),
                                  _conv(width, out, 1, activation=None))
        changes = channels != out or stride != 1
        self.shortcut = _conv(channels, out, 1, stride, activation=None) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet50(nn.Module):
    groups, width = 1, 64

    def __init__(self) -> None:
        super().__init__()
        blocks: list[nn.Module] = [_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for stage, count in enumerate((3, 4, 6, 3)):
            for k in range(count):
                out, stride = 256 << stage, 2 if stage and k == 0 else 1
                blocks.append(_Bottleneck(channels, self.width << stage, out, stride, self.groups))
                channels = out
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


class ResNeXt50(ResNet50):
    groups, width = 32, 128


class _SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, _by_eight(channels / 4), 1)
        self.excite = nn.Conv2d(self.squeeze.out_channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(x, 1)))))


def _by_eight(n: float) -> int:
    rounded = max(8, int(n + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * n else rounded


class _Inverted(nn.Module):
    def __init__(self, channels: int, kernel: int, width: int, out: int, excite: bool,
                 activation: Callable[[], nn.Module], stride: int) -> None:
        super().__init__()
        self.residual = stride == 1 and channels == out
        self.body = nn.Sequential(
            *([_conv(channels, width, 1, activation=activation)] if width != channels else []),
            _conv(width, width, kernel, stride, width, activation),
            *([_SqueezeExcite(width)] if excite else []),
            _conv(width, out, 1, activation=None))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


# channels, kernel, width, out, squeeze and excite, activation, stride: table 1 of the paper.
_MOBILENET = (
    (16, 3, 16, 16, False, nn.ReLU, 1), (16, 3, 64, 24, False, nn.ReLU, 2), (24, 3, 72, 24, False, nn.ReLU, 1),
    (24, 5, 72, 40, True, nn.ReLU, 2), (40, 5, 120, 40, True, nn.ReLU, 1), (40, 5, 120, 40, True, nn.ReLU, 1),
    (40, 3, 240, 80, False, nn.Hardswish, 2), (80, 3, 200, 80, False, nn.Hardswish, 1),
    (80, 3, 184, 80, False, nn.Hardswish, 1), (80, 3, 184, 80, False, nn.Hardswish, 1),
    (80, 3, 480, 112, True, nn.Hardswish, 1), (112, 3, 672, 112, True, nn.Hardswish, 1),
    (112, 5, 672, 160, True, nn.Hardswish, 2), (160, 5, 960, 160, True, nn.Hardswish, 1),
    (160, 5, 960, 160, True, nn.Hardswish, 1))


class MobileNetV3(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks = (_Inverted(*row) for row in _MOBILENET)
        self.features = nn.Sequential(_conv(3, 16, 3, 2, activation=nn.Hardswish), *blocks,
                                      _conv(160, 960, 1, activation=nn.Hardswish))
        self.classifier = nn.Sequential(nn.Linear(960, 1280), nn.Hardswish(), nn.Linear(1280, 1000))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))
