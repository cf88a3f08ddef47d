"""Python's multiprocessing. Tensors in shared memory (``Tensor.share_memory_``) are the same in forked
processes.
"""

from multiprocessing import *  # noqa: F403
