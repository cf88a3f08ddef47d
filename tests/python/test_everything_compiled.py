"""A few test files pass with each test function compiled. Every run draws other files; `make test-compiled`
runs all of them."""

import os
import pathlib
import random
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).parent
# Files all of whose tests pass so, with their seconds on two cores.
SECONDS = {
    "bind_calls": 2,
    "callables": 5,
    "complex_functions": 16,
    "conjugate_views": 3,
    "depthwise": 5,
    "half_computes_in_float32": 4,
    "lazy_modules": 7,
    "masked_tensor": 1,
    "nn": 22,
    "optim_schedules": 20,
    "pool_gradients": 24,
    "products": 16,
    "rounded_once": 17,
}
LIMIT = 40  # seconds of the files that a run draws


def test_some_files_pass_with_each_function_compiled():
    seed = int(os.environ.get("FACULA_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"FACULA_SEED={seed}")
    names = sorted(SECONDS)
    random.Random(seed).shuffle(names)
    drawn, total = [], 0
    for name in names:
        if total + SECONDS[name] <= LIMIT:
            drawn.append(name)
            total += SECONDS[name]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        + ["-p", "support.everything_compiled", *(f"{HERE}/test_{name}.py" for name in drawn)],
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(HERE)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    print(f"{drawn}: {time.monotonic() - begun:.0f} s")
    assert done.returncode == 0, done.stdout[-8000:]
