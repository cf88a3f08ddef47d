"""Translates Python modules of the package to C++ that computes with io::Value (dynamic.h).

It supports functions, classes of one base, and their statements and expressions; names are resolved
through imports. Unsupported constructs raise a Mistake with their line: generators that are not consumed
immediately, coroutines, metaclasses, names that are neither operators nor functions.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

# Classes that C++ implements natively, by unit and name.
NATIVE_CLASSES = {
    ("nn.modules.module", "Module"): "module_class",
    ("nn.modules.module", "TensorModule"): "module_class",
    ("nn.modules.container", "ModuleList"): "module_list_class",
    ("nn.modules.container", "Sequential"): "sequential_class",
    ("optim.optimizer", "Optimizer"): "optimizer_class",
    ("optim.optimizer", "GroupOptimizer"): "optimizer_class",
    ("optim._sparse_rows", "TracedSparseAdam"): "optimizer_class",
    ("optim._traced_lbfgs", "TracedLBFGS"): "optimizer_class",
}
NATIVE_FUNCTIONS = {
    ("nn.parameter", "Parameter"): "make_parameter",
    ("program", "require"): "require",
    ("optim._listed", "single"): "single",
    ("_queries", "finfo"): "finfo",
    ("_C", "is_tracing"): "is_tracing",
    ("_C", "Size"): "py_tuple",
    ("_C", "tensor"): "make_tensor",
    ("_C", "autocast_state"): "autocast_state",
    ("_C", "promote_types"): "promote_types",
    ("_C", "parameters_by_layout"): "parameters_by_layout",
    ("_C", "outside_of_trace"): "outside_of_trace",
    ("math", "sqrt"): "math_sqrt",
    ("math", "floor"): "math_floor",
    ("math", "ceil"): "math_ceil",
    ("math", "log"): "math_log",
    ("math", "prod"): "math_prod",
    ("math", "erf"): "math_erf",
    ("math", "cos"): "math_cos",
    ("bisect", "bisect_right"): "bisect_right",
    ("collections", "Counter"): "counter",
    ("copy", "deepcopy"): "deep_copy",
}
BUILTINS = (
    "int float bool str tuple list dict len min max sum any all zip enumerate range map sorted reversed set "
    "getattr setattr abs callable type complex"
).split()
ERRORS = {
    **{
        n: n
        for n in "RuntimeError IndexError TypeError ValueError NotImplementedError AssertionError".split()
    },
    "KeyError": "IndexError",  # io::Dict raises it
    "ZeroDivisionError": "ValueError",  # a division by zero raises it
}
INSTANCES = {
    "int": "is_int", "float": "is_float", "bool": "is_bool", "str": "is_str", "tuple": "is_tuple",
    "list": "is_list", "dict": "is_dict", "Tensor": "is_tensor", "Module": "is_module",
    "FunctionType": "is_function",
    "Number": "is_int | is_float | is_complex", "Iterable": "is_tuple | is_list | is_dict | is_str",
}  # fmt: skip
BINARY = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod",
    ast.Pow: "pow", ast.MatMult: "matmul", ast.BitAnd: "bitand_",
}  # fmt: skip
COMPARE = {
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"
}  # fmt: skip
# Methods that C++ implements: reading of a state_dict, and steps of optimizers over lists (optim/listed.h).
OWN_METHODS = {"_load_from_state_dict", "share_memory"}
OWN_OPTIMIZER_METHODS = (
    "_state _step_group _alike _share _counted _count _update_parts _export_state _import_state "
    "_update_sparse"
).split()
NEVER = "(false)"  # for isinstance checks of classes that C++ does not have
CONSTANTS = {
    ("math", "pi"): "3.141592653589793",
    ("math", "inf"): "std::numeric_limits<double>::infinity()",
}


class Mistake(Exception):
    pass


@dataclass
class Unit:
    """A file of the package, or a built-in name such as `_C` or `math`."""

    name: str
    path: Path | None = None
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    variables: dict[str, ast.expr] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    all_of: list[str] = field(default_factory=list)  # units whose names it imports with *

    @property
    def stem(self) -> str:
        return self.name.rsplit(".", 1)[-1].strip("_")


@dataclass
class Thing:
    """The meaning of a name: kind is unit, operators, function, class, variable, native or builtin."""

    kind: str
    unit: Unit
    name: str = ""


class Package:
    def __init__(self, folder: Path, operators: set[str], generated: dict[str, str]) -> None:
        self.folder, self.operators = folder, operators
        self.units = {name: self.parse(name, Path(name), text) for name, text in generated.items()}

    def is_operator(self, name: str) -> bool:
        return name in self.operators or name.removesuffix("_") in self.operators

    def unit(self, name: str) -> Unit:
        if name not in self.units:
            base = self.folder.joinpath(*name.split("."))
            path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
            self.units[name] = self.read(name, path) if path.exists() and name != "_C" else Unit(name)
        return self.units[name]

    def read(self, name: str, path: Path) -> Unit:
        return self.parse(name, path, path.read_text(encoding="utf-8"))

    def parse(self, name: str, path: Path, text: str) -> Unit:
        unit = Unit(name, path)
        is_package = path.name == "__init__.py"
        for node in ast.parse(text, str(path)).body:
            if isinstance(node, ast.If):  # if TYPE_CHECKING: ... else: ...
                for inner in node.orelse:
                    self.add(unit, inner, is_package)
            else:
                self.add(unit, node, is_package)
        return unit

    def add(self, unit: Unit, node: ast.stmt, is_package: bool) -> None:
        if isinstance(node, ast.FunctionDef):
            unit.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            unit.classes[node.name] = node
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports = self.imported(unit.name, node, is_package)
            if "*" in imports:
                unit.all_of.append(imports.pop("*")[0])
            unit.imports.update(imports)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    unit.variables[target.id] = node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for t, v in zip(target.elts, node.value.elts):
                        unit.variables[ast.unparse(t)] = v

    def imported(
        self, unit: str, node: ast.Import | ast.ImportFrom, is_package: bool
    ) -> dict[str, tuple[str, str | None]]:
        """Returns local name -> (unit, name in it; None: the unit itself)."""
        if isinstance(node, ast.Import):
            return {a.asname or a.name: (a.name, None) for a in node.names}
        parts = unit.split(".") if unit else []
        if node.level:
            parts = parts[: len(parts) - node.level + is_package]
            source = ".".join(parts + ([node.module] if node.module else []))
        else:
            source = node.module or ""
        imports: dict[str, tuple[str, str | None]] = {}
        for a in node.names:
            inner = f"{source}.{a.name}".strip(".")
            base = self.folder.joinpath(*inner.split("."))
            is_unit = a.name == "_C" or (node.level and (base.with_suffix(".py").exists() or base.is_dir()))
            imports[a.asname or a.name] = (inner, None) if is_unit else (source, a.name)
        return imports

    def resolve(self, unit: Unit, name: str) -> Thing | None:
        if (unit.name, name) in NATIVE_CLASSES or (unit.name, name) in NATIVE_FUNCTIONS:
            return Thing("native", unit, name)
        if name == "PackedSequence":
            return Thing("foreign", unit, name)
        if name in unit.functions:
            return Thing("function", unit, name)
        if name in unit.classes:
            return Thing("class", unit, name)
        if name in unit.imports:
            source, inner = unit.imports[name]
            target = self.unit(source)
            return Thing("unit", target) if inner is None else self.resolve(target, inner)
        if name in unit.variables:
            value = unit.variables[name]
            if isinstance(value, ast.Attribute):
                return self.follow(unit, value) or Thing("variable", unit, name)
            if isinstance(value, ast.Name):
                return self.resolve(unit, value.id)
            return Thing("variable", unit, name)
        for other in map(self.unit, unit.all_of):
            if name in other.functions:
                return Thing("function", other, name)
        if unit.path is None:
            return Thing("native" if (unit.name, name) in CONSTANTS else "foreign", unit, name)
        if unit.name == "nn.functional" and name not in BUILTINS and self.is_operator(name):
            return Thing("operators", unit, name)  # it provides those of its namespace
        return None

    def follow(self, unit: Unit, node: ast.expr) -> Thing | None:
        """Resolves `F.pad` or `_C.functions.empty`; None for an attribute of a value."""
        if isinstance(node, ast.Name):
            return self.resolve(unit, node.id)
        if not isinstance(node, ast.Attribute):
            return None
        base = self.follow(unit, node.value)
        if base is None or base.kind not in ("unit", "operators") or (base.kind == "operators" and base.name):
            return None
        if base.kind == "operators":
            full = f"{base.unit.name}_{node.attr}"  # facula.linalg.solve is the operator linalg_solve
            return Thing("operators", base.unit, full if self.is_operator(full) else node.attr)
        if base.unit.name == "_C":
            if ("_C", node.attr) in NATIVE_FUNCTIONS:
                return Thing("native", base.unit, node.attr)
            if node.attr in ("functions", "ops", "nn_functional", "linalg"):
                return Thing("operators", Unit(node.attr))
            return Thing("core", base.unit, node.attr)
        return self.resolve(base.unit, node.attr)


def quoted(text: str) -> str:
    return json.dumps(text)


def identifier(*parts: str) -> str:
    """Returns a valid C++ name, without double and leading underscores, which are reserved."""
    return "_".join("own_" + p.lstrip("_") if p.startswith("_") else p for p in parts)


class Translation:
    """The translation of all names that were requested."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.wanted: list[Thing] = []
        self.known: dict[str, tuple[Thing, str]] = {}  # C++ name -> (thing, kind)
        self.text: list[str] = []

    def need(self, thing: Thing) -> str:
        """Returns the C++ name of a function, variable or class, and schedules its translation."""
        prefix = {"function": "f", "variable": "v", "class": "k"}[thing.kind]
        name = identifier(prefix, thing.unit.stem, thing.name)
        if name not in self.known:
            self.known[name] = (thing, thing.kind)
            self.wanted.append(thing)
        other = self.known[name][0]
        if (other.unit.name, other.name) != (thing.unit.name, thing.name):
            raise Mistake(
                f"{thing.unit.name}.{thing.name} and {other.unit.name}.{other.name} become one name"
            )
        return name

    def run(self) -> None:
        while self.wanted:
            thing = self.wanted.pop(0)
            try:
                if thing.kind == "function":
                    self.text.append(
                        Code(self, thing.unit).function(
                            thing.unit.functions[thing.name], self.need(thing), thing.name
                        )
                    )
                elif thing.kind == "variable":
                    value = Code(self, thing.unit).value(thing.unit.variables[thing.name])
                    self.text.append(
                        f"const Value& {self.need(thing)}() {{\n  static const Value value = {value};\n"
                        "  return value;\n}\n"
                    )
                else:
                    self.text.append(self.of_class(thing))
            except Mistake as e:
                raise Mistake(f"{thing.unit.path}: {thing.name}: {e}") from e

    # ---- classes

    def bases(self, thing: Thing) -> list[Thing]:
        bases = []
        for base in thing.unit.classes[thing.name].bases:
            resolved = self.package.follow(thing.unit, base)
            if resolved is None:
                raise Mistake(f"the base {ast.unparse(base)} is unknown")
            bases.append(resolved)
        return bases

    def lineage(self, thing: Thing) -> list[Thing]:
        """Returns the class and its translated bases."""
        lineage = [thing]
        while lineage[-1].kind == "class":
            bases = self.bases(lineage[-1])
            if not bases:
                break
            if len(bases) > 1:
                raise Mistake("a class of several bases")
            if bases[0].kind != "class":
                break
            lineage.append(bases[0])
        return lineage

    def member(self, thing: Thing, name: str) -> tuple[Thing, ast.FunctionDef] | None:
        """Returns a class's method of this name; of several overloads, the one with the signature."""
        for owner in self.lineage(thing):
            for node in owner.unit.classes[owner.name].body:
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    return owner, node
        return None

    def fields(self, thing: Thing) -> list[str] | None:
        """Returns the fields of a NamedTuple, which becomes a record; None for other classes."""
        node = thing.unit.classes.get(thing.name)
        if node is None or [ast.unparse(b) for b in node.bases] != ["NamedTuple"]:
            return None
        return [
            x.target.id for x in node.body if isinstance(x, ast.AnnAssign) and isinstance(x.target, ast.Name)
        ]

    def class_name(self, thing: Thing) -> str:
        if thing.kind == "native":
            return NATIVE_CLASSES[thing.unit.name, thing.name]
        if thing.kind != "class":
            raise Mistake(f"the base {thing.unit.name}.{thing.name}")
        return self.need(thing)

    def of_class(self, thing: Thing) -> str:
        node = thing.unit.classes[thing.name]
        name = self.need(thing)
        texts, members = [], []
        for item in node.body:
            for member, kind, text in self.of_member(thing, node, item):
                body = identifier("m", thing.name, member.replace("__init__", "construct"))
                texts.append(text(body))
                members.append(f"{{{quoted(member)}, Class::Kind::{kind}, {body}}}")
        bases = self.bases(thing)
        base = "&" + self.class_name(bases[0]) if bases else "nullptr"
        listed = ",\n     ".join(members)
        texts.append(f"const Class {name}{{{quoted(thing.name)}, {base},\n    {{{listed}}}}};\n")
        return "\n".join(texts)

    def of_member(self, thing: Thing, owner: ast.ClassDef, item: ast.stmt) -> list:
        if isinstance(item, ast.FunctionDef):
            marks = {ast.unparse(d) for d in item.decorator_list}
            hidden = item.name.startswith("__") and item.name != "__init__"
            own = item.name in OWN_OPTIMIZER_METHODS and any(
                t.name == "ListOptimizer" for t in self.lineage(thing)
            )
            if hidden or own or item.name in OWN_METHODS or marks & {"classmethod", "overload"}:
                return []
            kind = "property" if "property" in marks else "unbound" if "staticmethod" in marks else "method"
            code = Code(self, thing.unit, thing)
            return [(item.name, kind, lambda body: "static " + code.function(item, body, item.name))]
        if not isinstance(item, (ast.Assign, ast.AnnAssign)) or item.value is None:
            return []
        target = item.targets[0] if isinstance(item, ast.Assign) else item.target
        pairs = [(target, item.value)]
        if isinstance(target, ast.Tuple) and isinstance(item.value, ast.Tuple):
            pairs = list(zip(target.elts, item.value.elts))
        members = []
        for t, value in pairs:
            name = ast.unparse(t)
            if name in ("_version", "_traceable") or (name == "__constants__" and thing.unit.stem != "fold"):
                continue
            if isinstance(value, ast.Call) and ast.unparse(value.func) == "staticmethod":
                value = value.args[0]
            expression = Code(self, thing.unit).value(value)
            members.append(
                (
                    name,
                    "constant",
                    lambda b, m=expression: f"static Value {b}(Arguments&) {{ return {m}; }}\n",
                )
            )
        return members


