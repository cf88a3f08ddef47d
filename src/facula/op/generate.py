#!/usr/bin/env python3
"""Generates code from the definitions of operators: C++ functions and type stubs.

Reads every `define("schema")` in the catalog with the calls chained to it, and writes, only where something
changed:

  OUT/facula/ops.h, ops.cpp      a C++ function for every operator: name, name_ (in place) and name_out forms,
                                 and the arithmetic operators of Tensor
  OUT/torch/tensor.h             the same under PyTorch's names: torch::Tensor with methods, and functions on
                                 it
  OUT/facula/families.h          FACULA_FAMILIES(_): the functions that define the operators
  OUT/facula/schemas.h           the schemas that were read, which a test compares with the running registry
  OUT/facula/_C/NAMESPACE.pyi    stubs: ops (facula.x), methods, nn_functional, fft, linalg, special
  OUT/facula/nn/_forms.py        functions declared for Python, `.python("relu(input, inplace=False)")`

A helper function, of the file or of a header of the catalog that it includes, may call `define` with a schema
that joins its arguments and literals, `define(std::string(name) + "(Tensor self) -> Tensor")`: a call of the
helper with literals is a definition then. Chained calls may have such arguments too:
`.python(std::string("pool") + rank + "d(input, size)")`.
"""

import argparse
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

NAMESPACES = ("function", "method", "nn_functional", "fft", "linalg", "special", "property", "hidden")
PREFIXED = ("fft", "linalg", "special")  # operator linalg_solve is facula.linalg.solve
KINDS = ("pointwise", "loop", "view", "composite", "procedure", "library", "data_dependent")
STUBS = ("ops", "methods", "nn_functional", "fft", "linalg", "special")
BANNER = "Written by src/facula/op/generate.py from the catalog."

CPP_KEYWORDS = set(
    "and or not xor default float double int bool new delete union export register this auto long short char "
    "class static switch case typename template namespace operator private public signed unsigned void while "
    "for".split()
)
PY_KEYWORDS = set(
    "from in is lambda not and or def del pass class import global with as for while return".split()
)

OPERATORS = [
    ("+", "add"),
    ("-", "sub"),
    ("*", "mul"),
    ("/", "div"),
    ("%", "remainder"),
    ("&", "bitwise_and"),
    ("|", "bitwise_or"),
    ("^", "bitwise_xor"),
    ("<", "lt"),
    ("<=", "le"),
    (">", "gt"),
    (">=", "ge"),
    ("==", "eq"),
    ("!=", "ne"),
]
UNARY_OPERATORS = [("-", "neg"), ("~", "bitwise_not")]

DTYPES = {
    "bool": "Bool",
    "uint8": "UInt8",
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "float16": "Float16",
    "bfloat16": "BFloat16",
    "float32": "Float32",
    "float64": "Float64",
    "complex64": "Complex64",
    "complex128": "Complex128",
}
FORMATS = {
    "contiguous_format": "contiguous",
    "channels_last": "channels_last",
    "preserve_format": "preserve",
    "channels_last_3d": "channels_last_3d",
}


class Mistake(Exception):
    pass


@dataclass
class Parameter:
    name: str
    type: str
    list: bool = False
    list_size: int = 0
    optional: bool = False
    optional_items: bool = False
    keyword_only: bool = False
    alias: str = ""
    written: bool = False
    default: str | None = None
    number: bool = False  # Tensor|Scalar


@dataclass
class Result:
    name: str
    type: str
    list: bool = False
    alias: str = ""


@dataclass
class Operator:
    schema: str
    name: str
    overload: str
    parameters: list[Parameter]
    results: list[Result]
    where: str = ""
    family: str = ""
    kind: str = "composite"
    doc: str = ""
    dtypes: str = ""
    namespaces: list[str] = field(default_factory=lambda: ["function", "method"])
    aliases: list[str] = field(default_factory=list)
    in_place_form: bool = False
    with_out: bool = False
    sample: str = ""
    python: list[list[str]] = field(default_factory=list)  # functions of Python: the form, then statements
    also: dict[str, str] = field(default_factory=dict)  # further name of a parameter -> its name

    @property
    def full_name(self) -> str:
        return f"{self.name}.{self.overload}" if self.overload else self.name

    @property
    def out_form(self) -> bool:
        """True if registry.cpp derives an out= form."""
        if self.with_out:
            return True
        if not self.results or any(r.type != "Tensor" or r.list or r.alias for r in self.results):
            return False
        return self.kind != "view" and not any(p.written for p in self.parameters)

    def takes_number(self, p: Parameter) -> bool:
        """True if C++ accepts a number in place of this tensor."""
        if p.type != "Tensor" or p.list or p.optional or p.written or p.alias:
            return False
        tensors = [q for q in self.parameters if q.type == "Tensor" and not q.optional]
        return (self.kind == "pointwise" and len(tensors) > 1) or (len(tensors) > 1 and p.name == "other")


# ---- reading schemas

PARAMETER = re.compile(
    r"(?P<type>\w+(?:\|\w+)?)(?:\((?P<alias>\w)(?P<written>!?)\))?(?P<mark>\??)(?P<list>\[(?P<size>\d*)\](?P<list_mark>\??))?"
    r"\s+(?P<name>\w+)(?:\s*=\s*(?P<default>.+))?$",
    re.S,
)
RESULT = re.compile(r"(?P<type>\w+)(?:\((?P<alias>\w)!?\))?(?P<list>\[\])?(?:\s+(?P<name>\w+))?$")
TYPES = (
    "Tensor",
    "Scalar",
    "int",
    "SymInt",
    "float",
    "bool",
    "str",
    "dtype",
    "Device",
    "MemoryFormat",
    "Generator",
)


