"""facula.c.java: C programs behind a Java class, run by the desktop's JVM, and archives for Android."""

import ctypes
import random
import re
import shutil
import struct
import subprocess
import zipfile

import facula.nn.functional as nf
import numpy as np
import pytest
from facula.program import trace

import facula as F
from facula import _java, c, nn

pytestmark = pytest.mark.skipif(not shutil.which("javac"), reason="needs a JDK")
STEPS = 20


@pytest.fixture(autouse=True)
def seed():
    value = random.randrange(1 << 30)
    print("seed", value)
    F.manual_seed(value)


def programs():
    """A training step and inference of one network that picks rows of a table."""
    table, net = nn.Embedding(9, 6), nn.Linear(6, 3)
    both = nn.ModuleDict({"table": table, "net": net})
    optimizer = F.optim.SGD(both.parameters(), lr=0.1, momentum=0.9)
    ids, labels = F.randint(0, 9, (4,)), F.randint(0, 3, (4,))

    def step(ids, labels):
        optimizer.zero_grad()
        loss = nf.cross_entropy(net(table(ids)), labels)
        loss.backward()
        optimizer.step()
        return loss

    traced = {"train": trace(step, ids, labels), "infer": trace(lambda ids: net(table(ids)), ids)}
    return traced, both, ids, labels


MAIN = """
import org.example.some_app.Model;

class Main {
  static void show(float[] values) {
    for (float x : values) System.out.print(Integer.toHexString(Float.floatToIntBits(x)) + " ");
    System.out.println();
  }
  static void refused(Runnable call) {
    try {
      call.run();
      System.out.println("nothing");
    } catch (RuntimeException e) {
      System.out.println(e.getClass().getSimpleName() + ": " + e.getMessage());
    }
  }
  public static void main(String[] arguments) {
    long[] ids = {IDS}, labels = {LABELS};
    double[] lr = {0.1};
    float[] loss = new float[1], y = new float[12];
    byte[] first = Model.weights();
    for (int k = 0; k < STEPS; ++k) {
      Model.train(ids, labels, lr, loss);
      show(loss);
    }
    Model.infer(ids, y);
    show(y);
    Model.weights(first);
    Model.infer(ids, y);
    show(y);
    System.out.println(first.length);
    refused(() -> Model.infer(ids, new float[3]));
    refused(() -> Model.infer(null, y));
    refused(() -> Model.infer(new long[] {0, 1, 2, 9}, y));
    refused(() -> Model.weights(new byte[3]));
  }
}
"""


def built(folder, report):
    """The class and its library, and a program that uses it."""
    _java.write(report, folder, "org.example.some_app.Model")
    strict = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Werror")
    _java.compile_library(folder, "model", "cc", (*strict, "-lm"), folder / "libmodel.so")
    _java.compile_class(folder, "org.example.some_app.Model", folder / "classes")


def hexadecimal(values):
    return [format(struct.unpack("I", struct.pack("f", v))[0], "x") for v in values]


