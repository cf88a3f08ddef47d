"""Algorithms for several processes; there is only one here."""
