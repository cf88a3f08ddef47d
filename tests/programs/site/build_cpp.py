"""Builds the C++ program in the current folder with the library that is imported as torch, and runs it.

    python -m build_cpp [ARGUMENT...]

The libraries of stand_ins/ replace OpenCV and argparse by the few functions that the programs call.
"""

import subprocess
import sys
from pathlib import Path

import torch

STAND_INS = Path(__file__).parent / "stand_ins"


def main():
    configure = [
        "cmake",
        "-S",
        ".",
        "-B",
        "built",
        "-DCMAKE_POLICY_VERSION_MINIMUM=3.5",
        "-DDOWNLOAD_MNIST=OFF",
    ]
    configure += [f"-DCMAKE_PREFIX_PATH={torch.utils.cmake_prefix_path};{STAND_INS}"]
    configure += [
        f"-DCMAKE_CXX_FLAGS=-I{STAND_INS}",
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_CXX_FLAGS_DEBUG=-O0",
    ]
    for command in (configure, ["cmake", "--build", "built"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}\n{done.stderr}\n{' '.join(command)} failed")
    sys.exit(subprocess.run([f"built/{Path.cwd().name}", *sys.argv[1:]]).returncode)


if __name__ == "__main__":
    main()
