"""Programs in C for Java: a class whose static methods call the functions of :func:`facula.c.compile`, by
JNI,
and an archive for Android (AAR).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .c import Array, Report

# A type of C as an array in Java, and in the names of JNI's functions.
_JAVA = {
    "float": ("float", "Float"),
    "double": ("double", "Double"),
    "int64_t": ("long", "Long"),
    "int32_t": ("int", "Int"),
    "int16_t": ("short", "Short"),
    "int8_t": ("byte", "Byte"),
    "uint8_t": ("byte", "Byte"),
}
_BYTES = {"float": 4, "double": 8, "int64_t": 8, "int32_t": 4, "int16_t": 2, "int8_t": 1, "uint8_t": 1}


@dataclass(frozen=True)
class Abi:
    """A kind of processor of Android, and how to compile for it."""

    name: str
    compiler: str
    options: tuple[str, ...] = ()


ABIS = (
    Abi("arm64-v8a", "aarch64-linux-gnu-gcc"),
    Abi("armeabi-v7a", "arm-linux-gnueabi-gcc", ("-march=armv7-a", "-mfpu=neon", "-mfloat-abi=softfp")),
    Abi("x86_64", "gcc"),
)


def write(report: Report, folder: str | os.PathLike[str], class_name: str = "org.facula.Model") -> None:
    """Writes a Java class, and C that connects it with the functions, into the folder of ``c.compile``.

    ``PATH/TO/Class.java`` has one static method for each function. It takes arrays (``float[]``, ``long[]``,
    ...) for arguments and results, and throws IllegalArgumentException if one of them is null or has the
    wrong
    length, IndexOutOfBoundsException and ArithmeticException where the function of C returns 1 and 2.
    ``byte[] weights()`` and ``void weights(byte[])`` read and set the tensors that programs write, such as
    trained weights. Methods exclude each other, because functions share their memory. ``NAME_jni.c`` is
    compiled
    with the other files to the library ``libNAME.so``, which the class loads.

    Args:
        report: what ``c.compile`` returned.
        folder: the folder that it wrote.
        class_name: the class with its package.

    Raises:
        ValueError: if the name is not that of a class in a package.
        NotImplementedError: for arguments that have no array type in Java (complex numbers, float16).
    """
    if not re.fullmatch(r"([A-Za-z_$][\w$]*\.)+[A-Za-z_$][\w$]*", class_name):
        raise ValueError(
            f"c.java expects a class in a package, such as 'org.example.Model', not {class_name!r}"
        )
    for entry, arrays in report.arguments.items():
        for a in (*arrays, *report.weights):
            if a.type not in _JAVA:
                raise NotImplementedError(
                    f"c.java: '{a.name}' of the function '{entry}' is {a.shape}, and Java has no array of "
                    f"{a.type}"
                )
    root = Path(folder)
    source = root.joinpath(*class_name.split(".")).with_suffix(".java")
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(_class(report, class_name))
    (root / f"{report.name}_jni.c").write_text(_connection(report, class_name))


# ---- the class


def _trained(report: Report) -> list[Array]:
    return [w for w in report.weights if w.written]


def _class(report: Report, class_name: str) -> str:
    package, _, name = class_name.rpartition(".")
    methods = "\n".join(_method(entry, arrays) for entry, arrays in report.arguments.items())
    size = sum(w.elements * _BYTES[w.type] for w in _trained(report))
    return f"""// Generated from traced programs.
package {package};

/** Programs of lib{report.name}.so. Arrays are tensors in row-major order. */
public final class {name} {{
  static {{
    System.loadLibrary("{report.name}");
  }}

  private {name}() {{}}

{methods}
  /** The bytes of weights(): the tensors that programs write. */
  public static final int WEIGHT_BYTES = {size};

  /** Returns a copy of the tensors that programs write, in the order of the C header. */
  public static synchronized byte[] weights() {{
    byte[] bytes = new byte[WEIGHT_BYTES];
    copyWeights(bytes, false);
    return bytes;
  }}

  /** Sets the tensors that programs write to what weights() returned. */
  public static synchronized void weights(byte[] bytes) {{
    copyWeights(bytes, true);
  }}

