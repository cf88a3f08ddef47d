"""Training on microcontrollers: memory and instructions of published networks, equal bits on every machine.

make tiny
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from facula.program import trace
from facula.tiny._compile import write as write_programs

import facula as F
from facula import c, nn, tiny

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from boards import networks as shapes
from boards.limits import Limits
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
    patches: int = 1


PATCHES = 8
PLAIN = 15.0  # instructions of a full update in plain C over those of ours, at least
SPARSE, REORDERED = 7.0, 20.0  # memory of a full update over those of a sparse one and of ours, at least
PEER = 1000.0  # memory of PyTorch's process for a training step over the board's RAM, at least
CASES = {
    "MCUNet 49 KB": Case(shapes.mcunet, 128, shapes.MCUNET_49, 240_000, 650_000, 65_000_000, 106_000_000),
    "MobileNetV2-w0.35 99 KB": Case(shapes.mobilenet, 128, shapes.MOBILENET_99),
    "ProxylessNAS-w0.3 98 KB": Case(shapes.proxyless, 128, shapes.PROXYLESS_98),
}
CASES |= {
    f"{name}, {PATCHES} patches": dataclasses.replace(case, patches=PATCHES) for name, case in CASES.items()
}
SMALL = Case(shapes.small, 32, shapes.Scheme(9, {-3: 0.5, -6: 1, -2: 1}))


def network_of(case: Case) -> tuple[tiny.Network, tiny.Update]:
    model, data = shapes.calibrated(case.make(), case.size, 2, 2)
    net = tiny.quantize(model, data)
    return net, case.scheme.update([conv.name for conv in net.convs])


def ran(target: Target, folder: Path) -> tuple[str, dict[str, tuple[int, int]], dict[str, int]]:
    program = target.build(folder)
    return *parts(target.run(program, timeout=1200)), target.sizes(program)


def measured(name: str, case: Case, target: Target, host: Target, limits: Limits) -> tuple[str, int]:
    """A line of the table of networks, and the bytes of RAM."""
    net, update = network_of(case)
    with tempfile.TemporaryDirectory() as folder:
        report = tiny.compile(net, [], folder, update=update, patches=case.patches)
        write(report, Path(folder), 3)
        stack = target.stack(Path(folder))
        expected, _, _ = ran(host, Path(folder))
        bits, counts, sizes = ran(target, Path(folder))
    infer, train = counts["infer"][0], counts["train"][0]
    used = max(depth for _, depth in counts.values())
    ram = sizes["data"] + sizes["bss"] + used
    flash = sizes["text"] + sizes["data"]
    limits.holds(f"{name}: the bits of this machine", bits == expected)
    limits.most(f"{name}: stack by the compiler, bytes", stack, report.stack)
    for what, number, limit in (
        ("RAM, bytes", ram, case.ram),
        ("flash, bytes", flash, case.flash),
        ("instructions of inference", infer, case.infer),
        ("instructions of a training step", train, case.train),
    ):
        if limit is not None:
            limits.most(f"{name}: {what}", number, limit)
    verdict = "same bits" if bits == expected else "DIFFERS"
    numbers = " | ".join(f"{n:,}" for n in (ram, report.code.arena, used, stack, flash))
    return f"| {name} | {numbers} | {infer / 1e6:.1f} M | {train / 1e6:.1f} M | {verdict} |", ram


def same_bits(case: Case, steps: int, chosen: list[Target], limits: Limits) -> None:
    """Checks on each machine that `steps` training steps give the bits of the first one."""
    net, update = network_of(case)
    expected = None
    with tempfile.TemporaryDirectory() as folder:
        write(tiny.compile(net, [], folder, update=update), Path(folder), steps)
        for target in chosen:
            what = f"{steps} training steps, the same bits: {target.name}"
            if tool := target.missing():
                limits.holds(f"{what} ({tool} is not installed)", False)
                continue
            bits, _, _ = ran(target, Path(folder))
            expected = expected or bits
            limits.holds(what, bits == expected)


def peer_memory() -> int:
    """Bytes of PyTorch's process for a training step of MCUNet."""
    command = [ROOT / ".peer/bin/python", ROOT / "tests/boards/peer_memory.py"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def stored(net: tiny.Network, update: tiny.Update) -> int:
    """Bytes of a step that computes all gradients before the first update, as PyTorch's does: the arena in
    the order of the trace, the gradients, and the trained parameters.
    """
    update = net.chosen(update)

    def gradients(image: F.Tensor, label: F.Tensor) -> tuple[F.Tensor, ...]:
        logits, run = net.run(image, update)
        return F.autograd.grad(
            F.nn.functional.cross_entropy(logits, label), [leaf for _, _, leaf in run.leaves]
        )

    image, label = F.zeros(net.input_shape, dtype=F.int8), F.tensor([1])
    program = trace(gradients, image, label)
    with tempfile.TemporaryDirectory() as folder:
        report = c.compile(program, folder, in_arena={"run": [0]}, reorder=False)
        code = (Path(folder) / "model.c").read_text()
        in_arena = {int(k) for k in re.findall(r"to = result(\d+);", code)}  # until the end of the call
        trained = write_programs(net, update, folder).writable
    gradients_outside = (g for k, g in enumerate(program(image, label)) if k not in in_arena)
    return report.arena + sum(4 * g.numel() for g in gradients_outside) + trained


def full_update(net: tiny.Network) -> tiny.Update:
    names = [conv.name for conv in net.convs]
    return tiny.Update(frozenset(names), {n: 1 for n in names})


def memory_of_orders(case: Case, limits: Limits) -> list[str]:
    """Lines with the memory of a full update, a sparse one, and the latter in the order of memory."""
    net, update = network_of(case)
    patched = dataclasses.replace(net, patches=PATCHES)

    def memory(net: tiny.Network, update: tiny.Update, reorder: bool) -> int:
        with tempfile.TemporaryDirectory() as folder:
            report = write_programs(net, net.chosen(update), folder, reorder=reorder)
        return report.arena + report.writable

    rows = {
        "full, gradients stored until the update": stored(net, full_update(net)),
        "sparse, gradients stored": stored(net, update),
        "full, each gradient consumed where it is computed": memory(net, full_update(net), False),
        "the same, reordered": memory(net, full_update(net), True),
        "sparse, consumed": memory(net, update, False),
        "sparse, consumed, reordered": memory(net, update, True),
        f"the same, {PATCHES} patches": memory(patched, update, True),
    }
    first, least = next(iter(rows.values())), min(rows.values())
    limits.least("MCUNet: memory, full over sparse", first / rows["sparse, gradients stored"], SPARSE)
    limits.least("MCUNet: memory, full over sparse and reordered", first / least, REORDERED)
    return [f"| {what} | {n:,} | {first / n:.1f} |" for what, n in rows.items()]


def instructions_of_parts(case: Case, target: Target, limits: Limits) -> list[str]:
    """Lines with the instructions of a training step: everything trained by loops over the operators'
    definitions, and what sparse updates and tiled functions save.
    """
    net, update = network_of(case)
    counts: dict[str, int] = {}
    for name, chosen in (("full", full_update(net)), ("sparse", update)):
        for tiled in (False, True):
            with tempfile.TemporaryDirectory() as temporary:
                folder, chosen = Path(temporary), net.chosen(chosen)
                code = write_programs(net, chosen, folder, tiled=tiled, reorder=tiled)
                write(tiny.Report(net, chosen, code), folder, 1, infers=False)
                _, measured_counts, _ = ran(target, folder)
            counts[f"{name} update, {'ours' if tiled else 'plain C'}"] = measured_counts["train"][0]
    most = counts["full update, plain C"]
    limits.least(
        "MCUNet: instructions, full in plain C over ours", most / counts["sparse update, ours"], PLAIN
    )
    return [f"| {name} | {n / 1e6:,.1f} M | {most / n:.1f} |" for name, n in counts.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the networks' names")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    by_name, limits, seed = {t.name: t for t in targets()}, Limits(), F.seed()
    rams: dict[str, int] = {}
    target = by_name["cortex-m7"]
    print(
        "Cortex-M7 (mps2-an500), random weights, RAM with stack:\n"
        "| network | RAM | of it arena | of it stack | stack by the compiler | flash | inference "
        "| training step | results |\n" + "|---" * 9 + "|"
    )
    for name, case in CASES.items():
        if options.only in name:
            line, rams[name] = measured(name, case, target, by_name["x86-64"], limits)
            print(line, flush=True)
    if ram := max((ram for name, ram in rams.items() if "MCUNet" in name), default=0):
        mcunet = CASES["MCUNet 49 KB"]
        for what, unit, lines in (
            ("arena and trained parameters", "bytes", lambda: memory_of_orders(mcunet, limits)),
            ("one training step", "instructions", lambda: instructions_of_parts(mcunet, target, limits)),
        ):
            print(f"\nMCUNet, {what}:\n| update | {unit} | times less |\n|---|---|---|")
            print("\n".join(lines()), flush=True)
        limits.least("MCUNet: PyTorch's process over RAM", peer_memory() / ram, PEER)
    chosen = [t for t in targets() if t.group != "mobile" or t.name == "aarch64"]
    same_bits(SMALL, options.steps, chosen, limits)
    print(f"\n{limits.table()}")
    print(f"seed {seed}: {f'{limits.failed} fail' if limits.failed else 'all hold'}")
    return int(limits.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
