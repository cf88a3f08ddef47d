"""Runs common programs so that their kernels are compiled: `python -m facula.warm --out DIR` fills the
cache that is shipped.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import facula as torch

nn, F = torch.nn, torch.nn.functional


def cnn() -> None:
    """The training step of examples/fashion_mnist, at its batch size and the last, smaller one."""
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    images = (
        torch.randint(0, 256, [192, 28, 28], dtype=torch.uint8)
        .float()
        .div_(255)
        .sub_(0.286)
        .div_(0.353)
        .unsqueeze(1)
    )
    data = torch.utils.data.TensorDataset(images, torch.arange(192) % 10)
    for x, y in torch.utils.data.DataLoader(data, batch_size=64, shuffle=True):
        train(model, optimizer, x, y)
    train(model, optimizer, images[:32], torch.arange(32) % 10)
    model.eval()
    with torch.no_grad():
        logits = model(images)
        F.cross_entropy(logits, torch.arange(192) % 10, reduction="sum").item()
        (torch.cat([logits.argmax(1)]) == torch.arange(192) % 10).float().mean().item()


def train(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    for _ in range(2):  # the second finds states and gradients in place
        optimizer.zero_grad()
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        loss.item()
        (logits.detach().argmax(1) == y).sum().item()


def mlp() -> None:
    x, y = torch.randn(64, 784), torch.arange(64) % 10
    for activation in (nn.ReLU(), nn.GELU(), nn.Tanh(), nn.Sigmoid(), nn.SiLU()):
        model = nn.Sequential(nn.Linear(784, 128), activation, nn.Dropout(0.1), nn.Linear(128, 10))
        train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), x, y)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), x, y)
    train(model, torch.optim.Adam(model.parameters()), x, y)
    F.mse_loss(model(x), torch.randn(64, 10)).backward()


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = (
            t.view(n, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(width, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def transformer() -> None:
    embedding, block, head = nn.Embedding(65, 128), Block(128, 4), nn.Linear(128, 65)
    parameters = [p for m in (embedding, block, head) for p in m.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    tokens = torch.randint(0, 65, [8, 129])
    for _ in range(2):
        optimizer.zero_grad()
        logits = head(block(embedding(tokens[:, :-1])))
        F.cross_entropy(logits.reshape(-1, 65), tokens[:, 1:].reshape(-1)).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()


def operators() -> None:
    """Arithmetic, functions and reductions by dtype, and with gradients, for small and large contiguous
    tensors.
    """
    binary: list[Callable] = [
        torch.add,
        torch.sub,
        torch.mul,
        torch.div,
        torch.maximum,
        torch.minimum,
        torch.eq,
        torch.lt,
        torch.gt,
    ]
    unary: list[Callable] = [
        torch.neg,
        torch.abs,
        torch.exp,
        torch.log,
        torch.sqrt,
        torch.rsqrt,
        torch.tanh,
        torch.sigmoid,
        torch.erf,
        torch.relu,
        F.gelu,
        F.silu,
        torch.sin,
        torch.cos,
        torch.square,
        torch.reciprocal,
    ]
    reductions: list[Callable] = [
        torch.sum,
        torch.mean,
        torch.amax,
        torch.amin,
        torch.argmax,
        torch.var,
        torch.all,
        torch.any,
    ]
    for dtype in (torch.float32, torch.float64, torch.int64):
        for shape in ([8, 8], [512, 1024]):
            a, b = (torch.ones(shape, dtype=dtype) for _ in range(2))
            for f in binary:
                f(a, b)
                if f not in (torch.maximum, torch.minimum):
                    f(a, 2)
            a += b
            a *= 2
            for result in (
                a.clone(),
                a[1:3].clone(),
                a.t().contiguous(),
                a > 0,
                torch.where(a > 0, a, b),
                a.cumsum(0),
            ):
                result.fill_(1).zero_()
            for f in [torch.sum, torch.amax, torch.argmax, torch.any] if dtype == torch.int64 else reductions:
                f(a)
                f(a, dim=-1)
                f(a, dim=0)
            for to in (torch.float32, torch.float64, torch.int64, torch.bool):
                a.to(to)
    for shape in ([8, 8], [512, 1024]):
        gradients(unary, torch.ones(shape, requires_grad=True), torch.ones(shape, requires_grad=True))
    torch.sort(torch.randn(8, 8))
    torch.stack([torch.ones(8), torch.ones(8)])


def gradients(unary: list[Callable], a: torch.Tensor, b: torch.Tensor) -> None:
    mixed: list[Callable] = [
        lambda x: x + b,
        lambda x: x * b,
        lambda x: x / b,
        lambda x: x - b,
        lambda x: x * 2,
    ]
    rows: list[Callable] = [lambda x: x.softmax(-1), lambda x: x.log_softmax(-1), lambda x: x.mean(-1)]
    rows += [lambda x: F.layer_norm(x, x.shape[-1:]), lambda x: x @ b.t()]
    for f in unary + mixed + rows:
        f(a).sum().backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder that receives the kernels"
    )
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch._C.record_kernels_to(str(args.out))
    torch.manual_seed(0)
    for program in (cnn, mlp, transformer, operators):
        program()
    torch._C.record_kernels_to("")
    files = [f for f in args.out.rglob("*") if f.is_file()]
    if not files:
        sys.exit(f"no kernel came into {args.out}")
    print(f"{len(files)} kernels, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
