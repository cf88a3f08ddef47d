"""A device outside of Facula's tree: `import facula; facula.ones(2, device="toy")`, once it is built."""

from pathlib import Path

import facula


def load() -> None:
    """Adds the device under its name, and methods that are named after it."""
    facula.ops.load_library(Path(__file__).parent / "toy.so")
    facula.utils.rename_privateuse1_backend("toy")
    facula.utils.generate_methods_for_privateuse1_backend()
