"""Draws graphs in the language of Graphviz."""

from __future__ import annotations

import shutil
import subprocess

from ..graph_module import GraphModule
from ..node import Node, _get_qualified_name

__all__ = ["FxGraphDrawer"]

_COLORS = {
    "placeholder": "AliceBlue", "get_attr": "LightGrey", "call_function": "LightYellow",
    "call_method": "LightPink", "call_module": "LemonChiffon1", "output": "PowderBlue",
}  # fmt: skip


class Dot:
    """A drawing: ``to_string`` is its text; ``write_svg`` and the like run the program ``dot``."""

    def __init__(self, text: str) -> None:
        self.text = text

    def to_string(self) -> str:
        return self.text

    def create(self, format: str = "svg") -> bytes:
        """Returns the picture, which the program ``dot`` draws."""
        if shutil.which("dot") is None:
            raise RuntimeError(
                "graph_drawer: the program dot of Graphviz is not installed; to_string() needs nothing"
            )
        return subprocess.run(
            ["dot", f"-T{format}"], input=self.text.encode(), stdout=subprocess.PIPE, check=True
        ).stdout

    def create_svg(self) -> bytes:
        return self.create("svg")

    def write(self, path: str, format: str = "raw") -> None:
        """Writes the text, or a picture in another format, to a file."""
        data = self.text.encode() if format in ("raw", "dot") else self.create(format)
        with open(path, "wb") as f:
            f.write(data)

    def write_svg(self, path: str) -> None:
        self.write(path, "svg")

    def write_png(self, path: str) -> None:
        self.write(path, "png")

    def write_raw(self, path: str) -> None:
        self.write(path)


class FxGraphDrawer:
    """Draws the graph of a module: a box for each node with its kind, target, arguments and metadata."""

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._name = name
        self._skipped = {"get_attr"} if ignore_getattr or ignore_parameters_and_buffers else set()
        self._shape = dot_graph_shape or "record"
        self._modules = dict(graph_module.named_modules())
        self._dot_graphs = {name: self._drawn(graph_module, name)}
        for child, m in graph_module.named_children():
            if isinstance(m, GraphModule):
                self._dot_graphs[f"{name}_{child}"] = self._drawn(m, child)

    def get_dot_graph(self, submod_name: str | None = None) -> Dot:
        """Returns the drawing, or that of a submodule."""
        return self._dot_graphs[self._name if submod_name is None else f"{self._name}_{submod_name}"]

    def get_main_dot_graph(self) -> Dot:
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> Dot:
        return self.get_dot_graph(submod_name)

    def get_all_dot_graphs(self) -> dict[str, Dot]:
        return dict(self._dot_graphs)

    def _drawn(self, gm: GraphModule, name: str) -> Dot:
        lines = [f"digraph {_quoted(name)} {{", "rankdir=TB;"]
        for node in gm.graph.nodes:
            if node.op in self._skipped:
                continue
            label = "{" + "|".join(_escaped(x) for x in self._label(node)) + "}"
            style = f'style="filled,rounded", fillcolor={_quoted(_COLORS[node.op])}, fontcolor="#000000"'
            lines.append(f'{_quoted(node.name)} [label="{label}", shape={self._shape}, {style}];')
            lines += [
                f"{_quoted(i.name)} -> {_quoted(node.name)};"
                for i in node.all_input_nodes
                if i.op not in self._skipped
            ]
        return Dot("\n".join([*lines, "}"]) + "\n")

    def _label(self, node: Node) -> list[str]:
        target = node.target if isinstance(node.target, str) else _get_qualified_name(node.target)
        label = [f"name=%{node.name}", f"op_code={node.op}", f"target={target}"]
        if node.op == "call_module" and node.target in self._modules:
            label.append(type(self._modules[node.target]).__name__)
        rest = [x for x in node.args if not isinstance(x, Node)]
        label += [f"args={rest}"] if rest and node.op != "output" else []
        label.append(f"num_users={len(node.users)}")
        meta = node.meta.get("tensor_meta", node.meta.get("val"))
        if hasattr(meta, "dtype"):
            label.append(f"dtype={meta.dtype}, shape={tuple(meta.shape)}")
        return label


def _quoted(s: str) -> str:
    return '"' + s.replace('"', '\\"') + '"'


def _escaped(s: str) -> str:
    for c in '\\"{}|<>':
        s = s.replace(c, "\\" + c)
    return s
