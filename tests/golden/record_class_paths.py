"""Records where PyTorch's public classes are defined: the paths by which pickles know them.

    .peer/bin/python tests/golden/record_class_paths.py

Each line of ``class_paths.txt.gz`` behind the first has a public name, the class's module and its
qualified name.
``test_torch_alias.py`` looks at those that Facula has.
"""

import importlib
import inspect
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from support import recording  # noqa: E402

MODULES = """
torch torch.nn torch.nn.parallel torch.nn.parameter torch.nn.utils.rnn torch.optim torch.optim.lr_scheduler
torch.utils.data torch.utils.data.distributed torch.utils.hooks torch.autograd.function torch.distributions
""".split()

lines = [f"# {torch.__version__}\n"]
for module in MODULES:
    for name, value in sorted(vars(importlib.import_module(module)).items()):
        public = inspect.isclass(value) and not name.startswith("_")
        if public and str(value.__module__).startswith("torch"):
            lines.append(f"{module}.{name}\t{value.__module__}\t{value.__qualname__}\n")
recording.write("class_paths.txt", "".join(lines))