def split_top(text: str) -> list[str]:
    """Splits at commas outside brackets and quotes."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


def parse_schema(schema: str, where: str) -> Operator:
    # The parameters end at the parenthesis that closes the first one.
    head = re.match(r"\s*(\w+)(?:\.(\w+))?\s*\(", schema)
    if not head:
        raise Mistake(f"{where}: not a schema: {schema}")
    end = closing(schema, head.end() - 1)
    arrow = re.match(r"\s*->\s*(.+)$", schema[end + 1 :], re.S)
    if not arrow:
        raise Mistake(f"{where}: the schema has no result: {schema}")
    parameters, keyword_only = [], False
    for text in split_top(schema[head.end() : end]):
        if text == "*":
            keyword_only = True
            continue
        m = PARAMETER.match(text)
        number = bool(m and m["type"] in ("Tensor|Scalar", "Scalar|Tensor"))
        if not m or (m["type"] not in TYPES and not number):
            raise Mistake(f"{where}: cannot read parameter `{text}` of {schema}")
        is_list = m["list"] is not None
        parameters.append(
            Parameter(
                m["name"],
                "Tensor" if number else m["type"],
                is_list,
                int(m["size"] or 0) if is_list else 0,
                bool(m["list_mark"]) if is_list else bool(m["mark"]),
                is_list and bool(m["mark"]),
                keyword_only,
                m["alias"] or "",
                bool(m["written"]),
                m["default"].strip() if m["default"] else None,
                number,
            )
        )
    returned = arrow[1].strip()
    results = []
    for text in split_top(returned[1:-1] if returned.startswith("(") else returned):
        m = RESULT.match(text)
        if not m or m["type"] not in TYPES:
            raise Mistake(f"{where}: cannot read result `{text}` of {schema}")
        results.append(Result(m["name"] or "", m["type"], bool(m["list"]), m["alias"] or ""))
    return Operator(schema, head[1], head[2] or "", parameters, results, where)


# ---- reading C++

LITERAL = re.compile(
    r'R"(?P<delimiter>[^()\\ ]{0,16})\((?P<raw>.*?)\)(?P=delimiter)"|"(?P<text>(?:[^"\\\n]|\\.)*)"', re.S
)
ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'", "0": "\0"}


def blank_comments(text: str) -> str:
    """The text with comments replaced by blanks, so that positions stay."""
    pattern = re.compile(LITERAL.pattern + r"|'(?:[^'\\\n]|\\.)+'|//[^\n]*|/\*.*?\*/", re.S)

    def blank(m):
        s = m.group(0)
        return re.sub(r"[^\n]", " ", s) if s.startswith("/") else s

    return pattern.sub(blank, text)


def closing(text: str, at: int) -> int:
    """The position of the bracket that closes the one at `at`."""
    depth, i = 0, at
    while i < len(text):
        c = text[i]
        if c in '"R':
            m = LITERAL.match(text, i)
            if m and (c == '"' or not text[i - 1 : i].isalnum()):
                i = m.end()
                continue
        if c == "'":
            m = re.compile(r"'(?:[^'\\\n]|\\.)*'").match(text, i)
            if m:
                i = m.end()
                continue
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return i
        i += 1
    raise Mistake(f"a bracket does not close: {text[at : at + 60]}")


def literals(text: str, at: int) -> tuple[str | None, int]:
    """Adjacent string literals at `at`, joined, and where they end; None if there is none."""
    joined, any_literal = "", False
    while True:
        while at < len(text) and text[at].isspace():
            at += 1
        m = LITERAL.match(text, at)
        if not m:
            return (joined if any_literal else None), at
        any_literal = True
        if m["raw"] is not None:
            joined += m["raw"]
        else:
            joined += re.sub(r"\\(.)", lambda e: ESCAPES.get(e[1], e[1]), m["text"])
        at = m.end()


def chain(text: str, at: int) -> list[tuple[str, str]]:
    """The calls `.name(arguments)` that follow position `at`."""
    calls = []
    while True:
        m = re.compile(r"\s*\.\s*(\w+)\s*\(").match(text, at)
        if not m:
            return calls
        end = closing(text, m.end() - 1)
        calls.append((m[1], text[m.end() : end]))
        at = end + 1


def apply_chain(op: Operator, calls: list[tuple[str, str]]) -> None:
    for name, arguments in calls:
        literal, _ = literals(arguments, 0)
        if name == "doc" and literal is not None:
            op.doc = re.sub(r"[ \t]*\n[ \t]*", "\n", literal).strip()
        elif name == "dtypes":
            op.dtypes = re.sub(r"\b(?:dtypes|facula|d)::", "", arguments.strip())
        elif name == "bind":
            op.namespaces = re.findall(r"\w+", re.sub(r"\w+\s*::", "", arguments))
            for n in op.namespaces:
                if n not in NAMESPACES:
                    raise Mistake(f"{op.where}: bind() takes {', '.join(NAMESPACES)}, not {n}")
        elif name == "alias" and literal is not None:
            op.aliases.append(literal)
        elif name == "in_place":
            op.in_place_form = True
        elif name == "with_out":
            op.with_out = True
        elif name == "python" and literal is not None:
            op.python.append([literals(a, 0)[0] or "" for a in arguments_of(arguments)])
        elif name == "also" and literal is not None:
            op.also[literals(arguments_of(arguments)[1], 0)[0] or ""] = literal
        elif name == "samples" and '"' in arguments:
            op.sample = literals(arguments, arguments.index('"'))[0] or ""
        elif name == "samples":  # one of the helpers
            op.sample = {"unary_samples": "self[3]", "binary_samples": "self[3], other[3]"}.get(
                arguments.split("(")[0].strip(), ""
            )
        elif name in KINDS:
            op.kind = name
        elif name == "forwards":
            op.kind = "procedure"


@dataclass
class Helper:
    """A function that creates a definition from its arguments."""

    parameters: list[str]
    schema: list[str]  # literals (quoted) and names of parameters, joined
    calls: list[tuple[str, str]]

    def expand(self, arguments: list[str], where: str) -> tuple[str, list[tuple[str, str]]]:
        values = dict(zip(self.parameters, arguments))
        schema = ""
        for piece in self.schema:
            literal = literals(values.get(piece, piece), 0)[0]
            if literal is None:
                raise Mistake(f"{where}: the schema needs string literals, not `{values.get(piece, piece)}`")
            schema += literal
        return schema, [(name, self.filled(text, values)) for name, text in self.calls]

    def filled(self, text: str, values: dict[str, str]) -> str:
        """The arguments of a call, with parameters of the helper (alone or joined with literals) replaced."""
        if text.strip(" {}") in values:
            return values[text.strip(" {}")]
        out = []
        for argument in arguments_of(text):
            pieces = [literals(values.get(p, p), 0)[0] for p in plain_pieces(argument)]
            out.append(argument if None in pieces else quoted("".join(pieces)))
        return ", ".join(out)


def quoted(text: str) -> str:
    """A literal of C++."""
    return '"' + re.sub(r'["\\\\]', r"\\\g<0>", text).replace("\n", "\\n") + '"'


def arguments_of(text: str) -> list[str]:
    """The arguments of a C++ call."""
    parts, start, i = [], 0, 0
    while i < len(text):
        m = LITERAL.match(text, i) if text[i] in '"R' else None
        if m:
            i = m.end()
        elif text[i] in "([{":
            i = closing(text, i) + 1
        else:
            if text[i] == ",":
                parts.append(text[start:i].strip())
                start = i + 1
            i += 1
    return parts + [text[start:].strip()]


FUNCTION_HEAD = re.compile(
    r"(\w+)\s*\(((?:[^(){};]|\((?:[^(){};]|\([^(){};]*\))*\))*)\)\s*(?:->\s*[\w:]+\s*)?\{"
)


def read_helpers(text: str, where) -> dict[str, list[Helper]]:
    """By helper: the definitions that it creates."""
    helpers: dict[str, list[Helper]] = {}
    for m in re.finditer(r"\bdefine\s*\(", text):
        if re.search(r"\b(?:Definer&?|#)\s*$", text[: m.start()]):
            continue  # a declaration
        end = closing(text, m.end() - 1)
        argument = text[m.end() : end]
        literal, after = literals(argument, 0)
        if literal is not None and not argument[after:].strip():
            continue
        heads = [
            h
            for h in FUNCTION_HEAD.finditer(text[: m.start()])
            if h[1] not in ("if", "for", "while", "switch", "FACULA_FAMILY")
        ]
        if not heads:
            raise Mistake(f"{where(m.start())}: define() takes a string literal")
        names = [
            re.search(
                r"(\w+)\s*$",
                re.sub(r"=.*", "", p.split("(*")[1].split(")")[0] if "(*" in p else p, flags=re.S).strip(),
            )
            for p in arguments_of(heads[-1][2])
        ]
        helper = Helper([n[1] if n else "" for n in names], plain_pieces(argument), chain(text, end + 1))
        helpers.setdefault(heads[-1][1], []).append(helper)
    return helpers


def plain_pieces(text: str) -> list[str]:
    """The operands of +, with std::string(literal) replaced by the literal."""
    strip = re.compile(r"^std::string(?:_view)?\s*\((.*)\)$", flags=re.S)
    return [strip.sub(r"\1", p.strip()) for p in split_plus(text)]


def split_plus(text: str) -> list[str]:
    parts, start, i = [], 0, 0
    while i < len(text):
        m = LITERAL.match(text, i) if text[i] in '"R' else None
        if m:
            i = m.end()
        else:
            if text[i] == "+":
                parts.append(text[start:i])
                start = i + 1
            i += 1
    return parts + [text[start:]]


def read_file(path: Path) -> tuple[list[str], list[Operator]]:
    text = blank_comments(path.read_text(encoding="utf-8"))

    def where(at: int) -> str:
        return f"{path.name}:{text.count(chr(10), 0, at) + 1}"

    families = [(m.start(), m[1]) for m in re.finditer(r"\bFACULA_FAMILY\s*\(\s*(\w+)\s*\)", text)]
    families = [f for f in families if not re.search(r"#\s*define\s+$", text[: f[0]])]

    helpers = read_helpers(text, where)
    for header in re.findall(r'#include "facula/catalog/(\w+\.h)"', text):
        if (path.parent / header).exists():
            helpers |= read_helpers(blank_comments((path.parent / header).read_text(encoding="utf-8")), where)
    operators = []
    for m in re.finditer(r"\b(\w+)\s*\(\s*(?=R?\")", text):
        if m[1] != "define" and m[1] not in helpers:
            continue
        end = closing(text, m.end(1) + text[m.end(1) :].index("("))
        if m[1] == "define":
            schema, after = literals(text, m.end())
            if text[after:end].strip():
                continue  # a literal joined with something else: in a helper
            definitions = [(schema, [])]
        else:
            arguments = arguments_of(text[m.end() : end])
            definitions = [helper.expand(arguments, where(m.start())) for helper in helpers[m[1]]]
        family = [name for at, name in families if at < m.start()]
        if not family:
            raise Mistake(f"{where(m.start())}: a definition outside FACULA_FAMILY")
        for schema, calls in definitions:
            op = parse_schema(re.sub(r"\s+", " ", schema), where(m.start()))
            op.family = family[-1]
            apply_chain(op, calls)
            apply_chain(op, chain(text, end + 1))
            operators.append(op)
    return [name for _, name in families], operators


def copies_of_views(operators: list[Operator]) -> list[Operator]:
    """`x_copy` of every view x, as the family view_copy defines them."""
    copies = []
    for view in operators:
        if view.kind != "view" or view.name.startswith("_") or "property" in view.namespaces:
            continue
        schema = view.schema.replace("(a)", "").replace(view.name, view.name + "_copy", 1)
        op = parse_schema(schema, view.where)
        op.family, op.kind, op.sample = "view_copy", "procedure", view.sample
        op.doc = f"A copy of what `{view.name}` shows, in row-major order."
        op.dtypes = view.dtypes
        op.namespaces = ["function", "method"] if view.name == "narrow" else ["function"]
        op.aliases = [name + "_copy" for name in view.aliases]
        op.with_out = op.results[0].list
        copies.append(op)
    return copies


def read_catalog(folder: Path) -> tuple[list[str], list[Operator]]:
    families, operators, seen = [], [], {}
    for path in sorted(folder.glob("*.cpp")):
        f, o = read_file(path)
        families += f
        for op in o:
            if op.full_name in seen:
                raise Mistake(f"{op.where}: {op.full_name} is defined at {seen[op.full_name]} already")
            seen[op.full_name] = op.where
        operators += o
    if "view_copy" in families:
        operators += copies_of_views(operators)
    names = {op.name: op.where for op in operators}
    for op in operators:
        if op.in_place_form and op.name + "_" in names:
            raise Mistake(
                f"{op.where}: {op.name} derives {op.name}_, which {names[op.name + '_']} defines: "
                "leave out .in_place() or drop that definition"
            )
    for name in families:
        if families.count(name) > 1:
            raise Mistake(f"the family {name} is defined twice")
    return families, operators


# ---- C++


def cpp_name(name: str) -> str:
    return name + "_" if name in CPP_KEYWORDS else name


def cpp_type(op: Operator, p: Parameter) -> str:
    if p.list:
        if p.type == "Tensor":
            return "const std::vector<Tensor>&"
        if p.type in ("int", "SymInt"):
            return "const Sizes&"
        return "const std::optional<std::vector<Scalar>>&" if p.optional else "const std::vector<Scalar>&"
    if p.type == "Tensor":
        return (
            "const MaybeTensor&"
            if p.optional
            else "const Operand&"
            if op.takes_number(p)
            else "const Tensor&"
        )
    if p.type == "Generator":
        return "Generator*"
    plain = {
        "Scalar": "Scalar",
        "int": "int64_t",
        "SymInt": "SymInt",
        "float": "double",
        "bool": "bool",
        "str": "std::string_view",
        "dtype": "DType",
        "Device": "Device",
        "MemoryFormat": "MemoryFormat",
    }[p.type]
    if p.optional:
        return "std::optional<SymInt>" if p.type == "int" else f"std::optional<{plain}>"
    return "const Scalar&" if p.type == "Scalar" else plain


def cpp_default(p: Parameter) -> str | None:
    text = p.default
    if text is None:
        return None
    if text == "None":
        if p.type == "Generator":
            return "nullptr"
        return "{}" if p.list and p.type == "Tensor" else "std::nullopt"
    if p.list:
        items = (
            [cpp_number(i) for i in split_top(text[1:-1])]
            if text[0] in "[("
            else [cpp_number(text)] * max(p.list_size, 1)
        )
        if p.type in ("int", "SymInt"):
            return "Sizes{" + ", ".join(f"SymInt({i})" for i in items) + "}"
        return "{" + ", ".join(f"Scalar({i})" for i in items) + "}"
    if p.type == "str":
        return '"' + text[1:-1].replace("\\", "\\\\").replace('"', '\\"') + '"'
    if p.type == "dtype":
        return f"DType::{DTYPES[text]}"
    if p.type == "Device":
        return f'parse_device("{text}")'
    if p.type == "MemoryFormat":
        return f"MemoryFormat::{FORMATS[text]}"
    return cpp_number(text)


def cpp_number(text: str) -> str:
    special = {
        "True": "true",
        "False": "false",
        "inf": "__builtin_inf()",
        "-inf": "-__builtin_inf()",
        "nan": '__builtin_nan("")',
    }
    return special.get(text, text)


def cpp_value(op: Operator, p: Parameter) -> str:
    n = cpp_name(p.name)
    if p.list:
        if p.type == "Tensor":
            return f"op::Value(std::span<const Tensor>({n}))"
        if p.type in ("int", "SymInt"):
            return f"as_value_({n})"
        if p.optional:
            return f"{n} ? op::Value(std::span<const Scalar>(*{n})) : op::Value()"
        return f"op::Value(std::span<const Scalar>({n}))"
    if p.type == "Tensor":
        return (
            f"op::Value({n}.impl())"
            if p.optional
            else f"as_value_({n})"
            if op.takes_number(p)
            else f"op::Value({n})"
        )
    if p.type == "Generator":
        return f"op::Value({n})"
    return f"{n} ? op::Value(*{n}) : op::Value()" if p.optional else f"op::Value({n})"


def cpp_result(op: Operator) -> str:
    plain = {
        "Tensor": "Tensor",
        "bool": "bool",
        "int": "int64_t",
        "SymInt": "int64_t",
        "float": "double",
        "Scalar": "Scalar",
    }
    if not op.results:
        return "void"
    if len(op.results) == 1:
        r = op.results[0]
        return "std::vector<Tensor>" if r.list else plain[r.type]
    return "std::tuple<" + ", ".join("Tensor" for _ in op.results) + ">"


def cpp_return(op: Operator) -> str:
    if not op.results:
        return "(void)results_;"
    if len(op.results) > 1:
        return "return {" + ", ".join(f"std::move(results_[{i}])" for i in range(len(op.results))) + "};"
    r = op.results[0]
    if r.list:
        return "return results_.to_vector();"
    read = {
        "bool": ".item().to_bool()",
        "int": ".item().to_int()",
        "SymInt": ".item().to_int()",
        "float": ".item().to_double()",
        "Scalar": ".item()",
    }
    return "return std::move(results_[0]);" if r.type == "Tensor" else f"return results_[0]{read[r.type]};"


def cpp_parameters(op: Operator, defaults: bool, in_place: bool = False) -> str:
    out, may_default = [], True
    for p in reversed(op.parameters):
        kind = "const Tensor&" if in_place and p is op.parameters[0] else cpp_type(op, p)
        # If a string distinguishes an overload it has no default, since calls would be ambiguous.
        default = None if op.overload and p.type == "str" else cpp_default(p)
        may_default = may_default and default is not None
        out.append(f"{kind} {cpp_name(p.name)}" + (f" = {default}" if defaults and may_default else ""))
    return ", ".join(reversed(out))


def cpp_forms(op: Operator) -> list[tuple[str, str, str]]:
    """(name, parameters of the form, form) of each function of an operator and its aliases."""
    forms = []
    for name in [op.name] + op.aliases:
        forms.append((name, "", "functional"))
        if op.in_place_form:
            forms.append((name + "_", "", "in_place"))
        if op.out_form and len(op.results) == 1 and not op.results[0].list:
            forms.append((name + "_out", "const Tensor& out, ", "out"))
    return forms


def ops_h(operators: list[Operator]) -> str:
    lines = [
        "// Every operator as a function. In-place forms end in _, forms that write their result elsewhere "
        "in _out.",
        f"// {BANNER}",
        "#pragma once",
        "#include <optional>",
        "#include <string_view>",
        "#include <tuple>",
        "#include <vector>",
        "",
        '#include "facula/op/argument.h"',
        "",
        "namespace facula {",
        "",
        "class Generator;",
        "",
    ]
    family = ""
    for op in operators:
        if op.family != family:
            family = op.family
            lines += ["", f"// {family}"]
        for name, extra, form in cpp_forms(op):
            parameters = extra + cpp_parameters(op, True, form == "in_place")
            lines.append(f"{cpp_result(op)} {cpp_name(name)}({parameters});")
    lines.append("")
    named = {op.name: op for op in operators if len(op.parameters) > 0 and op.out_form}
    for sign, name in OPERATORS:
        op = named.get(name)
        if not op or len(op.parameters) < 2 or not op.takes_number(op.parameters[1]):
            continue
        both = "const Tensor& a, const Operand& b"
        lines.append(
            f"inline Tensor operator{sign}(const Tensor& a, const Tensor& b) {{ return {name}(a, b); }}"
        )
        lines.append(f"inline Tensor operator{sign}({both}) {{ return {name}(a, b); }}")
        if op.takes_number(op.parameters[0]):
            lines.append(
                f"inline Tensor operator{sign}(const Operand& a, const Tensor& b) {{ return {name}(a, b); }}"
            )
    for sign, name in UNARY_OPERATORS:
        if name in named:
            lines.append(f"inline Tensor operator{sign}(const Tensor& a) {{ return {name}(a); }}")
    return "\n".join(lines + ["", "}  // namespace facula", ""])


# Methods that torch/base.h defines by hand instead of an operator's.
TORCH_OWN_METHODS = ("to", "index", "index_put_")
# The properties of a new tensor that TensorOptions hold, and the expressions that read them.
TORCH_OPTIONS = {
    "dtype": "options.dtype_opt()",
    "device": "options.device_opt()",
    "requires_grad": "options.requires_grad()",
}


def torch_argument(p: Parameter) -> str:
    if p.list and p.type == "Tensor":
        return f"torch::detail::plain({cpp_name(p.name)})"
    return (
        f"SymInt({cpp_name(p.name)})"
        if p.type == "SymInt" and not (p.list or p.optional)
        else cpp_name(p.name)
    )


def torch_result(op: Operator) -> str:
    return "auto" if len(op.results) > 1 else cpp_result(op)


def torch_call(op: Operator, called: str, arguments: list[str]) -> str:
    call = f"facula::{called}({', '.join(arguments)})"
    return f"return torch::detail::as_torch<Tensor>({call});" if op.results else f"{call};"


def torch_parameters(op: Operator, defaults: bool, in_place: bool = False) -> str:
    """The parameters in C++, with the types of torch/base.h in place of Facula's."""
    text = cpp_parameters(op, defaults, in_place).replace(
        "std::vector<Scalar>", "std::vector<facula::Scalar>"
    )
    text = re.sub(r"\bSymInt(?=[ >])", "int64_t", text)  # sizes of users' programs are numbers
    return text.replace("std::string_view reduction", "detail::ReductionName reduction")


