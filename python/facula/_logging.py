"""The library's log on standard error: ``FACULA_LOG`` at run time."""

from __future__ import annotations

import warnings
from typing import Any

from . import _C

# The log areas of PyTorch's compiler. They are accepted, because programs that run without the compiler set
# them.
_COMPILERS = frozenset(
    """aot aot_graphs aot_joint_graph autograd_cache bytecode caching compiled_autograd
    compiled_autograd_verbose cudagraph_static_inputs cudagraphs ddp_graphs distributed dtensor
    dynamic dynamo export fsdp fusion graph graph_breaks graph_code graph_sizes guards
    hierarchical_compile inductor inductor_metrics kernel_code loop_ordering modules onnx
    onnx_diagnostics output_code overlap perf_hints post_grad_graphs pre_grad_graphs recompiles
    recompiles_verbose schedule side_effects sym_node torch trace_bytecode trace_call trace_source
    verbose_guards""".split()
)


def areas() -> dict[str, str]:
    """Returns every area of the log with the description of its lines."""
    return {name: doc for name, doc in (line.split(None, 1) for line in _C._log_help().splitlines())}


def set_logs(**on: Any) -> None:
    """Enables the areas that are passed as true, and disables the others; ``all=True`` means every area.

    >>> facula.set_logs(ops=True)
    >>> facula.set_logs()  # nothing any more
    """
    asked = [name for name in on if name in _COMPILERS]
    if asked:
        warnings.warn(f"set_logs: nothing is logged of PyTorch's compiler: {', '.join(asked)}", stacklevel=2)
        on = {name: value for name, value in on.items() if name not in _COMPILERS}
    valid = [*areas(), "all"]
    if unknown := [name for name in on if name not in valid]:
        raise ValueError(
            f"set_logs: there is no area '{unknown[0]}' to log\n  hint: areas are {', '.join(valid)}"
        )
    chosen = sorted(on, key=lambda name: name != "all")  # all=True, ops=False: all but one
    _C._set_logs(",".join(["-all", *(("+" if on[name] else "-") + name for name in chosen)]))
