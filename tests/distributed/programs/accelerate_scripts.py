"""Runs the scripts of accelerate's distributed tests on the CPU, in two processes, as its tests do."""

import sys

from accelerate import debug_launcher
from accelerate.test_utils import test_ops, test_script, test_sync

if __name__ == "__main__":
    script = {"ops": test_ops, "script": test_script, "sync": test_sync}[sys.argv[1]]
    debug_launcher(script.main, num_processes=2)
    print("passed", sys.argv[1])
