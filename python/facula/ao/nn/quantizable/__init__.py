"""Layers that consist of layers which can be quantised."""

from .modules import LSTM as LSTM
from .modules import LSTMCell as LSTMCell
from .modules import MultiheadAttention as MultiheadAttention
