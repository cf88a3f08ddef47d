#!/usr/bin/env python3
"""Writes the catalog of libfacula_runtime.so, which only runs packages, from the catalog of libfacula.so.

A package's graph contains calls of the operators that a trace records. What their definitions call stays
too, as does everything that the other sources of the library name; other definitions are left out, and so are
the properties that Python, tests, vmap and the tape's names read, and sparse tensors, which no program holds.
Sources that would be the same as before are not written again.
"""

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

UNREAD = ("doc", "samples", "python", "also", "grad_name", "batched", "undifferenced", "in_parts")
DESTINATIONS = ("exact_out", "converting_out", "for_out", "keeps_out_shape", "with_out", "resized")
# A call of these is never recorded: the calls that it makes are, or it is refused.
UNRECORDED = ("procedure", "forwards", "composite")
TOKEN = re.compile(
    r'R"\(.*?\)"|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|//[^\n]*|/\*.*?\*/|[A-Za-z_]\w*|\S', re.S
)
OPEN, CLOSE = "([{", ")]}"


@dataclass
class Token:
    text: str
    begin: int
    end: int


def tokens(text: str) -> list[Token]:
    return [Token(m[0], m.start(), m.end()) for m in TOKEN.finditer(text) if m[0][:2] not in ("//", "/*")]


def closing(all: list[Token], k: int) -> int:
    """Returns the index of the bracket that closes the one at index k."""
    depth = 0
    for i in range(k, len(all)):
        depth += (all[i].text in OPEN) - (all[i].text in CLOSE)
        if not depth:
            return i
    raise ValueError(f"a bracket at {all[k].begin} is not closed")


def without(text: str, properties: tuple[str, ...]) -> str:
    """Returns the text without chained calls of these names."""
    all, rest, at, k = tokens(text), [], 0, 0
    while k + 2 < len(all):
        chained = all[k].text == "." and all[k + 1].text in properties and all[k + 2].text == "("
        if not chained:
            k += 1
            continue
        end = closing(all, k + 2)
        rest.append(text[at : all[k].begin])
        at, k = all[end].end, end + 1
    return "".join([*rest, text[at:]])


@dataclass
class Definition:
    """A statement define("name(...) -> ...")...; of a family."""

    name: str
    text: str
    begin: int
    end: int
    recorded: bool


def definitions(text: str) -> list[Definition]:
    all, matches, k = tokens(text), [], 0
    while k + 2 < len(all):
        starts = all[k].text == "define" and all[k + 1].text == "(" and all[k + 2].text.startswith('"')
        if not starts or all[k - 1].text not in ("{", "}", ";"):
            k += 1
            continue
        first, end = k, k
        while all[end].text != ";":
            end = closing(all, end) + 1 if all[end].text in OPEN else end + 1
        schema = "".join(t.text[1:-1] for t in all[k + 2 : closing(all, k + 1)] if t.text.startswith('"'))
        chain = {all[i + 1].text for i in range(first, end) if all[i].text == "." and all[i + 2].text == "("}
        recorded = not chain.intersection(UNRECORDED) or "vjp" in chain
        recorded &= "!)" not in schema and ("reads_data" not in chain or "data_dependent" in chain)
        body = text[all[closing(all, k + 1)].end : all[end].end]
        matches.append(
            Definition(re.match(r"\w+", schema)[0], body, all[first].begin, all[end].end, recorded)
        )
        k = end + 1
    return matches


def names(text: str) -> set[str]:
    """Returns the operators that a text may name: called functions, arguments and literals."""
    all, mentioned = tokens(text), set()
    for before, now, after in zip([None, *all], all, [*all[1:], None]):
        if now.text.startswith('"'):
            if name := re.fullmatch(r'"([A-Za-z_]\w*)(?:\.\w+)?(?:\(.*)?"', now.text):
                mentioned.add(name[1])
        elif re.match(r"[A-Za-z_]", now.text) and before and after:
            argument = before.text in ("(", ",", "&", "{", "?", ":") and after.text in (
                ")",
                ",",
                "}",
                ":",
                ";",
            )
            if after.text == "(" or argument:
                mentioned.add(now.text)
    return mentioned | {n.removesuffix("_out") for n in mentioned} | {n.removesuffix("_") for n in mentioned}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--uses", type=Path, nargs="*", help="folders of other sources of the library")
    arguments = parser.parse_args()
    paths = sorted(arguments.catalog.glob("*.cpp"))
    sources = {path: without(path.read_text(), UNREAD + DESTINATIONS) for path in paths}
    for path in paths:
        if path.stem.startswith("sparse"):
            families = re.findall(r"^FACULA_FAMILY\(\w+\)", sources[path], re.M)
            sources[path] = "\n".join(['#include "facula/op/operator.h"', *(f + " {}" for f in families), ""])
    by_path = {path: definitions(text) for path, text in sources.items()}
    optional = {path: [d for d in all if not d.recorded] for path, all in by_path.items()}

    wanted: set[str] = set()
    for path, text in sources.items():
        for d in reversed(optional[path]):
            text = text[: d.begin] + text[d.end :]
        wanted |= names(text)
    for header in arguments.catalog.glob("*.h"):
        wanted |= names(header.read_text())
    for folder in arguments.uses:
        for path in [*folder.rglob("*.cpp"), *folder.rglob("*.h")]:
            wanted |= names(path.read_text())
    waiting = [d for all in optional.values() for d in all]
    while reached := [d for d in waiting if d.name in wanted]:
        waiting = [d for d in waiting if d.name not in wanted]
        for d in reached:
            wanted |= names(d.text)

    arguments.out.mkdir(parents=True, exist_ok=True)
    for path, text in sources.items():
        for d in reversed(optional[path]):
            if d.name not in wanted:
                text = text[: d.begin] + text[d.end :]
        target = arguments.out / path.name
        if not target.exists() or target.read_text() != text:
            target.write_text(text)
    total = sum(map(len, by_path.values()))
    print(f"{len(waiting)} of {total} definitions of the catalog are not in libfacula_runtime.so")


if __name__ == "__main__":
    main()
