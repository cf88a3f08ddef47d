"""Launching of programs that survive failures of processes; with one process, only errors are reported."""
