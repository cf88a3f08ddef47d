"""Queues for tensors."""

from multiprocessing.queues import Queue as Queue
from multiprocessing.queues import SimpleQueue as SimpleQueue

__all__ = ["Queue", "SimpleQueue"]
