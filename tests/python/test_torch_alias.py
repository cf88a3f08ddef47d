"""Programs written for PyTorch run unchanged behind `python -m facula.torch`."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import recording

import facula

PACKAGE = Path(facula.__file__).parent
GOLDEN = Path(__file__).parents[1] / "golden"


def python(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def behind(*arguments, **more):
    return python("-m", "facula.torch", *arguments, **more)


def says(program, **more):
    """What a program prints behind the alias."""
    done = behind("-c", program, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


SCRIPT = """
import json, sys
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

def double(q, x):
    import torch
    q.put((torch.__name__, (x * 2).tolist()))

if __name__ == "__main__":
    import multiprocessing, subprocess
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(20):
        for x, y in DataLoader(TensorDataset(torch.eye(4), torch.arange(4) % 2), batch_size=4):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    context = multiprocessing.get_context("spawn")
    q = context.Queue()
    child = context.Process(target=double, args=(q, torch.ones(2)))
    child.start()
    spawned = q.get()
    child.join()
    code = "import torch; print(torch.__version__)"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    print(json.dumps({
        "name": __name__, "file": __file__, "argv": sys.argv[1:], "fell": losses[-1] < losses[0],
        "spawned": spawned, "child": other.stdout.strip(), "version": torch.__version__,
    }))
"""


def test_a_script_trains_and_its_children_have_the_alias(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = behind(script, "--lr", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    version = said.pop("version")
    assert said == {
        "name": "__main__",
        "file": str(script),
        "argv": ["--lr", "1"],
        "fell": True,
        "spawned": ["torch", [2.0, 2.0]],
        "child": version,
    }


def test_annotations_of_a_program_are_values_unless_it_says_otherwise(tmp_path):
    program = "def f(x: int): pass\nprint(f.__annotations__['x'])"
    (tmp_path / "values.py").write_text(program)
    (tmp_path / "texts.py").write_text("from __future__ import annotations\n" + program)
    for arguments, said in (
        (["values.py"], "<class 'int'>"),
        (["-c", program], "<class 'int'>"),
        (["texts.py"], "int"),
    ):
        done = behind(*arguments, cwd=tmp_path)
        assert (done.stdout.strip(), done.stderr) == (said, "")


def test_vars_of_packages_have_the_names_that_follow_at_their_first_use():
    code = """
import torch
for package in (torch, torch.optim, torch.nn, torch.utils, torch.fx):
    for name, value in vars(package).items():  # none is added meanwhile
        getattr(value, "shape", None), isinstance(value, torch.optim.Optimizer), getattr(package, name)
    assert not [n for n in dir(package) if n not in vars(package)], package
