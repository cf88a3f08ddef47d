"""`python -m facula.info`: version, processor, libraries, threads, kernel cache, settings."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

import facula
from facula import _C


def processor() -> str:
    """The processor's name, and those of its features that matter here."""
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
    known = [
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
    return f"{name}, {os.cpu_count()} logical cores\n{'':15}{' '.join(f for f in known if f in flags)}"


def size_of(folder: Path) -> str:
    files = [f for f in folder.rglob("*") if f.is_file()] if folder.is_dir() else []
    return f"{len(files)} files, {sum(f.stat().st_size for f in files) / 1e6:.1f} MB"


def libraries() -> str:
    names = []
    for package, shown in (
        ("onednn-cpu-gomp", "oneDNN"),
        ("scipy-openblas32", "OpenBLAS"),
        ("numpy", "NumPy"),
    ):
        try:
            names.append(f"{shown} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            pass
    return ", ".join(names) or "unknown"


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
        ("threads", str(_C.get_num_threads())),
        ("operators", str(len(_C.operators()))),
    ]
    folder = _C.cache_folder() if hasattr(_C, "cache_folder") else settings["cache_dir"]["value"]
    rows.append(("kernel cache", f"{folder}: {size_of(Path(folder))}" if folder else "none can be used"))
    shipped = Path(settings["shipped_cache"]["value"] or package / "kernels")
    rows.append(("shipped cache", f"{shipped}: {size_of(shipped)}"))
    for name, value in rows:
        print(f"{name:15}{value}")
    print("\nSettings, read from the environment at the start:")
    width = max(len(s["env"]) for s in settings.values())
    for s in settings.values():
        print(f"  {s['env']:{width}}  {s['doc']}\n  {'':{width}}  now: {s['value']!r}")


if __name__ == "__main__":
    main()
