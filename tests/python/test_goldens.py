"""Every file of recorded answers says who gave them (tests/golden/README.md): only what others gave is
proof.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"


def table():
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (GOLDEN / "README.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_every_recorded_file_is_in_the_table_and_no_other():
    recorded = {f.name for f in GOLDEN.iterdir() if f.is_file() and f.suffix not in (".py", ".md", ".pyc")}
    assert table().keys() == recorded


def test_what_pytorch_answered_was_written_by_a_program_that_runs_it():
    for name, (by, writer, reader) in table().items():
        program = ROOT / writer.lstrip("`").split()[0].rstrip("`,")
        assert program.exists() and (ROOT / reader.strip("`")).exists(), name
        if by == "PyTorch":
            assert re.search("import torch|#include <torch/torch.h>", program.read_text()), name


def test_what_facula_wrote_itself_says_so_in_its_first_line():
    for name, (by, *_) in table().items():
        if by != "PyTorch":
            assert by.startswith("Facula: "), name
            assert (GOLDEN / name).read_text().startswith("# Written by Facula"), name
