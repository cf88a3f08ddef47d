"""Checkpoints that PyTorch writes and Facula reads, and the reverse, with PyTorch itself: FACULA_PEER is a
Python that has it (`make bench` makes .peer, which is found without being named). Each in the format of today and in
that of before PyTorch 1.6.

Each case is source text that both libraries run. What one wrote and the other read must be what either has
itself: types, dtypes, shapes, strides, elements, and which tensors share memory.
"""

# ruff: noqa: E501
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import facula

INSTALLED = Path(__file__).resolve().parents[2] / ".peer/bin/python"
PEER = os.environ.get("FACULA_PEER") or (str(INSTALLED) if INSTALLED.exists() else None)
if PEER is None:
    pytest.skip(
        "PyTorch is not installed: set FACULA_PEER, or let `make bench` install it", allow_module_level=True
    )

COMMON = '''
import collections
import json

def numbers(dtype, *shape):
    n = 1
    for s in shape:
        n *= s
    return torch.arange(n).remainder(2 if dtype == torch.bool else 97).to(dtype).reshape(shape)

def filled(module):
    for k, t in enumerate([*module.parameters(), *module.buffers()]):
        with torch.no_grad():
            t.copy_((torch.arange(t.numel()).reshape(t.shape) % 7 + k) / 8)
    return module

def stepped(make, whole=False):
    model = filled(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2)))
    groups = [{"params": list(model[0].parameters())}, {"params": list(model[2].parameters()), "lr": 0.25}]
    optimizer = make(groups)
    for _ in range(2):
        for k, p in enumerate(model.parameters()):
            p.grad = (torch.arange(p.numel()).reshape(p.shape) % 5 + k) / 16
        optimizer.step()
    return optimizer if whole else optimizer.state_dict()

def attributed(t, **attributes):
    for k, v in attributes.items():
        setattr(t, k, v)
    return t

def tensors_in(x):
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        return [t for v in x.values() for t in tensors_in(v)]
    return [t for v in x for t in tensors_in(v)] if isinstance(x, (list, tuple)) else []

def facts(x, storages):
    if isinstance(x, torch.Tensor):
        wide = torch.complex128 if x.is_complex() else torch.float64 if x.is_floating_point() else torch.int64
        place = storages.setdefault(x.untyped_storage().data_ptr() if x.numel() else id(x), len(storages))
        extra = sorted(k for k in x.__dict__ if not k.startswith("_"))
        return [type(x).__name__, str(x.dtype), list(x.shape), list(x.stride()), x.storage_offset(), x.requires_grad,
                str(x.detach().to(wide).tolist()), place, [[k, facts(getattr(x, k), storages)] for k in extra]]
    if isinstance(x, dict):
        return [type(x).__name__, [[facts(k, storages), facts(v, storages)] for k, v in x.items()]]
    if isinstance(x, (set, frozenset)):
        return [type(x).__name__, sorted(map(repr, x))]
    if isinstance(x, (list, tuple)):
        return [type(x).__name__, [facts(v, storages) for v in x]]
    if isinstance(x, (torch.nn.Module, torch.optim.Optimizer)):
        return [type(x).__module__, repr(x), facts(x.state_dict(), storages)]
    if callable(x) and hasattr(x, "__name__"):
        return [x.__name__.removeprefix("special_").removeprefix("linalg_")]
    return [type(x).__name__, repr(x)]

def shown(x):
    """Facts, with numbers for storages in the order of their tensors."""
    return json.dumps(facts(x, {})).replace("torch.", "").replace("facula.", "")
'''  # noqa: E501
DTYPES = "float32 float64 float16 bfloat16 complex64 complex128 int8 int16 int32 int64 uint8 bool".split()
OPTIMIZERS = {
    "SGD": "lr=0.5, momentum=0.9, nesterov=True",
    "Adam": "lr=0.5, amsgrad=True",
    "AdamW": "lr=0.5, weight_decay=0.1",
    "RMSprop": "lr=0.5, momentum=0.5, centered=True",
    "Adagrad": "lr=0.5",
    "Adadelta": "",
    "Adamax": "",
    "NAdam": "",
    "RAdam": "",
    "ASGD": "lr=0.5",
    "Rprop": "",
}
MODULES = [
    "Linear(3, 2)",
    "Conv2d(2, 3, 3, bias=False)",
    "BatchNorm2d(3)",
    "InstanceNorm1d(3, affine=True, track_running_stats=True)",
    "LayerNorm(4)",
    "Embedding(5, 3, padding_idx=1)",
    "PReLU(3)",
    "MultiheadAttention(4, 2)",
    "TransformerEncoderLayer(4, 2, 8)",
    "ModuleDict({'b': nn.Linear(2, 2), 'a': nn.ModuleList([nn.ReLU(), nn.Linear(1, 2)])})",
    "ParameterList([torch.zeros(2), torch.ones(3)])",
]
CASES = {
    **{f"elements of {d}": f"numbers(torch.{d}, 2, 3)" for d in DTYPES},
    "special numbers": "[torch.tensor([float('nan'), float('inf'), -0.0, 1e-45]), torch.tensor(3.4e38).half()]",
    "one number and none": "[torch.tensor(2.5), torch.zeros(0), torch.zeros(3, 0, 2), torch.tensor(True)]",
    "views of one storage": "(lambda t: [t, t[1:], t.t(), t[:, ::2], t[2], t.reshape(-1)[3:7]])(numbers(torch.float32, 4, 6))",
    "strides": "[numbers(torch.int32, 3, 1).expand(3, 4), numbers(torch.float64, 2, 3, 4).permute(2, 0, 1), "
    "torch.as_strided(numbers(torch.float32, 9), (2, 3, 2), (3, 1, 2), 1)]",
    "channels last": "numbers(torch.float32, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last)",
    "one tensor many times": "(lambda t: {'a': t, 'b': [t, t], 'c': (t,)})(numbers(torch.float32, 3))",
    "gradients and parameters": "[numbers(torch.float32, 2).requires_grad_(), torch.nn.Parameter(numbers(torch.float64, 2)), "
    "torch.nn.Parameter(torch.ones(2), requires_grad=False)]",
    "containers": "{'list': [1, [2, [3, []]]], 'tuple': (1, (), ('a',)), 'ordered': collections.OrderedDict(b=1, a=2), "
    "'counter': collections.Counter('aab'), 'default': collections.defaultdict(list, x=[1]), 1: None, (1, 2): 'key', "
    "None: {}, 'set': {1, 2}, 'frozen': frozenset([3])}",
    "numbers and texts": "[True, False, None, 0, -1, 255, 65536, -(2**31), 2**40, -(2**63), 2**100, 0.1, -0.0, 1e308, 1 + 2j, "
    "'', 'text', 'äöü \\u20ac \\U0001f600', 'x' * 1000, b'', b'bytes\\x00\\xff', bytearray(b'array')]",
    "types of the library": "[torch.float16, torch.int64, torch.device('cpu'), torch.Size([1, 2]), torch.zeros(2, 3).shape]",
    "a tensor with attributes": "attributed(numbers(torch.float32, 2), note='mine', scale=numbers(torch.float32, 1))",
    **{f"state of {m.split('(')[0]}": f"filled(nn.{m}).state_dict()" for m in MODULES},
    **{
        f"state of {o}": f"stepped(lambda groups: torch.optim.{o}(groups, {a}))"
        for o, a in OPTIMIZERS.items()
    },
    "state of a schedule": "(lambda o: torch.optim.lr_scheduler.StepLR(o, 3))(torch.optim.SGD([torch.zeros(2)], lr=0.5)).state_dict()",
    "conjugates put off": "(lambda z: [z.conj(), z[1:].conj(), z.conj().expand(3, 4)])(numbers(torch.complex64, 4))",
    "one conjugate": "numbers(torch.complex128, 2, 2).t().conj()",
}
# What weights_only refuses.
OBJECTS = {
    **{
        f"a {m.split('(')[0]}": f"filled(nn.{m})"
        for m in MODULES
        if m.startswith(("Module", "Parameter")) is False
    },
    "a container": "filled(nn.ModuleDict({'b': nn.Linear(2, 2), 'a': nn.ModuleList([nn.ReLU(), nn.Linear(1, 2)])}))",
    "a network": "filled(nn.Sequential(nn.Conv2d(1, 2, 3, padding='same'), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)))",
    "a transposed convolution": "filled(nn.ConvTranspose2d(2, 3, 3, output_padding=1, stride=2))",
    "activations": "nn.Sequential(nn.GELU(), nn.Softmax(-1), nn.Identity(), nn.PReLU(), nn.SiLU(), nn.LeakyReLU(0.3), nn.Dropout(0.1))",
    "a weight norm": "(lambda m: [filled(m), m(torch.ones(1, 3)), m][0])(nn.utils.weight_norm(nn.Linear(3, 2)))",
    **{
        f"a {o}": f"stepped(lambda groups: torch.optim.{o}(groups, {a}), whole=True)"
        for o, a in OPTIMIZERS.items()
    },
    "functions": "[nn.functional.relu, nn.functional.gelu, torch.tanh, torch.special.erf, torch.strided]",
    "a function of a module": "torch.linalg.vector_norm",
}
ALL = {**CASES, **OBJECTS}


