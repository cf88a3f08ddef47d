"""Lays out the pages that Sphinx makes the site of: README, docs/ and what they link to, and the reference: a page
for each family of operators, from the catalog and the built registry, and one for each public module of the
package, from what it holds.

PYTHONPATH=build/python python docs/site/reference.py FOLDER
"""

import importlib
import importlib.util
import inspect
import pkgutil
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def module_of(name: str, path: Path):
    """The module of a file outside of the package, loaded once."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


generate = module_of("facula_generate", ROOT / "src" / "facula" / "op" / "generate.py")
DIFFERENCES = module_of("facula_declared", ROOT / "tests" / "edges" / "declared.py").by_operator()

# ---- operators

PLACES = {"ops": "facula.", "methods": "Tensor."}
SAMPLE_TENSOR = re.compile(
    r"(?P<name>\w+)(?P<below><\d+>)?(?P<mark>[?!]?)(?P<sizes>\[[^\]]*\])(?:\((?P<low>[^,]*),\s*(?P<high>[^)]*)\))?$"
)
SAMPLE_LIST = re.compile(r"(?P<name>\w+)\{(?P<items>.*)\}$")


def py_value(op, text: str) -> str | None:
    """A tensor of a sample as Python; None for what only tests can make."""
    m = SAMPLE_TENSOR.match(text)
    if not m:
        return None
    if m["below"]:
        return f"facula.randint({m['below'][1:-1]}, {m['sizes']})"
    if m["mark"] == "?":
        return f"facula.rand({m['sizes']}) < 0.5"
    if m["low"] is not None:
        return f"facula.empty({m['sizes']}).uniform_({m['low']}, {m['high']})"
    dtypes = re.sub(r" \| (limited|wide_unsigned|float8|half_complex)\b", "", op.dtypes)
    if re.search(r"\b(integral|bits)\b", dtypes) and "floating" not in dtypes:
        return f"facula.randint(8, {m['sizes']})"
    if dtypes.endswith("complex") and "|" not in dtypes:
        return f"facula.randn({m['sizes']}, dtype=facula.complex64)"
    return f"facula.randn({m['sizes']})"


def places_of(op) -> list[tuple[str, str]]:
    """The namespaces and names under which Python finds the operator itself. PyTorch has some functions of other
    signatures under an operator's name, such as ``torch.batch_norm``.
    """
    import facula

    builtin = type(facula._C.functions.add)
    return [
        (space, name)
        for space, name in generate.py_places(op)
        if space != "ops" or isinstance(getattr(facula, name, None), builtin)
    ]


def py_example(op) -> str | None:
    """A call on the operator's first sample."""
    place = next(((s, n) for s, n in places_of(op) if s != "methods"), None)
    if not place or op.name.startswith("_") or not op.sample or any(p.written for p in op.parameters):
        return None
    arguments, by_name = [], False
    for k, part in enumerate(generate.split_top(op.sample)):
        part = part.strip()
        name, equals, literal = part.partition("=")
        many = SAMPLE_LIST.match(part)
        if equals and re.fullmatch(r"\w+", name):
            value = re.sub(r"\b(inf|nan)\b", r"facula.\1", literal)
            parameter = next((p for p in op.parameters if p.name == name), None)
            if parameter is not None and parameter.type == "dtype":
                value = "facula." + literal
        elif many:
            name = many["name"]
            values = [py_value(op, "x" + item.strip()) for item in generate.split_top(many["items"])]
            value = None if None in values else "[" + ", ".join(values) + "]"
        else:
            value, name = py_value(op, part), (re.match(r"\w*", part) or [""])[0]
        if value is None:
            return None
        by_name = (
            by_name
            or k >= len(op.parameters)
            or op.parameters[k].name != name
            or op.parameters[k].type != "Tensor"
        )
        arguments.append(f"{name}={value}" if by_name else value)
    modules = {"ops": "facula", "nn_functional": "facula.nn.functional"}
    return f"{modules.get(place[0], 'facula.' + place[0])}.{place[1]}({', '.join(arguments)})"


def example(op) -> list[str]:
    """The lines of a call on the first sample, as a session of Python shows it."""
    import facula

    text = py_example(op)
    if text is None:
        return []
    facula.manual_seed(0)
    shown = repr(eval(text, {"facula": facula}))
    return ["```python", f">>> {text}", *shown.splitlines(), "```", ""]


def gradient(facts: dict) -> str:
    if not facts["differentiable"]:
        return "none" + (f"; {facts['undifferenced']}" if facts["undifferenced"] else "")
    source = {"rule": "by a rule of its own", "derived": "derived from the definition"}[facts["gradient"]]
    return source + (f"; {facts['undifferenced']}" if facts["undifferenced"] else "")


