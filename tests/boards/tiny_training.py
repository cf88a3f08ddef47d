"""Training on microcontrollers: memory and instructions of published networks, equal bits on every machine.

make tiny
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from facula.tiny._compile import write as write_programs

import facula as F
from facula import nn, tiny

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards import networks as shapes
from boards.targets import Target, targets
from boards.tiny_programs import parts, write

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Case:
    """A network of random weights with its update, and what it has to need at most; None: no limit."""

    make: Callable[[], nn.Module]
    size: int
    scheme: shapes.Scheme
    ram: int | None = None
    flash: int | None = None
    infer: int | None = None
    train: int | None = None


CASES = {
    "MCUNet 49 KB": Case(shapes.mcunet, 128, shapes.MCUNET_49, 240_000, 650_000, 65_000_000, 106_000_000),
    "MobileNetV2-w0.35 99 KB": Case(shapes.mobilenet, 128, shapes.MOBILENET_99),
    "ProxylessNAS-w0.3 98 KB": Case(shapes.proxyless, 128, shapes.PROXYLESS_98),
}
SMALL = Case(shapes.small, 32, shapes.Scheme(9, {-3: 0.5, -6: 1, -2: 1}))


def network_of(case: Case) -> tuple[tiny.Network, tiny.Update]:
    model, data = shapes.calibrated(case.make(), case.size, 2, 2)
    net = tiny.quantize(model, data)
    return net, case.scheme.update([c.name for c in net.convs])


def ran(target: Target, folder: Path) -> tuple[str, dict[str, tuple[int, int]], dict[str, int]]:
    program = target.build(folder)
    return *parts(target.run(program, timeout=1200)), target.sizes(program)


def within(value: int, limit: int | None) -> bool:
    return limit is None or value <= limit


def measured(name: str, case: Case, target: Target, host: Target) -> tuple[str, bool]:
    """A line of the table of networks, and whether the numbers are within their limits."""
    net, update = network_of(case)
    with tempfile.TemporaryDirectory() as folder:
        report = tiny.compile(net, [], folder, update=update)
        write(report, Path(folder), 3)
        expected, _, _ = ran(host, Path(folder))
        bits, counts, sizes = ran(target, Path(folder))
    (infer, stack), (train, deeper) = counts["infer"], counts["train"]
    ram = sizes["data"] + sizes["bss"] + max(stack, deeper)
    flash = sizes["text"] + sizes["data"]
    good = bits == expected and within(ram, case.ram) and within(flash, case.flash)
    good &= within(infer, case.infer) and within(train, case.train)
    verdict = ("same bits" if bits == expected else "DIFFERS") + ("" if good else ", OVER THE LIMIT")
    numbers = " | ".join(f"{n:,}" for n in (ram, report.code.arena, max(stack, deeper), flash))
    line = f"| {name} | {numbers} | {infer / 1e6:.1f} M | {train / 1e6:.1f} M | {verdict} |"
    return line, good


def same_bits(case: Case, steps: int, chosen: list[Target]) -> list[tuple[str, bool]]:
    """A line for each machine: whether `steps` training steps give the bits of the first one."""
    net, update = network_of(case)
    lines, expected = [], None
    with tempfile.TemporaryDirectory() as folder:
        write(tiny.compile(net, [], folder, update=update), Path(folder), steps)
        for target in chosen:
            if tool := target.missing():
                lines.append((f"| {target.name} | {tool} is not installed |", False))
                continue
            bits, _, _ = ran(target, Path(folder))
            expected = expected or bits
            verdict = "same bits" if bits == expected else "DIFFERS"
            lines.append((f"| {target.name} | {verdict} |", bits == expected))
    return lines


def peer_memory() -> int | None:
    """Bytes of PyTorch's process for a training step of MCUNet; None if it is not installed."""
    python = ROOT / ".peer/bin/python"
    if not python.exists():
        return None
    script = str(ROOT / "tests/boards/peer_memory.py")
    return int(subprocess.run([python, script], capture_output=True, text=True, check=True).stdout)


def memory_of_orders(case: Case) -> list[str]:
    """Lines with the memory of a full update, a sparse one, and the latter in the order of memory."""
    net, update = network_of(case)
    names = [c.name for c in net.convs]
    full = tiny.Update(frozenset(names), {n: 1 for n in names})
    lines, first = [], 0
    for what, chosen, reorder in (
        ("full, order of the trace", full, False),
        ("sparse, order of the trace", update, False),
        ("sparse, reordered", update, True),
    ):
        with tempfile.TemporaryDirectory() as folder:
            report = write_programs(net, net.chosen(chosen), folder, reorder=reorder)
        memory = report.arena + report.writable
        first = first or memory
        lines.append(f"| {what} | {memory:,} | {first / memory:.1f} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the networks' names")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    by_name = {t.name: t for t in targets()}
    failed, seed = 0, F.seed()
    print(
        "Cortex-M7 (mps2-an500), random weights, RAM with stack:\n"
        "| network | RAM | of it arena | of it stack | flash | inference | training step | results |\n"
        + "|---" * 8
        + "|"
    )
    for name, case in CASES.items():
        if options.only in name:
            line, good = measured(name, case, by_name["cortex-m7"], by_name["x86-64"])
            failed += not good
            print(line, flush=True)
    if "MCUNet" in options.only or not options.only:
        print("\nMCUNet, arena and trained parameters:\n| update | bytes | ratio |\n|---|---|---|")
        print("\n".join(memory_of_orders(CASES["MCUNet 49 KB"])))
        if peer := peer_memory():
            print(f"PyTorch's process for the same step: {peer:,} bytes")
    print(f"\n{options.steps} training steps:\n| machine | losses and logits |\n|---|---|")
    chosen = [t for t in targets() if t.group != "mobile" or t.name == "aarch64"]
    for line, good in same_bits(SMALL, options.steps, chosen):
        failed += not good
        print(line, flush=True)
    print(f"seed {seed}: {'all within the limits' if not failed else f'{failed} failed'}")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
