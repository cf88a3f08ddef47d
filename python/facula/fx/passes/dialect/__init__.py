"""Passes for graphs of a dialect."""