  private static native void copyWeights(byte[] bytes, boolean set);
}}
"""


def _method(entry: str, arrays: Iterable[Array]) -> str:
    arrays = list(arrays)
    notes = "".join(
        f"   * @param {a.name} {a.shape}: {a.elements} elements{', written' if a.written else ''}\n"
        for a in arrays
    )
    arguments = ", ".join(f"{_JAVA[a.type][0]}[] {a.name}" for a in arrays)
    return f"  /**\n{notes}   */\n  public static synchronized native void {entry}({arguments});\n"


# ---- the connection


def _mangled(name: str) -> str:
    """A name in the names of JNI's functions."""
    return "".join(
        c if c.isascii() and c.isalnum() else "_1" if c == "_" else "_" if c == "." else f"_0{ord(c):04x}"
        for c in name
    )


_HELPERS = """
static void raise(JNIEnv* env, const char* kind, const char* text) {
  jclass type = (*env)->FindClass(env, kind);
  if (type) (*env)->ThrowNew(env, type, text);
}

/* Whether an array exists and has this length; raises an exception if not. */
static int has_length(JNIEnv* env, jarray array, jsize length, const char* text) {
  if (array && (*env)->GetArrayLength(env, array) == length) return 1;
  raise(env, "java/lang/IllegalArgumentException", text);
  return 0;
}

static void report(JNIEnv* env, int code) {
  if (code == 1) raise(env, "java/lang/IndexOutOfBoundsException", "an index is out of range");
  if (code == 2) raise(env, "java/lang/ArithmeticException", "an integer division by zero");
}
"""


def _connection(report: Report, class_name: str) -> str:
    prefix = "Java_" + _mangled(class_name) + "_"
    functions = "\n".join(_function(report.name, prefix, e, a) for e, a in report.arguments.items())
    return (
        f"/* Generated from traced programs: the methods of {class_name}. */\n#include <jni.h>\n"
        f'#include <string.h>\n\n#include "{report.name}.h"\n{_HELPERS}\n{functions}\n'
        + _weights_function(report, prefix)
    )


def _function(model: str, prefix: str, entry: str, arrays: tuple[Array, ...]) -> str:
    parameters = "".join(f", j{_JAVA[a.type][0]}Array {a.name}" for a in arrays)
    checks = "".join(
        f"  if (!has_length(env, {a.name}, {a.elements}, "
        f'"{entry}: {a.name} has {a.elements} elements, {a.shape}")) return;\n'
        for a in arrays
    )
    get = "".join(
        f"  j{_JAVA[a.type][0]}* at{k} = (*env)->Get{_JAVA[a.type][1]}ArrayElements(env, {a.name}, 0);\n"
        for k, a in enumerate(arrays)
    )
    passed = ", ".join(f"({'' if a.written else 'const '}{a.type}*)at{k}" for k, a in enumerate(arrays))
    all_there = " && ".join(f"at{k}" for k in range(len(arrays))) or "1"
    release = "".join(
        f"  if (at{k}) (*env)->Release{_JAVA[a.type][1]}ArrayElements(env, {a.name}, at{k}, "
        f"{'0' if a.written else 'JNI_ABORT'});\n"
        for k, a in enumerate(arrays)
    )
    return (
        f"JNIEXPORT void JNICALL {prefix}{_mangled(entry)}(JNIEnv* env, jclass type{parameters}) {{\n"
        f"  int code = 0;\n  (void)type;\n{checks}{get}"
        f"  if ({all_there}) code = {model}_{entry}({passed});\n{release}  report(env, code);\n}}\n"
    )


def _weights_function(report: Report, prefix: str) -> str:
    size = sum(w.elements * _BYTES[w.type] for w in _trained(report))
    copies = "".join(
        f"  memcpy(set ? (void*){w.name} : (void*)at, set ? (void*)at : (void*){w.name}, sizeof {w.name});\n"
        f"  at += sizeof {w.name};\n"
        for w in _trained(report)
    )
    return (
        f"JNIEXPORT void JNICALL {prefix}copyWeights(JNIEnv* env, jclass type, jbyteArray bytes, jboolean "
        f"set) {{\n"
        f"  jbyte *first, *at;\n  (void)type;\n"
        f'  if (!has_length(env, bytes, {size}, "weights: expected are {size} bytes")) return;\n'
        "  first = at = (*env)->GetByteArrayElements(env, bytes, 0);\n  if (!at) return;\n  (void)set;\n"
        f"{copies}  (*env)->ReleaseByteArrayElements(env, bytes, first, set ? JNI_ABORT : 0);\n}}\n"
    )


