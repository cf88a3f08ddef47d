"""Averages of parameters over ranks."""
