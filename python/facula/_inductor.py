"""Settings of PyTorch's compiler of graphs: they are kept and change nothing."""

from types import SimpleNamespace

config = SimpleNamespace(
    cpp=SimpleNamespace(threads=-1),
    triton=SimpleNamespace(cudagraphs=False, unique_kernel_names=True),
    coordinate_descent_tuning=False,
    epilogue_fusion=True,
    fx_graph_cache=True,
    max_autotune=False,
)
