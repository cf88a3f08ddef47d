"""What tools see of the package: mypy --strict over the examples and over a usual program, and no name
left out.
"""

import ast
import os
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


@pytest.mark.parametrize("example", sorted(p.parent.name for p in (ROOT / "examples").glob("*/train.py")))
def test_an_example_passes_mypy_strict(example, tmp_path):
    r = mypy(tmp_path, ROOT / "examples" / example / "train.py")
    assert r.returncode == 0, r.stdout + r.stderr


def test_a_usual_program_passes_mypy_strict_and_runs(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    r = mypy(tmp_path, file)
    assert r.returncode == 0, r.stdout + r.stderr
    subprocess.run(
        [sys.executable, str(file)],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
    )


def test_mistakes_are_found(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "import facula as torch\nx: str = torch.ones(2) + 1\ntorch.ones(2).nothing()\ntorch.nn.Linear('a', "
        "2)\ntorch.nothing\n"
    )
    r = mypy(tmp_path, file)
    assert [line.split(":")[1] for line in r.stdout.splitlines() if ": error:" in line] == [
        "2",
        "3",
        "4",
        "5",
    ], r.stdout


def declared(path, name):
    """The members of a class in a stub, with those of the classes it inherits there."""
    tree = ast.parse(path.read_text())
    c = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    members = {n.name for n in c.body if isinstance(n, ast.FunctionDef)}
    return members | {n.target.id for n in c.body if isinstance(n, ast.AnnAssign)}


def test_every_member_of_tensor_is_in_the_stubs():
    stubs = PACKAGE / "_C"
    known = declared(stubs / "__init__.pyi", "Tensor") | declared(stubs / "methods.pyi", "TensorOperators")
    # In-place forms of operators that users find in nn.functional alone.
    known |= {
        n.name
        for n in ast.parse((stubs / "nn_functional.pyi").read_text()).body
        if isinstance(n, ast.FunctionDef)
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


def test_every_public_name_is_there_for_tools(tmp_path):
    names = sorted(n for n in facula.__all__ if not n.startswith(("fft_", "linalg_", "special_")))
    file = tmp_path / "names.py"
    file.write_text("import facula\n" + "".join(f"facula.{n}\n" for n in names))
    r = mypy(tmp_path, file)
    assert r.returncode == 0, r.stdout + r.stderr