def torch_options(op: Operator) -> list[tuple[list[Parameter], str, dict[str, str]]]:
    """The forms of an operator that makes tensors, with TensorOptions in place of dtype and device: the
    parameters before the options, the text of those after them, and values of the operator's others.
    """
    names = {p.name for p in op.parameters}
    if not {"dtype", "device"} <= names or len(op.results) != 1:
        return []
    before = [p for p in op.parameters if p.name not in TORCH_OPTIONS and not p.keyword_only]
    values = dict(TORCH_OPTIONS)
    after = ""
    if "memory_format" in names:
        after = ", std::optional<MemoryFormat> memory_format = std::nullopt"
        values["memory_format"] = "memory_format ? memory_format : options.memory_format_opt()"
    forms = [(before, after, values)]
    generator = [p for p in op.parameters if p.type == "Generator"]
    if generator:
        arguments = Parameter("generator", "Generator")
        forms.append(([*before, arguments], after, values | {"generator": "generator"}))
    return forms


@dataclass
class TorchFunctions:
    """Facula's functions on torch::Tensor, as methods and as functions."""

    methods: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    used: set[tuple] = field(default_factory=set)

    def add(
        self, op: Operator, shown: Operator, called: str, values: dict[str, str], after: str, form: str
    ) -> None:
        """One form: `shown` has the parameters that users give, `values` what becomes of the operator's."""
        in_place, out = form == "in_place", form == "out"
        arguments = [values[p.name] for p in op.parameters]
        extra = "const Tensor& out, " if out else ""
        call = torch_call(op, called, (["out"] if out else []) + arguments)
        result = torch_result(op)
        signature = extra + torch_parameters(shown, True, in_place) + after
        key = ("function", called, extra + torch_parameters(shown, False, in_place) + after)
        if key not in self.used:
            self.used.add(key)
            self.functions.append(f"inline {result} {called}({signature.removeprefix(', ')}) {{ {call} }}")
        first = shown.parameters[0] if shown.parameters else None
        on_tensor = bool(first and first.type == "Tensor" and not first.list and not first.optional)
        if not on_tensor or out or not {"method", "property"} & set(op.namespaces):
            return
        rest = torch_shown(op, shown.parameters[1:])
        if in_place:  # gives the tensor itself, as a reference
            result, call = "Tensor&", f"{call.removeprefix('return ')} return const_cast<Tensor&>(*this);"
        call = re.sub(rf"\b{cpp_name(first.name)}\b(?=[,)])", "*this", call, count=1)
        key = ("method", called, torch_parameters(rest, False) + after)
        if key not in self.used:
            self.used.add(key)
            signature = (torch_parameters(rest, True) + after).removeprefix(", ")
            self.methods.append(f"  {result} {called}({signature}) const {{ {call} }}")


