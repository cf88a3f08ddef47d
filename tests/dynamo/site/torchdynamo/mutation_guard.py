"""Internal names, see _absent.py."""

from ._absent import Absent

GenerationTracker = Absent("GenerationTracker")
