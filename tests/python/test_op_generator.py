"""The generator of C++ functions and stubs, on a catalog of its own."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "src" / "facula" / "op" / "generate.py"
spec = importlib.util.spec_from_file_location("facula_generate", SCRIPT)
generate = importlib.util.module_from_spec(spec)
sys.modules["facula_generate"] = generate
spec.loader.exec_module(generate)

CATALOG = r"""
#include "facula/op/operator.h"
// define("commented_out(Tensor self) -> Tensor")
template <class F> Definer unary(const char* name, const char* doc, F f) {
  return define(std::string(name) + "(Tensor self) -> Tensor").doc(doc)
      .bind(function | method | special).pointwise(f);
}
FACULA_FAMILY(sample) {
  /* define("also_commented(Tensor self) -> Tensor") */
  define("add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor")
      .doc("Sum of \"two\" "  // comment
           "tensors: a (b, c).")
      .alias("plus")
      .in_place().pointwise([](Expr a, Expr b, Expr s) { return a + s * b; });
  unary("special_erfz", "Error (function).", [](Expr x) { return f(x, ')'); });
  define(R"(sum(Tensor self, int[1]? dim=None,
              bool keepdim=False, *, dtype? dtype=None) -> Tensor)").doc(R"x(Total "of" (all).)x")
      .shape(reduced()).loop(body);
  define("view(Tensor(a) self, SymInt[] size) -> Tensor(a)").bind(Namespace::method).view(rule);
  define("max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)").loop(body);
  define("max(Tensor self) -> Tensor").loop(body);
  define("linalg_solve(Tensor A, Tensor B) -> Tensor").bind(linalg).shape(s).library("solve");
  define("step_(Tensor(a!)[] params, float[] betas=(0.9, 0.999), Generator? generator=None) -> ()")
      .bind(hidden).procedure(f);
  define("split(Tensor(a) self, int n=-1, str mode='it') -> Tensor(a)[]").view(rule);
}
"""


def run(folder, text):
    (folder / "catalog").mkdir(exist_ok=True)
    (folder / "catalog" / "sample.cpp").write_text(text)
    return generate.main(["--catalog", str(folder / "catalog"), "--out", str(folder / "out")])


@pytest.fixture
def out(tmp_path):
    assert run(tmp_path, CATALOG) == 0
    return tmp_path / "out"


def test_reads_every_definition_and_nothing_else(tmp_path, out):
    families, operators = generate.read_catalog(tmp_path / "catalog")
    assert families == ["sample"]
    assert [op.full_name for op in operators] == [
        "add",
        "special_erfz",
        "sum",
        "view",
        "max.dim",
        "max",
        "linalg_solve",
        "step_",
        "split",
    ]
    by_name = {op.full_name: op for op in operators}
    assert by_name["add"].doc == 'Sum of "two" tensors: a (b, c).'
    assert by_name["sum"].doc == 'Total "of" (all).'
    assert by_name["special_erfz"].doc == "Error (function)."
    assert by_name["special_erfz"].schema == "special_erfz(Tensor self) -> Tensor"
    assert by_name["special_erfz"].where == "sample.cpp:15"
    assert [by_name[n].kind for n in ("add", "sum", "view", "linalg_solve", "step_")] == [
        "pointwise",
        "loop",
        "view",
        "library",
        "procedure",
    ]


def test_functions(out):
    text = (out / "facula" / "ops.h").read_text()
    for line in (
        "Tensor add(const Operand& self, const Operand& other, const Scalar& alpha = 1);",
        "Tensor add_(const Tensor& self, const Operand& other, const Scalar& alpha = 1);",
        "Tensor plus(const Operand& self, const Operand& other, const Scalar& alpha = 1);",
        "Tensor sum(const Tensor& self, const Sizes& dim = std::nullopt, bool keepdim = false, "
        "std::optional<DType> dtype = std::nullopt);",
        "std::tuple<Tensor, Tensor> max(const Tensor& self, int64_t dim, bool keepdim = false);",
        'std::vector<Tensor> split(const Tensor& self, int64_t n = -1, std::string_view mode = "it");',
        "void step_(const std::vector<Tensor>& params, const std::vector<Scalar>& betas = "
        "{Scalar(0.9), Scalar(0.999)}, Generator* generator = nullptr);",
        "inline Tensor operator+(const Operand& a, const Tensor& b) { return add(a, b); }",
    ):
        assert line in text.splitlines(), line
    assert "sum_(" not in text and "special_erfz_(" not in text  # only what says .in_place() has that form


def test_stubs_are_python_and_stand_where_users_look(out):
    stubs = {p.stem: p.read_text() for p in (out / "facula" / "_C").glob("*.pyi")}
    assert set(stubs) == set(generate.STUBS)
    for text in stubs.values():
        ast.parse(text)
    assert "def erfz(input: Tensor, *, out: Tensor | None = None) -> Tensor:" in stubs["special"]
    assert "def solve(A: Tensor, B: Tensor, *, out: Tensor | None = None) -> Tensor:" in stubs["linalg"]
    assert "linalg_solve" not in stubs["ops"]
    assert "def view(self, *size: int) -> Tensor:" in stubs["methods"]
    assert "step_" not in stubs["ops"] + stubs["methods"]
    assert stubs["ops"].count("def max(") == 2 and stubs["ops"].count("@overload") >= 2


FORMS = """
FACULA_FAMILY(sample) {
  define("act(Tensor self, Scalar slope=1) -> Tensor").python("act(input, slope=1.0, inplace=False)")
      .in_place().doc("What is self?").pointwise(f);
  define("loss(Tensor self, Tensor target, str reduction='mean', int at=-1) -> Tensor")
      .python("loss(input, target, size_average=None, at=-1, reduce=None, reduction='mean')",
              "warn_of_broadcast('loss', input, target)").composite(f);
  define("soft(Tensor self, int dim, dtype? dtype=None) -> Tensor")
      .python("soft(input, dim=None, _stacklevel=3, dtype=None)").composite(f);
  define("pool(Tensor self, int[2] size, int[2] stride=[]) -> Tensor")
      .python("pool(input, size, stride=None, return_indices=False)").procedure(f);
  define("pool_with_indices(Tensor self, int[2] size, int[2] stride=[]) -> (Tensor, Tensor)")
      .python("pool_with_indices(input, size, stride=None, return_indices=False)").procedure(f);
  define("best(Tensor self, SymInt[2] size) -> (Tensor, Tensor)").also("size", "output_size")
      .python("best(input, output_size=None, ratio=None, return_indices=False)",
              "output_size = told(input, output_size, ratio)").procedure(f);
}
"""


def test_a_function_of_python_is_an_operator_with_parameters_of_its_own(tmp_path):
    assert run(tmp_path, FORMS) == 0
    text = (tmp_path / "out" / "facula" / "nn" / "_forms.py").read_text()
    functions = {f.name: ast.unparse(f) for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)}
    assert functions["act"].splitlines() == [
        "def act(input: Tensor, slope: Number=1.0, inplace: bool=False) -> Tensor:",
        '    """What is input?"""',
        "    return (_act_ if inplace else _act)(input, slope)",
    ]
    assert functions["loss"].splitlines()[2:] == [
        "    if size_average is not None or reduce is not None:",
        "        reduction = reduction_of(size_average, reduce, reduction)",
        "    warn_of_broadcast('loss', input, target)",
        "    return _loss(input, target, reduction, at)",
    ]
    assert "_soft(input, last_dim('soft', input.dim()) if dim is None else dim, dtype)" in functions["soft"]
    assert (
        "(_pool_with_indices if return_indices else _pool)(input, size, [] if stride is None"
        in functions["pool"]
    )
    assert "return _pool_with_indices(input, size, " in functions["pool_with_indices"]
    assert functions["best"].splitlines()[2:] == [
        "    output_size = told(input, output_size, ratio)",
        "    results = _best(input, output_size)",
        "    return results if return_indices else results[0]",
    ]


def test_writes_only_what_changed(tmp_path, out):
    header = out / "facula" / "ops.h"
    before = header.stat().st_mtime_ns
    assert run(tmp_path, CATALOG + "\n// a comment\n") == 0
    assert header.stat().st_mtime_ns == before
    assert run(tmp_path, CATALOG.replace("alpha=1", "alpha=2")) == 0
    assert header.stat().st_mtime_ns != before


@pytest.mark.parametrize(
    "line, message",
    [
        ('define("f(Tensr self) -> Tensor").loop(b);', "sample.cpp:2: cannot read parameter `Tensr self`"),
        ('define("f(Tensor self)").loop(b);', "sample.cpp:2: the schema has no result"),
        ('define("f(Tensor self) -> Tensor").bind(nowhere).loop(b);', "sample.cpp:2: bind() takes"),
        (
            'define("f(Tensor x) -> Tensor").loop(b); define("f(Tensor x) -> Tensor").loop(b);',
            "f is defined at sample.cpp:2 already",
        ),
        (
            'define("f(Tensor self) -> Tensor").in_place().loop(b);'
            'define("f_(Tensor self) -> Tensor").loop(b);',
            "leave out .in_place()",
        ),
        (
            'define("f(Tensor self) -> Tensor").python("f(input, other)").loop(b);',
            "sample.cpp:2: .python: other is no parameter of f(Tensor self) -> Tensor",
        ),
        (
            'define("f(Tensor self, int n) -> Tensor").python("f(input)").loop(b);',
            "sample.cpp:2: .python: no n for f(Tensor self, int n) -> Tensor",
        ),
        (
            'define("f(Tensor self, int n) -> Tensor").python("f(input, n=None)").loop(b);',
            "sample.cpp:2: .python: n cannot be None",
        ),
        (
            'define("f(Tensor self) -> Tensor").python("f(input, inplace=False)").loop(b);',
            "sample.cpp:2: .python: f has no form in place",
        ),
    ],
)
def test_mistakes_name_file_and_line(tmp_path, capsys, line, message):
    assert run(tmp_path, "FACULA_FAMILY(sample) {\n" + line + "\n}") == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_help_explains():
    text = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "ops.h" in text and "--catalog" in text


def test_a_helper_makes_all_its_definitions_and_a_view_its_copy(tmp_path):
    text = """
