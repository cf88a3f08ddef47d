from .proxy import Tracer as Tracer
from .proxy import is_fx_tracing as is_fx_tracing
from .proxy import symbolic_trace as symbolic_trace
from .proxy import wrap as wrap
