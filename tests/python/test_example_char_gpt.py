"""The example, on a list of a few words: results and errors."""

import itertools
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "char_gpt" / "train.py"
SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "24", "--steps", "60", "--count", "3"]


def train(*options):
    return subprocess.run([sys.executable, EXAMPLE, *options], capture_output=True, text=True)


def losses(run):
    return [float(line.split("loss ")[1].split()[0]) for line in run.stdout.splitlines() if "loss" in line]


def test_it_learns_and_writes_new_words(tmp_path):
    words = tmp_path / "words"
    words.write_text("\n".join("".join(p) for p in itertools.product("bdgk", "aeo", "lnr", "aiu", "ms")))
    run = train("--words", words, "--out", tmp_path / "run", *SMALL)
    assert run.returncode == 0, run.stderr
    assert "letters/s" in run.stdout and "s left" in run.stdout and "test" in run.stdout
    found = losses(run)
    assert found[-1] < 0.8 * found[0]
    assert run.stdout.splitlines()[-1].startswith("new words: ")
    assert (tmp_path / "run" / "model.pt").stat().st_size > 10_000
    lower = train("--words", words, "--out", tmp_path / "run", "--bfloat16", *SMALL)
    assert lower.returncode == 0, lower.stderr
    assert abs(losses(lower)[-1] - found[-1]) < 0.05


def test_a_missing_list_is_named_with_its_package(tmp_path):
    run = train("--words", tmp_path / "none", "--out", tmp_path, "--steps", "1")
    assert run.returncode != 0 and "none" in run.stderr and "wamerican" in run.stderr
    (tmp_path / "short").write_text("a\nb\n")
    run = train("--words", tmp_path / "short", "--out", tmp_path, "--steps", "1")
    assert run.returncode != 0 and "only 2 words" in run.stderr
