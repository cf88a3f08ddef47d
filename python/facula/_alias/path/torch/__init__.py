"""What ``import torch`` finds behind the alias (see facula/torch.py): it gives way to Facula at once."""

import sys

try:
    import facula  # noqa: F401
except ModuleNotFoundError:  # the parent process knew where it is; this one was told of this folder only
    sys.path.append(__file__.rsplit("facula", 1)[0])
import facula.torch  # noqa: F401, E402
