"""Counts comments and names that make a reader stop: wording.toml has patterns, and ceilings by folder.

python tests/python/support/wording.py [FOLDER...]     prints the hits
"""

import collections
import io
import re
import sys
import tokenize
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(__file__).with_suffix(".toml")
WORDS = tomllib.loads(DATA.read_text())
KINDS = ("openings", "phrases", "names")
FOLDERS = ["src", "python", "bench", "examples"]

OPENING = re.compile(rf"({'|'.join(WORDS['openings'])})\b(\s+\S+){{2}}")
PHRASE = re.compile("|".join(WORDS["phrases"]), re.I)
NAME = re.compile(rf"\b(?:\w*_)?(?:{'|'.join(WORDS['names'])})(?:_\w*)?\b")
CPP_COMMENT = re.compile(r"(?:^|\s)//+<?\s?(.*)$")
NOT_A_NAME = re.compile(r'//.*|#.*|"[^"]*"')
DOCSTRING = ('"""', 'r"""')


def cpp_comments(text):
    """(line number, text) of each comment; consecutive lines of a comment count as one."""
    block, start = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        match = CPP_COMMENT.search(line)
        alone = match and line.strip().startswith("//")
        if block and not alone:
            yield start, " ".join(block)
            block = []
        if alone:
            start = start if block else number
            block.append(match[1].strip())
        elif match:
            yield number, match[1].strip()


def python_comments(text):
    """(line number, text) of each comment and docstring."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")
        elif token.type == tokenize.STRING and token.line.lstrip().startswith(DOCSTRING):
            yield token.start[0], token.string.strip('r"\n ')


def hits(text, is_python):
    """(kind, line number, text) of each hit in a source."""
    for number, comment in python_comments(text) if is_python else cpp_comments(text):
        if OPENING.match(comment):
            yield "openings", number, comment
        if PHRASE.search(comment):
            yield "phrases", number, comment
    for number, line in enumerate(text.splitlines(), 1):
        for match in NAME.finditer(NOT_A_NAME.sub("", line)):
            yield "names", number, match[0]


def sources(folders=FOLDERS):
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cpp", ".py"):
                yield path


def room_of(path):
    """The folder by which sources are counted: at most three levels, such as src/facula/loop."""
    return "/".join(path.relative_to(ROOT).parent.parts[:3])


def count():
    """By room: the number of hits of each kind, and the hits themselves as text."""
    counts, listing = collections.defaultdict(collections.Counter), collections.defaultdict(list)
    for path in sources():
        room = room_of(path)
        for kind, number, text in hits(path.read_text(), path.suffix == ".py"):
            counts[room][kind] += 1
            listing[room, kind].append(f"{path.relative_to(ROOT)}:{number}: {text[:120]}")
    return counts, listing


def ceiling(room):
    return dict(zip(KINDS, WORDS["ceilings"].get(room, [0, 0, 0]), strict=True))


def lower_ceilings():
    """Sets each ceiling to the present count where that is lower."""
    counts, _ = count()
    lines = []
    for room in sorted(WORDS["ceilings"]):
        lowered = [min(counts[room][k], ceiling(room)[k]) for k in KINDS]
        if any(lowered):
            lines.append(f'"{room}" = {lowered}\n')
    head, _, _ = DATA.read_text().partition("[ceilings]\n")
    DATA.write_text(head + "[ceilings]\n" + "".join(lines))


if __name__ == "__main__":
    for path in sources(sys.argv[1:] or FOLDERS):
        for kind, number, text in hits(path.read_text(), path.suffix == ".py"):
            print(f"{path.relative_to(ROOT)}:{number}: {kind}: {text[:150]}")
