"""PyTorch's inner home of function transforms; theirs are in ``facula.func``."""

from . import vmap as vmap
