"""Control flow as functions of functions; in eager they behave like Python's statements."""

from .associative_scan import associative_scan as associative_scan
from .cond import cond as cond
from .foreach_map import foreach_map as foreach_map
from .map import map as map
from .scan import scan as scan
from .while_loop import while_loop as while_loop
