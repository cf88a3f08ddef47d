"""safetensors files: bytes made by hand, as the format says, and hostile headers."""

import json
import os
import random
import struct

import numpy as np
import pytest

import facula
from facula import nn, safetensors


def made(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


A = np.array([[1, 2, 3], [4, 5, 6]], dtype="<f4")
GOOD = {
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [2, 26]},
    "b": {"dtype": "I16", "shape": [], "data_offsets": [0, 2]},
}


def test_a_file_made_by_hand_is_read(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(made({**GOOD, "__metadata__": {"format": "pt"}}, np.int16(7).tobytes() + A.tobytes()))
    tensors = safetensors.load_file(path)
    assert list(tensors) == ["b", "a"] and tensors["a"].tolist() == A.tolist() and tensors["b"].item() == 7
    tensors["a"][0, 0] = 9  # a change stays in memory
    assert safetensors.load(path.read_bytes())["a"].tolist() == A.tolist()
    with safetensors.safe_open(path, "pt") as f:
        assert f.keys() == ["a", "b"] and f.metadata() == {"format": "pt"}
        assert f.get_slice("a").get_shape() == [2, 3] and f.get_slice("a")[1, :2].tolist() == [4, 5]
        with pytest.raises(safetensors.SafetensorError, match="does not contain tensor c"):
            f.get_tensor("c")
        with pytest.raises(safetensors.SafetensorError, match="does not contain tensor c"):
            f.get_slice("c")
    with pytest.raises(safetensors.SafetensorError, match="not open"):
        f.get_tensor("a")


def test_what_is_written_is_as_the_format_says(tmp_path):
    path = tmp_path / "x.safetensors"
    t = {
        "z": facula.tensor([1.5, -2.0]),
        "flag": facula.tensor(True),
        "half": facula.ones(2, 3, dtype=facula.bfloat16).t(),
        "wide": facula.arange(3),
        "none": facula.empty(0, 4),
    }
    safetensors.save_file(t, path, {"k": "v"})
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    assert size % 8 == 0 and header.pop("__metadata__") == {"k": "v"}
    assert {k: (v["dtype"], v["shape"]) for k, v in header.items()} == {
        "wide": ("I64", [3]),
        "none": ("F32", [0, 4]),
        "z": ("F32", [2]),
        "half": ("BF16", [3, 2]),
        "flag": ("BOOL", []),
    }
    begin, end = header["z"]["data_offsets"]
    assert np.frombuffer(data[8 + size + begin : 8 + size + end], "<f4").tolist() == [1.5, -2.0]
    assert max(v["data_offsets"][1] for v in header.values()) == len(data) - 8 - size
    back = safetensors.load_file(path)
    assert back.keys() == t.keys()
    for k in t:
        assert (
            back[k].dtype == t[k].dtype and back[k].shape == t[k].shape and back[k].tolist() == t[k].tolist()
        )


def entry(**changes):
    return {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **changes}}


@pytest.mark.parametrize("data", [
    b"", b"\0" * 7,
    made({}, size=2**63), made({}, size=200_000_000), made({}, size=100),
    made(b"[]"), made(b"5"), made(b" {}"), made(b"{"), made(b'{"a": \xff}'), made(b"[" * 100_000),
    made({"__metadata__": {"a": 1}}), made({"__metadata__": []}),
    made({"a": 5}), made({"a": {"dtype": "F32", "shape": [1]}}, b"\0" * 4),
    made(entry(more=1), b"\0" * 4),
    made(entry(dtype="F31"), b"\0" * 4), made(entry(dtype=["F32"]), b"\0" * 4),
    made(entry(shape=[-1]), b"\0" * 4), made(entry(shape=[True]), b"\0" * 4),
    made(entry(shape=[1.0]), b"\0" * 4), made(entry(shape=1), b"\0" * 4),
    made(entry(shape=[2**63, 2]), b"\0" * 4), made(entry(shape=[2**40, 2**40]), b"\0" * 4),
    made(entry(shape=[1] * 65), b"\0" * 4), made(entry(shape=[2]), b"\0" * 4),
    made(entry(data_offsets=[0, 8]), b"\0" * 4), made(entry(data_offsets=[4, 0]), b"\0" * 4),
    made(entry(data_offsets=[-4, 0]), b"\0" * 4), made(entry(data_offsets=[0.0, 4]), b"\0" * 4),
    made(entry(data_offsets=[0]), b"\0" * 4),
    made(entry(), b"\0" * 5), made(entry(data_offsets=[1, 5]), b"\0" * 5),
    made({**entry(), "b": entry()["a"]}, b"\0" * 4),
    made(b'{"a":%s,"a":%s}' % ((b'{"dtype":"U8","shape":[1],"data_offsets":[0,1]}',) * 2), b"\0"),
])  # fmt: skip
def test_a_hostile_file_gives_one_clear_error(data, tmp_path):
    with pytest.raises(safetensors.SafetensorError, match="safetensors: "):
        safetensors.load(data)
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(safetensors.SafetensorError, match="x.safetensors"):
        safetensors.load_file(path)