assert vars(torch.optim)["Adam"] is torch.optim.Adam and vars(torch)["nn"] is torch.nn
print(len(vars(torch)) > 1000)
"""
    done = behind("-c", code)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


def test_a_module_of_ours_can_be_reloaded():
    done = behind("-c", "import importlib, torch.optim; print(importlib.reload(torch.optim).SGD)")
    assert (done.stdout.strip(), done.stderr) == ("<class 'torch.optim.sgd.SGD'>", "")


def test_a_module_a_folder_and_code_run_as_python_runs_them(tmp_path):
    (tmp_path / "helper.py").write_text("import torch; answer = torch.tensor(42).item()")
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "__init__.py").touch()
    main = "import sys, helper; print(__name__, __spec__ and __spec__.name, helper.answer, sys.argv[1:])"
    (tmp_path / "tool" / "__main__.py").write_text(main)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text("import torch; print(__name__, torch.ones(1))")
    code = "import helper, sys; print(__name__, helper.answer, sys.argv)"
    for arguments, expected in (
        (["-m", "tool", "x"], "__main__ tool.__main__ 42 ['x']"),
        (["folder"], "__main__ tensor([1.])"),
        (["-c", code, "y"], "__main__ 42 ['-c', 'y']"),
    ):
        done = behind(*arguments, cwd=tmp_path)
        assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_modules_are_the_same_objects_under_both_names():
    assert (
        says(
            "import facula, torch, sys, torch.nn.functional as F, torch.utils.data as data\n"
            "import torch.optim.lr_scheduler, facula.optim.lr_scheduler as ours\n"
            "print(torch is facula, F is facula.nn.functional, data is sys.modules['facula.utils.data'],\n"
            "      torch.optim.lr_scheduler is ours, torch.nn.Linear is facula.nn.Linear)"
        )
        == "True " * 4 + "True"
    )


def test_the_package_holds_itself_and_takes_calls_of_usage_logs():
    calls = "torch._C._log_api_usage_once('library.Class'), torch._C._log_api_usage_metadata('event', {})"
    assert says(f"import torch; print(torch.torch is torch, {calls})") == "True None None"


def test_what_objects_show_begins_with_torch():
    said = says(
        "import pickle, torch\n"
        "from torch import nn\n"
        "print(torch.float32, torch.Size([2]), torch.ones(1).type(), torch.channels_last, torch.strided)\n"
        "torch.set_printoptions(precision=2)\n"
        "print(torch.ones(1, dtype=torch.int32))\n"
        "print(torch.Tensor.__module__, nn.Linear.__module__, nn.Parameter.__module__,"
        " torch.optim.AdamW.__module__, torch.utils.data.DataLoader.__module__)\n"
        "print(torch.eye(2).max(0))\n"
        "print(b'torch.nn.modules.linear' in pickle.dumps(nn.Linear(1, 1)))\n"
        "print(type(pickle.loads(pickle.dumps(nn.Linear(1, 1)))) is nn.Linear)\n"
    )
    assert said.splitlines() == [
        "torch.float32 torch.Size([2]) torch.FloatTensor torch.channels_last torch.strided",
        "tensor([1], dtype=torch.int32)",
        "torch torch.nn.modules.linear torch.nn.parameter torch.optim.adamw torch.utils.data.dataloader",
        "torch.return_types.max(",
        "values=tensor([1., 1.]),",
        "indices=tensor([0, 1]))",
        "True",
        "True",
    ]


def test_graphs_of_programs_are_torchs():
    said = says(
        "import torch\n"
        "from torch import fx, nn\n"
        "print(fx.symbolic_trace(nn.Sequential(nn.ReLU())).code.strip())\n"
        "gm = fx.symbolic_trace(lambda x: torch.einsum('i,i', x, torch.nn.functional.relu(x)))\n"
        "print(gm.code.strip())\n"
        "print(gm(torch.ones(2)), torch.overrides.resolve_name(torch.Tensor.add))\n"
    )
    assert said.splitlines() == [
        "def forward(self, input):",
        "    input_1 = input",
        '    _0 = getattr(self, "0")(input_1);  input_1 = None',
        "    return _0",
        "def forward(self, x):",
        "    relu = torch.nn.functional.relu(x)",
        "    einsum = torch.einsum('i,i', x, relu);  x = relu = None",
        "    return einsum",
        "tensor(2.) torch.Tensor.add",
    ]


# Classes that are not pickled: their homes here are their own.
ELSEWHERE = set(
    "FunctionCtx Generator GradScaler autocast enable_grad finfo iinfo inference_mode no_grad "
    "set_grad_enabled".split()
)


def test_classes_have_the_paths_that_pytorchs_pickles_know():
    lines = [line.split("\t") for line in recording.read("class_paths.txt").splitlines()[1:]]
    said = says(
        "import importlib, json\n"
        f"for name in {[name for name, *_ in lines]!r}:\n"
        "    module, _, last = name.rpartition('.')\n"
        "    try: value = getattr(importlib.import_module(module), last)\n"
        "    except (AttributeError, ImportError): continue\n"
        "    if isinstance(value, type):\n"
        "        home = importlib.import_module(value.__module__)\n"
        "        found = getattr(home, value.__qualname__, None) is value\n"
        "        print(json.dumps([name, value.__module__, value.__qualname__, found]))\n"
    )
    theirs = {name: path for name, *path in lines}
    ours = {name: path for name, *path in map(json.loads, said.splitlines())}
    assert len(ours) > 180
    wrong = {
        name: path
        for name, path in ours.items()
        if path != [*theirs[name], True] and name.rpartition(".")[2] not in ELSEWHERE
    }
    assert wrong == {}


def test_modules_hold_the_attributes_that_pytorchs_pickles_carry():
    theirs = json.loads(recording.read("module_attributes.json"))
    said = says(
        f"import json, runpy, warnings; warnings.simplefilter('ignore')\n"
        f"recorder = runpy.run_path({str(GOLDEN / 'record_module_attributes.py')!r})\n"
        "import torch.nn\n"
        "print(json.dumps(recorder['attributes'](torch.nn)))"
    )
    ours = json.loads(said)
    wrong = {name: (held, ours[name]) for name, held in theirs.items() if name in ours and ours[name] != held}
    assert wrong == {} and len(ours) > 100


def test_absent_names_are_named():
    said = says(
        "import importlib.util, torch\n"
        "def failure(f):\n"
        "    try: f()\n"
        "    except Exception as e: print(type(e).__name__, str(e).splitlines()[0])\n"
        "failure(lambda: torch.nonsense)\n"
        "failure(lambda: torch.nn.nonsense)\n"
        "failure(lambda: torch.utils.nonsense)\n"
        "failure(lambda: importlib.import_module('torch.nn.nonsense'))\n"
        "failure(lambda: torch.ones(1, dtype='x'))\n"
        "print(importlib.util.find_spec('torch.nonsense'))\n"
    )
    assert said.splitlines() == [
        "AttributeError module 'torch' has no attribute 'nonsense'",
        "AttributeError module 'torch.nn' has no attribute 'nonsense'",
        "AttributeError module 'torch.utils' has no attribute 'nonsense'",
        "ModuleNotFoundError No module named 'torch.nn.nonsense'",
        "TypeError ones(): argument 'dtype' must be torch.dtype, not str",
        "None",
    ]


def test_libraries_find_the_distribution_and_its_version():
    said = says(
        "import importlib.metadata as m, importlib.util as u\n"
        "print(m.version('torch'), u.find_spec('torch') is not None)\n"
        "import torch; print(torch.__version__, torch.version.__version__, torch.version.cuda)"
    )
    version = said.split()[0]
    assert said.splitlines() == [f"{version} True", f"{version} {version} None"]
    assert version.split("+")[1] == "facula" and int(version.split(".")[0]) == 2


def test_a_program_or_a_notebook_imports_the_alias_itself():
    code = (
        "import facula.torch as torch; import torch.nn as nn; print(nn.Linear(2, 3)(torch.ones(1, 2)).shape)"
    )
    assert python("-c", code).stdout == "torch.Size([1, 3])\n"


def test_without_the_alias_nothing_is_called_torch():
    code = "import sys, facula as f; print('torch' in sys.modules, f.float32, f.nn.Linear.__module__)"
    assert python("-c", code).stdout == "False facula.float32 facula.nn.modules.linear\n"


def test_pytorch_itself_is_not_replaced_behind_a_programs_back(tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '2'")
    done = python("-c", "import torch, facula.torch", cwd=tmp_path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert (
        last.startswith("ImportError: facula.torch: torch is imported already, from ") and "torch.py" in last
    )
    # An installed one that nothing has imported gives way.
    done = python("-c", "import facula.torch, torch; print(torch.float32)", cwd=tmp_path)
    assert done.stdout == "torch.float32\n", done.stderr


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["-m"], "-m needs what to run"),
        (["-x", "y"], "unknown option -x: give a script"),
        (["nowhere.py"], "can't open file 'nowhere.py'"),
    ],
)
def test_a_command_that_cannot_be_run_says_why(arguments, text):
    done = behind(*arguments)
    assert done.returncode == 2 and done.stderr.startswith("facula.torch: " + text)


def test_a_scripts_own_failure_is_pythons(tmp_path):
    (tmp_path / "a.py").write_text("import torch\nraise SystemExit(3)")
    assert behind(tmp_path / "a.py").returncode == 3
    (tmp_path / "b.py").write_text("import torch\ntorch.ones(2) @ torch.ones(3)")
    done = behind(tmp_path / "b.py")
    assert done.returncode == 1 and 'b.py", line 2' in done.stderr and "RuntimeError" in done.stderr


FAILING = {
    "an error": "def f(x):\n    return 1 / x\nf(0)\n",
    "a cause": "try:\n    {}['a']\nexcept KeyError as e:\n    raise ValueError('b') from e\n",
    "a syntax error": "x = (\n",
    "a hook of its own": "import sys, traceback\n"
    "sys.excepthook = lambda kind, value, tb: print(len(traceback.extract_tb(tb)), value, file=sys.stderr)\n"
    "raise ValueError('c')\n",
    "an interrupt": "raise KeyboardInterrupt\n",
}


@pytest.mark.parametrize("kind", FAILING)
@pytest.mark.parametrize("how", ["script", "folder", "code", "module"])
def test_a_failure_is_shown_as_python_shows_it(kind, how, tmp_path):
    (tmp_path / "folder").mkdir()
    for name in ("script.py", "folder/__main__.py"):
        (tmp_path / name).write_text(FAILING[kind])
    arguments = {
        "script": ["script.py"],
        "folder": ["folder"],
        "code": ["-c", FAILING[kind]],
        "module": ["-m", "script"],
    }
    alone, done = python(*arguments[how], cwd=tmp_path), behind(*arguments[how], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (alone.returncode, alone.stderr)


def test_the_main_module_is_as_python_makes_it(tmp_path):
    names = "__name__, __file__, type(__loader__).__name__, __spec__, __package__, __doc__, sys.argv"
    program = f"import sys; print({names})"
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "script.py").write_text(program + "\nimport beside")
    (tmp_path / "folder" / "beside.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "folder" / "script.py")
    for script in ("folder/script.py", "link.py"):
        alone, done = python(script, "x", cwd=tmp_path), behind(script, "x", cwd=tmp_path)
        assert (done.stdout, done.stderr, done.returncode) == (alone.stdout, "", 0)


def test_an_unknown_print_profile_warns_and_keeps_the_other_options():
    said = says(
        "import torch, warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    torch.set_printoptions(precision=2, linewidth=320, profile='long')\n"
        "print('long' in str(caught[0].message), torch.tensor([1.2345]))\n"
    )
    assert said == "True tensor([1.23])"


def test_messages_advise_by_the_name_that_the_program_uses():
    said = says(
        "import torch, warnings\n"
        "def text(f):\n"
        "    try: f()\n"
        "    except Exception as e: print(str(e).replace('\\n', ' '))\n"
        "text(lambda: torch.ones(2, dtype=torch.bool).mean())\n"
        "text(lambda: torch.ones(2).reinforce(1))\n"
        "text(lambda: torch.export.export(None, ()))\n"
        "text(lambda: torch.utils.mobile_optimizer.optimize_for_mobile(None))\n"
    )
    assert len(said.splitlines()) == 4 and "facula." not in said and said.count("torch.") >= 4


def strings_of_messages(file):
    """The strings in what a file raises or warns of, with their lines."""
    for node in ast.walk(ast.parse(file.read_text())):
        called = isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", ""))
        if isinstance(node, ast.Raise) or called == "warn":
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_messages_of_python_files_do_not_spell_the_packages_name():
    files = [f for f in PACKAGE.rglob("*.py") if "_alias" not in f.parts]
    assert len(files) > 100
    named = [
        (f.name, line)
        for f in files
        for line, text in strings_of_messages(f)
        if re.search(r"\bfacula\.", text)
    ]
    assert not named, "the message names the package by _C.package_name()"


def test_a_group_of_one_process_passes_tensors_on():
    import facula.distributed as dist

    with pytest.raises(NotImplementedError, match="4 processes"):
        dist.init_process_group("gloo", world_size=4, rank=0)
    with pytest.raises(ValueError, match="has not been initialized"):
        dist.get_rank()
    dist.init_process_group("gloo", rank=0, world_size=1)
    try:
        x = facula.arange(3.0)
        dist.all_reduce(x)
        out = [facula.empty(3)]
        dist.all_gather(out, x)
        work = dist.broadcast(x, 0, async_op=True)
        assert work.wait() and (out[0] == x).all() and x.tolist() == [0, 1, 2]
        assert (dist.get_rank(), dist.get_world_size(), dist.is_initialized()) == (0, 1, True)
        with pytest.raises(RuntimeError, match="rank 1"):
            dist.broadcast(x, 1)
        with pytest.raises(RuntimeError, match="got 2"):
            dist.all_gather([x, x], x)
        net = facula.nn.parallel.DistributedDataParallel(facula.nn.Linear(3, 2))
        with net.no_sync():
            net(x).sum().backward()
        assert net.module.weight.grad.tolist() == [[0, 1, 2]] * 2
        assert list(net.state_dict()) == ["module.weight", "module.bias"]
        sampler = facula.utils.data.DistributedSampler(range(5), shuffle=False)
        assert (sampler.num_replicas, sampler.rank, list(sampler)) == (1, 0, [0, 1, 2, 3, 4])
    finally:
        dist.destroy_process_group()
    assert not dist.is_initialized()
    with pytest.raises(ValueError, match="process group has not been initialized"):
        facula.utils.data.DistributedSampler(range(5))


def test_registered_classes_are_trees():
    from facula.utils import _pytree as tree

    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    tree.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda items, context: Pair(*items))
    leaves, spec = tree.tree_flatten({"x": Pair(1, [2, 3])})
    again = tree.tree_unflatten([-v for v in leaves], spec)["x"]
    assert leaves == [1, 2, 3] and (again.a, again.b) == (-1, [-2, -3])
    with pytest.raises(ValueError, match="already registered"):
        tree.register_pytree_node(Pair, None, None)


def test_a_hub_gives_models_of_a_folder_and_files_by_address(tmp_path):
    conf = 'dependencies = ["torch"]\n\ndef double(x=1):\n    "Twice."\n    return 2 * x\n'
    (tmp_path / "hubconf.py").write_text(conf)
    hub = facula.hub
    assert hub.load(str(tmp_path), "double", x=4, source="local") == 8
    assert hub.list(str(tmp_path), source="local") == ["double"]
    assert hub.help(str(tmp_path), "double", source="local") == "Twice."
    with pytest.raises(RuntimeError, match="Cannot find callable treble"):
        hub.load(str(tmp_path), "treble", source="local")
    with pytest.raises(NotImplementedError, match="source='github'"):
        hub.load("owner/name", "model")
    facula.save({"w": facula.ones(2)}, tmp_path / "w-00000000.pth")
    address = (tmp_path / "w-00000000.pth").as_uri()
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url(address, str(tmp_path / "kept"), check_hash=True)
    assert list((tmp_path / "kept").iterdir()) == []
    assert hub.load_state_dict_from_url(address, str(tmp_path / "kept"))["w"].tolist() == [1, 1]


def fails(rank, how):
    if rank == 1:
        raise ValueError("no luck") if how == "raise" else SystemExit(7)


@pytest.mark.parametrize("how, text", [("raise", "no luck"), ("exit", "exit code 7")])
def test_a_spawned_process_that_fails_is_the_callers_failure(how, text):
    import importlib

    spawn = importlib.import_module("facula.multiprocessing.spawn")
    spawn.start_processes(fails, ("none",), nprocs=1, start_method="fork")
    with pytest.raises(spawn.ProcessException, match=text) as e:
        spawn.start_processes(fails, (how,), nprocs=2, start_method="fork")
    assert e.value.error_index == 1


def test_batch_norms_become_those_of_all_processes():
    nn = facula.nn
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Sequential(nn.BatchNorm2d(2)))
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert made is net and type(net[1][0]) is nn.SyncBatchNorm
    x = facula.randn(3, 1, 4, 4)
    expected = nn.BatchNorm2d(2)(net[0](x))
    assert (net(x) == expected).all()


def test_the_stand_in_for_torchvision_transforms_images(tmp_path):
    pytest.importorskip("PIL")
    said = says(
        "import numpy as np, torch\n"
        "from PIL import Image\n"
        "from torchvision import transforms as T\n"
        "from torchvision.datasets import ImageFolder\n"
        "pixels = np.arange(5 * 4 * 3, dtype=np.uint8).reshape(5, 4, 3)\n"
        "image = Image.fromarray(pixels)\n"
        "t = T.ToTensor()(image)\n"
        "print(t.shape, (t * 255).round().byte().permute(1, 2, 0).numpy().tobytes() == pixels.tobytes())\n"
        "print(T.CenterCrop(3)(t).equal(t[:, 1:4, 0:3]))\n"
        "print(T.Resize(8)(image).size, T.Resize((2, 3))(image).size)\n"
        "print((np.asarray(T.CenterCrop(3)(image)) == pixels[1:4, 0:3]).all())\n"
        "print(T.Normalize((0.5,), (0.5,))(torch.ones(1, 2, 2)).tolist())\n"
        "print(T.functional.hflip(t).equal(t.flip(-1)))\n"
        "part = T.functional.crop(t, -1, 2, 3, 4)\n"
        "print(part[0, :, :2].equal(torch.cat([torch.zeros(1, 2), t[0, :2, 2:]])))\n"
        "import os\n"
        "for name in ('cat', 'dog'): os.makedirs('d/' + name); image.save(f'd/{name}/1.png')\n"
        "random = T.Compose([T.RandomResizedCrop(2), T.RandomHorizontalFlip(), T.ToTensor()])\n"
        "data = ImageFolder('d', random)\n"
        "((x, y),) = torch.utils.data.DataLoader(data, 2)\n"
        "print(data.class_to_idx, x.shape, y)\n",
        cwd=tmp_path,
    )
    assert said.splitlines() == [
        "torch.Size([3, 5, 4]) True",
        "True",
        "(8, 10) (3, 2)",
        "True",
        "[[[1.0, 1.0], [1.0, 1.0]]]",
        "True",
        "True",
        "{'cat': 0, 'dog': 1} torch.Size([2, 3, 2, 2]) tensor([0, 1])",
    ]


FIRST_PROGRAM = """
import numpy as np, torch, torchvision
from PIL import Image
from torchvision import models, ops, utils
from torchvision.datasets import FakeData
from torchvision.transforms import v2

