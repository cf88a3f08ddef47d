"""Numbers of NNAPI's operand types, operations and activations: those of ``nnapi/nnapi.h``, which tests
compare."""

from __future__ import annotations

import enum


class Type(enum.IntEnum):
    FLOAT32 = 0
    INT32 = 1
    TENSOR_FLOAT32 = 3
    TENSOR_INT32 = 4
    TENSOR_QUANT8_ASYMM = 5
    BOOL = 6
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11


class Code(enum.IntEnum):
    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEQUANTIZE = 6
    FLOOR = 8
    FULLY_CONNECTED = 9
    LOGISTIC = 14
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    SOFTMAX = 25
    TANH = 28
    DIV = 30
    MEAN = 31
    PAD = 32
    SUB = 36
    TRANSPOSE = 37
    ABS = 38
    EXP = 49
    GROUPED_CONV_2D = 55
    LOG = 60
    LOG_SOFTMAX = 64
    MAXIMUM = 65
    MINIMUM = 66
    NEG = 67
    PRELU = 71
    QUANTIZE = 72
    REDUCE_MAX = 77
    REDUCE_MIN = 78
    REDUCE_SUM = 80
    RSQRT = 83
    SLICE = 86
    SQRT = 88
    TRANSPOSE_CONV_2D = 91
    RESIZE_NEAREST_NEIGHBOR = 94
    ELU = 98
    HARD_SWISH = 99


class Fuse(enum.IntEnum):
    NONE = 0
    RELU = 1
    RELU1 = 2
    RELU6 = 3


IMMEDIATE, BUFFER = 0, 2  # sources of values
CHANNEL_SCALES = 16  # a source of ours: the channel's dimension, and scales of TENSOR_QUANT8_SYMM_PER_CHANNEL
