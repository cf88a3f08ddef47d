"""Trains a small convolutional network on the 60,000 images of Fashion-MNIST: 92 % in 4 epochs.

    python examples/fashion_mnist/train.py            # results in runs/fashion_mnist
    python examples/fashion_mnist/train.py --resume   # continue after an interruption, with the same numbers

The same program runs with `import torch`.
"""

import argparse
import gzip
import json
import math
import os
import struct
import sys
import time
import zlib
from pathlib import Path

import facula.nn.functional as F
from facula.utils.data import DataLoader, TensorDataset

import facula as torch
import facula.nn as nn

CLASSES = [
    "T-shirt",
    "trousers",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
]
DATA = "/usr/share/datasets/fashion-mnist"  # installed by Debian's package dataset-fashion-mnist


def read_idx(path: Path) -> torch.Tensor:
    """Returns the array of unsigned bytes in an IDX file: two zero bytes, type 8, rank, big-endian sizes,
    elements.
    """
    try:
        with gzip.open(path) as file:
            data = bytearray(file.read())
        kind, rank = struct.unpack_from(">HBB", data)[1:]
        sizes = struct.unpack_from(f">{rank}I", data, 4)
        if kind != 8 or rank not in (1, 3) or len(data) != 4 + 4 * rank + math.prod(sizes):
            raise ValueError("it is no complete IDX file of bytes")
    except FileNotFoundError:
        sys.exit(
            f"error: {path} is missing.\n  hint: install Debian's package dataset-fashion-mnist, or give "
            f"the folder of the "
            "four *-ubyte.gz files with --data DIR"
        )
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as error:
        sys.exit(
            f"error: {path} is damaged or no file of this data set: {error}\n  hint: reinstall Debian's "
            f"package "
            "dataset-fashion-mnist, or fetch the file again"
        )
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * rank).view(sizes)


def load(folder: Path, name: str, limit: int | None) -> TensorDataset:
    images, labels = (read_idx(folder / f"{name}-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    if len(images) != len(labels) or images.shape[1:] != (28, 28):
        sys.exit(
            f"error: {folder}: {len(images)} images of {tuple(images.shape[1:])} and {len(labels)} labels "
            f"don't belong together"
        )
    images, labels = images[:limit], labels[:limit]
    pixels = (
        images.float().div_(255).sub_(0.2860).div_(0.3530)
    )  # mean and standard deviation of the training images
    return TensorDataset(pixels.unsqueeze(1), labels.long())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x))


class Progress:
    """A line that is rewritten on a terminal; elsewhere one line per quarter."""

    def __init__(self, epoch: int, epochs: int, images: int) -> None:
        self.title, self.images, self.done = f"epoch {epoch}/{epochs}", images, 0
        self.start = self.shown = time.perf_counter()
        self.quarter, self.terminal = 0, sys.stdout.isatty()

    def update(self, count: int, loss: float, accuracy: float) -> None:
        self.done += count
        now = time.perf_counter()
        quarter = 4 * self.done // self.images
        last = self.done == self.images
        if (now - self.shown < 0.1 and not last) if self.terminal else quarter == self.quarter:
            return
        self.shown, self.quarter = now, quarter
        rate = self.done / (now - self.start)
        filled = 24 * self.done // self.images
        line = (
            f"{self.title} [{'#' * filled}{'.' * (24 - filled)}] loss {loss:.4f}  accuracy {accuracy:6.2%}  "
            f"{rate:6,.0f} images/s  {(self.images - self.done) / rate:3.0f} s left"
        )
        print(
            "\r" + line if self.terminal else line, end="" if self.terminal and not last else "\n", flush=True
        )


def train_epoch(
    model: nn.Module,
    loader: DataLoader,
    optimizer: torch.optim.Optimizer,
    scheduler: torch.optim.lr_scheduler.LRScheduler,
    progress: Progress,
) -> tuple[float, float]:
    model.train()
    total, correct, seen = 0.0, 0, 0
    for images, labels in loader:
        optimizer.zero_grad()
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        value = loss.item()
        if not math.isfinite(value):
            sys.exit(f"error: the loss became {value}; try another --seed")
        total += value * len(labels)
        correct += (logits.detach().argmax(1) == labels).sum().item()
        seen += len(labels)
        progress.update(len(labels), total / seen, correct / seen)
    return total / seen, correct / seen