def built(source):
    scope = {"torch": facula, "nn": facula.nn}
    exec(COMMON, scope)
    return eval(source, scope), scope["shown"]


SCRIPT = """
import torch, torch.nn as nn, sys, pathlib, pickle, warnings
warnings.simplefilter("ignore")
folder, cases = json.loads(sys.argv[1])
answers = {}
for k, (name, source) in enumerate(cases.items()):
    x = eval(source)
    torch.save(x, f"{folder}/theirs{k}.pt")
    torch.save(x, f"{folder}/theirs{k}.old.pt", _use_new_zipfile_serialization=False)
    with open(f"{folder}/theirs{k}.pickle", "wb") as f:
        pickle.dump(x, f)
    answers[name] = {"theirs": shown(x)}
    try:
        torch.load(f"{folder}/theirs{k}.pt", weights_only=True)
        safe = True
    except Exception:  # PyTorch refuses some containers in its own files too
        safe = False
    answers[name]["today's"] = shown(torch.load(f"{folder}/ours{k}.pt", weights_only=safe))
    answers[name]["today's, mapped"] = shown(torch.load(f"{folder}/ours{k}.pt", weights_only=safe, mmap=True))
    answers[name]["of old"] = shown(torch.load(f"{folder}/ours{k}.old.pt", weights_only=safe))
print(json.dumps(answers))
"""