def torch_shown(op: Operator, parameters: list[Parameter]) -> Operator:
    """Returns the operator with other parameters; a parameter takes numbers if the operator's does."""
    shown = Operator("", op.name, op.overload, parameters, op.results, kind=op.kind)
    takes = {p.name: op.takes_number(p) for p in op.parameters}
    shown.takes_number = lambda p: takes.get(p.name, False)  # type: ignore[method-assign]
    return shown


def torch_functions(operators: list[Operator]) -> TorchFunctions:
    all_ = TorchFunctions()
    for op in operators:
        plain = {p.name: torch_argument(p) for p in op.parameters}
        options = torch_options(op)
        for name, _, form in cpp_forms(op):
            if form == "functional" and options:
                for before, after, values in options:
                    defaults = {p.name: str(cpp_default(p)) for p in op.parameters if p.default is not None}
                    arguments = defaults | {p.name: torch_argument(p) for p in before} | values
                    text = ("" if not before else ", ") + "const TensorOptions& options = {}" + after
                    all_.add(op, torch_shown(op, before), cpp_name(name), arguments, text, form)
            else:
                all_.add(op, torch_shown(op, op.parameters), cpp_name(name), plain, "", form)
    return all_


def torch_assignments(operators: list[Operator]) -> list[str]:
    """`a += b` and its kin, for each operator of C++ whose operator of Facula can write in place."""
    in_place = {op.name for op in operators if op.in_place_form}
    return [
        f"  Tensor& operator{sign}=(const Operand& b) const "
        f"{{ facula::{name}_(*this, b); return const_cast<Tensor&>(*this); }}"
        for sign, name in OPERATORS
        if sign[-1] not in "<>=" and name in in_place
    ]


