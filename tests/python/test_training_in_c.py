"""Training steps that are traced in Python and run by a C program: the losses have the bits of Python's."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from facula.program import load, trace

import facula
from facula import nn, optim
from facula.nn import functional as F

ROOT = Path(__file__).parents[2]
LIBRARY = Path(facula.__file__).with_name("libfacula.so")
STEPS, SAMPLES = 200, 8
SEED = facula.Generator().initial_seed()  # of a process that sets none


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(17, 16), nn.Embedding(8, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 17, bias=False)

    def forward(self, ids):
        n = ids.size(1)
        mask = facula.triu(facula.full((n, n), float("-inf")), 1)
        x = self.tokens(ids) + self.places(facula.arange(n))
        return self.head(self.blocks(x, mask=mask)).transpose(1, 2)


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 17))


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(36, 17),
    )  # fmt: skip


class WithTable(nn.Module):
    """A model whose scores a table changes by integers in the input, or by the signs of its first numbers."""

    def __init__(self, model):
        super().__init__()
        self.model, self.table = model, nn.Embedding(17, 17, sparse=True)

    def forward(self, x):
        ids = (x.flatten(1)[:, 0] > 0).long() if x.is_floating_point() else x
        return self.model(x) + self.table(ids).movedim(-1, 1)


MODELS = {
    "mlp": (mlp, lambda r: (r.standard_normal((SAMPLES, 8)), r.integers(0, 17, SAMPLES))),
    "cnn": (cnn, lambda r: (r.standard_normal((SAMPLES, 2, 6, 6)), r.integers(0, 17, SAMPLES))),
    "gpt": (Gpt, lambda r: (r.integers(0, 17, (SAMPLES, 8)), r.integers(0, 17, (SAMPLES, 8)))),
}
OPTIMIZERS = {
    "Adadelta": {},
    "Adafactor": {},
    "Adagrad": {},
    "Adam": {"amsgrad": True},
    "AdamW": {},
    "Adamax": {},
    "ASGD": {},
    "Muon": {},
    "NAdam": {},
    "RAdam": {},
    "RMSprop": {"momentum": 0.5, "centered": True},
    "Rprop": {},
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True},
    "SparseAdam": {"lr": 0.05},
    "LBFGS": {"lr": 0.1, "max_iter": 3, "history_size": 4},
    "LBFGS with a line search": {"max_iter": 3, "history_size": 4, "line_search_fn": "strong_wolfe"},
}


@pytest.fixture(scope="session")
def trainer(tmp_path_factory):
    program = tmp_path_factory.mktemp("train") / "train"
    source, header = ROOT / "examples/server/train.c", ROOT / "src/facula/deploy"
    command = ["cc", "-Wall", "-Wextra", "-Werror", source, f"-I{header}", LIBRARY, "-o", program]
    command += [f"-Wl,-rpath,{LIBRARY.parent}", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    subprocess.run(command, check=True)
    return program


def training(make, optimizer, options):
    facula.manual_seed(0)
    model = make()
    parameters = list(model.parameters())
    if optimizer == "Muon":  # it takes matrices only
        parameters = [p for p in parameters if p.dim() == 2]
    elif optimizer == "SparseAdam":  # and it tables whose gradients are sparse
        model = WithTable(model)
        parameters = [model.table.weight]
    its = getattr(optim, optimizer.partition(" ")[0])(parameters, **options)

    def step(x, y):
        def closure():
            model.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        loss = its.step(closure)
        if optimizer == "SparseAdam":
            model.zero_grad()
        return loss

    return model, step


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_c_program_trains_with_the_bits_of_python(model, optimizer, trainer, tmp_path):
    make, draw = MODELS[model]
    random = np.random.default_rng(1)
    batches = [
        [a.astype("float32") if a.dtype.kind == "f" else a for a in draw(random)] for _ in range(STEPS)
    ]
    tensors = [[facula.from_numpy(a) for a in batch] for batch in batches]
    net, step = training(make, optimizer, OPTIMIZERS[optimizer])
    facula.manual_seed(SEED)
    program = trace(step, *tensors[0])
    program.save(tmp_path / "step.fpt")
    (tmp_path / "batches.bin").write_bytes(b"".join(a.tobytes() for batch in batches for a in batch))
    arguments = [tmp_path / "step.fpt", tmp_path / "batches.bin", str(STEPS), tmp_path / "trained.fpt"]
    facula.manual_seed(SEED)
    expected = [float(program(*batch)) for batch in tensors]
    done = subprocess.run([trainer, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [float(line) for line in done.stdout.split()] == expected
    assert expected[-1] != expected[0] and np.isfinite(expected).all()
    trained = load(tmp_path / "trained.fpt")
    facula.manual_seed(6)
    after = float(program(*tensors[0]))
    facula.manual_seed(6)
    assert float(trained(*tensors[0])) == after
