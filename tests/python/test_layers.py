"""A room includes only itself and rooms above it in src/facula/rooms.txt."""

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).resolve().parents[2] / "src" / "facula"
ROOMS = [
    line for line in (SOURCES / "rooms.txt").read_text().split("\n") if line and not line.startswith("#")
]
# What the generator writes, and the room it belongs to.
GENERATED = {"version.h": "base", "ops.h": "run", "families.h": "catalog", "schemas.h": "catalog"}
GENERATED |= {"special_text.h": "loop", "special_table.h": "loop", "special_elementary.h": "loop"}
# LLVM is a library of its own, and other libraries are called through the room device.
CONFINED = {
    "llvm/": "codegen",
    "oneapi/": "device",
    "dnnl": "device",
    "ducc0/": "numerics",
    "hwy/": "numerics",
    "Python.h": "",
    "minizip/": "io",
    "zlib.h": "io",
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def sources(room):
    return sorted(p for p in (SOURCES / room).rglob("*") if p.suffix in (".h", ".cpp"))


def includes(path):
    return [name for _, name in INCLUDE.findall(path.read_text())]


def test_every_folder_is_a_room():
    assert sorted(p.name for p in SOURCES.iterdir() if p.is_dir() and any(p.rglob("*.*"))) == sorted(
        room for room in ROOMS if (SOURCES / room).is_dir() and sources(room)
    )
    assert len(set(ROOMS)) == len(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_room_includes_only_rooms_above_it(room):
    wrong = []
    for path in sources(room):
        for name in includes(path):
            if not name.startswith("facula/"):
                continue
            target = GENERATED.get(name.removeprefix("facula/")) or name.split("/")[1]
            assert target in ROOMS, f"{path}: {name} is in no room"
            if ROOMS.index(target) > ROOMS.index(room):
                wrong.append(f"{path.relative_to(SOURCES)} includes {name}, which is in a room below {room}")
    assert not wrong, "\n".join(wrong)


# An operator's name, and the ways in which text is compared.
NAME = r"(?:schema\.(?:name|full_name\(\)|overload)|\b(?:o|op|op_|of|from|parent)(?:\(\))?(?:\.|->)name\(\))"
COMPARED = re.compile(
    rf"{NAME}\s*(?:[=!]=|\.(?:compare|contains|starts_with|find)\()"
    rf"|[=!]=\s*[\w.>-]*{NAME}"
    rf"|\b(?:is_one_of|contains|count|find|strcmp)\([^;()]*{NAME}"
)
# Rooms that may ask for an operator by name, and why.
NAMED = {"catalog": "it is where names are given"}


def test_no_room_asks_for_the_name_of_an_operator():
    """What tells operators apart is declared in their definitions: a kind, an effect, a property."""
    wrong = []
    for room in [*(SOURCES / r for r in ROOMS if r not in NAMED), SOURCES.parents[1] / "python" / "bind"]:
        for path in sorted(p for p in room.rglob("*") if p.suffix in (".h", ".cpp")):
            for at in COMPARED.finditer(path.read_text()):
                line = path.read_text()[: at.start()].count("\n") + 1
                wrong.append(f"{path.relative_to(SOURCES.parents[1])}:{line}: {at.group()}")
    assert not wrong, "declare what these compare names for (op/operator.h):\n" + "\n".join(wrong)


@pytest.mark.parametrize("room", ROOMS)
def test_third_parties_stay_in_their_room(room):
    wrong = []
    for path in sources(room):
        for name in includes(path):
            for prefix, home in CONFINED.items():
                if name.startswith(prefix) and room != home:
                    wrong.append(f"{path.relative_to(SOURCES)} includes {name}")
    assert not wrong, "\n".join(wrong)


def test_headers_open_with_what_lives_there():
    silent = [
        str(p.relative_to(SOURCES))
        for room in ROOMS
        for p in sources(room)
        if p.suffix == ".h" and not p.read_text().startswith(("//", "/*"))
    ]
    assert not silent, f"headers without an opening comment: {silent}"
