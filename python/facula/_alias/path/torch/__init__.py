"""The package that ``import torch`` finds behind the alias (see facula/torch.py): it is replaced by
Facula at once.
"""

import sys

try:
    import facula  # noqa: F401
except ModuleNotFoundError:  # the parent process found facula elsewhere; this one inherited only this folder
    sys.path.append(__file__.rsplit("facula", 1)[0])
import facula.torch  # noqa: F401, E402
