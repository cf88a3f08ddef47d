"""Installs the newest wheel of a folder into a new environment and trains with it from another folder, as a
user would.

python tests/wheel.py FOLDER
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

USE = """
import facula as torch
from facula import nn
import facula.nn.functional as F

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
images, labels = torch.randn(12, 1, 8, 8), torch.arange(12) % 3
losses = []
for _ in range(60):
    loss = F.cross_entropy(net(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < 0.1 * losses[0], losses
torch.save(net.state_dict(), "net.pt")
net.load_state_dict(torch.load("net.pt"))
print(f"loss {losses[0]:.3f} to {losses[-1]:.4f}, with facula {torch.__version__} of {torch.__path__[0]}")
"""


def main(folder):
    wheel = max(Path(folder).resolve().glob("facula-*.whl"), key=lambda p: p.stat().st_mtime)
    with tempfile.TemporaryDirectory() as new:
        venv.create(f"{new}/env", with_pip=True)
        python = f"{new}/env/bin/python"
        subprocess.run(
            [python, "-m", "pip", "install", "--disable-pip-version-check", "-q", str(wheel)], check=True
        )
        work = Path(new, "elsewhere")
        work.mkdir()
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FACULA_", "LD_"))}
        plain["FACULA_CACHE_DIR"] = f"{new}/kernels"
        said = subprocess.run(
            [python, "-c", USE], cwd=work, env=plain, check=True, capture_output=True, text=True
        ).stdout
        assert f"{new}/env" in said, said  # the installed package, no other
        code = "import torch; print(torch.ones(2).type(), torch.__version__)"
        alias = subprocess.run(
            [python, "-m", "facula.torch", "-c", code], cwd=work, env=plain, capture_output=True, text=True
        )
        assert alias.stdout.startswith("torch.FloatTensor 2."), alias.stderr
        print(f"{wheel.name} ({wheel.stat().st_size >> 20} MiB): {said.strip()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
