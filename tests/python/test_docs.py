"""The examples in docstrings and in the reference pages give what they show."""

import doctest
import importlib
import pkgutil
import re
import tempfile
from pathlib import Path

import pytest

import facula

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


def reference_examples():
    pages = next(
        (
            p / "generated" / "docs" / "reference"
            for p in Path(facula.__file__).parents
            if (p / "generated").is_dir()
        ),
        None,
    )
    for page in sorted(pages.glob("*.md")) if pages else ():
        yield from re.findall(r"^- example: `(.*)`$", page.read_text(), re.M)


def test_the_examples_of_the_reference_pages_run():
    examples = list(reference_examples())
    if not examples:
        pytest.skip("the package was not built here: no reference pages")
    assert len(examples) > 200
    for text in examples:
        assert eval(text, {"facula": facula}) is not None, text


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
