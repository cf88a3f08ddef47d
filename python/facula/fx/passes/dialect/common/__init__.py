"""Passes for graphs of every dialect."""
