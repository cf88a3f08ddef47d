"""Installs a folder's newest wheel for this Python into a new environment, trains with it from another
folder, as a user would, and builds a C++ program against it where there is CMake. The wheel brings all
that it needs but NumPy and what manylinux counts on.

python tests/wheel.py FOLDER
"""

import os
import re
import shutil
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

@torch.compile(fullgraph=True)  # the bytecode of this version of Python
def compiled_step(images, labels, weights, **options):
    optimizer.zero_grad()
    picked = [w * images for w in weights if w > 0]
    with torch.autocast("cpu", enabled=False):
        loss = F.cross_entropy(net(sum(picked, start=torch.zeros_like(images))), labels, **options)
    loss.backward()
    optimizer.step()
    return {"loss": loss.detach(), "text": f"{len(picked)} of {len(weights)!r:>3}"}


for _ in range(3):
    report = compiled_step(images, labels, (0.5, -1, 0.5), label_smoothing=0.0)
assert report["loss"] < 0.1 * losses[0] and report["text"] == "2 of   3", report

x = torch.randn(40, 40)  # libraries that are loaded for their first call
assert F.mse_loss(torch.linalg.solve(x, x), torch.eye(40)) < 1e-6
assert torch.randn(1 << 20).sort().values.diff().min() >= 0

import importlib.metadata, os, re, sys
assert {d.name for d in importlib.metadata.distributions()} <= {"facula", "numpy", "pip", "setuptools"}
files = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
known = re.compile("lib(facula_llvm|facula_sort|dnnl|gomp|hwy|scipy_openblas|zstd)")
brought = [(known.match(os.path.basename(f)), f) for f in files]
brought = [(name[1], f) for name, f in brought if name]
assert all(f.startswith(os.path.realpath(sys.prefix)) for _, f in brought), brought
names = [name for name, _ in brought]
assert {"facula_llvm", "facula_sort", "dnnl", "scipy_openblas"} <= {*names}, brought
assert names.count("gomp") == 1, brought
print(f"loss {losses[0]:.3f} to {losses[-1]:.4f}, with facula {torch.__version__} of {torch.__path__[0]}")
"""


PACKAGE = """
import facula
program = facula.export.export(facula.nn.Linear(3, 2, bias=False), (facula.ones(4, 3),))
facula.package(program, "model.fpk")
program.module()(facula.ones(4, 3)).detach().numpy().tofile("expected")
"""
# The file of packages and NumPy, which load libfacula_runtime.so alone.
PACKAGED = """
import sys, importlib.util, numpy
spec = importlib.util.spec_from_file_location("packaged", sys.argv[1])
packaged = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packaged)
result = packaged.load_package("model.fpk")(numpy.ones((4, 3), "float32"))
assert (result == numpy.fromfile("expected", "float32").reshape(4, 2)).all(), result
maps = open("/proc/self/maps").read()
assert "facula_runtime" in maps and "facula_llvm" not in maps and "libfacula.so" not in maps
"""


# Of the libraries inside, those that are linked in too (cmake/notices.cmake).
NOTICES = {*"onednn openblas ducc0 llvm gcc-runtime highway fmt minizip zlib openssl zstd ncurses".split()}
SOON_ASLEEP = r"GOMP_SPINCOUNT = '\d{4}'"  # threads that wait, by cmake/omp_wait.cpp
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(mine LANGUAGES CXX)
find_package(facula REQUIRED)
add_executable(mine mine.cpp)
target_link_libraries(mine PRIVATE facula::facula)
"""
PROGRAM = """
#include <facula/facula.h>
int main() { return facula::sum(facula::ones({3, 4})).item().to_double() == 12 ? 0 : 1; }
"""


def use_from_cpp(package, folder, env):
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(PROJECT)
    (folder / "mine.cpp").write_text(PROGRAM)
    configure = ["cmake", "-S", folder, "-B", folder / "build", f"-DCMAKE_PREFIX_PATH={package}"]
    for command in (configure, ["cmake", "--build", folder / "build"]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    told = subprocess.run([folder / "build/mine"], env=env, check=True, capture_output=True, text=True).stderr
    assert re.search(SOON_ASLEEP, told), told


def main(folder):
    tag = "cp{}{}".format(*sys.version_info)
    wheels = Path(folder).resolve().glob(f"facula-*-{tag}-{tag}-*.whl")
    wheel = max(wheels, key=lambda p: p.stat().st_mtime)
    assert wheel.stat().st_size <= 60e6 and "manylinux" in wheel.name, wheel
    with tempfile.TemporaryDirectory() as new:
        venv.create(f"{new}/env", with_pip=True)
        python = f"{new}/env/bin/python"
        subprocess.run(
            [python, "-m", "pip", "install", "--disable-pip-version-check", "-q", str(wheel)], check=True
        )
        notices = {p.stem for p in Path(new).glob("env/lib/python*/site-packages/facula-*/licenses/*.txt")}
        assert notices >= NOTICES, NOTICES - notices
        work = Path(new, "elsewhere")
        work.mkdir()
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FACULA_", "LD_"))}
        plain |= {"FACULA_CACHE_DIR": f"{new}/kernels", "OMP_DISPLAY_ENV": "verbose"}
        used = subprocess.run([python, "-c", USE], cwd=work, env=plain, capture_output=True, text=True)
        assert used.returncode == 0 and f"{new}/env" in used.stdout, used  # the installed package, no other
        assert re.search(SOON_ASLEEP, used.stderr), used.stderr
        module = next(Path(new).glob("env/lib/python*/site-packages/facula/packaged.py"))
        subprocess.run([python, "-c", PACKAGE], cwd=work, env=plain, check=True)
        subprocess.run([python, "-c", PACKAGED, module], cwd=work, env=plain, check=True)
        code = "import torch; print(torch.ones(2).type(), torch.__version__)"
        alias = subprocess.run(
            [python, "-m", "facula.torch", "-c", code], cwd=work, env=plain, capture_output=True, text=True
        )
        assert alias.stdout.startswith("torch.FloatTensor 2."), alias.stderr
        if shutil.which("cmake"):
            package = next(Path(new).glob("env/lib/python*/site-packages/facula"))
            use_from_cpp(package, Path(new, "cpp"), plain)
        else:
            print("without CMake: no C++ program is tried")
        print(f"{wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB): {used.stdout.strip()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
