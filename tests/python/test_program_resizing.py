"""One program and many sizes: plans that follow from another size's are those made from the start."""

import os
import random
import subprocess
import sys
import textwrap
import threading

import pytest
from facula.program import trace
from test_program import same

import facula
from facula import nn
from facula.nn import functional as F

FUNCTIONS = {
    "elementwise": lambda x: (x.sin() * 2 + x).relu(),
    "rows": lambda x: (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True),
    "columns": lambda x: x.sum(0) * x.amax(0),
    "all": lambda x: x.exp().sum().log(),
    "softmax": lambda x: x.softmax(1) @ x.t(),
    "views": lambda x: x[1:].t().contiguous().flip(0) + x[:-1].t(),
    "view behind a product": lambda x: (x @ x.t())[:, 1].softmax(0),
    "scan": lambda x: x.cumsum(0).amax(1),
    "pick": lambda x: x.index_select(1, x.argmax(1)),
    "scatter": lambda x: facula.zeros_like(x).index_add(0, x.argmax(1) % 2, x),
    "sort": lambda x: x.sort(1)[0].cumsum(1),
    "triangle": lambda x: x.tril().sum(1),
    "pieces": lambda x: facula.cat([x[1:].sum(0, keepdim=True), x[:-1] * 2, x]),
}
# These are traced for more than one row behind the first.
CUT = ("views", "pieces")
# The last is so large that reductions are split, and rows cut in chunks.
SIZES = [(2, 2), (2, 3), (3, 2), (3, 7), (7, 3), (16, 16), (17, 33), (64, 5), (5, 64), (2, 300), (300, 2)]
SIZES.append((3, 70000))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_in_any_order_give_the_bits_of_a_program_that_begins_with_them(name):
    f, draw = FUNCTIONS[name], random.Random(name)
    program = trace(f, facula.randn(4, 6), dynamic=True)
    for sizes in draw.choices(SIZES, k=30):
        if name in CUT and sizes[0] == 2:
            continue
        x = facula.randn(*sizes)
        found = program(x)
        same(found, trace(f, facula.randn(4, 6), dynamic=True)(x))
        same(found, f(x), 1e-5)


def test_operators_meet_all_sizes_in_any_order():
    facula.manual_seed(0)

    def f(x):
        y = F.layer_norm(x, x.shape[-1:]) * x.softmax(-1)
        return y.sum(0), (x - x.sum(-1, keepdim=True)).tanh(), x.t() @ y

    for rows, columns in random.Random(0).sample([(r, c) for r in range(6) for c in range(1, 6)] * 2, 60):
        apart = facula.arange(columns) * 3.0  # a norm divides by how far they are
        x = (facula.randn(rows, columns) + apart).requires_grad_()
        total, centred, product = f(x)
        (total.sum() + centred.sum() + product.sum()).backward()
        twice = x.detach().double().requires_grad_()
        expected = f(twice)
        sum(t.sum() for t in expected).backward()
        for found, e in zip((total, centred, product, x.grad), (*expected, twice.grad)):
            assert found.shape == e.shape
            assert facula.allclose(found.double(), e.detach(), rtol=1e-4, atol=1e-4)


def test_inputs_may_lie_otherwise_between_sizes():
    program = trace(FUNCTIONS["rows"], facula.randn(4, 6), dynamic=True)
    for rows, columns in [(3, 5), (5, 3), (8, 8), (3, 5), (9, 2)]:
        plain = facula.randn(rows, columns)
        turned = facula.randn(columns, rows).t()
        apart = facula.randn(rows, columns * 2)[:, ::2]
        for x in (plain, turned, apart, plain):
            same(program(x), FUNCTIONS["rows"](x), 1e-6)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 8)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 12), nn.Linear(12, 11)

    def forward(self, x):
        x = self.words(x)
        return self.down(F.gelu(self.up(x + (self.norm(x).cumsum(1) * 0.1).tanh())))


def step_of_training():
    facula.manual_seed(3)
    model = Model()
    optimizer = facula.optim.AdamW(model.parameters(), lr=facula.tensor(1e-2))

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def batch(draw, *sizes):
    facula.manual_seed(draw.randrange(1 << 30))
    return facula.randint(0, 11, sizes), facula.randint(0, 11, sizes)


def test_a_step_trains_on_batches_of_changing_sizes():
    draw = random.Random(1)
    ours, step = step_of_training()
    theirs, eager = step_of_training()
    program = trace(step, *batch(draw, 4, 5), dynamic=True)
    for _ in range(40):
        x, y = batch(draw, draw.randint(2, 9), draw.randint(2, 20))
        same(program(x, y).detach(), eager(x, y).detach(), 1e-5)
    for a, b in zip(ours.parameters(), theirs.parameters()):
        same(a.detach(), b.detach(), 1e-4)


def test_threads_run_different_sizes_at_the_same_time():
    def f(x):
        return (x @ x.t()).softmax(1) @ (x - x.mean(0)), x[1:].exp().sum(1)

    program = trace(f, facula.randn(4, 6), dynamic=True)
    inputs = [facula.randn(n, 6 + n % 3) for n in range(3, 23)]
    expected = [trace(f, facula.randn(4, 6), dynamic=True)(x) for x in inputs]
    wrong = []

    def run(seed):
        draw = random.Random(seed)
        for k in draw.choices(range(len(inputs)), k=150):
            found = program(inputs[k])
            if not all(facula.equal(a, b) for a, b in zip(found, expected[k])):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_of_one_size_are_left_alone_by_runs_of_another():
    program = trace(lambda x: (x.sin() + 1, x.t()), facula.randn(4, 6), dynamic=True)
    inputs = [facula.randn(n, 3) for n in (2, 5, 3, 5, 2, 8)]
    results = [program(x) for x in inputs]
    for x, (sine, view) in zip(inputs, results):
        same(sine, x.sin() + 1)
        same(view, x.t())


def test_plans_of_other_sizes_are_the_plans_that_are_made_anew():
    """The library compares them itself where it verifies what it makes."""
    here = os.path.dirname(__file__)
    program = """
        import random
        from test_program_resizing import CUT, FUNCTIONS, SIZES, batch, step_of_training
        import facula
        from facula.program import trace
        for name, f in FUNCTIONS.items():
            program = trace(f, facula.randn(4, 6), dynamic=True)
            for sizes in random.Random(0).sample([s for s in SIZES if s[0] > 2 or name not in CUT], 6):
                program(facula.randn(*sizes))
        draw = random.Random(2)
        program = trace(step_of_training()[1], *batch(draw, 4, 5), dynamic=True)
        for _ in range(8):
            program(*batch(draw, draw.randint(2, 9), draw.randint(2, 20)))
        """
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "FACULA_VERIFY": "1", "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, check=True, timeout=300)
