"""Modules of quantised models, and the operations of models that can be quantised."""

from . import dynamic as dynamic
from . import functional as functional
from .modules import *  # noqa: F403
from .modules import __all__ as __all__


def __getattr__(name: str) -> object:
    if name in ("LSTM", "MultiheadAttention"):  # imported later: their parts are modules of this package
        from .modules import rnn

        return getattr(rnn, name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
