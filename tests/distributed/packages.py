"""Packages that train in several processes, unmodified: accelerate, the Trainer of transformers, Lightning.

    PYTHONPATH=build/python .venv/bin/python tests/distributed/packages.py [--only REGEX]

Each program runs with two processes on the CPU, behind the alias and with the peer. The line that it
prints about its result has to agree within 1e-3. The packages are those of setup/ecosystem.lock, in
.ecosystem.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import facula

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ROOT / ".ecosystem" / "site-packages"
LAUNCH = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
SCRIPTS = PACKAGES / "accelerate" / "test_utils" / "scripts"
LIMIT = 300  # seconds for a program; the machine may be busy
RESULT = re.compile(r"processes \d.*|passed \w+")

# The arguments of Python. A program without a line about its result passes if it ends without an error. Of
# accelerate's test_multidevice this is the one that the CPU can run: the others pass device_ids, join uneven
# inputs or start a notebook's processes, which accelerate does with GPUs only.
PROGRAMS = {
    "accelerate, test_cpu: script": [HERE / "programs/accelerate_scripts.py", "script"],
    "accelerate, test_cpu: ops": [HERE / "programs/accelerate_scripts.py", "ops"],
    "accelerate, test_grad_sync": [HERE / "programs/accelerate_scripts.py", "sync"],
    "accelerate, test_multidevice: ops": [*LAUNCH, SCRIPTS / "test_ops.py"],
    "accelerate, launch": [
        "-m",
        "accelerate.commands.launch",
        "--cpu",
        "--num_processes=1",
        SCRIPTS / "test_ops.py",
    ],
    "transformers, Trainer": [*LAUNCH, HERE / "programs/trainer.py"],
    "lightning, ddp": [HERE / "programs/lightning_ddp.py"],
}


def run(interpreter: list[str], paths: list[Path], arguments: list[object]) -> tuple[int, str, str]:
    """Returns the status, the lines about results, and the end of the errors."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [*paths, PACKAGES])),
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*interpreter, *map(str, arguments)],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return 1, "", f"it takes longer than {LIMIT} s"
    lines = RESULT.findall(done.stdout)
    return done.returncode, "; ".join(sorted(set(lines))), "\n".join(done.stderr.splitlines()[-15:])


def agree(ours: str, theirs: str) -> bool:
    number = r"\d+\.\d+"
    a, b = (list(map(float, re.findall(number, text))) for text in (ours, theirs))
    same_text = re.sub(number, "#", ours) == re.sub(number, "#", theirs)
    return same_text and all(abs(x - y) <= 1e-3 * max(abs(x), abs(y)) for x, y in zip(a, b))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="a regular expression that titles are searched for")
    chosen = parser.parse_args().only
    peer = os.environ.get("FACULA_PEER", str(ROOT / ".peer" / "bin" / "python"))
    failed = 0
    for title, arguments in PROGRAMS.items():
        if not re.search(chosen, title):
            continue
        peer_status, theirs, errors = run([peer], [ROOT / "tests/ecosystem/peer"], arguments)
        if peer_status:
            print(f"{title}: not counted, since it fails with the peer:\n{errors}", flush=True)
            continue
        began = time.monotonic()
        package = Path(facula.__file__).parents[1]
        status, ours, errors = run([sys.executable, "-m", "facula.torch"], [package], arguments)
        seconds = time.monotonic() - began
        if status or not agree(ours, theirs):
            failed += 1
            print(f"{title}: FAILED: {ours!r}, peer {theirs!r}\n{errors}", flush=True)
        else:
            print(f"{title}: passed in {seconds:.0f} s: {ours or 'no error'}; peer: {theirs}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
