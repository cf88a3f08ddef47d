"""Neural networks: modules, parameters, functions, initial values."""

from . import functional, init, utils
from .modules.activation import (
    ELU,
    GELU,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    L1Loss,
    LeakyReLU,
    LogSoftmax,
    MSELoss,
    NLLLoss,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from .modules.container import ModuleDict, ModuleList, ParameterList, Sequential
from .modules.layers import (
    AvgPool2d,
    BatchNorm1d,
    BatchNorm2d,
    Conv1d,
    Conv2d,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    LayerNorm,
    Linear,
    MaxPool2d,
    Unflatten,
)
from .modules.module import Module
from .parameter import Buffer, Parameter
