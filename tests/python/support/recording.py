"""Recorded answers of tests/golden that are compressed: `NAME.gz`, without a date, so that equal answers
make equal files.
"""

import gzip
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden"


def read(name: str) -> str:
    return gzip.decompress((GOLDEN / f"{name}.gz").read_bytes()).decode()


def write(name: str, text: str) -> None:
    (GOLDEN / f"{name}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
