"""Internal names, see _absent.py."""

from ._absent import Absent

same_two_models = Absent("same_two_models")
