"""tests/zoo/run.py: the report on published models, and when a model passes."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[1] / "zoo" / "run.py"


@pytest.fixture
def run():
    spec = importlib.util.spec_from_file_location("zoo_run", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_report_says_again_what_was_recorded_of_models_and_programs(run, tmp_path):
    report = tmp_path / "zoo.md"
    programs = {"import einops": None, "a Trainer": "TypeError: f(a: int)"}
    results = {
        "timm a": ("equal", "", (0.5, 0.25)),
        "timm b size=64": ("differs", "output 1e+00, gradients 2e-01, losses inf", (2.0, 1.0)),
        "timm c": ("equal", "", (None, 0.5)),
        "transformers C": ("fails", "RuntimeError: no such thing", None),
    }
    run.write(report, [*results, "timm not run"], programs, results)
    assert run.recorded(report) == (programs, results)
    assert "4 of 5 models were run: 2 equal, 1 differs, 1 fails" in report.read_text()
    assert "geometric mean of 2 models 1.00x" in report.read_text()


def test_a_report_has_no_row_of_a_model_that_the_list_has_no_more(run, tmp_path):
    report = tmp_path / "zoo.md"
    run.write(report, ["timm a"], {}, {"timm a": ("equal", "", None), "timm b": ("equal", "", None)})
    assert list(run.recorded(report)[1]) == ["timm a"]


def test_every_row_of_the_report_is_of_a_listed_model_with_a_reason_unless_it_is_equal(run):
    listed = PATH.with_name("models.txt").read_text().splitlines()
    for line, (status, detail, _) in run.recorded(PATH.parents[2] / "docs" / "zoo.md")[1].items():
        assert line in listed
        assert status == "equal" or detail, line


@pytest.mark.parametrize(
    ("statuses", "passes"),
    [
        (["equal"], True),
        (["rounding"], True),
        (["differs", "rounding", "equal"], False),
        (["differs", "fails", "differs"], False),
        (["fails"], False),
    ],
)
def test_a_model_that_differs_shows_other_inputs_and_differs_all_the_same(run, monkeypatch, statuses, passes):
    def measure(library, name, folder, stand_in, seed):
        return statuses[seed], f"detail {seed}", (1.0, 1.0)

    monkeypatch.setattr(run, "measure", measure)
    status, detail, _ = run.compare("timm", "a", None, None)
    assert (status in run.PASSED) == passes
    assert all(f"detail {seed}" in detail for seed in range(len(statuses)))