def test_every_byte_of_a_bool_but_zero_is_true():
    header = {"a": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}
    t = safetensors.load(made(header, bytes([0, 1, 54, 255])))["a"]
    assert t.tolist() == [False, True, True, True] and t[2].item() is True
    assert t.to(facula.int32).tolist() == [0, 1, 1, 1] and (~t).tolist() == [True, False, False, False]


def mutated(data, others, chance):
    """`data` with one to three bytes, bits or pieces changed, as tests/fuzz does it."""
    data = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        at = chance.randint(0, len(data))
        piece = chance.choice(others)
        where = chance.randint(0, len(piece))
        piece = piece[where : where + chance.randint(1, 24)]
        match chance.randint(0, 5):
            case 0:
                data[at : at + 1] = bytes([chance.randint(0, 255)])
            case 1 if at < len(data):
                data[at] ^= 1 << chance.randint(0, 7)
            case 2:
                del data[at : at + chance.randint(1, 16)]
            case 3:
                data[at:at] = piece
            case 4:
                data[at : at + len(piece)] = piece
            case _:
                del data[at:]
    return bytes(data)


def test_a_mutated_file_gives_its_error_or_tensors_of_its_own_bytes(tmp_path):
    """No other error, and nothing that lies outside of the file; FACULA_FUZZ_MUTATIONS takes more than
    2,000.
    """
    chance = random.Random(1)
    tensors = {
        "a": facula.tensor(A),
        "none": facula.empty(0, 4),
        "flag": facula.tensor(True),
        "z": facula.zeros(2, 2, dtype=facula.complex64),
    }
    seeds = [
        made({**GOOD, "__metadata__": {"format": "pt"}}, np.int16(7).tobytes() + A.tobytes()),
        safetensors.save(tensors),
        safetensors.save({"h": facula.ones(5, dtype=facula.bfloat16)}, {"k": "\u00e9\\\""}), made({}),
    ]  # fmt: skip
    digits = [
        b"0",
        b"-1",
        b"9" * 30,
        b"1e9",
        b"[]",
        b"null",
        b'"F64"',
        b"[4294967296,4294967296]",
        b"{",
        b'"a":',
        b",",
        b"\xff\x00",
    ]
    path = tmp_path / "x.safetensors"
    read = 0
    for k in range(int(os.environ.get("FACULA_FUZZ_MUTATIONS", 2000))):
        data = mutated(chance.choice(seeds), seeds + digits, chance)
        if k % 2:  # the header's size right again: mutations of the header itself
            data = struct.pack("<Q", max(0, data.rfind(b"}") - 7)) + data[8:]
        try:
            if k % 8:
                found = safetensors.load(data)
            else:
                path.write_bytes(data)
                found = safetensors.load_file(path)
        except safetensors.SafetensorError:
            continue
        read += 1
        assert sum(t.numel() * t.element_size() for t in found.values()) <= len(data)
        for t in found.values():
            t.tolist()
        safetensors.load(safetensors.save(found))
    assert read > 0


def test_what_the_format_cannot_hold_is_refused(tmp_path):
    x = facula.zeros(4)
    path = tmp_path / "x.safetensors"
    for bad, kind, text in [
        ({"a": x, "b": x[1:]}, RuntimeError, "`a` and `b` share memory"),
        ({"a": 5}, ValueError, "Key `a` is invalid"),
        ({"a": facula.zeros(1, dtype=facula.complex128)}, ValueError, "complex128"),
        ({1: x}, TypeError, "names must be strings"),
    ]:
        with pytest.raises(kind, match=text):
            safetensors.save_file(bad, path)
    assert not path.exists()
    with pytest.raises(TypeError, match="strings by strings"):
        safetensors.save({"a": x}, {"k": 1})
    assert safetensors.load(safetensors.save({"a": x[:2], "b": x[2:]})).keys() == {
        "a",
        "b",
    }  # neighbours are no aliases


def test_a_model_with_tied_weights_comes_back(tmp_path):
    def model():
        m = nn.ModuleDict({"a": nn.Linear(3, 3, bias=False), "b": nn.Linear(3, 3, bias=False)})
        m["b"].weight = m["a"].weight
        return m

    one, other = model(), model()
    safetensors.save_model(one, tmp_path / "m.safetensors")
    assert safetensors.load_model(other, tmp_path / "m.safetensors") == ([], [])
    assert other["b"].weight.tolist() == one["b"].weight.tolist()
