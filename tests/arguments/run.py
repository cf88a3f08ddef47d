"""Random argument trees of everything that Python reaches: each must give an answer or a clear error.

    PYTHONPATH=build/python python tests/arguments/run.py --seed 1 --count 10000
    ... --peer        also asks PyTorch (`.peer`), and tells calls whose answers are of another kind
    ... --call "F.add(t((2,), 'int8'), 1)"   one call

Of each kind of fault one call is printed, made smaller. A clear error is of a type that PyTorch raises and
names the operator; everything else that a call may do, a crash, no end, memory out of proportion, is a fault.
"""

import argparse
import collections
import json
import math
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "conformance")]
import judge  # noqa: E402
import trees  # noqa: E402
from processes import run as run_processes  # noqa: E402

PIECE = 250  # calls of one process
GOOD = ("answer", "error", "gradient: error", "reading: error", "unmade", "long")


def peak(reset=False):
    """The most memory that this process held since the last reset, in bytes."""
    if reset:
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return 0
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) << 10 if found else 0


def limited(memory):
    import facula

    if "asan" not in os.environ.get("LD_PRELOAD", ""):  # whose shadow is virtual memory without end
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    facula.set_num_threads(1)
    return facula


class Runner:
    def __init__(self, a):
        import facula

        self.a = a
        targets = trees.reach(facula)
        self.targets = [x for x in targets if re.fullmatch(a.only or ".*", x.path)]
        self.every = {n for x in targets for n in x.names} | {
            x.path.split(".")[-1].rstrip("_") for x in targets
        }

    def draw(self, number):
        rng = random.Random(zlib.crc32(f"{self.a.seed}/{number}".encode()))
        target = self.targets[rng.randrange(len(self.targets))]
        tree = trees.draw(rng, target, number)
        for x in trees.tensors_of(tree) if self.a.layout else ():
            if x.layout or rng.random() < 0.3:
                x.layout = self.a.layout
        return tree, target

    def judge(self, tree, target, got):
        import facula

        first = tree.arguments[0][1] if tree.arguments else None
        if (
            tree.path.startswith("Tensor.")
            and not isinstance(first, trees.T)
            and got.get("error") == "AttributeError"
        ):
            return "error", "AttributeError"  # a method, called with what is no tensor
        names = target.names | {tree.path.split(".")[-1].rstrip("_")}
        # What a module calls may speak for it.
        names = names | self.every if tree.is_module() else names
        return judge.judged(facula, got, names, self.every, trees.unwritable(facula))

    def answers(self, drawn):
        """What each of the calls gives, in processes of their own."""
        texts = [
            (
                str(tree),
                getattr(tree, "before", None),
                trees.alike(tree, target),
                trees.of_dense(tree, target),
            )
            for tree, target in drawn
        ]
        pieces = [texts[k : k + PIECE] for k in range(0, len(texts), PIECE)]

        def work(name, done):
            os.chdir(folder)  # some calls write files, whatever their names are
            lib = limited(self.a.memory << 20)
            for text, first, alike, meta in pieces[int(name)][done:]:
                if first:
                    judge.answer(lib, str(first))
                before = peak(reset=True)
                got = judge.answer(lib, text)
                got["memory"] = peak() - before
                if alike and "results" in got:
                    got["alike"] = judge.deviation(lib, str(alike), got)
                if meta and "results" in got:
                    got["meta"] = judge.meta_deviation(lib, text, got)
                yield got

        found, names = {}, [str(k) for k in range(len(pieces))]
        with tempfile.TemporaryDirectory() as folder:
            for name, got in run_processes(work, names, self.a.jobs, self.a.limit):
                found[int(name)] = got
        return [x for k in range(len(pieces)) for x in found[k]]

    def key(self, tree, kind, detail):
        """Faults that are one."""
        text = re.sub(r"-?\d[\d.e+-]*|\[[^]]*\]|'[^']*'", "#", detail)[:50]
        return (
            kind,
            text if kind != "crash" else "",
            tree.path.removeprefix("Tensor.").split(".")[-1].rstrip("_"),
        )

    def minimised(self, tree, target, key):
        """A smaller tree with the same fault."""
        for _ in range(40):
            candidates = list(trees.simpler(tree))
            for at in range(0, len(candidates), 16):
                some = candidates[at : at + 16]
                got = self.answers([(x, target) for x in some])
                same = [x for x, g in zip(some, got) if self.key(x, *self.judge(x, target, g)) == key]
                if same:
                    tree = same[0]
                    break
            else:
                return tree
        return tree


