"""Pools of processes that exchange tensors."""

from multiprocessing.pool import Pool as Pool

__all__ = ["Pool"]
