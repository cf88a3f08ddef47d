"""Splits special_functions.h and mapped_tables.h into functions and tables: writes special_text.h, which has
each of them as text of C99 and CUDA C, in order, and special_table.h, the table of those that nests can call.

    python special_functions.py OUT            (at every configuration of the build)
"""

import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXACT = {"sqrt", "fabs", "floor", "ceil", "nearbyint", "copysign", "fmod", "fma"}  # of libm
WORDS = {"if", "for", "while", "return", "double", "FACULA_SPECIAL", "FACULA_ROW"}
NAME = re.compile(r"\b[A-Za-z_]\w*\b")


def declarations(source):
    """The declarations at the outermost level: text up to a `}` or `;` there."""
    source = re.sub(r"^#.*$|^namespace .*$|^\}  // namespace .*$|//.*$", "", source, flags=re.M)
    depth, start = 0, 0
    for at, c in enumerate(source):
        depth += (c in "{(") - (c in "})")
        if depth == 0 and (c == ";" or (c == "}" and source[at + 1 : at + 2] != ";")):
            yield source[start : at + 1].strip()
            start = at + 1
    assert not source[start:].strip(), source[start:]


def name_of(declaration):
    head = re.sub(r"FACULA_CALLED\(\d+\)", "", declaration)
    return re.search(r"(\w+)\s*(?:\[|\(|=)", head).group(1)


def written(path, text):
    """Writes a file unless it has this text already, so that its time stays."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main(out):
    all_parts = [
        d for f in ("mapped_tables.h", "special_functions.h") for d in declarations((HERE / f).read_text())
    ]
    parts = [d for d in all_parts if not d.startswith("FACULA_EXPANDED")]
    own = {name_of(d) for d in parts}
    assert len(own) == len(parts), "two have the same name"
    called = []
    for text in all_parts:
        if bound := re.match(r"FACULA_CALLED\((\d+)\) double (\w+)\((.*?)\)", text):
            called.append((bound[2], bound[3].count("double"), bound[1]))
        elif bound := re.match(r"FACULA_EXPANDED\((\d+), (\w+)\)", text):
            called.append((bound[2], 1, bound[1]))
    elementary, texts = {name for name, _, _ in called} - own, []

    def renamed(match):
        word = match.group()
        if word in own | {"any"}:
            return "facula_" + word
        if word in EXACT | WORDS or not match.string[match.end() :].startswith("("):
            return word
        elementary.add(word)
        return f"facula_{word}_f64"

    for text in parts:
        name = name_of(text)
        text = re.sub(r"^(FACULA_CALLED\(\d+\)|FACULA_LANED)", "FACULA_SPECIAL", text)
        if text.startswith("inline constexpr"):  # its rows need not be filled up
            text = "FACULA_TABLE" + re.sub(r"(, 0)+\}", "}", re.sub(r"\s+", " ", text))[16:]
        text = re.sub(r"\bauto\b", "int", re.sub(r"\bReal\b", "double", text))
        texts.append(("facula_" + name, NAME.sub(renamed, text)))
    folder = Path(out) / "facula"
    rows = "".join(f'    {{"{name}",\n     R"c({text}\n)c"}},\n' for name, text in texts)
    names = "".join(f" _({f})" for f in sorted(elementary))
    written(
        folder / "special_text.h",
        "// Written by loop/special_functions.py.\n#pragma once\n"
        "// The elementary functions that special functions call.\n"
        f"#define FACULA_SPECIAL_CALLS(_){names}\n\n"
        "namespace facula::loop {\n// A function or a table, behind those that it uses.\n"
        "struct SpecialText {\n  const char *name, *text;\n};\n"
        f"inline constexpr SpecialText kSpecialTexts[] = {{\n{rows}}};\n}}  // namespace facula::loop\n",
    )
    tables = "".join(
        f"#define FACULA_MAPPED_{kind}(_)"
        + "".join(f" _({n}, {a}, T, {u})" for n, a, u in called if a == arity)
        + "\n"
        for arity, kind in ((1, "UNARY"), (2, "BINARY"))
    )
    written(
        folder / "special_table.h",
        "// Written by loop/special_functions.py: its part of the table in loop/expr.h.\n#pragma once\n"
        + tables,
    )


main(sys.argv[1])
