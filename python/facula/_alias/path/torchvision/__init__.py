"""What model libraries take from torchvision: transforms of PIL images and tensors, data sets of local files,
frozen batch norm. The real library needs PyTorch's own binaries. Names that are not here are absent.
"""

from . import datasets as datasets
from . import ops as ops
from . import transforms as transforms

__version__ = "0.28.0+facula"
