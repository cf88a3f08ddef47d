"""Prints the memory of PyTorch's process for one training step of MCUNet, in bytes: the largest resident set.

.peer/bin/python tests/boards/peer_memory.py
"""

from __future__ import annotations

import resource
import sys
import types
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.modules["facula"] = torch  # networks.py needs names that both have
sys.modules["facula.tiny"] = types.SimpleNamespace(Update=None)  # type: ignore[assignment]
from boards.networks import mcunet  # noqa: E402

model = mcunet().eval()  # batch norms of one image
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loss = torch.nn.functional.cross_entropy(model(torch.randn(1, 3, 128, 128)), torch.tensor([1]))
loss.backward()
optimizer.step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