def section(op, facts: dict) -> list[str]:
    places = [PLACES.get(s, f"facula.{s.replace('nn_', 'nn.')}.") + n for s, n in places_of(op)]
    forms = [f for f, there in (("in place", op.in_place_form), ("`out=`", op.out_form)) if there]
    rows = {
        "found at": ", ".join(f"`{p}`" for p in places) or "C++ only",
        "kind": op.kind.replace("_", "-"),
        "dtypes": ", ".join(f"`{str(d).rpartition('.')[2]}`" for d in facts["dtypes"]),
        "gradient": gradient(facts),
        "also called": ", ".join(f"`{a}`" for a in op.aliases),
        "further forms": ", ".join(forms),
    }
    lines = [f"## {op.full_name}", "", "```", op.schema, "```", ""]
    lines += [op.doc, ""] if op.doc else []
    lines += [f"- {k}: {v}" for k, v in rows.items() if v] + [""]
    lines += example(op)
    if differences := DIFFERENCES.get(op.full_name):
        lines += ["Where PyTorch answers otherwise:", ""]
        lines += [f"- {d.why} (`{d.where}`)" for d in differences] + [""]
    return lines


def page(family: str, operators: list, inspect_operator) -> str:
    lines = [f"# {family}", ""]
    for op in sorted(operators, key=lambda o: o.name):
        lines += section(op, inspect_operator(op.full_name))
    return "\n".join(lines)


def catalog() -> dict[str, list]:
    """Family -> its operators that users see."""
    families, operators = generate.read_catalog(ROOT / "src" / "facula" / "catalog")
    shown = [op for op in operators if "hidden" not in op.namespaces and not op.name.startswith("_")]
    return {f: of for f in families if (of := [op for op in shown if op.family == f])}


# ---- modules

NO_PAGE = {
    "facula.torch",
    "facula.warm",
}  # the first would become torch in this process, the second is run alone


def public_modules():
    import facula

    yield facula
    for m in pkgutil.walk_packages(facula.__path__, "facula."):
        hidden = any(
            part.startswith(("_", "lib")) for part in m.name.split(".")
        )  # the shared libraries lie there too
        if m.name not in NO_PAGE and (not hidden or m.name == "facula.library"):
            yield importlib.import_module(m.name)


def members(module) -> dict[str, object]:
    """What Python defines of what a module gives, by name. Operators have pages of their own."""
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    given = {n: getattr(module, n, None) for n in names}
    package = module.__name__.partition(".")[0]
    return {
        n: v
        for n, v in given.items()
        if (inspect.isclass(v) or inspect.isfunction(v))
        and (v.__module__ or "").partition(".")[0] in (package, "torch")
    }


def module_pages() -> dict[str, str]:
    """Module -> its page. An object that several modules give stands where its path is shortest."""
    modules = {m.__name__: members(m) for m in public_modules()}
    home: dict[int, str] = {}
    for name in sorted(modules, key=lambda n: (n.count("."), n)):
        for value in modules[name].values():
            home.setdefault(id(value), name)
    pages = {}
    for name, found in modules.items():
        lines = [f"# {name}", ""]
        doc = inspect.getdoc(sys.modules[name])
        parent, _, last = name.rpartition(".")
        twice = (
            ["   :no-index:"] if last in modules.get(parent, {}) else []
        )  # a function of its package has the name
        lines += (
            ["```{eval-rst}", f".. automodule:: {name}", "   :no-members:", *twice, "```", ""] if doc else []
        )
        own = {n: v for n, v in found.items() if home[id(v)] == name}
        for member, value in sorted(own.items()):
            directive = "autoclass" if inspect.isclass(value) else "autofunction"
            lines += ["```{eval-rst}", f".. {directive}:: {name}.{member}"]
            lines += ["   :members:"] if directive == "autoclass" else []
            lines += ["```", ""]
        if own or doc:
            pages[name] = "\n".join(lines)
    return pages


def contents(title: str, names, *options: str) -> str:
    return "\n".join([f"# {title}", "", "```{toctree}", *options, "", *names, "```", ""])


def main(folder: Path) -> None:
    from facula import _C

    for source in ("README.md", "CHANGELOG.md", "LICENSE", "docs", "examples", "bench"):
        if (ROOT / source).is_dir():
            shutil.copytree(
                ROOT / source, folder / source, ignore=shutil.ignore_patterns("site", "__pycache__")
            )
        else:
            shutil.copy(ROOT / source, folder / source)
    operators = {f"operators/{f}": page(f, of, _C.inspect_operator) for f, of in catalog().items()}
    modules = {f"modules/{m}": text for m, text in module_pages().items()}
    lists = {
        "operators": contents("Operators", sorted(operators), ":maxdepth: 1"),
        "modules": contents("Modules", sorted(modules), ":maxdepth: 1"),
    }
    for name, text in (operators | modules | lists).items():
        generate.write(folder / "reference" / f"{name}.md", text)
    told = sorted(f"docs/{p.stem}" for p in (folder / "docs").glob("*.md"))
    first = ["README", "reference/operators", "reference/modules", *told, "bench/results", "CHANGELOG"]
    generate.write(folder / "index.md", contents("Facula", first, ":maxdepth: 1"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
