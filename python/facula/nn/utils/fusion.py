"""Batch normalisation that is part of the layer before it: names of PyTorch's module for it."""

from . import fuse_conv_bn_eval as fuse_conv_bn_eval
from . import fuse_conv_bn_weights as fuse_conv_bn_weights
from . import fuse_linear_bn_eval as fuse_linear_bn_eval
from . import fuse_linear_bn_weights as fuse_linear_bn_weights