x = torch.arange(5 * 2 * 3.0).reshape(5, 1, 2, 3)
grid = utils.make_grid(x, nrow=2, padding=1, pad_value=-1)
parts = grid[1, 1:3, 5:8].equal(x[1, 0]), grid[2, 7:9, 1:4].equal(x[4, 0])
print(tuple(grid.shape), *parts, (grid[0, 0] == -1).all())
each = utils.make_grid(x, normalize=True, scale_each=True, padding=0, nrow=5)
print(np.allclose(each[0, :, 6:9].tolist(), np.arange(6).reshape(2, 3) / 5))
utils.save_image(x / 29, "grid.png", nrow=5, padding=0)
print(np.abs(np.asarray(Image.open("grid.png"))[:, 12:, 2] - x[4, 0].numpy() / 29 * 255).max() <= 0.5)
data = FakeData(3, (3, 4, 5), 7, v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]))
image, label = data[1]
print(len(data), tuple(image.shape), image.equal(data[1][0]), 0 <= label < 7, image.max() <= 1)
boxes, scores = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]), torch.tensor([0.1, 0.2, 0.3])
print(ops.nms(boxes, scores, 0.5), ops.box_iou(boxes[:2], boxes[1:])[0])
print(ops.batched_nms(boxes, scores, torch.tensor([0, 1, 1]), 0.5))
for name in ("resnet18", "resnet50", "alexnet", "vgg11_bn"):
    with torch.device("meta"):
        print(name, sum(p.numel() for p in getattr(models, name)().parameters()))
