"""Sources are laid out by tools: .clang-format for C++, ruff of pyproject.toml for Python. `make format`
applies both. Functions of C++ fit a screen. Comments and names use the words of docs/glossary.md.
"""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support import wording

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["bench", "cmake", "examples", "python", "src", "tests"]
CHECKS = {
    "ruff check": ["--no-cache", "--output-format=concise"],
    "ruff format": ["--no-cache", "--check"],
    "clang-format": ["--dry-run", "-Werror"],
}
CHANGES = {"ruff check": ["--fix", "--quiet"], "ruff format": ["--quiet"], "clang-format": ["-i"]}

LONGEST = 60  # lines of a function, its tables not counted, or of a definition of an operator
LONGEST_FAMILY = 400  # lines of a file of the catalog
LARGEST = 450  # lines of a class
NOT_CODE = re.compile(
    r"""(?<=\d)'(?=\d)|//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'"""
    r"""|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*""",
    re.S | re.M,
)
LABELS = re.compile(r"\b(public|private|protected)\s*:|\btemplate\s*<[^(){}]*>(?=\s)")
SCOPE = re.compile(r"(inline\s+)?(namespace|class|struct|union|enum)\b|extern\s*$")
CLASS = re.compile(r"(?:class|struct|union)\s+(?:\[\[.*?\]\]\s*|alignas\(.*?\)\s*)*([\w:]+)")
BODY = re.compile(r"([)}]|\b(const|noexcept|override|final|mutable|try))$|\)\s*(const\s*)?->[^{}]*$")
TABLE_ROW = re.compile(r"\s*(case [^;{]*:(\s*return)?[^;{]*;?|default:[^;{]*;?|[A-Z_]+\([\w, ]*\)\s*)$")