def torch_h(operators: list[Operator]) -> str:
    """Facula's functions on torch::Tensor, in place and not, as functions and as methods."""
    written = torch_functions(operators)
    lines = [
        "// torch::Tensor, a facula::Tensor with the operators as methods, and the functions of "
        "facula/ops.h on it.",
        f"// {BANNER}",
        "#pragma once",
        '#include "torch/base.h"',
        "",
        "namespace torch {",
        "",
        "class Tensor : public TensorBase {",
        " public:",
        "  using TensorBase::TensorBase;",
        *(f"  using TensorBase::{name};" for name in TORCH_OWN_METHODS),
        "  Tensor() = default;",
        "  Tensor(const Tensor&) = default;",
        "  Tensor(Tensor&&) = default;",
        "  Tensor& operator=(const Tensor& from) & = default;",
        "  Tensor& operator=(Tensor&& from) & = default;",
        "  // An element or a part of a tensor is written: x[0] = y.",
        "  Tensor& operator=(const Tensor& from) && { facula::copy_(*this, from); return *this; }",
        "  Tensor& operator=(Tensor&& from) && { facula::copy_(*this, from); return *this; }",
        "  Tensor& operator=(const Scalar& number) && { facula::fill_(*this, number); return *this; }",
        "",
        *written.methods,
        *torch_assignments(operators),
        "};",
        "",
        *written.functions,
        "",
    ]
    arithmetic = ops_h(operators)
    for sign, _ in OPERATORS:
        both = (
            "const Tensor& a, const Tensor& b",
            "const Tensor& a, const Operand& b",
            "const Operand& a, const Tensor& b",
        )
        for text in both:
            if f"operator{sign}({text})" not in arithmetic:
                continue
            lines.append(f"inline Tensor operator{sign}({text}) {{ return facula::operator{sign}(a, b); }}")
    for sign, _ in UNARY_OPERATORS:
        lines.append(f"inline Tensor operator{sign}(const Tensor& a) {{ return facula::operator{sign}(a); }}")
    return "\n".join(lines + ["", "}  // namespace torch", ""])


