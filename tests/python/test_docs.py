"""The examples in docstrings and in the reference pages give what they show."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import tempfile
from pathlib import Path

import pytest

import facula
from facula import _C

spec = importlib.util.spec_from_file_location(
    "facula_reference", Path(__file__).parents[2] / "docs" / "site" / "reference.py"
)
reference = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reference)

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
SKIPPED = {"facula.warm", "facula._C", "facula.torch"}  # the last would become torch in this process


def modules():
    for m in pkgutil.walk_packages(facula.__path__, "facula."):
        if m.name not in SKIPPED and "lib" not in m.name and not m.name.startswith("facula._C."):
            yield m.name


def examples():
    finder = doctest.DocTestFinder()
    for name in ["facula", *modules()]:
        module = importlib.import_module(name)
        names = {
            "facula": facula,
            "torch": facula,
            "nn": facula.nn,
            "F": facula.nn.functional,
            "tempfile": tempfile,
        }
        for test in finder.find(module, name, module=module, extraglobs=names):
            if test.examples:
                yield test


TESTS = list(examples())


@pytest.mark.parametrize("test", TESTS, ids=lambda t: t.name)
def test_a_docstrings_example_gives_what_it_shows(test):
    out: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    facula.manual_seed(0)
    runner.run(test, out=out.append)
    assert runner.failures == 0, "".join(out)


@pytest.mark.parametrize("family", sorted(reference.catalog()))
def test_a_reference_page_shows_each_operator_and_runs_its_examples(family):
    operators = reference.catalog()[family]
    page = reference.page(family, operators, _C.inspect_operator)
    for op in operators:
        assert f"## {op.full_name}\n\n```\n{op.schema}\n```" in page
    assert page.count("\n- gradient: ") == len(operators)


def test_reference_pages_say_where_an_operator_is_found_and_what_it_takes():
    (silu,) = (op for op in reference.catalog()["activation"] if op.name == "silu")
    section = "\n".join(reference.section(silu, _C.inspect_operator("silu")))
    assert "- found at: `facula.silu`, `facula.nn.functional.silu`" in section
    assert "- dtypes: `float16`, `bfloat16`, `float32`, `float64`, `complex64`, `complex128`" in section
    assert "- gradient: derived from the definition" in section
    assert "- further forms: " in section and "`out=`" in section
    assert ">>> facula.silu(facula.randn([" in section and "tensor(" in section


def test_every_public_function_and_class_stands_on_one_page():
    pages = reference.module_pages()
    shown = re.findall(r"^\.\. auto(?:class|function):: (\S+)$", "\n".join(pages.values()), re.M)
    assert len(shown) == len(set(shown))
    assert {"facula.nn.Linear", "facula.optim.AdamW", "facula.utils.data.DataLoader", "facula.save"} <= set(
        shown
    )


def test_the_layers_have_examples():
    with_examples = {t.name.rpartition(".")[2] for t in TESTS}
    assert {
        "Linear",
        "Conv2d",
        "BatchNorm2d",
        "LayerNorm",
        "Embedding",
        "Dropout",
        "Sequential",
        "CrossEntropyLoss",
        "load",
    } <= with_examples


@pytest.mark.parametrize(
    "where", ["facula", "facula.nn.functional", "facula.linalg", "facula.fft", "facula.special", "Tensor"]
)
def test_every_operator_says_what_it_does(where):
    owner = facula.Tensor if where == "Tensor" else importlib.import_module(where)
    names = [n for n in dir(owner) if not n.startswith("_")]
    builtins = [
        getattr(owner, n)
        for n in names
        if type(getattr(owner, n)).__name__ in ("builtin_function_or_method", "method_descriptor")
    ]
    silent = [f.__name__ for f in builtins if not re.search(r"\w{3}", f.__doc__ or "")]
    assert not silent
