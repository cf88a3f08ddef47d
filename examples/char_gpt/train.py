"""Trains a small transformer, letter by letter, on Debian's word list (wamerican), and invents words with
it.

    python examples/char_gpt/train.py                 # 4 layers of width 128, 128 letters at a time
    python examples/char_gpt/train.py --bfloat16      # the same with products in bfloat16

No line is special to facula: the same program runs with `import torch`.
"""

import argparse
import contextlib
import math
import random
import sys
import time
from pathlib import Path

import facula as torch

nn, F = torch.nn, torch.nn.functional

WORDS = "/usr/share/dict/words"  # installed by Debian's package wamerican
ALPHABET = "\nabcdefghijklmnopqrstuvwxyz"  # a word ends with the line


class Block(nn.Module):
    """Attention to the preceding letters, then a network for each letter; both have residual connections."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(width, dim=-1)
        )
        y = F.scaled_dot_product_attention(
            q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.norm2(x))


class CharGPT(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, context: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.context = context
        self.letters, self.places = nn.Embedding(len(ALPHABET), width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(ALPHABET))
        for embedding in (self.letters, self.places):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.letters(x) + self.places(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(h)))

    @torch.no_grad()
    def write(self, lines: int, temperature: float) -> list[list[int]]:
        """Returns `lines` texts of `context` letters, each beginning with an end of line."""
        text = torch.zeros([lines, 1], dtype=torch.int64)
        while text.shape[1] < self.context:
            p = F.softmax(self(text)[:, -1].float() / temperature, -1)
            pick = (p.cumsum(-1) < torch.rand([lines, 1])).sum(-1, keepdim=True)
            text = torch.cat([text, pick.clamp(max=len(ALPHABET) - 1)], 1)
        letters: list[list[int]] = text.tolist()
        return letters


def read_words(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(
            f"error: {path} cannot be read: {error}\n  hint: install Debian's package wamerican, or give a "
            "list of words with --words FILE"
        )
    words = sorted({w for w in lines if w.isascii() and w.isalpha() and w.islower()})
    if len(words) < 100:
        sys.exit(
            f"error: {path} has only {len(words)} words of the letters a to z\n  hint: install Debian's "
            "package wamerican, or give a longer list with --words FILE"
        )
    return words


class Text:
    """Words in random order, one a line, and pieces of them."""

    def __init__(self, words: list[str], order: random.Random) -> None:
        order.shuffle(words)
        number = {letter: k for k, letter in enumerate(ALPHABET)}
        self.letters = torch.tensor([number[c] for w in words for c in w + "\n"])

    def batch(self, count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = torch.randint(0, len(self.letters) - length, [count, 1])
        at = start + torch.arange(length)
        return self.letters[at], self.letters[at + 1]


def show(step: int, steps: int, loss: float, tested: float | None, letters: float, left: float) -> None:
    filled = 24 * step // steps
    test = "" if tested is None else f"  test {tested:.3f}"
    line = (
        f"step {step}/{steps} [{'#' * filled}{'.' * (24 - filled)}] loss {loss:.3f}{test}  "
        f"{letters:6,.0f} letters/s  {left:3.0f} s left"
    )
    if sys.stdout.isatty():
        print("\r" + line, end="\n" if step == steps else "", flush=True)
    elif step * 10 // steps > (step - 1) * 10 // steps:  # a line at every tenth
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--words", type=Path, default=Path(WORDS), metavar="FILE", help="a word a line (default: %(default)s)"
    )
    add("--out", type=Path, default=Path("runs/char_gpt"), metavar="DIR", help="folder of the result")
    add("--steps", type=int, default=1500)
    add("--batch", type=int, default=8, help="texts in a step")
    add("--context", type=int, default=128, help="letters in a text")
    add("--width", type=int, default=128)
    add("--layers", type=int, default=4)
    add("--heads", type=int, default=4)
    add("--rate", type=float, default=4e-3, help="the largest learning rate")
    add("--seed", type=int, default=0)
    add("--count", type=int, default=20, help="words to invent")
    add("--bfloat16", action="store_true", help="compute products in bfloat16")
    args = parser.parse_args()
    if min(args.steps, args.batch, args.context, args.layers) < 1 or args.width % args.heads:
        parser.error(
            "--steps, --batch, --context and --layers must be positive, --width a multiple of --heads"
        )

    torch.manual_seed(args.seed)
    words = read_words(args.words)
    order = random.Random(args.seed)
    order.shuffle(words)
    held_out = max(1, min(2000, len(words) // 10))
    train, test = Text(words[held_out:], order), Text(words[:held_out], order)
    args.context = min(args.context, len(test.letters) - 1)
    model = CharGPT(args.width, args.layers, args.heads, args.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, args.rate, total_steps=args.steps, pct_start=0.1
    )
    count = sum(p.numel() for p in model.parameters())
    print(f"{len(words):,} words, {len(train.letters):,} letters to learn from; {count:,} parameters")

    def loss_of(text: Text, batch: int) -> torch.Tensor:
        x, y = text.batch(batch, args.context)
        lower = torch.autocast("cpu", dtype=torch.bfloat16) if args.bfloat16 else contextlib.nullcontext()
        with lower:
            return F.cross_entropy(model(x).flatten(0, 1), y.flatten())

    start, average, tested = time.perf_counter(), math.log(len(ALPHABET)), None
    for step in range(1, args.steps + 1):
        optimizer.zero_grad()
        loss = loss_of(train, args.batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        value = loss.item()
        if not math.isfinite(value):
            sys.exit(f"error: the loss became {value}; try a smaller --rate or another --seed")
        average += (value - average) * max(0.02, 1 / step)
        if step == args.steps or step % max(1, args.steps // 10) == 0:
            model.eval()
            with torch.no_grad():
                tested = loss_of(test, 16).item()
            model.train()
        spent = time.perf_counter() - start
        show(
            step,
            args.steps,
            average,
            tested,
            step * args.batch * args.context / spent,
            spent / step * (args.steps - step),
        )

    args.out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), args.out / "model.pt")
    model.eval()
    vocabulary = set(words)
    invented: dict[str, None] = {}
    for _ in range(10):
        for text in model.write(8, temperature=0.8):
            for word in "".join(ALPHABET[k] for k in text).split("\n")[1:-1]:
                if len(word) > 2 and word not in vocabulary:
                    invented[word] = None
        if len(invented) >= args.count:
            break
    print(f"new words: {', '.join(list(invented)[: args.count])}")


if __name__ == "__main__":
    main()