@pytest.fixture(scope="session")
def exchanged(tmp_path_factory):
    """The folder of files, and what PyTorch has and read."""
    folder = tmp_path_factory.mktemp("exchange")
    for k, source in enumerate(ALL.values()):
        x = built(source)[0]
        facula.save(x, folder / f"ours{k}.pt")
        facula.save(x, folder / f"ours{k}.old.pt", _use_new_zipfile_serialization=False)
    run = subprocess.run(
        [PEER, "-c", COMMON + SCRIPT, json.dumps([str(folder), ALL])], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    return folder, json.loads(run.stdout)


@pytest.mark.parametrize("name", ALL)
def test_pytorch_reads_what_facula_writes(exchanged, name):
    mine, shown = built(ALL[name])
    for how in ("today's", "today's, mapped", "of old"):
        assert exchanged[1][name][how] == shown(mine), how


@pytest.mark.parametrize("name", ALL)
def test_facula_reads_what_pytorch_writes(exchanged, name):
    path = str(exchanged[0] / f"theirs{list(ALL).index(name)}")
    shown = built("None")[1]
    trusted = {"weights_only": False}
    for file in (path + ".pt", path + ".old.pt"):
        mapped = [{"mmap": True}] if file == path + ".pt" else []
        for options in [trusted] if name in OBJECTS else [{}, trusted, *mapped]:
            assert shown(facula.load(file, **options)) == exchanged[1][name]["theirs"], (file, options)


def test_weights_only_refuses_objects_of_either_format(exchanged):
    for name in ("a network", "a SGD", "functions"):
        for suffix in (".pt", ".old.pt"):
            with pytest.raises(facula.serialization.UnpicklingError, match="hint: if you trust the file"):
                facula.load(f"{exchanged[0]}/theirs{list(ALL).index(name)}{suffix}")


def test_plain_pickles_are_read_behind_the_alias(exchanged):
    program = f"""
import pickle, sys, torch, torch.nn as nn
{COMMON}
folder, cases = json.loads(sys.argv[1])
answers, mine = {{}}, {{}}
for name, (k, source) in cases.items():
    with open(f"{{folder}}/theirs{{k}}.pickle", "rb") as f:
        answers[name] = shown(pickle.load(f))
    x = eval(source)
    mine[name] = shown(x)
    with open(f"{{folder}}/ours{{k}}.pickle", "wb") as f:
        pickle.dump(x, f)
print(json.dumps([answers, mine]))
"""
    # Views each get a memory of their own; the function has no name there.
    apart = ("views of one storage", "conjugates put off", "a function of a module")
    cases = {name: (k, text) for k, (name, text) in enumerate(ALL.items()) if name not in apart}
    where = json.dumps([str(exchanged[0]), cases])
    ours = [sys.executable, "-m", "facula.torch", "-c", program, where]
    run = subprocess.run(ours, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    answers, mine = json.loads(run.stdout)
    assert answers == {name: exchanged[1][name]["theirs"] for name in cases}
    back = (
        program.replace("theirs{k}.pickle", "ours{k}.pickle").partition("    x = eval")[0]
        + "assert 'facula' not in sys.modules, 'a pickle names it'\nprint(json.dumps(answers))"
    )
    run = subprocess.run([PEER, "-W", "ignore", "-c", back, where], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == mine


def test_the_format_of_old_is_not_mapped(exchanged):
    with pytest.raises(RuntimeError, match="before PyTorch 1.6.*\n.*hint: save it anew"):
        facula.load(exchanged[0] / "theirs0.old.pt", mmap=True)
