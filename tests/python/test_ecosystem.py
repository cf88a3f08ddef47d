"""tests/ecosystem: how quick starts are compared, what the scan of sources finds; and the names that exist
for packages but are not supported.
"""

import copy
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import facula
from facula import _unsupported

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "ecosystem"


def loaded(name):
    spec = importlib.util.spec_from_file_location(f"ecosystem_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "tests" / "zoo"))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "tests" / "zoo"))
    return module


@pytest.fixture(scope="session")
def run():
    return loaded("run")


@pytest.fixture(scope="session")
def suites():
    return loaded("suites")


@pytest.fixture(scope="session")
def scan():
    return loaded("scan")


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("loss 1 [2] 0.5", "loss 1 [2] 0.5", True),
        ("loss 1.0004 1e-5", "loss 1 2e-5", True),  # within 1e-3 of the line's largest
        ("loss 1.002", "loss 1", False),
        ("loss nan inf", "loss nan inf", True),
        ("loss nan", "loss 0", False),
        ("loss 1", "loos 1", False),
        ("loss 1 2", "loss 1", False),
        ("a 1\nb 2", "a 1", False),
        ("a True", "a False", False),
    ],
)
def test_outputs_are_the_same_if_text_is_equal_and_numbers_are_close(run, ours, theirs, same):
    assert (run.difference(ours, theirs) is None) == same


def test_parts_cover_every_quick_start_once(run):
    parts = [run.part_of(run.STARTS, f"{k}/10") for k in range(1, 11)]
    assert sorted(s for part in parts for s in part) == run.STARTS
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    with pytest.raises(SystemExit, match="expected k/n"):
        run.part_of(run.STARTS, "0/10")


def test_there_is_a_quick_start_of_at_least_80_packages_and_each_is_pinned(run):
    pinned = run.versions()
    assert len(run.STARTS) >= 80
    assert [run.name_of(s) for s in run.STARTS if run.name_of(s) not in pinned] == []


def test_the_scan_finds_names_that_a_module_needs_while_it_is_imported(scan):
    names = scan.Names(
        """
import torch.nn.functional as F
from torch import nn, optim as o
from torch.utils.data import DataLoader
try:
    import torch.maybe
except ImportError:
    pass
class A(nn.Module):
    size = o.SGD
    def forward(self, x: "torch.Tensor" = F.relu):
        return torch.inner.name(x), F.gelu
if torch.version.cuda:
    torch.conditional
"""
    ).names
    needed = {name for name, importing in names.items() if importing}
    assert needed >= {"torch.nn.functional", "torch.nn.Module", "torch.optim.SGD", "torch.nn.functional.relu"}
    assert "torch.utils.data.DataLoader" in needed
    later = {"torch.maybe", "torch.nn.functional.gelu"}
    assert later <= names.keys() and not later & needed


def behind_alias(code):
    environment = {"PYTHONPATH": str(Path(facula.__file__).parents[1]), "PATH": ""}
    command = [sys.executable, "-m", "facula.torch", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names_that_are_not_supported_are_listed_once_and_exist_nowhere_else():
    listed = [
        (module, name)
        for modules in _unsupported._NAMES.values()
        for module, names in modules.items()
        for name in names.split()
    ]
    assert len(listed) == len(set(listed))
    code = f"""
import importlib
for module, name in {listed!r}:
    try:
        there = importlib.import_module(f"facula.{{module}}".rstrip("."))
    except ModuleNotFoundError:
        continue
    assert not hasattr(there, name), f"{{module}}.{{name}} exists"
"""
    # In a process of its own, because other tests add the names behind the alias.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_name_that_is_not_supported_can_be_imported_and_raises_when_it_is_called():
    code = """
import importlib
from facula import _unsupported
for reason, modules in _unsupported._NAMES.items():
    for module, names in modules.items():
        there = importlib.import_module(f"torch.{module}".rstrip("."))
        for name in names.split():
            value = getattr(there, name)
            try:
                value(1, key=2)
            except NotImplementedError as e:
                assert reason in str(e) and name in str(e) and str(e).startswith("torch"), e
            else:
                raise AssertionError(f"{module}.{name} does not raise")
"""
    behind_alias(code)


def test_operators_that_are_not_supported_stay_keys_in_copies_of_a_table():
    refused = _unsupported.RefusedOperator("aten._convolution")
    table = {refused: 1, refused.default: 2}
    assert copy.deepcopy(table) == table
    with pytest.raises(AttributeError, match="operator 'aten._convolution' has no attribute '_schema'"):
        refused._schema


def test_operators_that_do_not_exist_are_keys_and_raise_when_they_are_called():
    aten = facula.ops.aten
    for name in sorted(_unsupported.OPERATORS):
        assert not facula._C.operator_overloads(name), f"{name} exists"
        operator = getattr(aten, name)
        assert operator is getattr(aten, name) and operator.default is operator.default
        assert len({operator, operator.default, operator.out}) == 3
        for call in (operator, operator.default):
            with pytest.raises(NotImplementedError, match=rf"ops.aten.{name}.*no operator of this name"):
                call(facula.ones(1))
    assert aten._unsafe_view.default.name() == "aten::_unsafe_view.default"
    with pytest.raises(AttributeError):
        aten._no_such_operator  # noqa: B018


def test_a_class_that_is_not_supported_serves_in_annotations_bases_and_isinstance():
    code = """
from torch.distributed.fsdp import FSDPModule, OptimStateKeyType
from torch.distributed._composable.fsdp import FSDPModule as again
assert again is FSDPModule and not isinstance(3, FSDPModule)
class Mine(FSDPModule):
    def f(self, x: FSDPModule[int] | None) -> "FSDPModule": ...
try:
    Mine()
except NotImplementedError as e:
    print(e)
try:
    OptimStateKeyType.PARAM_NAME
except AttributeError as e:
    print(e)
"""
    first, second = behind_alias(code).splitlines()
    reason = "models in parts, remote calls and checkpoints of several processes are not supported"
    assert first == f"torch.distributed.fsdp.FSDPModule: {reason}"
    assert second.startswith("torch.distributed.fsdp.OptimStateKeyType.PARAM_NAME: ")


def test_facula_alone_has_none_of_the_names_that_are_not_supported():
    with pytest.raises(ImportError):
        importlib.import_module("facula.distributed.rpc")
    assert not hasattr(facula, "symeig")


def test_a_report_of_suites_keeps_other_parts_and_the_other_sections(suites, tmp_path):
    report = tmp_path / "suites.md"
    suites.zoo.write_section(report, "Libraries", suites.zoo.table([("einops", 61, 60)], ["`einops: a::b`"]))
    first, second = "captum, part 3 of 16", "zuko, part 2 of 2"
    suites.write(report, {first: (first, 71, 70)}, {first: [f"{first}: `c::d`; drawn"]})
    suites.write(report, {second: (second, 79, 79)}, {second: []})
    text = report.read_text()
    assert "- `einops: a::b`" in text and "60 of 61 (98.4 %)" in text
    assert f"| {first} | 71 | 70 |" in text and f"- {first}: `c::d`; drawn" in text
    assert "149 of 150 (99.3 %)" in text
    suites.write(report, {first: (first, 71, 71)}, {first: []})
    assert "150 of 150 (100.0 %)" in report.read_text() and "c::d" not in report.read_text()