# ---- building


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"c.aar: {' '.join(command)}\n{done.stderr[:4000]}")


def headers() -> tuple[str, ...]:
    """Returns options that find JNI's headers: those of the JDK that ``javac`` on the path belongs to."""
    compiler = shutil.which("javac")
    if not compiler:
        raise RuntimeError("c.aar: javac was not found\n  hint: install a JDK (Debian: default-jdk-headless)")
    include = Path(compiler).resolve().parents[1] / "include"
    return f"-I{include}", f"-I{include / 'linux'}"


def compile_library(folder: Path, name: str, compiler: str, options: Iterable[str], library: Path) -> None:
    """Compiles the C files of a folder to a shared library."""
    flags = ("-O2", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC", "-shared")
    sources = sorted(str(f) for f in folder.glob(f"{name}*.c"))
    library.parent.mkdir(parents=True, exist_ok=True)
    _run(compiler, "-std=c99", *flags, *headers(), *sources, "-o", str(library), *options)


def compile_class(folder: Path, class_name: str, into: Path) -> None:
    """Compiles the Java class to ``.class`` files in a folder."""
    source = folder.joinpath(*class_name.split(".")).with_suffix(".java")
    _run("javac", "--release", "8", "-Xlint:-options", "-d", str(into), str(source))


def _for_android(folder: Path, name: str, abi: Abi, work: Path) -> Path:
    """Compiles for an ABI without a C library of the build machine; Android's are linked by their names."""
    work.mkdir(parents=True, exist_ok=True)
    (work / "empty.c").write_text("")
    stubs = []
    for library in ("libc.so", "libm.so"):
        stubs.append(str(work / library))
        _run(
            abi.compiler,
            *abi.options,
            "-shared",
            "-nostdlib",
            f"-Wl,-soname,{library}",
            str(work / "empty.c"),
            "-o",
            stubs[-1],
        )
    library = work / f"lib{name}.so"
    bare = (
        "-nostdlib",
        "-Wl,--no-as-needed",
        *stubs,
        "-lgcc",
        "-Wl,-z,max-page-size=16384",
        "-Wl,--build-id=none",
    )
    compile_library(folder, name, abi.compiler, (*abi.options, *bare, f"-Wl,-soname,lib{name}.so"), library)
    return library


def archive(
    report: Report,
    folder: str | os.PathLike[str],
    path: str | os.PathLike[str],
    class_name: str = "org.facula.Model",
    abis: Iterable[Abi] = ABIS,
) -> None:
    """Builds an archive for Android: the class of :func:`write`, and its library for each ABI.

    Needs ``javac`` and the compilers of the ABIs (``setup/mobile.sh``). The libraries have no dependencies
    but
    Android's ``libc.so`` and ``libm.so``. They are built by GCC without Android's NDK; no phone has run them.

    Args:
        report, folder: of ``c.compile``.
        path: the file, ``NAME.aar``.
        class_name: the class with its package.
        abis: the kinds of processors.
    """
    root = Path(folder)
    write(report, root, class_name)
    package = class_name.rpartition(".")[0]
    entries: Mapping[str, bytes | Path]
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        compile_class(root, class_name, work / "classes")
        jar = work / "classes.jar"
        _zip(jar, {str(f.relative_to(work / "classes")): f for f in (work / "classes").rglob("*.class")})
        entries = {
            "AndroidManifest.xml": (
                '<?xml version="1.0" encoding="utf-8"?>\n'
                f'<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="{package}">\n'
                '  <uses-sdk android:minSdkVersion="21"/>\n</manifest>\n'
            ).encode(),
            "R.txt": b"",
            "classes.jar": jar,
            **{
                f"jni/{abi.name}/lib{report.name}.so": _for_android(root, report.name, abi, work / abi.name)
                for abi in abis
            },
        }
        _zip(Path(path), entries)


def _zip(path: Path, entries: Mapping[str, bytes | Path]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(entries.items()):
            data = content.read_bytes() if isinstance(content, Path) else content
            info = zipfile.ZipInfo(name)  # without a time, so that equal contents are equal archives
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
