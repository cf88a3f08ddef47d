"""Algorithms over several processes, of which there is one."""
