"""The convolutional networks of the published experiments, from their shapes; weights are random."""

from __future__ import annotations

from dataclasses import dataclass

from facula.tiny import Update

import facula as F
from facula import nn

Tensor = F.Tensor


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, rectified: bool = True
) -> nn.Module:
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([nn.ReLU6()] if rectified else []))


class Block(nn.Module):
    """An inverted residual: expansion, depthwise convolution, projection."""

    def __init__(self, inputs: int, middle: int, kernel: int, stride: int, outputs: int) -> None:
        super().__init__()
        layers = [] if middle == inputs else [convolution(inputs, middle, 1)]
        layers.append(convolution(middle, middle, kernel, stride, middle))
        layers.append(convolution(middle, outputs, 1, rectified=False))
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers(x)
        return x + y if self.residual else y


class Mobile(nn.Module):
    """A stem, blocks (middle, kernel, stride, outputs), a last pointwise convolution, and a classifier."""

    def __init__(
        self, stem: int, blocks: list[tuple[int, int, int, int]], last: int = 0, classes: int = 10
    ) -> None:
        super().__init__()
        self.stem = convolution(3, stem, 3, 2)
        layers, inputs = [], stem
        for middle, kernel, stride, outputs in blocks:
            layers.append(Block(inputs, middle, kernel, stride, outputs))
            inputs = outputs
        if last:
            layers.append(convolution(inputs, last, 1))
            inputs = last
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def small() -> nn.Module:
    return Mobile(8, [(8, 3, 1, 8), (24, 3, 2, 16), (48, 5, 1, 16), (48, 7, 2, 24), (72, 3, 1, 24)])


MCUNET_BLOCKS = [
    (16, 3, 1, 8),
    (32, 3, 2, 16),
    (48, 3, 1, 16),
    (48, 7, 2, 24),
    (120, 3, 1, 24),
    (120, 3, 2, 40),
    (160, 7, 1, 40),
    (160, 5, 1, 48),
    (144, 3, 1, 48),
    (192, 3, 1, 48),
    (240, 7, 2, 96),
    (384, 5, 1, 96),
    (384, 5, 1, 96),
    (576, 3, 1, 160),
]


def mcunet() -> nn.Module:
    return Mobile(16, MCUNET_BLOCKS)


MOBILENET_BLOCKS = [
    (16, 3, 1, 8),
    (48, 3, 2, 8),
    (48, 3, 1, 8),
    (48, 3, 2, 16),
    *[(96, 3, 1, 16)] * 2,
    (96, 3, 2, 24),
    *[(144, 3, 1, 24)] * 3,
    (144, 3, 1, 32),
    *[(192, 3, 1, 32)] * 2,
    (192, 3, 2, 56),
    *[(336, 3, 1, 56)] * 2,
    (336, 3, 1, 112),
]
PROXYLESS_BLOCKS = [
    (16, 3, 1, 8),
    (24, 5, 2, 16),
    (48, 3, 1, 16),
    (48, 7, 2, 16),
    (48, 3, 1, 16),
    *[(48, 5, 1, 16)] * 2,
    (96, 7, 2, 24),
    *[(72, 5, 1, 24)] * 3,
    (144, 5, 1, 32),
    *[(96, 5, 1, 32)] * 3,
    (192, 7, 2, 64),
    (384, 7, 1, 64),
    *[(192, 7, 1, 64)] * 2,
    (384, 7, 1, 96),
]


def mobilenet() -> nn.Module:
    """MobileNetV2 with a width of 0.35."""
    return Mobile(16, MOBILENET_BLOCKS)


def proxyless() -> nn.Module:
    """ProxylessNAS with a width of 0.3."""
    return Mobile(16, PROXYLESS_BLOCKS)


@dataclass(frozen=True)
class Scheme:
    """A published sparse update: the last `biases` convolutions, and parts of weights by number."""

    biases: int
    weights: dict[int, float]

    def update(self, convs: list[str]) -> Update:
        return Update(
            frozenset(convs[len(convs) - self.biases :]), {convs[k]: r for k, r in self.weights.items()}
        )


MCUNET_49 = Scheme(20, {24: 1 / 4, 27: 1 / 2, 30: 1 / 2})
MOBILENET_99 = Scheme(25, {27: 1, 30: 1, 33: 1, 36: 1, 39: 1, 42: 1 / 8, 45: 1 / 2, 48: 1})
PROXYLESS_98 = Scheme(25, {36: 1, 39: 1 / 2, 42: 1, 45: 1, 48: 1 / 4, 51: 1 / 2, 54: 1, 57: 1})


def calibrated(
    model: nn.Module, size: int, batches: int = 3, images: int = 4, channels: int = 3
) -> tuple[nn.Module, list[Tensor]]:
    """The model with the statistics of random images, and these."""
    data = [F.randn(images, channels, size, size) for _ in range(batches)]
    model.train()
    with F.no_grad():
        for x in data:
            model(x)
    return model.eval(), data


class Residual(nn.Module):
    """Two convolutions of 3 x 3 and a sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(outputs), nn.ReLU()
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.short = None
        if stride != 1 or inputs != outputs:
            self.short = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.short is None else self.short(x)))


def resnet18(classes: int = 1000) -> nn.Module:
    """ResNet-18."""
    blocks = [Residual(64, 64, 1), Residual(64, 64, 1)]
    for inputs in (64, 128, 256):
        blocks += [Residual(inputs, 2 * inputs, 2), Residual(2 * inputs, 2 * inputs, 1)]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def mobilenet_v2(classes: int = 1000) -> nn.Module:
    """MobileNetV2 with a width of 1."""
    shapes = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    blocks, inputs = [], 32
    for expansion, outputs, count, stride in shapes:
        for k in range(count):
            blocks.append((expansion * inputs, 3, stride if k == 0 else 1, outputs))
            inputs = outputs
    return Mobile(32, blocks, last=1280, classes=classes)
