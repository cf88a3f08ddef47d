"""Facts about the machine and this installation for a bug report: ``python -m facula.utils.collect_env``."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from typing import NamedTuple

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main"]

_PACKAGES = ("facula", "numpy", "scipy", "mypy", "torch", "torchvision", "timm", "transformers", "triton")


class SystemEnv(NamedTuple):
    """The facts, under PyTorch's names."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str
    os: str
    gcc_version: str | None
    clang_version: str | None
    cmake_version: str | None
    libc_version: str
    python_version: str
    python_platform: str
    is_cuda_available: str
    pip_version: str
    pip_packages: str
    cpu_info: str


def run(command: list[str]) -> str | None:
    """Returns the first line that a program prints; None if it is not installed."""
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = answer.stdout.splitlines()
    return lines[0] if answer.returncode == 0 and lines else None


def _os() -> str:
    try:
        release = platform.freedesktop_os_release()
        return f"{release.get('PRETTY_NAME', release.get('NAME'))} ({platform.machine()})"
    except OSError:
        return f"{platform.system()} {platform.release()} ({platform.machine()})"


def _packages() -> str:
    lines = []
    for name in _PACKAGES:
        try:
            lines.append(f"[pip3] {name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            pass
    return "\n".join(lines)


def get_env_info() -> SystemEnv:
    """Returns the facts."""
    import facula

    from .. import info

    bits = sys.maxsize.bit_length() + 1
    return SystemEnv(
        torch_version=f"{facula.__version__} (Facula)",
        is_debug_build="False",
        cuda_compiled_version="None",
        os=_os(),
        gcc_version=run(["gcc", "--version"]),
        clang_version=run(["clang", "--version"]),
        cmake_version=run(["cmake", "--version"]),
        libc_version="-".join(platform.libc_ver()),
        python_version=sys.version.replace("\n", " ") + f" ({bits}-bit runtime)",
        python_platform=platform.platform(),
        is_cuda_available="False",
        pip_version="pip3",
        pip_packages=_packages(),
        cpu_info=info.processor(),
    )


def get_pretty_env_info() -> str:
    """Returns the facts as text for a bug report."""
    e = get_env_info()
    lines = [
        f"PyTorch version: {e.torch_version}",
        f"Is debug build: {e.is_debug_build}",
        f"CUDA used to build PyTorch: {e.cuda_compiled_version}",
        "",
        f"OS: {e.os}",
        f"GCC version: {e.gcc_version or 'Could not collect'}",
        f"Clang version: {e.clang_version or 'Could not collect'}",
        f"CMake version: {e.cmake_version or 'Could not collect'}",
        f"Libc version: {e.libc_version}",
        "",
        f"Python version: {e.python_version}",
        f"Python platform: {e.python_platform}",
        f"Is CUDA available: {e.is_cuda_available}",
        "",
        "CPU:",
        e.cpu_info,
        "",
        "Versions of relevant libraries:",
        e.pip_packages,
    ]
    return "\n".join(lines)


def main() -> None:
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
