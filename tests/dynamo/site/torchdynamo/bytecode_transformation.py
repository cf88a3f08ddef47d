"""Internal names, see _absent.py."""

from ._absent import Absent

assemble = Absent("bytecode_transformation.assemble")
create_instruction = Absent("create_instruction")