def test_the_jvm_trains_and_computes_with_the_bits_of_c(tmp_path):
    traced, both, ids, labels = programs()
    report = c.compile(
        traced, tmp_path, weights=both, arguments={"train": ["ids", "labels"], "infer": ["ids"]}
    )
    with F.no_grad():
        at_first = both["net"](both["table"](ids)).flatten().tolist()
    built(tmp_path, report)
    text = MAIN.replace("IDS", ", ".join(map(str, ids.tolist()))).replace("STEPS", str(STEPS))
    (tmp_path / "Main.java").write_text(text.replace("LABELS", ", ".join(map(str, labels.tolist()))))
    classes = str(tmp_path / "classes")
    made = subprocess.run(
        ["javac", "-cp", classes, "-d", classes, str(tmp_path / "Main.java")], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    done = subprocess.run(
        ["java", "-Xcheck:jni", f"-Djava.library.path={tmp_path}", "-cp", classes, "Main"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and "FATAL" not in done.stderr, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "WARNING" not in line]

    lib = ctypes.CDLL(str(tmp_path / "libmodel.so"))
    numbers = [np.ascontiguousarray(t.numpy()) for t in (ids, labels)]
    lr, loss, y = np.array([0.1]), np.zeros(1, np.float32), np.zeros(12, np.float32)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (*numbers, lr, loss)]
    for k in range(STEPS):
        assert lib.model_train(*pointers) == 0
        assert lines[k].split() == hexadecimal(loss), k
    assert lib.model_infer(pointers[0], y.ctypes.data_as(ctypes.c_void_p)) == 0
    assert lines[STEPS].split() == hexadecimal(y)
    restored = [struct.unpack("f", struct.pack("I", int(x, 16)))[0] for x in lines[STEPS + 1].split()]
    np.testing.assert_allclose(restored, at_first, rtol=1e-5, atol=1e-6)  # the weights before the training
    assert int(lines[STEPS + 2]) == report.writable
    expected = [
        "IllegalArgumentException: infer: result0 has 12 elements, float32[4, 3]",
        "IllegalArgumentException: infer: ids has 4 elements, int64[4]",
        "IndexOutOfBoundsException: an index is out of range",
        f"IllegalArgumentException: weights: expected are {report.writable} bytes",
    ]
    assert lines[STEPS + 3 :] == expected


def test_a_name_that_is_no_class_and_types_that_java_lacks_are_refused(tmp_path):
    x = F.randn(3)
    report = c.compile(trace(lambda x: x * 2, x), tmp_path)
    for name in ("Model", "org.1.Model", "org..Model", "org.example.Model;"):
        with pytest.raises(ValueError, match="a class in a package"):
            c.java(report, tmp_path, name)
    report = c.compile(trace(lambda x: x * 2, x.half()), tmp_path)
    with pytest.raises(NotImplementedError, match="Java has no array"):
        c.java(report, tmp_path)


MACHINES = {"arm64-v8a": 183, "armeabi-v7a": 40, "x86_64": 62}  # e_machine of ELF


def test_an_archive_for_android_has_a_library_for_each_processor(tmp_path):
    available = [abi for abi in _java.ABIS if shutil.which(abi.compiler)]
    net, x = nn.Sequential(nn.Linear(4, 3), nn.GELU(), nn.Softmax(1)), F.randn(2, 4)
    report = c.compile(trace(net, x), tmp_path / "c", weights=net)
    _java.archive(report, tmp_path / "c", tmp_path / "model.aar", "org.example.Model", available)
    with zipfile.ZipFile(tmp_path / "model.aar") as aar:
        libraries = {f"jni/{abi.name}/libmodel.so" for abi in available}
        assert set(aar.namelist()) == {"AndroidManifest.xml", "R.txt", "classes.jar", *libraries}
        assert 'package="org.example"' in aar.read("AndroidManifest.xml").decode()
        (tmp_path / "classes.jar").write_bytes(aar.read("classes.jar"))
        for abi in available:
            data = aar.read(f"jni/{abi.name}/libmodel.so")
            assert data[:4] == b"\x7fELF" and struct.unpack("<H", data[18:20])[0] == MACHINES[abi.name]
            (tmp_path / f"{abi.name}.so").write_bytes(data)
    assert zipfile.ZipFile(tmp_path / "classes.jar").namelist() == ["org/example/Model.class"]
    for abi in available:
        shown = subprocess.run(
            ["readelf", "-Wd", "--dyn-syms", str(tmp_path / f"{abi.name}.so")], capture_output=True, text=True
        ).stdout
        assert set(re.findall(r"NEEDED.*\[(.*)\]", shown)) == {"libc.so", "libm.so"}
        needed = set(re.findall(r"UND (\w+)", shown))
        assert needed <= {"fmaf", "fma", "memcpy", "memset"}, needed
        assert "Java_org_example_Model_run" in shown