def ops_cpp(operators: list[Operator]) -> str:
    lines = [
        f"// {BANNER}",
        '#include "facula/ops.h"',
        "",
        '#include "facula/autograd/autograd.h"',
        '#include "facula/op/registry.h"',
        "",
        "namespace facula {",
        "namespace {",
        "",
        "[[maybe_unused]] op::Value as_value_(const Operand& o) {",
        "  if (o.tensor()) return op::Value(*o.tensor());",
        "  return o.is_integer() ? op::Value(o.integer()) : op::Value(o.number());",
        "}",
        "[[maybe_unused]] op::Value as_value_(const Sizes& s) { return s.is_none() ? op::Value() : "
        "op::Value(SymSpan(s)); }",
        "",
        "}  // namespace",
        "",
    ]
    for op in operators:
        values = ", ".join(cpp_value(op, p) for p in op.parameters)
        for name, extra, form in cpp_forms(op):
            in_place = form == "in_place"
            if in_place:
                first = f"op::Value({cpp_name(op.parameters[0].name)})"
                items = ", ".join([first] + [cpp_value(op, p) for p in op.parameters[1:]])
            else:
                items = values
            lines.append(
                f"{cpp_result(op)} {cpp_name(name)}({extra}{cpp_parameters(op, False, in_place)}) {{"
            )
            lines.append(f'  static const op::Operator& op_ = op::get("{op.full_name}");')
            arguments = "{}"
            if op.parameters:
                lines.append(f"  const op::Value args_[] = {{{items}}};")
                arguments = "args_"
            tail = {
                "functional": "",
                "in_place": ", op::Form::in_place",
                "out": ", op::Form::out, std::span<const Tensor>(&out, 1)",
            }[form]
            lines.append(f"  op::Results results_ = op::call(op_, {arguments}{tail});")
            if any(p.name == "requires_grad" and p.keyword_only for p in op.parameters):
                lines.append("  if (requires_grad) autograd::set_requires_grad(results_[0], true);")
            lines.append(f"  {cpp_return(op)}")
            lines += ["}", ""]
    return "\n".join(lines + ["}  // namespace facula", ""])


def families_h(families: list[str]) -> str:
    names = " \\\n".join(f"  _({f})" for f in families)
    declared = "\n".join(f"void define_{f}();" for f in families)
    names = f" \\\n{names}" if families else ""
    return (
        f"// The families of the catalog. {BANNER}\n#pragma once\n\n#define FACULA_FAMILIES(_){names}\n\n"
        f"namespace facula::catalog {{\n{declared}\n}}  // namespace facula::catalog\n"
    )


