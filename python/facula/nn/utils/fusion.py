"""PyTorch's module of the functions that fold a batch norm into the layer before it."""

from . import fuse_conv_bn_eval as fuse_conv_bn_eval
from . import fuse_conv_bn_weights as fuse_conv_bn_weights
from . import fuse_linear_bn_eval as fuse_linear_bn_eval
from . import fuse_linear_bn_weights as fuse_linear_bn_weights
