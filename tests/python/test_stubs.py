"""What tools see of the package: mypy --strict and pyright over the examples and over a usual program, and no
name left out.
"""

import ast
import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import facula

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(facula.__file__).parent

PROGRAM = """
import facula as torch
import facula.nn as nn
import facula.nn.functional as F
from facula import Tensor, optim, safetensors
from facula.optim.lr_scheduler import CosineAnnealingLR
from facula.utils.data import DataLoader, Dataset, random_split


class Squares(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(3)
        return x, x.square().sum()


class Net(nn.Module):
    scale: Tensor

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, width), nn.Linear(width, width)])
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.head = nn.Sequential(nn.GELU(), nn.Linear(width, 1, dtype=torch.float32))
        self.register_buffer("scale", torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        if mask is not None:
            x = x.masked_fill(~mask, float("-inf"))
        x = self.drop(self.norm(x))
        y = torch.cat([x, x.flip(0)], dim=-1)[..., : x.size(-1)] * 2 + 1.0 - x.mean(dim=-1, keepdim=True)
        return self.head(y).squeeze(-1) * self.scale + self.bias


def train(model: nn.Module, loader: DataLoader, device: torch.device) -> float:
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    scheduler = CosineAnnealingLR(optimizer, T_max=10)
    loss = torch.tensor(0.0)
    for x, y in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x.to(device)), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    return loss.item() if torch.isfinite(loss) else scheduler.get_last_lr()[0]


torch.manual_seed(0)
torch.set_default_dtype(torch.float32)
parts = random_split(Squares(), [80, 20], generator=torch.Generator().manual_seed(1))
net = Net().to("cpu")
train(net, DataLoader(parts[0], batch_size=16, shuffle=True, num_workers=0), torch.device("cpu"))
with torch.no_grad():
    top = net(torch.zeros(2, 3)).topk(1)[0]
size: int = net.bias.numel() + sum(p.numel() for p in net.parameters()) + top.shape[0]
w: Tensor = torch.einsum("ij,jk->ik", torch.eye(3), torch.rand(3, 3, dtype=torch.float32, requires_grad=True))
torch.save(net.state_dict(), "x.pt")
net.load_state_dict(torch.load("x.pt"))
safetensors.save_file(dict(net.named_buffers()), "x.safetensors")
probabilities = torch.softmax(w, dim=-1).amax(-1) > 0.5
ok: bool = bool((probabilities & ~probabilities).any()) or torch.allclose(w, w)
"""


def mypy(tmp_path, *files):
    config = tmp_path / "mypy.ini"
    config.write_text(
        f"[mypy]\nstrict = True\nmypy_path = {PACKAGE.parent}\n[mypy-facula.*]\nfollow_imports = silent\n"
    )
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(config),
        "--cache-dir",
        str(PACKAGE.parent / ".mypy_cache"),
    ]
    return subprocess.run([*command, *map(str, files)], capture_output=True, text=True, cwd=tmp_path)


def pyright(tmp_path, *files):
    if not (ROOT / ".types").exists():
        pytest.skip("pyright is not installed: `make types` installs it")
    config = tmp_path / "pyrightconfig.json"
    paths = [str(PACKAGE.parent), *(str(file.parent) for file in files)]
    environment = {"venvPath": str(Path(sys.prefix).parent), "venv": Path(sys.prefix).name}
    settings = {"include": [str(file) for file in files], "extraPaths": paths, "typeCheckingMode": "standard"}
    config.write_text(json.dumps(settings | environment))
    return subprocess.run(
        [sys.executable, "-m", "basedpyright", "--project", str(config)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".types")},
    )


CHECKERS = [mypy, pyright]


@pytest.mark.parametrize("check", CHECKERS)
@pytest.mark.parametrize("example", sorted(p.parent.name for p in (ROOT / "examples").glob("*/train.py")))
def test_an_example_passes(check, example, tmp_path):
    r = check(tmp_path, ROOT / "examples" / example / "train.py")
    assert r.returncode == 0, r.stdout + r.stderr


