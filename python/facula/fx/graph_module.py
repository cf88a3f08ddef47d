"""GraphModule: a module whose forward is generated from a Graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import _C
from ..nn.modules.module import Module
from ..nn.parameter import Parameter
from .graph import Graph, PythonCode, _always_there, _PyTreeCodeGen

__all__ = ["GraphModule", "reduce_graph_module"]

_number = itertools.count()


def _forward_from(src: str, names: dict[str, Any]) -> Callable:
    """Compiles the function ``forward`` from this source, which tracebacks show."""
    file = f"<eval_with_key>.{next(_number)}"
    linecache.cache[file] = (len(src), None, [line + "\n" for line in src.splitlines()], file)
    space = dict(names)
    exec(compile(src, file, "exec"), space)
    return space["forward"]


def _import_block(code: PythonCode) -> str:
    """Returns lines that import the objects that the source names."""
    there = _always_there()
    lines = set()
    for name, value in code.globals.items():
        if name in there and there[name][1] is value or name in there and name in ("nan", "inf"):
            lines.add(there[name][0])
        else:
            home, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
            if not home or not own or "<" in own:
                raise RuntimeError(
                    f"GraphModule: {value!r} is no function or class of a module, so that the program cannot "
                    "be pickled or written"
                )
            first, _, rest = own.partition(".")
            lines.add(f"from {home} import {first} as {name}" + (f"\n{name} = {name}.{rest}" if rest else ""))
    return "\n".join(sorted(lines))


def _owner(root: Any, path: str, make: bool) -> tuple[Any, str]:
    *prefix, last = path.split(".")
    for name in prefix:
        submodule = getattr(root, name, None)
        if submodule is None:
            if not make:
                raise AttributeError(path)
            submodule = Module()
            setattr(root, name, submodule)
        root = submodule
    return root, last


def _assign(value: Any, module: Module, path: str) -> None:
    owner, name = _owner(module, path, make=True)
    if isinstance(value, _C.Tensor) and not isinstance(value, Parameter):
        owner.register_buffer(name, value)
    else:
        setattr(owner, name, value)


def _copy_attr(source: Module, target: Module, path: str) -> None:
    here, there = source, target
    *prefix, last = path.split(".")
    for name in prefix:
        f, t = getattr(here, name), getattr(there, name, None)
        if f is t:
            return  # a submodule that is copied as one
        if t is None:
            t = Module()
            setattr(there, name, t)
        here, there = f, t
    _assign(getattr(here, last), there, last)


class GraphModule(Module):
    """A module with a ``graph``, whose ``forward`` is the graph's ``code``.

    ``root``, a module or a dict by path, provides the objects that the graph's nodes name; it is shared,
    not copied. After changing the graph, assign it or call ``recompile()``.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # Each instance has its own class, since forward belongs to the class.
        for base in cls.__mro__:
            if not base.__qualname__.endswith("GraphModuleImpl"):
                cls = base
                break

        class GraphModuleImpl(cls):  # type: ignore[misc, valid-type]
            pass

        return super().__new__(GraphModuleImpl)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            targets: dict[str, None] = {}
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    if node.target not in root:
                        raise RuntimeError(
                            f"Node {node} referenced target {node.target} but that target was not provided "
                            "in ``root``!"
                        )
                    targets.setdefault(node.target)
            for path in sorted(targets, key=lambda t: t.count(".")):
                _assign(root[path], self, path)
        else:
            raise RuntimeError("Unsupported type " + str(root) + " passed for root!")
        tracer = graph._tracer_cls
        self.__dict__["_tracer_cls"] = tracer if tracer and "<locals>" not in tracer.__qualname__ else None
        self.__dict__["_tracer_extras"] = graph._tracer_extras or {}
        self.__dict__["meta"] = {}
        for hooks in ("_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks"):
            self.__dict__[hooks] = []
        self.graph = graph

    @property
    def graph(self) -> Graph:
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of forward."""
        if "_code" not in self.__dict__:
            raise RuntimeError("Code has not been generated! Please report a bug")
        return self.__dict__["_code"]

    def recompile(self) -> PythonCode:
        """Generates forward again from the present graph."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self.__dict__["_in_spec"] = codegen.pytree_info.in_spec
            self.__dict__["_out_spec"] = codegen.pytree_info.out_spec
        code = self._graph.python_code("self")
        self.__dict__["_code"] = code.src
        type(self).forward = _forward_from(code.src, code.globals)  # type: ignore[method-assign]
        return code

    def add_submodule(self, target: str, m: Module) -> bool:
        """Adds a module at a path, creating empty ones on the way; False if another object is in the way."""
        owner: Any = self
        *prefix, last = target.split(".")
        for name in prefix:
            submodule = getattr(owner, name, None)
            if submodule is None:
                submodule = Module()
                setattr(owner, name, submodule)
            if not isinstance(submodule, Module):
                return False
            owner = submodule
        owner.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Deletes the module at a path; False if there is none."""
        try:
            owner, last = _owner(self, target, make=False)
        except AttributeError:
            return False
        if not isinstance(getattr(owner, last, None), Module):
            return False
        delattr(owner, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Deletes the modules that no node of the graph names, directly or through a submodule."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = node.target.split(".")
            used |= {".".join(parts[: k + 1]) for k in range(len(parts))}
            if node.op == "call_module":
                used |= {
                    f"{node.target}.{n}" for n, _ in self.get_submodule(node.target).named_modules() if n
                }
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    def print_readable(self, print_output: bool = True, **ignored: Any) -> str:
        """Returns the code as a class, and prints it unless ``print_output`` is False."""
        body = self._graph.python_code("self", verbose=True).src.strip("\n").rstrip(" ")
        from .node import _root

        text = f"class {self._get_name()}({_root().__name__}.nn.Module):\n" + "".join(
            f"    {line}\n" if line.strip() else "\n" for line in body.rstrip("\n").split("\n")
        )
        if print_output:
            print(text)
        return text

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Writes a package that defines the class ``module_name``, and its state."""
        from .. import save
        from .node import _root

        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        code = self._graph.python_code("self")
        package = _root().__name__
        save(self.state_dict(), where / "state_dict.pt")
        lines = [
            _import_block(code),
            f"from {package}.nn import *",
            "",
            "",
            f"class {module_name}({package}.nn.Module):",
        ]
        lines += ["    def __init__(self):", "        super().__init__()"]
        for name, child in self._modules.items():
            save(child, where / f"{name}.pt")
            lines.append(
                f"        self.add_module('{name}', {package}.load(r'{where / f'{name}.pt'}', "
                "weights_only=False))"
            )
        for kind, members in (("Parameter", self._parameters), ("buffer", self._buffers)):
            for name, t in members.items():
                if t is None:
                    continue
                empty = f"{package}.empty({list(t.shape)}, dtype={t.dtype})"
                value = f"{package}.nn.Parameter({empty})" if kind == "Parameter" else empty
                lines.append(
                    f"        self.{name} = {value}"
                    if kind == "Parameter"
                    else f"        self.register_buffer('{name}', {value})"
                )
        lines.append(f"        self.load_state_dict({package}.load(r'{where / 'state_dict.pt'}'))")
        lines += ["", *("    " + line for line in code.src.strip().split("\n"))]
        (where / "module.py").write_text("\n".join(lines) + "\n")
        (where / "__init__.py").write_text("from .module import *\n")

    def __copy__(self) -> GraphModule:
        copied = GraphModule(self, self.graph)
        copied.meta = getattr(self, "meta", {})
        return copied

    def __deepcopy__(self, memo: dict) -> GraphModule:
        result = GraphModule.__new__(type(self))
        memo[id(self)] = result
        copied = copy.deepcopy({k: v for k, v in self.__dict__.items() if k not in _NOT_COPIED}, memo)
        result.__dict__.update(copied)
        for k in _NOT_COPIED:
            if k in self.__dict__:
                result.__dict__[k] = list(self.__dict__[k]) if k.endswith("_hooks") else self.__dict__[k]
        type(result).__name__ = type(self).__name__
        result.graph = copy.deepcopy(self._graph)
        result.meta = copy.copy(self.meta)
        for hook in self._deepcopy_hooks:
            hook(result)
        return result

    def __reduce__(self) -> Any:
        code = self._graph.python_code("self")
        state = {k: v for k, v in self.__dict__.items() if k != "_graph"}
        state["_code"] = code.src
        return reduce_graph_module, (state, _import_block(code))

    @contextmanager
    def _set_replace_hook(self, f: Callable) -> Iterator[None]:
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_replace_node_hook(self, f: Callable) -> None:
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f: Callable) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable) -> None:
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f: Callable) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable) -> None:
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f: Callable) -> None:
        self._erase_node_hooks.remove(f)

    def _register_deepcopy_hook(self, f: Callable) -> None:
        self._deepcopy_hooks.append(f)

    def _unregister_deepcopy_hook(self, f: Callable) -> None:
        self._deepcopy_hooks.remove(f)

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__repr__(), self._code, hint])


# in ``meta``: names of attributes that copies keep
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_NOT_COPIED = (
    "_graph", "_tracer_cls", "meta",
    "_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks",
)  # fmt: skip


class _CodeOnlyModule(Module):
    """The objects that a pickled program's nodes name, and its forward."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(body)


def reduce_graph_module(body: dict[str, Any], import_block: str) -> GraphModule:
    """Restores a GraphModule from a pickle, by tracing its source."""
    from ._symbolic_trace import Tracer

    source = body.get("_code") or body["code"]
    forward = _forward_from(import_block + source, {})

    class Members(_CodeOnlyModule):
        pass

    Members.forward = forward  # type: ignore[method-assign]
    members = Members(body)
    tracer_cls = body.get("_tracer_cls") or Tracer

    class KeepModules(tracer_cls):  # type: ignore[misc, valid-type]
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    graph = KeepModules().trace(members)
    graph._tracer_cls = tracer_cls
    restored = GraphModule(members, graph, class_name=body.get("_graphmodule_cls_name", "GraphModule"))
    for k, v in body.items():
        if not hasattr(restored, k):
            setattr(restored, k, v)
    restored.training = body.get("training", True)
    return restored
