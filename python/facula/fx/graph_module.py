from .graph import GraphModule as GraphModule
