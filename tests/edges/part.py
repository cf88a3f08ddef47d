"""A part of a recording, small enough for the repository: every operator, and each thing that was tried of
it, in a few dtypes that rotate from operator to operator.
"""

import re
import zipfile
import zlib
from pathlib import Path

from record import pack, unpack

DTYPES = 3  # of an operator
ALWAYS = ("float32",)
SIZES = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2}
SIZES |= {"int32": 4, "float32": 4, "complex128": 16}
ELEMENTS = 12000  # of a call and its answer together, at most


def tensors(x):
    """The encoded tensors in a call or an answer."""
    if isinstance(x, dict):
        if "T" in x:
            yield x
        else:
            for v in x.values():
                yield from tensors(v)
    elif isinstance(x, list):
        for v in x:
            yield from tensors(v)


def elements(x):
    return sum(t.get("n", 0) for t in tensors(x))


def tried(call):
    """What is special about a call, without places and numbers."""
    return call["form"], re.sub(r"-?\d[\d.]*", "#", call["label"])


def chosen(record):
    """Numbers of the calls that are kept, with the ordinary one of each group that something is kept of."""
    present = sorted({c["dtype"] for c in record["calls"]})
    turn = zlib.crc32(record["op"].encode())
    rotated = sorted(present, key=lambda d: zlib.crc32(f"{turn}{d}".encode()))
    dtypes = [d for d in ALWAYS if d in present] + [d for d in rotated if d not in ALWAYS]
    keep, seen = set(), set()
    for rank, dtype in enumerate(dtypes):
        for k, (call, answer) in enumerate(zip(record["calls"], record["answers"])):
            first = {n: v for n, v in answer.items() if n != "elsewhere"}
            if call["dtype"] != dtype or elements([call["args"], first]) > ELEMENTS:
                continue
            key = tried(call)
            if rank < DTYPES and key not in seen:
                seen.add(key)
                keep.add(k)
    groups = {record["calls"][k]["group"] for k in keep}
    first = {}
    for k, call in enumerate(record["calls"]):
        if call["group"] in groups:
            first.setdefault(call["group"], k)
    return sorted(keep | set(first.values()))


def bytes_of(t, data):
    return data[t["at"] : t["at"] + SIZES.get(t["T"], 8) * t["n"]]


def packed(record, data):
    """The record without bytes that nothing refers to."""
    out, known = bytearray(), {}
    for t in tensors([[c["args"] for c in record["calls"]], record["answers"]]):
        if "at" not in t:
            continue
        raw = bytes(bytes_of(t, data))
        if raw not in known:
            known[raw] = len(out)
            out += raw
        t["at"] = known[raw]
    return pack(record, out)


def write_part(recording, path, whole):
    """Writes the part of a recording to `path`; unless the recording is of all operators, beside what the
    file has of others.
    """
    parts = {}
    if not whole and Path(path).exists():
        with zipfile.ZipFile(path) as z:
            parts = {n: z.read(n) for n in z.namelist()}
    with zipfile.ZipFile(recording) as z:
        for name in z.namelist():
            record, data = unpack(z.read(name))
            kept = chosen(record)
            record["calls"] = [record["calls"][k] for k in kept]
            record["answers"] = [record["answers"][k] for k in kept]
            parts[name] = packed(record, data)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name in sorted(parts):  # a fixed date, so that equal recordings make equal files
            out.writestr(zipfile.ZipInfo(name), parts[name], zipfile.ZIP_DEFLATED, 9)
