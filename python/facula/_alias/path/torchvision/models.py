"""Published classifiers of images under torchvision's names, with the names of its parameters, but without
trained weights. He et al., 2015 (ResNet); Simonyan and Zisserman, 2014 (VGG); Krizhevsky, 2014 (AlexNet).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn

from ._absent import naming, no_weights

__getattr__ = naming(__name__)


def _conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a residual connection."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(inputs, planes, 3, stride), nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2, self.bn2 = _conv(planes, planes, 3), nn.BatchNorm2d(planes)
        self.downsample = _shortcut(inputs, planes * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 and a 1x1 convolution with a residual connection."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * self.expansion
        self.conv1, self.bn1 = _conv(inputs, planes, 1), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = _conv(planes, planes, 3, stride), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = _conv(planes, outputs, 1), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return self.relu(self.bn3(self.conv3(y)) + (x if self.downsample is None else self.downsample(x)))


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module | None:
    if inputs == outputs and stride == 1:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """A stem, four stages of residual blocks, and a linear classifier of their average."""

    def __init__(
        self, block: type[BasicBlock | Bottleneck], layers: list[int], num_classes: int = 1000
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        self.relu, self.maxpool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        inputs = 64
        for k, count in enumerate(layers):
            planes, blocks = 64 << k, []
            for i in range(count):
                blocks.append(block(inputs, planes, 2 if k and not i else 1))
                inputs = planes * block.expansion
            setattr(self, f"layer{k + 1}", nn.Sequential(*blocks))
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(inputs, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


class VGG(nn.Module):
    """Convolutions of 3x3 between poolings, and three linear layers."""

    def __init__(self, features: nn.Module, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features, self.avgpool = features, nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout(dropout),
            nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(dropout), nn.Linear(4096, num_classes),
        )  # fmt: skip
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(m.bias)
            elif isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, 0, 0.01)
                nn.init.zeros_(m.bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class AlexNet(nn.Module):
    """Five convolutions and three linear layers."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(True), nn.MaxPool2d(3, 2),
            nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(dropout), nn.Linear(256 * 36, 4096), nn.ReLU(True),
            nn.Dropout(dropout), nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def alexnet(*, weights: Any = None, progress: bool = True, **options: Any) -> AlexNet:
    """AlexNet, of one tower."""
    no_weights("alexnet", weights or options.pop("pretrained", None))
    return AlexNet(**options)


def _resnet(name: str, block: type[BasicBlock | Bottleneck], layers: list[int]) -> Any:
    def model(*, weights: Any = None, progress: bool = True, **options: Any) -> ResNet:
        no_weights(name, weights or options.pop("pretrained", None))
        return ResNet(block, layers, **options)

    model.__name__ = model.__qualname__ = name
    return model


_CHANNELS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


def _vgg(name: str, depth: int, normalized: bool) -> Any:
    def model(*, weights: Any = None, progress: bool = True, **options: Any) -> VGG:
        no_weights(name, weights or options.pop("pretrained", None))
        layers: list[nn.Module] = []
        inputs = 3
        for stage, count in enumerate(_CHANNELS[depth]):
            outputs = min(64 << stage, 512)
            for _ in range(count):
                layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
                layers += [nn.BatchNorm2d(outputs)] * normalized + [nn.ReLU(inplace=True)]
                inputs = outputs
            layers.append(nn.MaxPool2d(2, 2))
        return VGG(nn.Sequential(OrderedDict((str(k), m) for k, m in enumerate(layers))), **options)

    model.__name__ = model.__qualname__ = name
    return model


resnet18, resnet34 = (
    _resnet("resnet18", BasicBlock, [2, 2, 2, 2]),
    _resnet("resnet34", BasicBlock, [3, 4, 6, 3]),
)
resnet50, resnet101 = (
    _resnet("resnet50", Bottleneck, [3, 4, 6, 3]),
    _resnet("resnet101", Bottleneck, [3, 4, 23, 3]),
)
resnet152 = _resnet("resnet152", Bottleneck, [3, 8, 36, 3])
vgg11, vgg13, vgg16, vgg19 = (_vgg(f"vgg{depth}", depth, False) for depth in _CHANNELS)
vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn = (_vgg(f"vgg{depth}_bn", depth, True) for depth in _CHANNELS)


class VGG16_Weights:
    """A name for weights, which this replacement does not have."""
