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
    "arguments": 38,
    "autocast": 5,
    "autograd": 4,
    "autograd_graph": 5,
    "bind_autograd": 1,
    "bind_calls": 2,
    "bind_index": 2,
    "bind_module": 1,
    "bind_tensor": 7,
    "call_cache": 15,
    "call_forms": 3,
    "callables": 5,
    "checkpoint_exchange": 21,
    "compile_histories": 4,
    "complex_functions": 16,
    "conjugate_views": 3,
    "data": 17,
    "depthwise": 5,
    "edge_values": 5,
    "export_regions": 2,
    "flop_counter": 1,
    "foreach": 2,
    "forward_ad": 20,
    "fx": 4,
    "fx_passes": 2,
    "gradient_rules": 1,
    "half_computes_in_float32": 4,
    "lazy_modules": 7,
    "library": 2,
    "log": 3,
    "losses": 3,
    "masked_tensor": 1,
    "memory": 18,
    "names": 3,
    "nested": 20,
    "nn": 22,
    "open_trace": 1,
    "optim": 6,
    "optim_schedules": 20,
    "overrides": 33,
    "pool_gradients": 24,
    "products": 16,
    "profiler": 1,
    "program_dynamic": 11,
    "program_functions": 19,
    "program_hooks": 5,
    "program_resizing": 9,
    "program_training": 20,
    "quantization": 17,
    "reduction_edges": 12,
    "refusals": 1,
    "rounded_once": 17,
    "safetensors": 2,
    "semi_structured": 2,
    "sparse": 13,
    "special": 5,
    "special_functions": 10,
    "special_values": 15,
    "storage_files": 2,
    "unique": 12,
    "utility_names": 9,
}
LIMIT = 60  # seconds of the files that a run draws


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
