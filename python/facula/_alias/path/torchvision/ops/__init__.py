from .misc import FrozenBatchNorm2d as FrozenBatchNorm2d
