"""Internal names, see _absent.py."""

from ._absent import Absent

ConstDictVariable = Absent("ConstDictVariable")
