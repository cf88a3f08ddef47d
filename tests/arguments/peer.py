"""Answers calls with PyTorch, for run.py: reads texts as JSON from standard input, writes answers."""

import argparse
import json
import resource
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
import judge  # noqa: E402
from processes import run  # noqa: E402

PIECE = 250  # calls of one process


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--limit", type=float, default=30)
    a = p.parse_args()
    texts = json.load(sys.stdin)
    pieces = [texts[k : k + PIECE] for k in range(0, len(texts), PIECE)]

    def work(name, done):
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        torch.set_num_threads(1)
        for text in pieces[int(name)][done:]:
            yield judge.answer(torch, text)

    found = dict((int(n), got) for n, got in run(work, [str(k) for k in range(len(pieces))], a.jobs, a.limit))
    json.dump([x for k in range(len(pieces)) for x in found[k]], sys.stdout)


if __name__ == "__main__":
    main()