def elements(tree, got):
    """How many the operands and results of a call have."""
    results = json.dumps(got.get("results"))
    return sum(math.prod(x.shape) for x in trees.tensors_of(tree)) + sum(
        math.prod(json.loads(s)) for s in re.findall(r'"shape": (\[[^]]*\])', results)
    )


def asked(tree, got):
    """How much a call is to do: its elements, or what its largest number says."""
    numbers = [int(n) for n in re.findall(r"(?<![\w.])\d{1,19}(?![\w.])", str(tree))]
    return max([elements(tree, got), *numbers])


def ask_peer(texts, a):
    """The peer's answers, from a process where PyTorch is."""
    peer = os.environ.get("FACULA_PEER", ROOT / ".peer" / "bin" / "python")
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LD_PRELOAD")}
    command = [peer, HERE / "peer.py", "--jobs", str(a.jobs), "--limit", str(a.limit)]
    done = subprocess.run(command, input=json.dumps(texts), capture_output=True, text=True, env=kept)
    if done.returncode:
        sys.exit(done.stderr[-2000:])
    return json.loads(done.stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--count", type=int, default=10000)
    p.add_argument("--first", type=int, default=0, help="number of the first call")
    p.add_argument("--only", default="", help="a regular expression that paths must match as a whole")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--limit", type=float, default=30, help="seconds for one call")
    p.add_argument("--memory", type=int, default=4096, help="MiB of addresses that a process may have")
    p.add_argument("--peer", action="store_true", help="compare kinds of answers with PyTorch's")
    p.add_argument("--layout", default="", help="every tensor that is laid out somehow lies so")
    p.add_argument("--call", help="one call, as text")
    p.add_argument("--keep", help="a file to write calls and answers into, a JSON each line")
    p.add_argument("--as-drawn", action="store_true", help="do not make calls smaller")
    p.add_argument("--tolerate", default="", help="classes that do not fail the run, a regular expression")
    a = p.parse_args()
    started = time.time()
    runner = Runner(a)
    if a.call:
        print(json.dumps(runner.answers([(a.call, trees.Target("", [], random=True))])[0], indent=1))
        return 0
    drawn = [runner.draw(k) for k in range(a.first, a.first + a.count)]
    texts = [str(tree) for tree, _ in drawn]
    got = runner.answers(drawn)
    if a.keep:
        with open(a.keep, "w") as f:
            for text, (tree, _), g in zip(texts, drawn, got):
                f.write(json.dumps({"call": text, "path": tree.path, **g}) + "\n")
    counts, faults = collections.Counter(), collections.defaultdict(list)
    for (tree, target), g in zip(drawn, got):
        kind, detail = runner.judge(tree, target, g)
        if kind in GOOD and g.get("memory", 0) > (512 << 20) + 64 * asked(tree, g):
            kind, detail = "memory", f"{g['memory'] >> 20} MiB"
        if kind in ("crash", "slow") and "took" in detail and asked(tree, g) > 1 << 28:
            kind = "long"  # so many elements take their time
        if kind in GOOD and g.get("seconds", 0) > a.limit / 3 and asked(tree, g) < 1 << 28:
            kind, detail = "slow", f"{g['seconds']:.0f} s"
        counts[kind] += 1
        if kind not in GOOD:
            faults[runner.key(tree, kind, detail)].append((tree, target, detail))
    failed = 0
    for key, found in sorted(faults.items(), key=lambda x: (x[0][0], -len(x[1]), x[0])):
        tree, target, detail = min(found, key=lambda x: len(str(x[0])))
        tolerated = a.tolerate and re.fullmatch(a.tolerate, key[0])
        failed += 0 if tolerated else len(found)
        if not a.as_drawn and key[0] not in ("slow", "memory"):
            tree = runner.minimised(tree, target, key)
        after = f" after {tree.before}" if tree.before else ""
        print(f"{key[0]}, {len(found)} x {tree.path} #{tree.number}: {tree}{after}\n    {detail[:300]}")
    if a.peer:
        from compare import differences

        theirs = ask_peer(texts, a)
        for line in differences(drawn, got, theirs):
            print(line)
    made = ", ".join(f"{n} {kind}" for kind, n in counts.most_common())
    print(
        f"{a.count} calls of {len(runner.targets)} functions, seed {a.seed}, "
        f"in {time.time() - started:.0f} s: {made}"
    )
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
