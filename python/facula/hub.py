"""Models and files that others publish: files by URL, models from a folder with a ``hubconf.py``."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from .serialization import load as _load

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # matches model-5c106cde.pth
_READ = 1 << 17  # bytes at a time
_folder: str | None = None


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """Returns the folder of downloads: the one from ``set_dir``, or ``$TORCH_HOME/hub``."""
    return _folder or os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    global _folder
    _folder = os.path.expanduser(os.fspath(d))


class _Progress:
    """The members of ``tqdm.tqdm`` that downloads use, if that is not installed; it displays nothing."""

    def __init__(self, iterable: Any = None, total: int | None = None, **ignored: Any) -> None:
        self.iterable, self.total, self.n = iterable, total, 0

    def __iter__(self) -> Iterator[Any]:
        for item in self.iterable:
            yield item
            self.update(1)

    def update(self, n: int = 1) -> None:
        self.n += n

    def close(self) -> None:
        pass

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *ignored: Any) -> None:
        self.close()


def __getattr__(name: str) -> Any:
    if name == "tqdm":  # libraries import it from here
        try:
            from tqdm import tqdm
        except ImportError:
            return _Progress
        return tqdm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def download_url_to_file(
    url: str, dst: str | os.PathLike[str], hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Downloads a URL to ``dst``; the file is written under another name and renamed when it is complete.

    Raises RuntimeError if its SHA-256 does not begin with ``hash_prefix``, URLError if the URL cannot be
    reached.
    """
    target = os.path.abspath(os.fspath(dst))
    digest = hashlib.sha256()
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(target), suffix=".part")
    try:
        with (
            os.fdopen(handle, "wb") as file,
            urlopen(Request(url, headers={"User-Agent": "facula.hub"})) as source,
        ):
            size, done = int(source.headers.get("Content-Length") or 0), 0
            while block := source.read(_READ):
                file.write(block)
                digest.update(block)
                done += len(block)
                if progress and sys.stderr.isatty():
                    share = f" of {size >> 20}" if size else ""
                    print(f"\r{os.path.basename(target)}: {done >> 20}{share} MiB", end="", file=sys.stderr)
        if progress and sys.stderr.isatty():
            print(file=sys.stderr)
        if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(
                f'invalid hash value (expected "{hash_prefix}", '
                f'got "{digest.hexdigest()[: len(hash_prefix)]}")'
            )
        os.replace(beside, target)
    finally:
        if os.path.exists(beside):
            os.unlink(beside)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = True,
) -> dict[str, Any]:
    """Loads a checkpoint from a URL, downloaded once to ``model_dir`` (default
    ``get_dir()/checkpoints``).

    With ``check_hash`` its name contains the first digits of its SHA-256: ``model-5c106cde.pth``. Unlike
    PyTorch, and like :func:`facula.load`, it executes no code of the file unless ``weights_only=False``.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        print(f'Downloading: "{url}" to {path}', file=sys.stderr)
        match = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, match[1] if match else None, progress)
    return _load(path, map_location=map_location, weights_only=weights_only)


@contextmanager
def _hubconf(repo_or_dir: str, source: str, name: str) -> Iterator[ModuleType]:
    if source != "local":
        raise NotImplementedError(
            f"hub.{name}: source={source!r}; repositories are not downloaded, "
            "clone it and give its folder with source='local'"
        )
    folder = Path(repo_or_dir).expanduser()
    file = folder / "hubconf.py"
    if not file.is_file():
        raise FileNotFoundError(f"hub.{name}: {folder} has no hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder))
    try:
        spec.loader.exec_module(module)
        missing = [
            m for m in getattr(module, "dependencies", []) if m != "torch" and not importlib.util.find_spec(m)
        ]
        if missing:
            raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
        yield module
    finally:
        sys.path.remove(str(folder))


def _entry(module: ModuleType, model: str, name: str) -> Any:
    f = getattr(module, model, None) if isinstance(model, str) else None
    if not callable(f):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return f


def list(github: str, force_reload: bool = False, *, source: str = "local", **ignored: Any) -> list[str]:  # type: ignore[valid-type]
    """Returns the names of the models in a folder's ``hubconf.py``."""
    with _hubconf(github, source, "list") as module:
        return [k for k, v in vars(module).items() if callable(v) and not k.startswith("_")]


def help(
    github: str, model: str, force_reload: bool = False, *, source: str = "local", **ignored: Any
) -> str | None:
    """Returns a model's documentation."""
    with _hubconf(github, source, "help") as module:
        return _entry(module, model, "help").__doc__


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Returns ``model(*args, **kwargs)`` from a folder's ``hubconf.py``; only the source "local" is
    supported.
    """
    with _hubconf(repo_or_dir, source, "load") as module:
        return _entry(module, model, "load")(*args, **kwargs)