def run(tool, options):
    name, *command = tool.split()
    cpp = [f for folder in FOLDERS for kind in ("*.cpp", "*.h") for f in sorted((ROOT / folder).rglob(kind))]
    what = cpp if name == "clang-format" else FOLDERS
    program = Path(sysconfig.get_path("scripts")) / name
    return subprocess.run([program, *command, *options, *what], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize("tool", CHECKS)
def test_sources_are_laid_out(tool):
    answer = run(tool, CHECKS[tool])
    assert answer.returncode == 0, f"`make format` mends most of this:\n{answer.stdout}{answer.stderr}"


def blocks(text):
    """Every block in braces: its head, the blocks around it, and its code without comments and texts."""
    code = NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    start, around = 0, []  # of what is open: its head, and where head and brace are
    for m in re.finditer(r"[{};]", code):
        if m[0] == "{":
            around.append((LABELS.sub("", code[start : m.start()]).strip(), start, m.start()))
        elif m[0] == "}":
            head, begin, at = around.pop()
            is_body = BODY.search(head) and "(" in head
            yield code.count("\n", 0, at) + 1, head, is_body, [b[0] for b in around], code[at : m.end()]
            if not is_body and not SCOPE.match(head):  # a value in braces: the head goes on behind it
                start = begin
                continue
        start = m.end()


def functions(text):
    """First line, name and number of lines of each function. One-line cases, as tables have, do not count."""
    for line, head, is_body, around, code in blocks(text):
        if is_body and not SCOPE.match(head) and all(SCOPE.match(b) for b in around):
            name = re.search(r"(operator[^;]*?|~?\w+)(?:<\w+>)?\s*\(", head)
            yield line, name[1], sum(not TABLE_ROW.match(r) for r in code.split("\n"))


def classes(text):
    """First line, name and number of lines of each class."""
    for line, head, _, _, code in blocks(text):
        if name := CLASS.match(head):
            yield line, name[1], code.count("\n") + 1


def definitions(text):
    """First line, schema and number of lines of each definition of a family, which is a list of them."""
    code = NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for family in re.finditer(r"^FACULA_FAMILY\(\w+\) \{", code, re.M):
        depth, start = 1, family.end()
        for m in re.finditer(r"[(){}\[\];]", code[family.end() :]):
            at = family.end() + m.end()
            depth += (m[0] in "({[") - (m[0] in ")}]")
            if depth == 0:
                break
            if depth == 1 and m[0] == ";":
                own = text[start:at].lstrip()
                schema = re.search(r"\w+(?:\.\w+)?(?=\()", own.partition('"')[2])
                yield text.count("\n", 0, at) - own.count("\n") + 1, schema and schema[0], own.count("\n") + 1
                start = at


def test_lengths_of_definitions_are_counted_one_by_one():
    text = """Tensor f() { return {}; }
FACULA_FAMILY(sample) {
  define("one(Tensor self) -> Tensor")
      .doc("It is; one.")
      .procedure([](const Tensor& self) {
        f();
        return self;
      });
  define("two.out(Tensor self) -> Tensor").loop(f);
}
"""
    assert list(definitions(text)) == [(3, "one", 6), (9, "two.out", 1)]


def test_families_have_one_subject():
    lengths = {f.name: f.read_text().count("\n") for f in (ROOT / "src/facula/catalog").glob("*.cpp")}
    long = {name: n for name, n in lengths.items() if n > LONGEST_FAMILY}
    assert not long, f"split these families by subject, into at most {LONGEST_FAMILY} lines each: {long}"


def test_lengths_of_functions_are_counted_without_rows_of_tables():
    text = """struct A {
  A() : x_{1} {
    f("}");
  }
  int x_;
};
int g(int x) {  // {
  switch (x) {
    case 1: return 2;
    default: return 3;
  }
}
"""
    assert list(functions(text)) == [(2, "A", 3), (7, "g", 4)]


def test_lines_of_classes_are_counted():
    text = """namespace n {
class [[nodiscard]] A final : B<int> {
  struct C {
    int x = 3;
  } c_{};
};
enum class D { e };
}
"""
    assert sorted(classes(text)) == [(2, "A", 5), (3, "C", 3)]


def sources_of_functions():
    return sorted([*(ROOT / "src/facula").rglob("*.[ch]*"), *(ROOT / "python/bind").rglob("*.[ch]*")])


def test_classes_have_one_subject():
    large = []
    for f in sources_of_functions():
        for line, name, length in classes(f.read_text()):
            if length > LARGEST:
                large.append(f"{f.relative_to(ROOT)}:{line}: {name} has {length} lines")
    assert not large, f"divide these by subject, into at most {LARGEST} lines each:\n" + "\n".join(large)


def test_functions_fit_a_screen():
    long = []
    for f in sources_of_functions():
        where = str(f.relative_to(ROOT))
        text = f.read_text()
        parts = [p for p in functions(text) if p[1] != "FACULA_FAMILY"]
        for line, name, length in parts + list(definitions(text)):
            if length > LONGEST:
                long.append(f"{where}:{line}: {name} has {length} lines")
    assert not long, f"cut these by subject, into at most {LONGEST} lines each:\n" + "\n".join(long)


def test_wording_counts_openings_phrases_and_vague_names():
    cpp = """// Of a kernel, what it reads: the buffers
// that lie in memory.
int known = given(x);  // Is it there?
const char* s = "found";  // the number of rows
"""
    assert list(wording.hits(cpp, is_python=False)) == [
        ("openings", 1, "Of a kernel, what it reads: the buffers that lie in memory."),
        ("phrases", 1, "Of a kernel, what it reads: the buffers that lie in memory."),
        ("openings", 3, "Is it there?"),
        ("names", 3, "known"),
        ("names", 3, "given"),
    ]
    python = 'def f(kept_rows):\n    """Where rows come from."""\n    return kept_rows  # all rows\n'
    assert list(wording.hits(python, is_python=True)) == [
        ("openings", 2, "Where rows come from."),
        ("names", 1, "kept_rows"),
        ("names", 3, "kept_rows"),
    ]


def test_no_folder_gets_more_vague_comments_or_names():
    counts, listing = wording.count()
    rises = []
    for room, by_kind in counts.items():
        for kind, allowed in wording.ceiling(room).items():
            if by_kind[kind] > allowed:
                rises.append(f"{room} has {by_kind[kind]} {kind}, at most {allowed} are allowed:")
                rises += listing[room, kind]
    assert not rises, (
        "write comments as sentences with a subject and a verb, and name what a variable holds, in the "
        "terms of docs/glossary.md; the new ones are among these:\n" + "\n".join(rises)
    )


if __name__ == "__main__":
    wording.lower_ceilings()
    for tool, options in CHANGES.items():
        answer = run(tool, options)
        sys.stderr.write(answer.stdout + answer.stderr)
