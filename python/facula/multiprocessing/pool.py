"""Pools of processes that tensors go to and come from."""

from multiprocessing.pool import Pool as Pool

__all__ = ["Pool"]
