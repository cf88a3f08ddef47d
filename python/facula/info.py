"""`python -m facula.info`: version, processor, build, libraries, threads, memory, kernel cache, settings."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import facula
from facula import _C


def processor() -> str:
    """Returns the processor's name and its relevant features."""
    name, flags = platform.machine(), set()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
                break
    except OSError:
        pass
    features = [
        "avx2",
        "fma",
        "f16c",
        "avx512f",
        "avx512bw",
        "avx512_bf16",
        "avx512_fp16",
        "amx_tile",
        "amx_bf16",
        "amx_int8",
    ]
    return f"{name}, {os.cpu_count()} logical cores\n{'':15}{' '.join(f for f in features if f in flags)}"


def size_of(folder: Path) -> str:
    files = [f for f in folder.rglob("*") if f.is_file()] if folder.is_dir() else []
    return f"{len(files)} files, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB"


def memory() -> str:
    """Returns the memory of the machine and of this process."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    reserved = _C.memory_stats()["reserved_bytes.all.current"]
    return (
        f"{pages * size / 2**30:.1f} GiB, of which tensors of this process reserve {reserved / 2**20:.1f} MiB"
    )


def libraries() -> str:
    names = [_C._build()["libraries"]]
    for package, shown in (("scipy-openblas32", "OpenBLAS"), ("numpy", "NumPy")):
        try:
            names.append(f"{shown} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            pass
    return ", ".join(names)


def main() -> None:
    package = Path(facula.__file__).parent
    settings = {s["name"]: s for s in _C.settings()}
    rows = [
        ("facula", f"{facula.__version__}, in {package}"),
        ("Python", platform.python_version()),
        ("processor", processor()),
    ]
    features = getattr(_C, "target_features", None)
    if features:
        rows.append(("kernels for", features()))
    rows += [
        ("libraries", libraries()),
        ("build", "{type}, {compiler}".format(**_C._build())),
        ("threads", str(_C.get_num_threads())),
        ("memory", memory()),
        ("operators", str(len(_C.operators()))),
    ]
    folder = _C.cache_folder() if hasattr(_C, "cache_folder") else settings["cache_dir"]["value"]
    rows.append(("kernel cache", f"{folder}: {size_of(Path(folder))}" if folder else "none can be used"))
    shipped = Path(settings["shipped_cache"]["value"] or package / "kernels")
    rows.append(("shipped cache", f"{shipped}: {size_of(shipped)}"))
    for name, value in rows:
        print(f"{name:15}{value}")
    print("\nAreas of FACULA_LOG:")
    for line in _C._log_help().splitlines():
        print(f"  {line}")
    print("\nSettings, read from the environment at the start:")
    width = max(len(s["env"]) for s in settings.values())
    for s in settings.values():
        print(f"  {s['env']:{width}}  {s['doc']}\n  {'':{width}}  now: {s['value']!r}")


if __name__ == "__main__":
    main()
