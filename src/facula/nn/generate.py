"""Generates the C++ modules from the Python ones.

    python generate.py --package python/facula --catalog src/facula/catalog --out OUT

A module of facula.nn is written once: its class in python/facula/nn/modules. This program reads the
classes that the package exports and their dependencies, translates them (translate.py), and writes

    OUT/facula/nn/modules.h          a typed class for each module
    OUT/facula/nn/init.h             the functions of facula.nn.init
    OUT/facula/nn/modules.cpp        constructors and calls of modules, and these functions
    OUT/facula/nn/translated.h, .cpp the translation
    OUT/facula/optim/optimizers.h, .cpp  the same for optimizers
    OUT/facula/optim/lr_scheduler.h      the same for learning rate schedules
    OUT/torch/nn, OUT/torch/optim        all of them under PyTorch's C++ names (torch_headers.py)

Lazy modules are not translated, because C++ constructors take sizes, nor are the classes in NOT_HERE.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch_headers
from translate import NATIVE_CLASSES, Mistake, Package, Thing, Translation, quoted

BANNER = "Written by src/facula/nn/generate.py from the Python modules."
MODULES = "nn.modules"
# Containers are templates of layers.h; PackedSequence and options of LinearCrossEntropyLoss exist in Python
# only.
NOT_HERE = {
    "Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Container",
    "LinearCrossEntropyOptions", "RNNBase", "RNNCellBase",
}  # fmt: skip

# Types of arguments of schedules, besides these: those that value_of() converts (optim/schedule.h).
SCHEDULED = {
    "Optimizer": "Optimizer&",
    "Optimizer | None": "Optimizer*",
    "Sequence[LRScheduler]": "std::vector<LRScheduler>",
    "Sequence[int]": "std::vector<int64_t>",
    "Iterable[int]": "std::vector<int64_t>",
    "Callable[[float], float] | None": "Factor",
    "Callable[[int], float] | Sequence[Callable[[int], float]]": "Factor",
}
AVERAGES = (
    "AveragedModel get_ema_avg_fn get_swa_avg_fn _start_norms _end_norms".split()
)  # in optim/swa_utils.h
OPTIMIZERS_NOT_HERE = {"GroupOptimizer", "ListOptimizer"}  # bases
PLAIN = {"int": "int64_t", "float": "double", "bool": "bool", "str": "std::string", "Tensor": "Tensor"}
ALSO_PUBLIC = "_calculate_fan_in_and_fan_out"  # of nn.init, which users call


@dataclass
class Setting:
    """A parameter of a constructor or call in the C++ interface."""

    name: str
    type: str
    default: str | None  # None: required


def setting_type(annotation: str) -> str:
    if annotation in PLAIN:
        return PLAIN[annotation]
    if annotation == "tuple[float, float]":
        return "std::pair<double, double>"
    if annotation == "tuple[float, float, float]":
        return "std::array<double, 3>"
    plain, bar, none = annotation.rpartition(" | ")
    if bar and none == "None" and plain in PLAIN:
        return f"std::optional<{PLAIN[plain]}>"
    return "Argument"


def schedule_type(annotation: str) -> str:
    return SCHEDULED.get(annotation) or setting_type(annotation)


def setting_default(node: ast.expr | None, kind: str) -> str | None:
    if node is None:
        return None
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}})  # a constant expression
    except Exception:
        return "{}" if kind == "Argument" else None
    if value is None:
        return "nullptr" if kind.endswith("*") else "std::nullopt"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(float(value)) if kind == "double" else repr(value)
    if isinstance(value, str):
        return quoted(value)
    if kind.startswith(("std::pair", "std::array")):
        return f"{{{', '.join(map(repr, value))}}}"
    return "{}"


def settings_of(
    node: ast.FunctionDef, of_method: bool = True, types: Callable[[str], str] = setting_type
) -> list[Setting]:
    a = node.args
    parameters = a.posonlyargs + a.args
    defaults: list[ast.expr | None] = [None] * (len(parameters) - len(a.defaults)) + list(a.defaults)
    settings = []
    for p, d in list(zip(parameters, defaults))[of_method:] + list(zip(a.kwonlyargs, a.kw_defaults)):
        if p.arg == "generator":
            settings.append(Setting(p.arg, "Generator*", "nullptr"))
            continue
        kind = types(ast.unparse(p.annotation) if p.annotation else "Any")
        settings.append(Setting(p.arg, kind, setting_default(d, kind)))
    return settings


def constructor_settings(
    to: Translation, thing: Thing, types: Callable[[str], str] = setting_type
) -> list[Setting]:
    """Returns the settings of a class; one that passes on all arguments has those of its base."""
    member = to.member(thing, "__init__")
    if member is None:
        return []
    owner, node = member
    if node.args.vararg is None:
        return settings_of(node, types=types)
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "super().__init__":
            starred = [k for k, x in enumerate(call.args) if isinstance(x, ast.Starred)]
            if starred:
                return constructor_settings(to, to.bases(owner)[0])[starred[0] :]
    return []


def tensors_of(to: Translation, thing: Thing) -> list[str]:
    """Returns the names under which a class registers parameters and buffers, as far as they are
    literals.
    """
    names: list[str] = []
    for owner in reversed(to.lineage(thing)):
        for node in ast.walk(owner.unit.classes[owner.name]):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "Parameter":
                    names.append(node.targets[0].attr)
            elif isinstance(node, ast.Call) and ast.unparse(node.func).startswith("self.register_"):
                if isinstance(node.args[0], ast.Constant):
                    names.append(node.args[0].value)
            elif isinstance(node, ast.For) and "self.register_" in ast.unparse(node):
                rows = node.iter.elts if isinstance(node.iter, ast.Tuple) else []
                names += [r.elts[0].value for r in rows if isinstance(r, ast.Tuple)]
    return [n for n in dict.fromkeys(names) if not n.startswith("_")]


def summary(node: ast.ClassDef | ast.FunctionDef) -> list[str]:
    doc = (ast.get_docstring(node) or "").split(">>>")[0].strip().replace("``", "`")
    return ["// " + line if line else "//" for line in doc.splitlines()]


def parameter_list(settings: list[Setting]) -> str:
    parts = []
    for s in settings:
        kind = "const Tensor&" if s.type == "Tensor" else s.type
        parts.append(f"{kind} {s.name}" + (f" = {s.default}" if s.default is not None else ""))
    return ", ".join(parts)


def result_type(node: ast.FunctionDef) -> str:
    text = ast.unparse(node.returns) if node.returns else "Any"
    if text in ("Tensor", "float"):
        return PLAIN[text]
    if text == "tuple[int, int]":
        return "std::pair<int64_t, int64_t>"
    return "std::tuple<Tensor, Tensor>" if text == "tuple[Tensor, Tensor | None]" else "Output"


# Conversions from a Value to a C++ result.
RESULTS = {
    "Tensor": "return {}.tensor();",
    "double": "return {}.number();",
    "Output": "return Output({});",
    "std::tuple<Tensor, Tensor>": "return two_tensors({});",
    "std::pair<int64_t, int64_t>": "Value v = {};\n  return {{v[0].integer(), v[1].integer()}};",
}


def given(settings: list[Setting], prefix: str = "") -> str:
    return "".join(f".with({quoted(s.name)}, {prefix}{s.name})" for s in settings)


def plain(settings: list[Setting]) -> str:
    """Parameters without defaults."""
    return parameter_list([Setting(s.name, s.type, None) for s in settings])


@dataclass
class TypedFunction:
    """A function of init.h."""

    name: str
    symbol: str
    doc: list[str]
    settings: list[Setting]
    result: str

    def header(self) -> str:
        return "\n".join([*self.doc, f"{self.result} {self.name}({parameter_list(self.settings)});"])

    def source(self) -> str:
        end = RESULTS[self.result].format(f"invoke({self.symbol}, Given(){given(self.settings)})")
        return f"{self.result} {self.name}({plain(self.settings)}) {{\n  {end}\n}}"


@dataclass
class Constructed:
    """A class whose settings may be passed by position or by name."""

    name: str
    symbol: str
    doc: list[str]
    settings: list[Setting]

    @property
    def required(self) -> list[Setting]:
        return [s for s in self.settings if s.default is None]

    @property
    def optional(self) -> list[Setting]:
        return [s for s in self.settings if s.default is not None]

    @property
    def by_position(self) -> list[Setting]:
        """Returns the settings that may be passed by position: the required ones, followed by those of
        one plain type, because braces for others could also mean options; none after a single size in
        braces, which could also be a module.
        """
        if [s.type for s in self.required] == ["Argument"]:
            return self.required
        found = []
        for s in self.optional:
            if s.type in ("Argument", "Factor"):
                break
            found.append(Setting(s.name, "const char*" if s.type == "std::string" else s.type, s.default))
        return self.required + found

    def constructors(self) -> list[str]:
        lines = []
        if self.optional:
            lines += ["  struct Options {", "    ByName by_name = {};"]
            lines += [f"    {s.type} {s.name} = {s.default};" for s in self.optional]
            lines.append("  };")
        lines.append(f"  explicit {self.name}({parameter_list(self.by_position)});")
        if self.optional:
            first = parameter_list(self.required)
            lines.append(
                f"  {'' if first else 'explicit '}{self.name}({first}{', ' if first else ''}Options options);"
            )
        return lines


@dataclass
class Typed(Constructed):
    """A class of modules.h."""

    inputs: list[Setting]
    result: str
    tensors: list[str]
    forward: ast.FunctionDef

    def header(self) -> str:
        lines = [*self.doc, f"class {self.name} : public Module {{", " public:", *self.constructors()]
        lines.append(f"  {self.result} operator()({parameter_list(self.inputs)}) const;")
        if self.tensors:
            lines.append("  Tensor " + ", ".join(self.tensors) + ";")
        lines += ["", " private:", f"  explicit {self.name}(Module m);", "};"]
        return "\n".join(lines)

    def source(self) -> str:
        name = self.name
        first = self.by_position
        lines = [f"{name}::{name}({plain(first)})"]
        lines.append(f"    : {name}(construct({self.symbol}, Given(){given(first)})) {{}}")
        if self.optional:
            first = plain(self.required)
            lines.append(f"{name}::{name}({first}{', ' if first else ''}Options options)")
            values = given(self.required) + given(self.optional, "options.")
            lines.append(f"    : {name}(construct({self.symbol}, Given(){values})) {{}}")
        members = "".join(f", {t}(own_tensor(*this, {quoted(t)}))" for t in self.tensors)
        lines.append(f"{name}::{name}(Module m) : Module(std::move(m)){members} {{}}")
        call = f"forward(*this, Given(){given(self.inputs)})"
        end = RESULTS[self.result].format(call)
        lines.append(f"{self.result} {name}::operator()({plain(self.inputs)}) const {{\n  {end}\n}}")
        return "\n".join(lines) + "\n"


@dataclass
class TypedSchedule(Constructed):
    """A class of lr_scheduler.h."""

    step: list[Setting] | None  # if it differs from the base's

    def header(self) -> str:
        lines = [*self.doc, f"class {self.name} : public LRScheduler {{", " public:", *self.constructors()]
        if self.step is not None:
            lines.append(f"  void step({parameter_list(self.step)});")
        return "\n".join([*lines, "};"])

    def source(self) -> str:
        def values(settings: list[Setting], prefix: str = "") -> str:
            text = ""
            for s in settings:
                value = prefix + s.name
                if s.type in SCHEDULED.values():
                    value = f"value_of({value})"
                text += f".with({quoted(s.name)}, {value})"
            return text

        name, first = self.name, self.by_position
        made = f"    : LRScheduler(nn::{self.symbol}, nn::Given()"
        lines = [f"{name}::{name}({plain(first)})", f"{made}{values(first)}) {{}}"]
        if self.optional:
            lines.append(
                f"{name}::{name}({plain(self.required)}{', ' if self.required else ''}Options options)"
            )
            lines.append(f"{made}{values(self.required)}{values(self.optional, 'options.')}) {{}}")
        if self.step is not None:
            lines.append(
                f"void {name}::step({plain(self.step)}) {{ step_with(nn::Given(){values(self.step)}); }}"
            )
        return "\n".join(lines) + "\n"


@dataclass
class TypedOptimizer:
    """A class of optimizers.h."""

    name: str
    symbol: str
    doc: list[str]
    settings: list[Setting]
    base: str  # of listed.h
    by_closure: bool  # whether its step requires a closure

    def header(self) -> str:
        lines = [*self.doc, f"class {self.name} : public {self.base} {{", " public:", "  struct Options {"]
        lines += [f"    {s.type} {s.name} = {s.default};" for s in self.settings]
        lines += ["  };"]
        for kind in ("Tensor", "ParamGroup"):
            lines.append(f"  {self.name}(std::vector<{kind}> params, Options options);")
        lines.append(f"  explicit {self.name}(std::vector<Tensor> params);")
        lines.append("  // With options by name.")
        lines.append(
            f"  static std::unique_ptr<{self.name}> of(std::vector<ParamGroup> params, "
            "const io::Dict& options);"
        )
        if self.by_closure:
            lines += [f"  using {self.base}::step;", "  Tensor step(const Closure& closure) override;"]
        lines += [
            "",
            " private:",
            f"  {self.name}(std::vector<ParamGroup> params, nn::Given&& options, int);",
        ]
        return "\n".join([*lines, "};"])

    def source(self) -> str:
        def given(s: Setting) -> str:
            value = f"o.{s.name}"
            if s.type.startswith("std::pair"):
                return f"Argument(std::vector<double>{{{value}.first, {value}.second}})"
            if s.type.startswith("std::array"):
                return f"Argument(std::vector<double>({value}.begin(), {value}.end()))"
            return value

        name = self.name
        values = "".join(f".with({quoted(s.name)}, {given(s)})" for s in self.settings)
        return (
            f"{name}::{name}(std::vector<ParamGroup> groups, Options o)\n"
            f"    : {name}(std::move(groups), nn::Given(){values}, 0) {{}}\n"
            f"{name}::{name}(std::vector<ParamGroup> groups, nn::Given&& options, int)\n"
            f"    : {self.base}(nn::{self.symbol}, std::move(groups), std::move(options)) {{}}\n"
            f"std::unique_ptr<{name}> {name}::of(std::vector<ParamGroup> groups, "
            "const io::Dict& options) {\n"
            f"  return std::unique_ptr<{name}>("
            f"new {name}(std::move(groups), given_by_name(options), 0));\n}}\n"
            f"{name}::{name}(std::vector<Tensor> params, Options o)\n"
            f"    : {name}(std::vector<ParamGroup>{{{{std::move(params)}}}}, std::move(o)) {{}}\n"
            f"{name}::{name}(std::vector<Tensor> params) : {name}(std::move(params), Options()) {{}}\n"
        ) + (
            f"Tensor {name}::step(const Closure& closure) {{ return step_with(closure); }}\n"
            * self.by_closure
        )


def optimizers_of(package: Package, to: Translation) -> list[TypedOptimizer]:
    found = []
    for path in sorted((package.folder / "optim").glob("*.py")):
        unit = package.unit(f"optim.{path.stem}")
        for name in unit.classes:
            thing = Thing("class", unit, name)
            if (unit.name, name) in NATIVE_CLASSES:
                continue
            lineage = to.lineage(thing)
            roots = [(base.unit.name, base.name) for base in to.bases(lineage[-1])]
            if name in OPTIMIZERS_NOT_HERE or [NATIVE_CLASSES.get(r) for r in roots] != ["optimizer_class"]:
                continue
            settings = constructor_settings(to, thing)[1:]  # without the parameters
            base = "ListOptimizer" if any(t.name == "ListOptimizer" for t in lineage) else "GroupOptimizer"
            by_closure = to.member(thing, "step") is not None
            doc = summary(unit.classes[name])
            found.append(TypedOptimizer(name, to.need(thing), doc, settings, base, by_closure))
    return found


def schedules(package: Package, to: Translation) -> list[TypedSchedule]:
    base = "LRScheduler"
    found = []
    for path in sorted((package.folder / "optim").glob("*.py")):
        unit = package.unit(f"optim.{path.stem}")
        for name, node in unit.classes.items():
            thing = Thing("class", unit, name)
            if name.startswith("_") or name == base or to.lineage(thing)[-1].name != base:
                continue
            owner, step = to.member(thing, "step")
            found.append(
                TypedSchedule(
                    name, to.need(thing), summary(node), constructor_settings(to, thing, schedule_type),
                    None if owner.name == base else settings_of(step),
                )
            )  # fmt: skip
    return found


def init_functions(package: Package, to: Translation) -> list[TypedFunction]:
    unit = package.unit("nn.init")
    return [
        TypedFunction(
            name, to.need(Thing("function", unit, name)), summary(node),
            settings_of(node, of_method=False), result_type(node),
        )
        for name, node in unit.functions.items()
        if not name.startswith("_") or name == ALSO_PUBLIC
    ]  # fmt: skip


def exported(package: Package) -> list[str]:
    unit = package.unit(MODULES)
    names = ast.literal_eval(unit.variables["__all__"])
    return sorted(n for n in names if not n.startswith("Lazy") and n not in NOT_HERE)


def read_operators(catalog: Path) -> tuple[set[str], str, dict[str, tuple[ast.FunctionDef, str]]]:
    """Names of operators, the module of those that have a form for Python, and the signatures of those that
    are functions of nn.functional themselves, with the schemas' names of their first parameters.
    """
    spec = importlib.util.spec_from_file_location(
        "op_generate", Path(__file__).parents[1] / "op" / "generate.py"
    )
    reader = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = reader
    spec.loader.exec_module(reader)
    operators = reader.read_catalog(catalog)[1]
    forms = reader.forms_py(operators)
    functions = {}
    for op in operators:
        if "nn_functional" in op.namespaces and not op.overload:
            text = f"def {op.name}{reader.py_signature(op, False, False, False)}: pass"
            functions[op.name] = ast.parse(text).body[0], op.parameters[0].name
    return {name for op in operators for name in (op.name, *op.aliases)}, forms, functions


HEADER = f"""// Modules, with PyTorch's names, order and defaults of arguments; options may have names:
// nn::Conv2d(1, 32, 3, {{.padding = 1}}). {BANNER}
#pragma once
#include <optional>
#include <string>
#include <tuple>