print(models.resnet18(num_classes=3).eval()(torch.ones(1, 3, 32, 32)).shape)
for f in (lambda: models.swin_t, lambda: models.resnet18(weights="DEFAULT"), lambda: torchvision.io):
    try:
        f()
    except Exception as e:
        print(type(e).__name__, "`pip install --no-deps torchvision`" in str(e))
"""


def test_the_stand_in_for_torchvision_has_what_first_programs_use(tmp_path):
    pytest.importorskip("PIL")
    assert says(FIRST_PROGRAM, cwd=tmp_path).splitlines() == [
        "(3, 10, 9) True True tensor(True)",
        "True",
        "True",
        "3 (3, 4, 5) True True tensor(True)",
        "tensor([2, 1]) tensor([0.9500, 0.0000])",
        "tensor([2, 1, 0])",
        "resnet18 11689512",  # as published
        "resnet50 25557032",
        "alexnet 61100840",
        "vgg11_bn 132868840",
        "torch.Size([1, 3])",
        "AttributeError True",
        "NotImplementedError True",
        "AttributeError True",
    ]


def test_distributions_are_torchs():
    said = says(
        "import torch, torch.distributions as D\n"
        "from torch.distributions.normal import Normal\n"
        "from torch.distributions import constraints, kl_divergence, transforms, transform_to\n"
        "from torch.distributions.utils import broadcast_all\n"
        "print(D.Normal is Normal, Normal.__module__, D.Normal(0.0, 1.0), constraints.positive)\n"
        "print(D.Normal(torch.zeros(2), 1.0).expand([3, 2]).batch_shape)\n"
    )
    assert said.splitlines() == [
        "True torch.distributions.normal Normal(loc: 0.0, scale: 1.0) GreaterThan(lower_bound=0.0)",
        "torch.Size([3, 2])",
    ]


def test_functorch_has_what_became_of_its_experiments():
    program = (
        "import torch; from functorch import make_fx\n"
        "from functorch.experimental.control_flow import cond, map\n"
        "print(make_fx(lambda x: x.sin())(torch.ones(2)).code.split()[5])\n"
        "print(cond(torch.tensor(True), lambda x: x + 1, lambda x: x, (torch.ones(1),)).item())\n"
        "print(torch._dynamo.explain(lambda x: x + 1)(torch.ones(1)).graph_count)"
    )
    assert says(program).split() == ["torch.ops.aten.sin.default(x_1);", "2.0", "1"]
