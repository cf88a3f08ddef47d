"""Runs PyTorch's programs unchanged: behind this alias ``import torch`` is Facula, whether PyTorch is
installed or not.

From the command line, where Python's own options say what to run::

    python -m facula.torch script.py ARGS...
    python -m facula.torch -m module ARGS...
    python -m facula.torch -c code ARGS...

In a program or a notebook, before anything imports torch: ``import facula.torch as torch``.

``torch.x`` is the same module object as ``facula.x``. Displayed names begin with torch: reprs, messages,
the modules of classes, and hence the paths in pickles. Child processes inherit the alias through
``PYTHONPATH``.
"""

from __future__ import annotations

import sys

from . import _alias

if __name__ == "__main__":
    _alias.main(sys.argv[1:], __doc__)
else:
    _alias.install()
