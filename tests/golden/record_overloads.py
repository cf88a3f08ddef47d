"""How PyTorch names the overloads of operators, by the kinds of their arguments: writes
python/facula/_overload_names.py, for dispatch modes. Run by Python with PyTorch:

python tests/golden/record_overloads.py NAMES     a file with the names of operators, one a line
"""

import sys
from pathlib import Path

import torch

TARGET = Path(__file__).parents[2] / "python" / "facula" / "_overload_names.py"
# Functions of which Python's calls take a number as a tensor (torch/csrc/utils/python_arg_parser.cpp).
NUMBERS = {
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "multiply",
    "subtract",
    "divide",
    "true_divide",
    "copy",
}
KINDS = {
    "Tensor": "T",
    "List[Tensor]": "L",
    "List[Optional[Tensor]]": "L",
    "number": "S",
    "List[number]": "F",
    "int": "i",
    "bool": "b",
    "float": "f",
    "str": "s",
    "List[int]": "I",
    "List[float]": "F",
    "List[bool]": "I",
    "Generator": "g",
    "Device": "d",
}
DTYPES = {"dtype", "out_dtype", "layout", "memory_format"}


def kind(argument, numbers):
    text = str(argument.type).removeprefix("Optional[")
    text = text[:-1] if str(argument.type).startswith("Optional[") else text
    if argument.name in DTYPES:
        return "d"
    letter = KINDS.get(text, "")
    return "N" if letter == "T" and numbers and argument.name != "self" else letter


def rows(name):
    packet = getattr(torch.ops.aten, name, None)
    found = {"": [], ".out": []}
    for overload in packet.overloads() if packet else ():
        try:
            schema = getattr(packet, overload)._schema
        except RuntimeError:
            continue
        out = any(a.is_out for a in schema.arguments)
        given = [a for a in schema.arguments if not a.is_out]
        kinds = [kind(a, name.rstrip("_") in NUMBERS) for a in given]
        if "" in kinds or not (set(kinds) & {"T", "L"} or any(a.name == "device" for a in schema.arguments)):
            continue  # of TorchScript's own types
        positional = "".join(k for a, k in zip(given, kinds) if not a.kwarg_only)
        keywords = ",".join(
            a.name for a in given if a.kwarg_only and a.name not in DTYPES | {"device", "pin_memory"}
        )
        found[".out" if out else ""].append(f"{overload}:{positional}" + (f":{keywords}" if keywords else ""))
    for form, usual in (("", "default"), (".out", "out")):
        if found[form] and [o.split(":")[0] for o in found[form]] != [usual]:
            yield from (f"{name}{form} {o}" for o in found[form])


if __name__ == "__main__":
    names = sorted(set(Path(sys.argv[1]).read_text().split()))
    lines = [line for n in sorted({f for n in names for f in (n, n.rstrip("_") + "_")}) for line in rows(n)]
    text = "\n".join(lines)
    TARGET.write_text(
        '"""How PyTorch names the overloads of operators: ``name overload:kinds:keywords``, a kind for each\n'
        "argument by position: T tensor, N tensor or number, L list of tensors, S number, i f b s int, "
        "float,\n"
        "bool, str, I F lists of integers and numbers, d dtype or the like, g generator. Names with one\n"
        "overload, ``default``, are left out.\n\nWritten by tests/golden/record_overloads.py.\n"
        '"""\n\n'
        f'NAMES = """\n{text}\n"""\n'
    )