class Code:
    """The translation of one function."""

    def __init__(self, to: Translation, unit: Unit, owner: Thing | None = None) -> None:
        self.to, self.unit, self.owner = to, unit, owner
        self.locals: list[set[str]] = []
        self.imports: dict[str, tuple[str, str | None]] = {}
        self.count = 0

    # ---- functions

    def function(self, node: ast.FunctionDef, name: str, called: str) -> str:
        return f"Value {name}(Arguments& a_) {{\n{self.body(node, called)}}}\n"

    def body(self, node: ast.FunctionDef | ast.Lambda, called: str) -> str:
        a = node.args
        positional = [p.arg for p in a.posonlyargs + a.args]
        names = positional + [p.arg for p in a.kwonlyargs]
        defaults = [None] * (len(positional) - len(a.defaults)) + list(a.defaults) + list(a.kw_defaults)
        required = sum(d is None for d in defaults)
        if any(d is None for d in defaults[required:]):
            raise Mistake("a parameter without default after one with")
        rest, rest_named = a.vararg and a.vararg.arg, a.kwarg and a.kwarg.arg
        own = set(names) | {n for n in (rest, rest_named) if n}
        statements = [ast.Return(node.body)] if isinstance(node, ast.Lambda) else node.body
        assigned = sorted(assigned_names(statements) - own)
        parameter_names = ", ".join(map(quoted, names))
        lines = [
            f"  static constexpr std::array<std::string_view, {len(names)}> names_{{{parameter_names}}};"
        ]
        flags = f"{str(bool(rest)).lower()}, {str(bool(rest_named)).lower()}"
        lines.append(f"  Bound b_(a_, {quoted(called)}, names_, {len(positional)}, {required}, {flags});")
        for k, (n, d) in enumerate(zip(names, defaults)):
            taken = f"std::move(b_[{k}])"
            value = taken if d is None else f"b_.has({k}) ? {taken} : {self.value(d)}"
            lines.append(f"  [[maybe_unused]] Value v_{n} = {value};")
        lines += [f"  Value v_{rest} = b_.rest();"] if rest else []
        lines += [f"  Value v_{rest_named} = b_.rest_named();"] if rest_named else []
        if assigned:
            lines.append("  [[maybe_unused]] Value " + ", ".join(f"v_{n}" for n in assigned) + ";")
        self.locals.append(own | set(assigned))
        lines += self.block(statements)
        self.locals.pop()
        if not isinstance(statements[-1], (ast.Return, ast.Raise)):
            lines.append("  return {};")
        return "\n".join(lines) + "\n"

    def is_local(self, name: str) -> bool:
        return any(name in scope for scope in self.locals)

    def fresh(self) -> str:
        self.count += 1
        return f"t{self.count}_"

    # ---- statements

    def block(self, statements: list[ast.stmt]) -> list[str]:
        lines = []
        for s in statements:
            try:
                lines += ["  " + line for line in self.statement(s)]
            except Mistake as e:
                text = str(e)
                raise Mistake(text if text.startswith("line ") else f"line {s.lineno}: {text}") from e
        return lines

    def statement(self, s: ast.stmt) -> list[str]:
        handler = getattr(self, "on_" + type(s).__name__, None)
        if handler is None:
            raise Mistake(f"the statement {type(s).__name__} is not known")
        return handler(s)

    def on_Expr(self, s: ast.Expr) -> list[str]:
        if isinstance(s.value, ast.Constant):
            return []
        return [self.value(s.value) + ";"]

    def on_Pass(self, s: ast.Pass) -> list[str]:
        return []

    def on_Break(self, s: ast.Break) -> list[str]:
        return ["break;"]

    def on_While(self, s: ast.While) -> list[str]:
        if s.orelse:
            raise Mistake("while with else")
        return [f"while ({self.condition(s.test)}) {{", *self.block(s.body), "}"]

    def on_Continue(self, s: ast.Continue) -> list[str]:
        return ["continue;"]

    def on_Return(self, s: ast.Return) -> list[str]:
        return [f"return {self.value(s.value) if s.value else '{}'};"]

    def on_Import(self, s: ast.Import | ast.ImportFrom) -> list[str]:
        is_package = self.unit.path is not None and self.unit.path.name == "__init__.py"
        self.imports.update(self.to.package.imported(self.unit.name, s, is_package))
        return []

    on_ImportFrom = on_Import

    def on_FunctionDef(self, s: ast.FunctionDef) -> list[str]:
        body = self.body(s, s.name)
        return [
            f"v_{s.name} = function({quoted(s.name)}, [=](Arguments& a_) mutable -> Value {{",
            body,
            "});",
        ]

    def on_Assign(self, s: ast.Assign) -> list[str]:
        if len(s.targets) > 1:
            if all(isinstance(t, ast.Attribute) and t.attr.startswith("__") for t in s.targets):
                return []
            t = self.fresh()
            return [f"Value {t} = {self.value(s.value)};"] + [
                line for target in s.targets for line in self.assign(target, t)
            ]
        target = s.targets[0]
        if isinstance(target, ast.Tuple) and isinstance(s.value, ast.Tuple):
            plain = not any(isinstance(e, ast.Starred) for e in target.elts + s.value.elts)
            if plain and len(target.elts) == len(s.value.elts):
                names = [self.fresh() for _ in target.elts]
                lines = [f"Value {n} = {self.value(e)};" for n, e in zip(names, s.value.elts)]
                return lines + [x for n, e in zip(names, target.elts) for x in self.assign(e, n)]
        return self.assign(target, self.value(s.value))

    def on_AnnAssign(self, s: ast.AnnAssign) -> list[str]:
        return self.assign(s.target, self.value(s.value)) if s.value else []

    def on_AugAssign(self, s: ast.AugAssign) -> list[str]:
        def changed(old: str) -> str:
            return f"Two{{{old}, {self.value(s.value)}}}.{BINARY[type(s.op)]}()"

        if isinstance(s.target, ast.Name):
            return [f"v_{s.target.id} = {changed(f'v_{s.target.id}')};"]
        of = self.fresh()
        lines = ["{", f"  Value {of} = {self.value(s.target.value)};"]
        if isinstance(s.target, ast.Attribute):
            name = quoted(s.target.attr)
            lines.append(f"  set_attribute({of}, {name}, {changed(f'attribute({of}, {name})')});")
        else:
            at = self.fresh()
            lines.append(f"  Value {at} = {self.value(s.target.slice)};")
            lines.append(f"  set_item({of}, {at}, {changed(f'item({of}, {at})')});")
        return [*lines, "}"]

    def assign(self, target: ast.expr, value: str) -> list[str]:
        if isinstance(target, ast.Name):
            return [f"v_{target.id} = {value};"]
        if isinstance(target, ast.Attribute):
            if target.attr.startswith("__"):  # the name or docstring of a function
                return []
            return [f"set_attribute({self.value(target.value)}, {quoted(target.attr)}, {value});"]
        if isinstance(target, ast.Subscript):
            of, index = self.value(target.value), self.value(target.slice)
            return [f"set_item({of}, {index}, {value});"]
        if isinstance(target, (ast.Tuple, ast.List)):
            t = self.fresh()
            star = [k for k, e in enumerate(target.elts) if isinstance(e, ast.Starred)]
            counts = f"{star[0]}, {len(target.elts) - star[0] - 1}" if star else str(len(target.elts))
            lines = [f"List {t} = unpacked({value}, {counts});"]
            for k, e in enumerate(target.elts):
                lines += self.assign(e.value if isinstance(e, ast.Starred) else e, f"{t}[{k}]")
            return lines
        raise Mistake(f"an assignment to {ast.unparse(target)}")

    def on_If(self, s: ast.If) -> list[str]:
        lines = [f"if ({self.condition(s.test)}) {{", *self.block(s.body)]
        if s.orelse:
            lines += ["} else {", *self.block(s.orelse)]
        return [*lines, "}"]

    def on_For(self, s: ast.For) -> list[str]:
        t = self.fresh()
        lines = [f"for (const Value& {t} : items_of({self.value(s.iter)})) {{"]
        lines += ["  " + x for x in self.assign(s.target, t)]
        return [*lines, *self.block(s.body), "}"]

    def on_With(self, s: ast.With) -> list[str]:
        call = s.items[0].context_expr
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "_C.GradMode":
            raise Mistake(f"with {ast.unparse(call)}")
        mode = f"autograd::GradMode mode_({self.condition(call.args[0])});"
        return ["{", "  " + mode, *self.block(s.body), "}"]

    def on_Try(self, s: ast.Try) -> list[str]:
        if not s.handlers:
            return [
                "{",
                "  Finally finally_([&] {",
                *self.block(s.finalbody),
                "  });",
                *self.block(s.body),
                "}",
            ]
        kind = ast.unparse(s.handlers[0].type) if s.handlers[0].type else ""
        if len(s.handlers) != 1 or kind not in ERRORS or s.finalbody:
            raise Mistake("try with other than one kind of error")
        lines = ["try {", *self.block(s.body), "} catch (const Error& e_) {"]
        lines.append(f"  if (e_.type() != ErrorType::{ERRORS[kind]}) throw;")
        if name := s.handlers[0].name:  # its text is the only supported use
            lines.append(f"  v_{name} = Value(e_.what());")
        return [*lines, *self.block(s.handlers[0].body), "}"]

    def on_Raise(self, s: ast.Raise) -> list[str]:
        error = s.exc
        name = ast.unparse(error.func) if isinstance(error, ast.Call) else ast.unparse(error)
        if name not in ERRORS:
            raise Mistake(f"raise {ast.unparse(s.exc)}")
        message = f"text({self.value(error.args[0])})" if isinstance(error, ast.Call) else '""'
        return [f"raise(ErrorType::{ERRORS[name]}, {message});"]

    # ---- expressions

    def condition(self, e: ast.expr) -> str:
        """Returns an expression as a C++ bool."""
        if isinstance(e, ast.BoolOp):
            sign = " && " if isinstance(e.op, ast.And) else " || "
            return "(" + sign.join(self.condition(v) for v in e.values) + ")"
        if isinstance(e, ast.UnaryOp) and isinstance(e.op, ast.Not):
            return "!" + self.condition(e.operand)
        if isinstance(e, ast.Constant) and isinstance(e.value, bool):
            return str(e.value).lower()
        if isinstance(e, ast.Compare):
            return self.comparison(e)[0]
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "isinstance":
            return self.instance_check(e)
        return f"truth({self.value(e)})"

    def comparison(self, e: ast.Compare) -> tuple[str, bool]:
        """Returns its C++ code and whether that is a bool."""
        left, parts, plain = e.left, [], False
        for op, right in zip(e.ops, e.comparators):
            if isinstance(op, (ast.Is, ast.IsNot)):
                none = isinstance(right, ast.Constant) and right.value is None
                a = self.value(left)
                text = f"{a}.is_none()" if none else f"is_same({a}, {self.value(right)})"
                parts.append(text if isinstance(op, ast.Is) else "!" + text)
                plain = True
            elif isinstance(op, (ast.In, ast.NotIn)):
                text = f"contains({self.value(right)}, {self.value(left)})"
                parts.append(text if isinstance(op, ast.In) else "!" + text)
                plain = True
            else:
                text = f"Two{{{self.value(left)}, {self.value(right)}}}.{COMPARE[type(op)]}()"
                if len(e.ops) == 1:
                    return f"truth({text})", False
                parts.append(f"truth({text})")
            left = right
        return "(" + " && ".join(parts) + ")", plain or len(parts) > 1

    def instance_check(self, e: ast.Call) -> str:
        of, kinds = self.value(e.args[0]), e.args[1]
        flags, checks = [], []
        for k in kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]:
            name = ast.unparse(k).rsplit(".", 1)[-1]
            if name in INSTANCES:
                flags.append(INSTANCES[name])
                continue
            if name == "PackedSequence":
                continue
            thing = self.follow(k)
            if thing is None:
                raise Mistake(f"isinstance of {name}")
            checks.append(f"is_a({of}, {self.to.class_name(thing)})")
        if flags:
            checks.append(f"is_a({of}, {' | '.join(flags)})")
        return "(" + " || ".join(checks) + ")" if checks else NEVER

    def value(self, e: ast.expr) -> str:
        """Returns an expression as a C++ Value."""
        handler = getattr(self, "of_" + type(e).__name__, None)
        if handler is None:
            raise Mistake(f"the expression {ast.unparse(e)} is not known")
        return handler(e)

    def of_Constant(self, e: ast.Constant) -> str:
        if e.value is None:
            return "Value()"
        if isinstance(e.value, bool):
            return f"Value({str(e.value).lower()})"
        if isinstance(e.value, (str, int, float)):
            return f"Value({quoted(e.value) if isinstance(e.value, str) else repr(e.value)})"
        raise Mistake(f"the constant {e.value!r}")

    def of_JoinedStr(self, e: ast.JoinedStr) -> str:
        parts = ["std::string()"]
        for p in e.values:
            if isinstance(p, ast.Constant):
                parts.append(quoted(p.value))
                continue
            if p.format_spec is not None or p.conversion not in (-1, ord("r")):
                raise Mistake(f"the format of {ast.unparse(p)}")
            style = ', "!r"' if p.conversion == ord("r") else ""
            parts.append(f"text({self.value(p.value)}{style})")
        return f"Value({' + '.join(parts)})"

    def of_Name(self, e: ast.Name) -> str:
        if self.is_local(e.id):
            return f"v_{e.id}"
        thing = self.follow(e)
        if thing is not None:
            return self.reference(thing)
        if e.id in BUILTINS:
            return f'function("{e.id}", py_{e.id})'
        raise Mistake(f"the name {e.id} is unknown")

    def follow(self, e: ast.expr) -> Thing | None:
        root = e
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or self.is_local(root.id):
            return None
        if root.id in self.imports:
            unit = Unit("", None, imports=self.imports)
            return self.to.package.follow(unit, e)
        return self.to.package.follow(self.unit, e)

    def reference(self, thing: Thing) -> str:
        """Returns the C++ code for a global name."""
        if thing.kind == "operators":
            self.check_operator(thing.name)
            return f"operator_value({quoted(thing.name)})"
        if thing.kind == "function":
            return f"function({quoted(thing.name)}, {self.to.need(thing)})"
        if thing.kind == "variable":
            return f"{self.to.need(thing)}()"
        if thing.kind == "class" or (thing.unit.name, thing.name) in NATIVE_CLASSES:
            return f"class_value({self.to.class_name(thing)})"
        if (thing.unit.name, thing.name) in CONSTANTS:
            return f"Value({CONSTANTS[thing.unit.name, thing.name]})"
        if thing.kind == "core":
            if thing.name == "channels_last":
                return 'Value("channels_last")'
            return f"Value(dtype_from_name({quoted(thing.name)}))"
        if (thing.unit.name, thing.name) in NATIVE_FUNCTIONS:
            return f"function({quoted(thing.name)}, {NATIVE_FUNCTIONS[thing.unit.name, thing.name]})"
        raise Mistake(f"{thing.unit.name}.{thing.name} is not known here")

    def check_operator(self, name: str) -> None:
        if not self.to.package.is_operator(name):
            raise Mistake(f"there is no operator {name}")

    def of_Attribute(self, e: ast.Attribute) -> str:
        thing = self.follow(e)
        if thing is not None:
            return self.reference(thing)
        return f"attribute({self.value(e.value)}, {quoted(e.attr)})"

    def of_BinOp(self, e: ast.BinOp) -> str:
        if type(e.op) not in BINARY:
            raise Mistake(f"the operation {ast.unparse(e)}")
        return f"Two{{{self.value(e.left)}, {self.value(e.right)}}}.{BINARY[type(e.op)]}()"

    def of_UnaryOp(self, e: ast.UnaryOp) -> str:
        if isinstance(e.op, ast.Not):
            return f"Value(!{self.condition(e.operand)})"
        if isinstance(e.op, ast.USub) and isinstance(e.operand, ast.Constant):
            return f"Value(-{e.operand.value!r})"
        if isinstance(e.op, ast.USub):
            return f"negative({self.value(e.operand)})"
        if isinstance(e.op, ast.Invert):
            return f"inverted({self.value(e.operand)})"
        raise Mistake(f"the operation {ast.unparse(e)}")

    def of_BoolOp(self, e: ast.BoolOp) -> str:
        """The first operand that decides, as a value."""
        stop = "!" if isinstance(e.op, ast.And) else ""
        tests = "".join(f" if (r_ = {self.value(v)}; {stop}truth(r_)) return r_;" for v in e.values[:-1])
        return f"[&]() -> Value {{ Value r_;{tests} return {self.value(e.values[-1])}; }}()"

    def of_NamedExpr(self, e: ast.NamedExpr) -> str:
        return f"(v_{e.target.id} = {self.value(e.value)})"

    def of_Compare(self, e: ast.Compare) -> str:
        if len(e.ops) == 1 and type(e.ops[0]) in COMPARE:
            name = COMPARE[type(e.ops[0])]
            return f"Two{{{self.value(e.left)}, {self.value(e.comparators[0])}}}.{name}()"
        return f"Value(bool{self.comparison(e)[0]})"

    def of_IfExp(self, e: ast.IfExp) -> str:
        test = self.condition(e.test)
        if test == NEVER:
            return self.value(e.orelse)
        return f"({test} ? {self.value(e.body)} : {self.value(e.orelse)})"

    def of_Subscript(self, e: ast.Subscript) -> str:
        return f"Two{{{self.value(e.value)}, {self.value(e.slice)}}}.item()"

    def of_Slice(self, e: ast.Slice) -> str:
        parts = (self.value(x) if x else "Value()" for x in (e.lower, e.upper, e.step))
        return f"slice({', '.join(parts)})"

    def of_Tuple(self, e: ast.Tuple) -> str:
        return f"Value(io::Tuple{{{self.sequence(e.elts)}}})"

    def of_List(self, e: ast.List) -> str:
        return f"Value({self.sequence(e.elts)})"

    def sequence(self, items: list[ast.expr]) -> str:
        if any(isinstance(i, ast.Starred) for i in items):
            return f"List({self.arguments(items, [])}.items)"
        return f"List{{{', '.join(self.value(i) for i in items)}}}"

    def of_Dict(self, e: ast.Dict) -> str:
        if None in e.keys:  # a dict display with unpacking: {**others, "name": value}
            keywords = [ast.keyword(k and ast.literal_eval(k), v) for k, v in zip(e.keys, e.values)]
            return f"invoke(py_dict, {self.arguments([], keywords)})"
        items = ", ".join(f"{{{self.value(k)}, {self.value(v)}}}" for k, v in zip(e.keys, e.values))
        return f"Value(io::Dict{{{items}}})"

    def of_Lambda(self, e: ast.Lambda) -> str:
        return f'function("<lambda>", [=](Arguments& a_) mutable -> Value {{\n{self.body(e, "<lambda>")}}})'

    def of_ListComp(self, e: ast.ListComp | ast.GeneratorExp) -> str:
        return self.collected(e.generators, "List", lambda: f"r_.push_back({self.value(e.elt)});")

    of_GeneratorExp = of_ListComp

    def of_DictComp(self, e: ast.DictComp) -> str:
        add = lambda: f"r_.set({self.value(e.key)}, {self.value(e.value)});"  # noqa: E731
        return self.collected(e.generators, "io::Dict", add)

    def collected(self, generators: list[ast.comprehension], kind: str, add: Callable[[], str]) -> str:
        """A comprehension: loops that add to a container."""
        opening, closing = "", ""
        for g in generators:
            t = self.fresh()
            opening += f"for (const Value& {t} : items_of({self.value(g.iter)})) {{ "
            names = sorted({n.id for n in ast.walk(g.target) if isinstance(n, ast.Name)})
            self.locals.append(set(names))
            opening += f"[[maybe_unused]] Value {', '.join('v_' + n for n in names)}; "
            opening += " ".join(self.assign(g.target, t)) + " "
            opening += "".join(f"if (!{self.condition(c)}) continue; " for c in g.ifs)
            closing += " }"
        added = add()
        for _ in generators:
            self.locals.pop()
        return f"[&]() -> Value {{ {kind} r_; {opening}{added}{closing} return r_; }}()"

    # ---- calls

    def arguments(self, items: list[ast.expr], named: list[ast.keyword]) -> str:
        if not named and not any(isinstance(i, ast.Starred) for i in items):
            return f"Arguments{{{', '.join(self.value(i) for i in items)}}}"
        text = "Arguments()"
        for i in items:
            starred = isinstance(i, ast.Starred)
            text += f".spread({self.value(i.value)})" if starred else f".add({self.value(i)})"
        for k in named:
            value = self.value(k.value)
            text += f".spread_named({value})" if k.arg is None else f".name({quoted(k.arg)}, {value})"
        return text

    def of_Call(self, e: ast.Call) -> str:
        f = e.func
        if isinstance(f, ast.Name) and not self.is_local(f.id):
            if f.id == "isinstance":
                return f"Value(bool{self.instance_check(e)})"
            if f.id == "getattr" and (space := self.follow(e.args[0])) and space.kind == "operators":
                return f"operator_value({self.value(e.args[1])}.string())"
            if f.id in BUILTINS and self.follow(f) is None:
                return f"invoke(py_{f.id}, {self.arguments(e.args, e.keywords)})"
        if isinstance(f, ast.Attribute):
            if isinstance(f.value, ast.Call) and ast.unparse(f.value.func) == "super":
                return self.super_call(f.attr, e)
            if ast.unparse(f) == "warnings.warn":
                return f"warn({self.value(e.args[0])})"
        if self.is_require(e):
            kind = Code.error_type(e.args[1])
            return f"invoke(require, Arguments{{{self.value(e.args[0])}, {kind}, {self.value(e.args[2])}}})"
        thing = self.follow(f)
        if thing is not None and (fields := self.to.fields(thing)):
            if e.keywords or len(e.args) != len(fields):
                raise Mistake(f"a record with other than its fields in order: {ast.unparse(e)}")
            items = ", ".join(f"{{{quoted(n)}, {self.value(x)}}}" for n, x in zip(fields, e.args))
            return f"Value(io::Dict{{{items}}})"
        if thing is not None:
            return self.static_call(thing, self.arguments(e.args, e.keywords))
        arguments = self.arguments(e.args, e.keywords)
        if isinstance(f, ast.Attribute):
            is_operator = self.to.package.is_operator(f.attr)
            by = f"FACULA_OPERATOR({quoted(f.attr)}), " if is_operator else ""
            return f"On{{{self.value(f.value)}}}.method({quoted(f.attr)}, {by}{arguments})"
        return f"On{{{self.value(f)}}}.call({arguments})"

    def is_require(self, e: ast.Call) -> bool:
        thing = self.follow(e.func)
        return thing is not None and (thing.unit.name, thing.name) == ("program", "require")

    @staticmethod
    def error_type(e: ast.expr) -> str:
        return f"Value(int(ErrorType::{ast.unparse(e)}))"

    def static_call(self, thing: Thing, arguments: str) -> str:
        if thing.kind == "operators":
            self.check_operator(thing.name)
            return f"FACULA_OPERATOR({quoted(thing.name)})({arguments})"
        if thing.kind == "function":
            return f"invoke({self.to.need(thing)}, {arguments})"
        if thing.kind == "class" or (thing.unit.name, thing.name) in NATIVE_CLASSES:
            return f"instance({self.to.class_name(thing)}, {arguments})"
        if (thing.unit.name, thing.name) in NATIVE_FUNCTIONS:
            return f"invoke({NATIVE_FUNCTIONS[thing.unit.name, thing.name]}, {arguments})"
        if thing.kind == "variable":
            assigned = thing.unit.variables[thing.name]
            if isinstance(assigned, ast.Call) and ast.unparse(assigned.func) == "namedtuple":
                return f"Value(io::Tuple{{{arguments}.items}})"
            return f"On{{{self.to.need(thing)}()}}.call({arguments})"
        if thing.name == "PackedSequence":
            return 'unsupported("a PackedSequence")'
        raise Mistake(f"a call of {thing.unit.name}.{thing.name}")

    def super_call(self, name: str, e: ast.Call) -> str:
        if self.owner is None:
            raise Mistake("super() outside of a class")
        base = self.to.bases(self.owner)[0]
        member = self.to.member(base, name) if base.kind == "class" else None
        arguments = self.arguments([ast.Name("self"), *e.args], e.keywords)
        if member is None:
            if base.kind == "class" and name != "__init__":
                raise Mistake(f"no base has {name}")
            root = self.to.bases(self.to.lineage(self.owner)[-1])[0]
            return f"invoke({self.to.class_name(root)}.find({quoted(name)})->body, {arguments})"
        owner, _ = member
        return f"invoke({self.to.need(owner)}.find({quoted(name)})->body, {arguments})"


def assigned_names(statements: list[ast.stmt]) -> set[str]:
    """Returns the variables that these statements assign, without those of nested functions."""
    names: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.GeneratorExp, ast.DictComp)):
            if isinstance(node, ast.FunctionDef):
                names.add(node.name)
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
        for child in ast.iter_child_nodes(node):
            visit(child)

    for s in statements:
        visit(s)
    return names
