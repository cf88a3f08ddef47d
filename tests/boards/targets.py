"""Machines that run C programs: this one, phones under qemu-user, microcontrollers under qemu-system."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
STRICT = ("-std=c99", "-pedantic-errors", "-Wall", "-Wextra", "-Wconversion", "-Werror")
EXACT = ("-O2", "-ffp-contract=off", "-fno-strict-aliasing")


@dataclass(frozen=True)
class Target:
    """A compiler and an emulator."""

    name: str
    group: str  # "host", "mobile" or "tiny": the setup script that installs them
    compiler: str
    options: tuple[str, ...] = ()
    emulator: tuple[str, ...] = ()  # before the program's path
    prefix: str = ""  # of size and other tools
    startup: tuple[str, ...] = ()  # further sources and options for a machine without an operating system

    def missing(self) -> str | None:
        """The tool that is not installed, or None."""
        tools = [self.compiler, *self.emulator[:1]]
        return next((t for t in tools if not shutil.which(t)), None)

    def build(self, folder: Path) -> Path:
        """Compiles the C files of a folder. AssertionError with the compiler's messages."""
        program = folder / f"program-{self.name}"
        objects = []
        for source in sorted(folder.glob("*.c")):
            object_file = folder / f"{source.stem}-{self.name}.o"
            _run(self.compiler, *STRICT, *EXACT, *self.options, "-c", str(source), "-o", str(object_file))
            objects.append(str(object_file))
        _run(self.compiler, *self.options, *objects, *self.startup, "-o", str(program), "-lm")
        return program

    def run(self, program: Path, timeout: float = 300) -> str:
        """What the program prints."""
        done = subprocess.run(
            [*self.emulator, str(program)],
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}: {done.returncode}\n{done.stderr}{done.stdout[-2000:]}"
        return done.stdout

    def stack(self, folder: Path) -> int:
        """The most bytes of the stack that a function of model.c needs with all that it calls, as the
        compiler states them (-fstack-usage), without functions of the C library.
        """
        source, made = folder / "model.c", folder / f"stack-{self.name}.o"
        _run(self.compiler, *EXACT, *self.options, "-fcallgraph-info=su", "-c", str(source), "-o", str(made))
        text = made.with_suffix(".ci").read_text()
        nodes = re.findall(r'node: { title: "([^"]+)" label: "[^"]*?\\n(\d+) bytes \((\w[^)]*)\)', text)
        assert nodes and all(kind in ("static", "dynamic,bounded") for _, _, kind in nodes)
        own = {name: int(size) for name, size, _ in nodes}
        called: dict[str, list[str]] = {}
        for caller, callee in re.findall(r'sourcename: "([^"]+)" targetname: "([^"]+)"', text):
            called.setdefault(caller, []).append(callee)

        def deepest(name: str) -> int:
            return own.get(name, 0) + max(map(deepest, called.get(name, [])), default=0)

        return max(map(deepest, own))

    def sizes(self, program: Path) -> dict[str, int]:
        """Bytes of code and constants (text), initialised (data) and other variables (bss)."""
        lines = _run(f"{self.prefix}size", str(program)).splitlines()
        return dict(zip(("text", "data", "bss"), map(int, lines[1].split()[:3])))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, " ".join(command) + "\n" + done.stderr[:4000]
    return done.stdout


def _cortex(name: str, machine: str, *options: str, ram: int = 0x21000000) -> Target:
    emulator = (
        f"qemu-system-arm -machine {machine} -nographic -icount shift=0,align=off,sleep=off "
        "-semihosting-config enable=on,target=native -kernel"
    )
    folder = HERE / "cortex_m"
    linked = (f"-Wl,--defsym=__ram={ram:#x}", "-T", str(folder / "link.ld"), "--specs=rdimon.specs")
    startup = (str(folder / "startup.c"), *linked)
    crt = ("-Wl,--gc-sections", "-ffunction-sections", "-fdata-sections")
    return Target(
        name,
        "tiny",
        "arm-none-eabi-gcc",
        ("-mthumb", *options, *crt),
        tuple(emulator.split()),
        "arm-none-eabi-",
        startup,
    )


def _riscv() -> Target:
    memory = {"__flash": "0x80000000", "__flash_size": "4M", "__ram": "0x80400000", "__ram_size": "4M"}
    placed = tuple(f"-Wl,--defsym={name}={value}" for name, value in memory.items())
    console = "-display none -serial none -monitor none -chardev stdio,id=console"
    semihosting = "-semihosting-config enable=on,target=native,chardev=console"
    emulator = f"qemu-system-riscv32 -machine virt -bios none {console} {semihosting} -kernel"
    library = (
        "--specs=picolibc.specs",
        "-march=rv32imac",
        "-mabi=ilp32",
        "-ffunction-sections",
        "-fdata-sections",
    )
    start = ("--oslib=semihost", "--crt0=hosted", "-Wl,--gc-sections", *placed)
    return Target(
        "riscv32",
        "tiny",
        "riscv64-unknown-elf-gcc",
        library,
        tuple(emulator.split()),
        "riscv64-unknown-elf-",
        start,
    )


def targets() -> list[Target]:
    hard = "-mfloat-abi=hard"
    return [
        Target("x86-64", "host", "cc"),
        Target(
            "aarch64",
            "mobile",
            "aarch64-linux-gnu-gcc",
            ("-static",),
            ("qemu-aarch64",),
            "aarch64-linux-gnu-",
        ),
        Target(
            "armv7",
            "mobile",
            "arm-linux-gnueabihf-gcc",
            ("-static", "-mfpu=neon"),
            ("qemu-arm",),
            "arm-linux-gnueabihf-",
        ),
        _cortex("cortex-m7", "mps2-an500", "-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16", hard, ram=0x60000000),
        _cortex("cortex-m4", "mps2-an386", "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", hard),
        _cortex("cortex-m3", "mps2-an385", "-mcpu=cortex-m3", "-mfloat-abi=soft"),
        _riscv(),
    ]
