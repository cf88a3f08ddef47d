"""A ResNet-18 for small images learns Fashion-MNIST, 93 % in 3 epochs with 16 channels in the first stage.

    python examples/resnet/train.py --epochs 1

The same program runs with `import torch`.
"""

import argparse
import gzip
import time
from pathlib import Path

import facula.nn.functional as F
from facula.utils.data import DataLoader, TensorDataset

import facula as torch
import facula.nn as nn


class BasicBlock(nn.Module):
    """Two convolutions with a shortcut.  He et al., "Deep Residual Learning", 2015."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """Eight blocks in four stages of doubling width; for small images: the first layer preserves their
    size.

    Shape: ``[N, channels, H, W]`` to ``[N, classes]``.
    """

    def __init__(self, channels: int = 1, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        blocks: list[nn.Module] = []
        inputs = width
        for stage in range(4):
            outputs = width * 2**stage
            blocks += [BasicBlock(inputs, outputs, 1 if stage == 0 else 2), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.pool(self.blocks(self.stem(x))).flatten(1))


def load(folder: Path, name: str, limit: int | None) -> TensorDataset:
    """Returns images [n, 1, 28, 28] with mean 0 and standard deviation 1, and their classes [n]."""
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as images_file:
        pixels = torch.frombuffer(bytearray(images_file.read()), dtype=torch.uint8, offset=16)
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as labels_file:
        labels = torch.frombuffer(bytearray(labels_file.read()), dtype=torch.uint8, offset=8)
    pixels, labels = pixels.view(-1, 1, 28, 28)[:limit], labels[:limit]
    return TensorDataset((pixels.float() / 255 - 0.2860) / 0.3530, labels.long())


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = count = 0
    for images, labels in loader:
        right += int((model(images).argmax(1) == labels).sum())
        count += len(labels)
    return right / count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"), help="folder of the data set"
    )
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=16, help="channels of the first stage")
    parser.add_argument("--limit", type=int, metavar="N", help="use only the first N images")
    args = parser.parse_args()

    torch.manual_seed(0)
    train = DataLoader(load(args.data, "train", args.limit), batch_size=64, shuffle=True, drop_last=True)
    test = DataLoader(load(args.data, "t10k", args.limit), batch_size=250)
    model = ResNet18(width=args.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, epochs=args.epochs, steps_per_epoch=len(train)
    )
    for epoch in range(1, args.epochs + 1):
        model.train()
        started, total = time.perf_counter(), 0.0
        for step, (images, labels) in enumerate(train, 1):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            scheduler.step()
            total += loss.item()
            if step % 100 == 0:
                rate = step * 64 / (time.perf_counter() - started)
                print(f"step {step}/{len(train)}: loss {total / step:.4f}, {rate:.0f} images/s", flush=True)
        mean, right = total / len(train), accuracy(model, test)
        print(f"epoch {epoch}: loss {mean:.4f}, test accuracy {right:.2%}", flush=True)


if __name__ == "__main__":
    main()
