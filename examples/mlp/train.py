"""The simplest program: a network of three layers learns Fashion-MNIST, 87.6 % in 5 epochs.

    python examples/mlp/train.py

The same program runs with `import torch`.
"""

import argparse
import gzip
from pathlib import Path

import facula.nn.functional as F
from facula.utils.data import DataLoader, TensorDataset

import facula as torch
import facula.nn as nn


def load(folder: Path, name: str, limit: int | None) -> TensorDataset:
    """Returns images as vectors [n, 784] with mean 0 and standard deviation 1, and their classes [n]."""
    with gzip.open(folder / f"{name}-images-idx3-ubyte.gz") as images_file:
        pixels = torch.frombuffer(bytearray(images_file.read()), dtype=torch.uint8, offset=16)
    with gzip.open(folder / f"{name}-labels-idx1-ubyte.gz") as labels_file:
        labels = torch.frombuffer(bytearray(labels_file.read()), dtype=torch.uint8, offset=8)
    pixels, labels = pixels.view(-1, 784)[:limit], labels[:limit]
    return TensorDataset((pixels.float() / 255 - 0.2860) / 0.3530, labels.long())


def train_epoch(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> float:
    model.train()
    total = 0.0
    device = next(model.parameters()).device
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    right = count = 0
    device = next(model.parameters()).device
    for images, labels in loader:
        right += int((model(images.to(device)).argmax(1) == labels.to(device)).sum())
        count += len(labels)
    return right / count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"), help="folder of the data set"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, metavar="N", help="use only the first N images")
    parser.add_argument("--device", default="cpu", help="where the network is")
    args = parser.parse_args()

    torch.manual_seed(0)
    train = DataLoader(load(args.data, "train", args.limit), batch_size=64, shuffle=True)
    test = DataLoader(load(args.data, "t10k", args.limit), batch_size=1000)
    model = nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(),
        nn.Linear(256, 128), nn.ReLU(),
        nn.Linear(128, 10),
    ).to(args.device)  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        loss = train_epoch(model, train, optimizer)
        print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {accuracy(model, test):.2%}", flush=True)


if __name__ == "__main__":
    main()
