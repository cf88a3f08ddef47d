from .._absent import naming
from .boxes import batched_nms as batched_nms
from .boxes import box_area as box_area
from .boxes import box_iou as box_iou
from .boxes import nms as nms
from .misc import FrozenBatchNorm2d as FrozenBatchNorm2d

__getattr__ = naming(__name__)