Definer pair(const char* name, const char* doc) {
  define(std::string(name) + "(Tensor self) -> Tensor").doc(doc).pointwise(f);
  return define(std::string(name) + ".two(Tensor self, Tensor other) -> Tensor").doc(doc).pointwise(f);
}
FACULA_FAMILY(sample) {
  pair("twice", "Both.");
  define("turn(Tensor(a) self, int k=1) -> Tensor(a)").alias("spin").view(rule);
  define("_hidden(Tensor(a) self) -> Tensor(a)").view(rule);
}
FACULA_FAMILY(view_copy) {
}
"""
    assert run(tmp_path, text) == 0
    _, operators = generate.read_catalog(tmp_path / "catalog")
    by_name = {op.full_name: op for op in operators}
    assert list(by_name) == ["twice", "twice.two", "turn", "_hidden", "turn_copy"]
    assert by_name["twice"].doc == by_name["twice.two"].doc == "Both."
    copy = by_name["turn_copy"]
    assert copy.schema == "turn_copy(Tensor self, int k=1) -> Tensor"
    assert copy.aliases == ["spin_copy"] and copy.family == "view_copy"


def test_a_helper_declares_functions_of_python_with_what_it_is_given(tmp_path):
    text = """
Definer pool(const char* rank, const char* kind) {
  std::string name = std::string("pool") + rank;
  return define(std::string("pool") + rank + "d(Tensor self, int[" + rank + "] size) -> Tensor")
      .doc(std::string("A \\"") + kind + "\\" of " + rank + " dimensions.")
      .python(std::string("pool") + rank + "d(input, size)", "check(input)")
      .bind(hidden)
      .procedure([](const Tensor& self) { return f(self + 1, name); });
}
FACULA_FAMILY(sample) {
  pool("1", "mean");
  pool("2", "mean").python("other(input, size)");
}
FACULA_FAMILY(view_copy) {
}
"""
    assert run(tmp_path, text) == 0
    _, operators = generate.read_catalog(tmp_path / "catalog")
    assert [op.full_name for op in operators] == ["pool1d", "pool2d"]
    one, two = operators
    assert one.doc == 'A "mean" of 1 dimensions.' and two.kind == "procedure"
    assert one.python == [["pool1d(input, size)", "check(input)"]]
    assert two.python == [["pool2d(input, size)", "check(input)"], ["other(input, size)"]]