def schemas_h(operators: list[Operator]) -> str:
    def quote(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    rows = ",\n".join(
        "    "
        f"{{{quote(op.full_name)}, {quote(op.schema)}, {quote(op.family)}, {str(op.in_place_form).lower()}, "
        f"{str(op.out_form).lower()}}}"
        for op in operators
    )
    return (
        f"// What the generator read. {BANNER}\n#pragma once\n#include <array>\n#include <string_view>\n\n"
        "namespace facula::catalog {\n"
        "struct ReadSchema { std::string_view full_name, schema, family; bool in_place_form, out_form; };\n"
        f"inline constexpr std::array<ReadSchema, {len(operators)}> kReadSchemas{{{{\n{rows}\n}}}};\n"
        "}  // namespace facula::catalog\n"
    )


# ---- stubs


PY_TYPES = {
    "Tensor": "Tensor",
    "Scalar": "Number",
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "dtype": "dtype",
    "Device": "device | str",
    "MemoryFormat": "memory_format",
    "Generator": "Generator",
}


def py_type(op: Operator, p: Parameter) -> str:
    plain = PY_TYPES[p.type]
    if p.list:
        item = f"{plain} | None" if p.optional_items else plain
        plain = f"Sequence[{item}]"
        if p.list_size:
            plain = f"{item} | {plain}"
    elif p.number:
        plain = "Tensor | Number"
    optional = p.optional or (p.default == "None")
    return plain + " | None" if optional else plain


def py_default(p: Parameter) -> str:
    if (
        p.type == "MemoryFormat"
        and p.default in FORMATS
        or p.type in ("dtype", "Device")
        and p.default != "None"
    ):
        return "..."
    return p.default.replace("inf", "...").replace("nan", "...") if p.default else "..."


def py_result(op: Operator) -> str:
    if not op.results:  # or the list that it writes (python/bind/trampoline.cpp)
        first = next(iter(op.parameters), None)
        return py_type(op, first) if first and first.name == "self" and first.list else "None"
    if len(op.results) == 1:
        r = op.results[0]
        return "tuple[Tensor, ...]" if r.list else PY_TYPES[r.type]
    return "tuple[" + ", ".join(PY_TYPES[r.type] for r in op.results) + "]"


def py_signature(op: Operator, method: bool, out: bool, variadic: bool, in_place: bool = False) -> str:
    parts, star = [], False
    for i, p in enumerate(op.parameters):
        if method and i == 0:
            parts.append("self")
            continue
        name = "input" if p.name == "self" else p.name + "_" if p.name in PY_KEYWORDS else p.name
        if variadic and p is variadic_parameter(op, method):
            parts.append(f"*{name}: int")
            star = True
            continue
        if (p.keyword_only) and not star:
            parts.append("*")
            star = True
        default = f" = {py_default(p)}" if p.default is not None else ""
        kind = "Tensor" if in_place and i == 0 else py_type(op, p)
        parts.append(f"{name}: {kind}{default}")
    if out:
        if not star:
            parts.append("*")
        one = len(op.results) == 1 and not op.results[0].list
        parts.append("out: Tensor | None = None" if one else "out: Sequence[Tensor] | None = None")
    return "(" + ", ".join(parts) + f") -> {py_result(op)}"


def variadic_parameter(op: Operator, method: bool) -> Parameter | None:
    """The list of integers that may be passed as separate arguments: view(2, 3), zeros(2, 3)."""
    rest = op.parameters[1:] if method else op.parameters
    if rest and rest[0].list and rest[0].type in ("int", "SymInt") and not rest[0].optional:
        if all(p.keyword_only for p in rest[1:]) and not rest[0].list_size:
            return rest[0]
    return None


def self_parameter(op: Operator) -> bool:
    first = op.parameters[0] if op.parameters else None
    return bool(first and first.type == "Tensor" and not first.list and not first.optional)


def py_places(op: Operator) -> list[tuple[str, str]]:
    """(stub, name) of every place in which users find the operator."""
    if "hidden" in op.namespaces:
        return []
    places = []
    for name in [op.name] + op.aliases:
        prefix = next((n for n in PREFIXED if n in op.namespaces and name.startswith(n + "_")), None)
        if not prefix and op.namespaces != ["method"]:
            places.append(("ops", name))
        if "method" in op.namespaces and self_parameter(op):
            places.append(("methods", name))
        if "property" in op.namespaces:
            places.append(("methods", name))
        for n in op.namespaces:
            if n == "nn_functional":
                places.append((n, name))
            elif n in PREFIXED:
                places.append((n, name[len(n) + 1 :] if name.startswith(n + "_") else name))
    return list(dict.fromkeys(places))


def stubs(operators: list[Operator]) -> dict[str, str]:
    # stub -> name -> [(signature, doc, is property)]
    stubs: dict[str, dict[str, list[tuple[str, str, bool]]]] = {s: {} for s in STUBS}
    for op in operators:
        for stub, name in py_places(op):
            method = stub == "methods"
            is_property = method and "property" in op.namespaces
            entries = stubs[stub].setdefault(name, [])
            entries.append((py_signature(op, method, not method and op.out_form, False), op.doc, is_property))
            if variadic_parameter(op, method) and not is_property:
                entries.append((py_signature(op, method, not method and op.out_form, True), op.doc, False))
            if op.in_place_form and (method or stub in ("ops", "nn_functional")) and not is_property:
                stubs[stub].setdefault(name + "_", []).append(
                    (py_signature(op, method, False, False, True), f"In-place form of `{name}`.", False)
                )
    texts = {}
    for stub, names in stubs.items():
        lines = [f"# {BANNER}", "from collections.abc import Sequence", "from typing import overload", ""]
        lines += [
            "from . import Generator, Tensor, device, dtype, memory_format",
            "",
            "Number = bool | int | float | complex",
            "",
        ]
        # Inside the class, annotations cannot use `float`, since a method of that name hides the type.
        hidden = [t for t in ("bool", "int", "float", "complex", "str", "dtype", "device") if t in names]
        for t in hidden:
            lines.insert(3, f"from {'.' if t in ('dtype', 'device') else 'builtins'} import {t} as _{t}")
        hides = re.compile(r"(?<=[:|>] |.\[)(" + "|".join(hidden) + r")\b") if hidden else None
        indent = ""
        if stub == "methods":
            lines += ["class TensorOperators:"] + ([] if names else ["    pass"])
            indent = "    "
        for name in sorted(names):
            entries = list(dict.fromkeys(names[name]))
            shown = name + "_" if name in PY_KEYWORDS else name
            for signature, doc, is_property in entries:
                if len(entries) > 1:
                    lines.append(f"{indent}@overload")
                if is_property:
                    lines.append(f"{indent}@property")
                if hides:
                    signature = hides.sub(r"_\1", signature)
                lines.append(f"{indent}def {shown}{signature}:")
                safe = doc.replace("\\", "\\\\").replace('"""', "'''").replace("\n", "\n" + indent + "    ")
                lines.append(f'{indent}    """{safe}"""' if safe else f"{indent}    ...")
        texts[stub] = "\n".join(lines) + "\n"
    return texts


# ---- functions of Python

# Parameters of PyTorch's Python functions that no operator has, and their types.
PYTHONS_OWN = {
    "size_average": "bool | None",  # together with `reduce` the former `reduction`
    "reduce": "bool | None",
    "inplace": "bool",  # calls the in-place form
    "return_indices": "bool",  # calls NAME_with_indices; ignored for such an operator itself
    "_stacklevel": "int",  # ignored
    "out": "Tensor | None",
}
FORM = re.compile(r"(\w+)\((.*)\)$", re.S)


class PythonForm:
    """A function of nn.functional: its parameters, and how they map to those of the operator. Statements
    before the call may use parameters that the operator does not have, and set others.
    """

    def __init__(
        self, op: Operator, form: str, statements: list[str], operators: dict[str, Operator]
    ) -> None:
        self.op, self.where, self.statements = op, f"{op.where}: .python", statements
        m = FORM.match(form.strip())
        if not m:
            raise Mistake(f"{self.where}: expected name(parameter, parameter=default), got {form}")
        self.name, self.defaults = m[1], {}
        for text in split_top(m[2]):
            name, equals, default = text.partition("=")
            self.defaults[name.strip()] = default.strip() if equals else None
        self.set = {s.split(" = ")[0] for s in statements if re.match(r"\w+ = ", s)}
        of_schema = {p.name: p for p in op.parameters}
        self.taken: dict[str, str] = {}  # parameter of the schema -> of the form
        for name in self.defaults:
            p = of_schema.get(name) or of_schema.get(op.also.get(name, "self" if name == "input" else ""))
            if name == "*":
                continue
            if p:
                self.taken[p.name] = name
            elif name not in PYTHONS_OWN and not re.search(rf"\b{name}\b", " ".join(statements)):
                raise Mistake(f"{self.where}: {name} is no parameter of {op.schema}")
        self.with_indices = None
        if self.own("return_indices") and len(op.results) == 1:
            self.with_indices = operators[op.name + "_with_indices"].name
        if self.own("inplace") and not op.in_place_form:
            raise Mistake(f"{self.where}: {op.name} has no form in place")

    def own(self, name: str) -> bool:
        return name in self.defaults and name not in self.taken.values()

    def by_schema(self) -> dict[str, str]:
        """The parameters that are the operator's, in order: as users write them -> as the schema does."""
        names = {name: of_schema for of_schema, name in self.taken.items()}
        return {name: names[name] for name in self.defaults if name in names}

    def parameter(self, name: str) -> str:
        if name == "*":
            return name
        default = self.defaults[name]
        p = next((p for p in self.op.parameters if self.taken.get(p.name) == name), None)
        kind = PYTHONS_OWN.get(name, "Any") if p is None else py_type(self.op, p)
        if default == "None" and kind != "Any" and not kind.endswith("| None"):
            kind += " | None"
        return f"{name}: {kind}" + (f" = {default}" if default is not None else "")

    def value(self, p: Parameter) -> str:
        """The argument for a parameter of the operator."""
        name = self.taken[p.name]
        if self.defaults[name] != "None" or p.optional or p.default == "None" or name in self.set:
            return name
        if p.default is not None:
            return f"{p.default} if {name} is None else {name}"
        if p.name == "dim":
            return f'last_dim("{self.name}", input.dim()) if {name} is None else {name}'
        raise Mistake(f"{self.where}: {name} cannot be None for {self.op.schema}")

    def arguments(self) -> str:
        parts, by_name = [], False
        for p in self.op.parameters:
            if p.name not in self.taken:
                if p.default is None:
                    raise Mistake(f"{self.where}: no {p.name} for {self.op.schema}")
                by_name = True
                continue
            by_name = by_name or p.keyword_only
            parts.append(f"{p.name}={self.value(p)}" if by_name else self.value(p))
        return ", ".join([*parts, "out=out"] if self.own("out") else parts)

    def called(self) -> list[str]:
        """The operators and forms that it calls."""
        names = [self.op.name]
        if self.own("inplace"):
            names.append(self.op.name + "_")
        if self.with_indices:
            names.append(self.with_indices)
        return names

    def text(self) -> str:
        result = "Any" if self.own("return_indices") else py_result(self.op)
        lines = [f"def {self.name}({', '.join(map(self.parameter, self.defaults))}) -> {result}:"]
        doc = re.sub(r"\bself\b", "input", self.op.doc).replace("\\", "\\\\").replace("\n", "\n    ")
        lines.append(f'    """{doc}"""')
        if self.own("size_average"):
            lines += [
                "    if size_average is not None or reduce is not None:",
                "        reduction = reduction_of(size_average, reduce, reduction)",
            ]
        lines += ["    " + statement for statement in self.statements]
        names = ["_" + n for n in self.called()]
        choose = "inplace" if self.own("inplace") else "return_indices"
        f = names[0] if len(names) == 1 else f"({names[1]} if {choose} else {names[0]})"
        if (
            self.own("return_indices")
            and len(self.op.results) > 1
            and not self.name.endswith("_with_indices")
        ):
            lines.append(f"    results = {f}({self.arguments()})")
            return "\n".join([*lines, "    return results if return_indices else results[0]"])
        return "\n".join([*lines, f"    return {f}({self.arguments()})"])


def python_forms(operators: list[Operator]) -> list[PythonForm]:
    by_name = {op.name: op for op in operators if not op.overload}
    return [PythonForm(op, form, rest, by_name) for op in operators for form, *rest in op.python]


def forms_py(operators: list[Operator]) -> str:
    forms = python_forms(operators)
    called = sorted({name for f in forms for name in f.called()})
    lines = [
        '"""Functions of ``facula.nn.functional``: operators with PyTorch\'s parameters for Python.',
        "",
        BANNER,
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Sequence",
        "from typing import Any",
        "",
        "from .. import _C",
        "from ._conventions import *",
        "",
        "Tensor, dtype = _C.Tensor, _C.dtype",
        "Number = bool | int | float | complex",
        f"__all__ = {json.dumps(sorted(f.name for f in forms))}",
        "",
        *(f"_{name} = _C.ops.{name}" for name in called),
        "",
        "",
    ]
    return "\n".join(lines + [f.text() + "\n\n" for f in forms]).rstrip() + "\n"


def write(path: Path, text: str) -> bool:
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--catalog", type=Path, required=True, metavar="DIR", help="folder of the catalog's .cpp files"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="folder to write to")
    options = parser.parse_args(arguments)
    try:
        families, operators = read_catalog(options.catalog)
        out = options.out / "facula"
        texts = {
            out / "ops.h": ops_h(operators),
            out / "ops.cpp": ops_cpp(operators),
            options.out / "torch" / "tensor.h": torch_h(operators),
            out / "families.h": families_h(families),
            out / "schemas.h": schemas_h(operators),
            out / "nn" / "_forms.py": forms_py(operators),
        }
        texts.update({out / "_C" / f"{name}.pyi": text for name, text in stubs(operators).items()})
    except Mistake as mistake:
        print(f"generate.py: {mistake}", file=sys.stderr)
        return 1
    for path, text in texts.items():
        write(path, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