@torch.no_grad()
def evaluate(model: nn.Module, data: TensorDataset) -> tuple[float, float, torch.Tensor]:
    """Mean loss, accuracy and the predicted classes."""
    model.eval()
    total, parts = 0.0, []
    for images, labels in DataLoader(data, batch_size=500):
        logits = model(images)
        total += F.cross_entropy(logits, labels, reduction="sum").item()
        parts.append(logits.argmax(1))
    predicted, labels = torch.cat(parts), data.tensors[1]
    return total / len(labels), (predicted == labels).float().mean().item(), predicted


def write_json(path: Path, value: object) -> None:
    beside = path.with_suffix(".tmp")
    beside.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(beside, path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(DATA),
        metavar="DIR",
        help="folder of the data set (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("runs/fashion_mnist"),
        metavar="DIR",
        help="folder of results (default: %(default)s)",
    )
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=int, metavar="N", help="use only the first N images, of training and of test"
    )
    parser.add_argument(
        "--stop-after", type=int, metavar="N", help="end after N epochs of the schedule; --resume goes on"
    )
    parser.add_argument(
        "--resume", action="store_true", help="continue from the checkpoint of the last finished epoch"
    )
    args = parser.parse_args()
    if args.epochs < 1 or (args.limit is not None and args.limit < 2):
        parser.error("--epochs must be at least 1 and --limit at least 2")
    args.out.mkdir(parents=True, exist_ok=True)
    checkpoint_path = args.out / "checkpoint.pt"

    torch.manual_seed(args.seed)
    train, test = load(args.data, "train", args.limit), load(args.data, "t10k", args.limit)
    train_loader = DataLoader(train, batch_size=64, shuffle=True, drop_last=len(train) % 64 == 1)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=3e-3, epochs=args.epochs, steps_per_epoch=len(train_loader)
    )
    run = {"epochs": args.epochs, "seed": args.seed, "limit": args.limit}
    history = []

    if args.resume:
        if not checkpoint_path.exists():
            sys.exit(f"error: there is no {checkpoint_path} to resume from; run without --resume first")
        checkpoint = torch.load(checkpoint_path)
        if checkpoint["run"] != run:
            sys.exit(
                f"error: {checkpoint_path} belongs to a run with {checkpoint['run']}, not {run}; give the "
                f"same options"
            )
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        torch.set_rng_state(checkpoint["rng_state"])
        history = checkpoint["history"]

    last = min(args.epochs, args.stop_after or args.epochs)
    for epoch in range(len(history) + 1, last + 1):
        started = time.perf_counter()
        loss, accuracy = train_epoch(
            model, train_loader, optimizer, scheduler, Progress(epoch, args.epochs, len(train))
        )
        seconds = time.perf_counter() - started
        test_loss, test_accuracy, _ = evaluate(model, test)
        print(
            f"epoch {epoch}/{args.epochs}: test loss {test_loss:.4f}, test accuracy {test_accuracy:.2%}, "
            f"{seconds:.1f} s",
            flush=True,
        )
        history.append(
            {
                "epoch": epoch,
                "loss": loss,
                "accuracy": accuracy,
                "test_loss": test_loss,
                "test_accuracy": test_accuracy,
                "seconds": seconds,
            }
        )
        torch.save(
            {
                "run": run,
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "scheduler": scheduler.state_dict(),
                "rng_state": torch.get_rng_state(),
                "history": history,
            },
            checkpoint_path,
        )
        write_json(args.out / "metrics.json", history)

    _, test_accuracy, predicted = evaluate(model, test)
    print(f"test accuracy {test_accuracy:.2%}; results in {args.out}/")
    try:
        from plots import save_curves, save_predictions
    except ImportError as error:
        sys.exit(f"no pictures: {error}")
    save_curves(history, args.out / "curves.png")
    save_predictions(test.tensors[0], test.tensors[1], predicted, CLASSES, args.out / "predictions.png")


if __name__ == "__main__":
    main()