@pytest.mark.parametrize("check", CHECKERS)
def test_a_usual_program_passes_and_runs(check, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    r = check(tmp_path, file)
    assert r.returncode == 0, r.stdout + r.stderr
    subprocess.run(
        [sys.executable, str(file)],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )


@pytest.mark.parametrize("check", CHECKERS)
def test_mistakes_are_found(check, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "import facula as torch\nx: str = torch.ones(2) + 1\ntorch.ones(2).nothing()\ntorch.nn.Linear('a', "
        "2)\ntorch.nothing\ntorch.optim.nothing\n"
    )
    r = check(tmp_path, file)
    found = {int(line) for line in re.findall(r"program\.py:(\d+)(?::\d+ -|:) error", r.stdout)}
    assert found == {2, 3, 4, 5, 6}, r.stdout


def declared(path, name):
    """The members of a class in a stub, with those of the classes it inherits there."""
    tree = ast.parse(path.read_text())
    c = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    members = {n.name for n in c.body if isinstance(n, ast.FunctionDef)}
    return members | {n.target.id for n in c.body if isinstance(n, ast.AnnAssign)}


def test_every_member_of_tensor_is_in_the_stubs():
    stubs = PACKAGE / "_C"
    known = declared(stubs / "__init__.pyi", "Tensor") | declared(stubs / "methods.pyi", "TensorOperators")
    # In-place forms of operators that users find as functions alone.
    known |= {
        n.name
        for where in ("nn_functional", "ops")
        for n in ast.parse((stubs / f"{where}.pyi").read_text()).body
        if isinstance(n, ast.FunctionDef) and (where == "nn_functional" or n.name.endswith("_"))
    }
    listing = "import facula; print(*dir(facula.Tensor))"  # here, other tests may have defined operators
    members = {
        n
        for n in subprocess.check_output([sys.executable, "-c", listing], text=True).split()
        if not n.startswith("_")
    }
    missing = {n for n in members - known if not n.endswith("_like_")}
    assert not missing
    own = declared(stubs / "__init__.pyi", "Tensor")
    assert not {n for n in own if not hasattr(facula.Tensor, n)}


PACKAGES = ["", "autograd", "nn", "nn.functional", "nn.utils", "optim", "utils", "utils.data"]
LISTING = """
import importlib, types
def is_its_own(module, name):
    value = getattr(module, name)
    home = getattr(value, "__name__" if isinstance(value, types.ModuleType) else "__module__", "")
    return not name.startswith("_") and (home or "").startswith(module.__name__)
for package in {packages}:
    module = importlib.import_module(f"facula.{{package}}".rstrip("."))
    found = getattr(module, "__all__", None)
    all_names = {{*dir(module), *getattr(module, "_SUBMODULES", ())}}
    for n in found or [n for n in all_names if is_its_own(module, n)]:
        print(f"{{module.__name__}}.{{n}}")
"""


@pytest.mark.parametrize("check", CHECKERS)
def test_every_public_name_is_there(check, tmp_path):
    # In a process that has imported nothing else, which would become an attribute of its package.
    listing = LISTING.format(packages=PACKAGES)
    names = sorted(subprocess.check_output([sys.executable, "-c", listing], text=True).split())
    names = [n for n in names if not n.startswith(("facula.fft_", "facula.linalg_", "facula.special_"))]
    lines = ["import facula", "import facula.utils.data", *names]
    file = tmp_path / "names.py"
    file.write_text("\n".join(lines))
    r = check(tmp_path, file)
    assert r.returncode == 0, r.stdout + r.stderr


STUBS = sorted(PACKAGE.rglob("_lazy.pyi"))


@pytest.mark.parametrize("stub", STUBS, ids=lambda p: p.parent.name)
def test_names_that_follow_at_their_first_use_are_those_that_tools_read(stub):
    package = importlib.import_module(".".join(["facula", *stub.parent.relative_to(PACKAGE).parts]))
    (names,) = (
        ast.literal_eval(n.value)
        for n in ast.parse(stub.read_text()).body
        if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"
    )
    assert names and all(hasattr(package, name) for name in names)
    assert set(names) <= set(dir(package))
    with pytest.raises(AttributeError, match="has no attribute 'made_up'"):
        package.made_up


def test_packages_with_names_that_follow_have_stubs():
    assert {p.parent.name for p in STUBS} >= {"facula", "fx", "optim", "utils", "nn", "autograd"}
