"""Measures the first call of a traced training step with a new size: libraries' primitives, and
everything else.

    PYTHONPATH=build/python python bench/new_size.py [model ...]

One thread, processor time, medians over sizes. Several programs of one function are called with the same
sizes: the first program's first call also creates oneDNN's primitives, which a thread caches by their
shapes, so that the first calls of the others reuse them. The difference between the fastest of these and
the fastest second call of the size is planning: symbols, schedules, the arena, frames. Other load on the
machine only adds to it. Our own kernels do not depend on sizes.
"""

from __future__ import annotations

import statistics
import sys
import time

OTHERS = 4  # programs whose first call of a size reuses the libraries' primitives


def models():
    import facula.nn.functional as F

    from facula import nn

    class Block(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x):
            q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
            x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
            return x + self.down(F.gelu(self.up(self.n2(x))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.Sequential(*(Block(32) for _ in range(8)))
            self.head = nn.Linear(32, 10)

        def forward(self, x):
            return self.head(self.blocks(x).mean(1))

    def mlp():
        layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)]
        return nn.Sequential(*layers), (64,)

    def cnn():
        def block(i, o, stride):
            return [nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]

        layers = block(3, 16, 1) + block(16, 32, 2) + block(32, 32, 1) + [nn.MaxPool2d(2)] + block(32, 64, 1)
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)), (3, 16, 16)

    return {"mlp": mlp, "transformer": lambda: (Transformer(), (16, 32)), "cnn": cnn}


def step_of(make):
    import facula.nn.functional as F

    import facula

    net, shape = make()
    optimizer = facula.optim.SGD(net.parameters(), lr=1e-2)

    def step(x, y):
        loss = F.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def batch(n):
        return facula.randn(n, *shape), facula.randint(0, 10, (n,))

    return step, batch


def measure(name, make):
    from facula.program import trace

    step, batch = step_of(make)
    programs = [trace(step, *batch(8), dynamic=True) for _ in range(1 + OTHERS)]
    for n in (8, 9, 8):
        for p in programs:
            p(*batch(n))

    def seconds(program, data):
        started = time.process_time()
        program(*data)
        return time.process_time() - started

    first, reused, again = [], [], []
    for n in range(10, 40):
        data = batch(n)
        first.append(seconds(programs[0], data))
        reused.append(min(seconds(p, data) for p in programs[1:]))
        again.append(min(seconds(p, data) for p in programs))

    def ms(seconds):
        return f"{statistics.median(seconds) * 1e3:.2f} ms"

    primitives = [f - k for f, k in zip(first, reused, strict=True)]
    planning = [k - a for k, a in zip(reused, again, strict=True)]
    print(
        f"{name}, {len(programs[0].steps())} steps: first call of a size {ms(first)}, of that primitives "
        f"{ms(primitives)}, planning {ms(planning)}, the call itself {ms(again)}"
    )


def main():
    import facula

    facula.set_num_threads(1)
    all_of_them = models()
    for name in sys.argv[1:] or all_of_them:
        measure(name, all_of_them[name])


if __name__ == "__main__":
    main()