#include "facula/nn/argument.h"
#include "facula/nn/module.h"

namespace facula::nn {{

"""

SCHEDULE_HEADER = f"""// Schedules of learning rates, with PyTorch's names, order and defaults.
// Options may have names: optim::OneCycleLR(optimizer, 3e-3, {{.epochs = 4, .steps_per_epoch = 100}}).
// What they have in common is in schedule.h. {BANNER}
#pragma once
#include "facula/optim/schedule.h"

namespace facula::optim {{

"""
INIT_HEADER = f"""// Initial values of parameters, as nn.init of Python: tensors are filled in place, without
// recording, and given back. The numbers are those that Python draws. {BANNER}
#pragma once
#include <optional>
#include <string>
#include <utility>

#include "facula/tensor/tensor.h"

namespace facula {{
class Generator;
}}

namespace facula::nn::init {{

"""


def write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def functional_functions(package: Package) -> list[Thing]:
    """The functions of nn.functional that are written in Python or have a form for it."""
    return [
        Thing("function", package.unit(unit), name)
        for unit in ("nn._forms", "nn._losses", "nn._resample")
        for name in package.unit(unit).functions
        if not name.startswith("_")
    ]


def write_torch(
    out: Path, typed: list[Typed], things: list[Thing], operators: dict[str, tuple[ast.FunctionDef, str]],
    initial: list[TypedFunction], optimizers: list[TypedOptimizer], scheduled: list[TypedSchedule],
) -> None:  # fmt: skip
    make = torch_headers
    layers = [make.layer(t.name, t.settings, t.inputs, t.forward, t.tensors) for t in typed]
    names = [t.name for t in typed]
    functions = []
    for thing in things:
        node = thing.unit.functions[thing.name]
        settings = make.options_of(settings_of(node, of_method=False))
        result = make.result_of(node, "", [s.name for s in settings])
        call = f"facula::nn::call_functional({quoted(thing.name)}, {{}})"
        functions.append(make.functional(thing.name, settings, result, names, call))
    written = {t.name for t in things}
    for name, (node, first) in operators.items():
        if name in written or name.startswith("_"):
            continue
        settings = make.options_of(settings_of(node, of_method=False))
        settings[0].symbol = first
        result = make.result_of(node, "", [])
        call = f"facula::nn::call_operator({quoted(name)}, {{}})"
        functions.append(make.functional(name, settings, result, names, call))
    files = {
        "nn/layers.h": make.header(
            "Modules of Python's nn: settings, classes and holders.", ["torch/nn/layer.h"],
            "torch::nn", layers, BANNER
        ),
        "nn/functional.h": make.header(
            "The functions of Python's nn.functional.", ["torch/value.h"],
            "torch::nn::functional", functions, BANNER
        ),
        "nn/init.h": make.header(
            "Initial values of parameters, as nn.init of Python.", ["facula/nn/init.h", "torch/value.h"],
            "torch::nn::init", [make.initial(f.name, f.settings, f.result) for f in initial], BANNER,
        ),
        "optim/optimizers.h": make.header(
            "Optimizers and schedules of Python's optim.", ["torch/optim/optimizer.h"], "torch::optim",
            [make.optimizer(o.name, o.settings) for o in optimizers]
            + [f"using {s.name} = Schedule<facula::optim::{s.name}>;" for s in scheduled
               if s.name not in make.OWN_SCHEDULES],
            BANNER,
        ),
    }  # fmt: skip
    for name, text in files.items():
        write(out / "torch" / name, text)


def generate(
    package: Package, functions: dict[str, tuple[ast.FunctionDef, str]], out: Path, shards: int
) -> None:
    to = Translation(package)
    unit = package.unit(MODULES)
    typed = []
    for name in exported(package):
        thing = package.resolve(unit, name)
        if thing is None or thing.kind != "class":
            raise Mistake(f"{name} is exported and no class")
        forward = to.member(thing, "forward")
        if forward is None:
            raise Mistake(f"{name} has no forward")
        settings = constructor_settings(to, thing)
        typed.append(
            Typed(
                name, to.need(thing), summary(thing.unit.classes[thing.name]), settings,
                settings_of(forward[1]), result_type(forward[1]), tensors_of(to, thing), forward[1],
            )
        )  # fmt: skip
    initial = init_functions(package, to)
    functional = [(t, to.need(t)) for t in functional_functions(package)]
    optimizers = optimizers_of(package, to)
    scheduled = schedules(package, to)
    averages = package.unit("optim.swa_utils")
    for name in AVERAGES:
        to.need(package.resolve(averages, name))
    to.run()
    declared = []
    for name, (_, kind) in to.known.items():
        form = {"function": "Value {}(Arguments& a_);", "variable": "const Value& {}();"}
        declared.append(form.get(kind, "extern const Class {};").format(name))
    opening = (
        f'// {BANNER}\n#include <array>\n\n#include "facula/nn/translated.h"\n\nnamespace facula::nn {{\n\n'
    )
    folder = out / "facula" / "nn"
    write(
        folder / "translated.h",
        f'// {BANNER}\n#pragma once\n#include <limits>\n\n#include "facula/autograd/autograd.h"\n'
        '#include "facula/nn/dynamic.h"\n\n'
        "namespace facula::nn {\nusing io::List;\nusing io::Value;\n"
        + "\n".join(declared)
        + "\n}  // namespace facula::nn\n",
    )
    for k in range(shards):
        text = "\n".join(to.text[k::shards])
        write(folder / f"translated_{k}.cpp", opening + text + "}  // namespace facula::nn\n")
    write(
        folder / "modules.h",
        HEADER + "\n\n".join(t.header() for t in typed) + "\n\n}  // namespace facula::nn\n",
    )
    write(
        folder / "init.h",
        INIT_HEADER + "\n".join(f.header() for f in initial) + "\n\n}  // namespace facula::nn::init\n",
    )
    write_optimizers(out / "facula" / "optim", optimizers, scheduled)
    write_torch(out, typed, [t for t, _ in functional], functions, initial, optimizers, scheduled)
    table = ",\n".join(f"    {{{quoted(t.name)}, &{t.symbol}}}" for t in typed)
    initial_table = ",\n".join(f"    {{{quoted(f.name)}, &{f.symbol}}}" for f in initial)
    functional_table = ",\n".join(f"    {{{quoted(t.name)}, &{symbol}}}" for t, symbol in functional)
    write(
        folder / "modules.cpp",
        f'// {BANNER}\n#include "facula/nn/modules.h"\n\n#include "facula/nn/init.h"\n'
        '#include "facula/nn/translated.h"\n\nnamespace facula::nn {\n\n'
        + "\n".join(t.source() for t in typed)
        + "\nnamespace init {\n\n"
        + "\n".join(f.source() for f in initial)
        + "\n}  // namespace init\n"
        + "\nstd::span<const NamedClass> classes() {\n"
        + f"  static constexpr NamedClass all[] = {{\n{table}}};\n"
        "  return all;\n}\nstd::span<const NamedFunction> init_functions() {\n"
        + f"  static constexpr NamedFunction all[] = {{\n{initial_table}}};\n"
        "  return all;\n}\nstd::span<const NamedFunction> functional_functions() {\n"
        + f"  static constexpr NamedFunction all[] = {{\n{functional_table}}};\n"
        "  return all;\n}\n}  // namespace facula::nn\n",
    )


def write_optimizers(folder: Path, optimizers: list[TypedOptimizer], scheduled: list[TypedSchedule]) -> None:
    end = "\n}  // namespace facula::optim\n"
    write(
        folder / "lr_scheduler.h", SCHEDULE_HEADER + "\n\n".join(s.header() for s in scheduled) + "\n" + end
    )
    write(
        folder / "optimizers.h",
        "// Optimizers, with PyTorch's names and defaults of options.\n"
        f'// {BANNER}\n#pragma once\n#include "facula/optim/listed.h"\n\nnamespace facula::optim {{\n\n'
        + "\n\n".join(o.header() for o in optimizers)
        + "\n"
        + end,
    )
    write(
        folder / "optimizers.cpp",
        f'// {BANNER}\n#include "facula/optim/optimizers.h"\n\n#include "facula/nn/translated.h"\n'
        '#include "facula/optim/lr_scheduler.h"\n\nnamespace facula::optim {\n\n'
        "namespace {\nnn::Given given_by_name(const io::Dict& options) {\n  nn::Given given;\n"
        "  for (auto& [name, v] : options) given.named.emplace_back(name.string(), v);\n"
        "  return given;\n}\n}  // namespace\n\n"
        + "\n".join(o.source() for o in optimizers)
        + "\nstd::span<const OptimizerFactory> optimizers() {\n"
        + "  static constexpr OptimizerFactory all[] = {\n"
        + ",\n".join(
            f"      {{{quoted(o.name)}, [](std::vector<ParamGroup> p, const io::Dict& o) -> "
            "std::unique_ptr<Optimizer> {\n"
            f"         return {o.name}::of(std::move(p), o);\n       }}}}"
            for o in optimizers
        )
        + "};\n  return all;\n}\n\n"
        + "\n".join(s.source() for s in scheduled)
        + "\nstd::span<const nn::NamedClass> schedules() {\n  static constexpr nn::NamedClass all[] = {\n"
        + ",\n".join(f"      {{{quoted(s.name)}, &nn::{s.symbol}}}" for s in scheduled)
        + "};\n  return all;\n}\n"
        + end,
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--package", type=Path, required=True, metavar="DIR", help="folder of the package")
    parser.add_argument("--catalog", type=Path, required=True, metavar="DIR", help="folder of the catalog")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="folder to write to")
    parser.add_argument("--shards", type=int, default=4, help="files of the translation")
    given = parser.parse_args(arguments)
    try:
        names, forms, functions = read_operators(given.catalog)
        generate(Package(given.package, names, {"nn._forms": forms}), functions, given.out, given.shards)
    except Mistake as mistake:
        print(f"generate.py: {mistake}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
