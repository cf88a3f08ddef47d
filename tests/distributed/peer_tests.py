"""Runs PyTorch's own tests of distributed programs, from its installation, behind the name torch.

    PYTHONPATH=build/python .venv/bin/python tests/distributed/peer_tests.py [--only REGEX]

The modules torch.testing._internal are loaded from the peer's files when the tests run; nothing is copied.
What they import and Facula does not have becomes a placeholder: a test that uses one fails.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULE = "torch.testing._internal.distributed.distributed_test"


def peer_folder() -> Path:
    """The folder of the peer's package torch."""
    python = Path(os.environ.get("FACULA_PEER", ROOT / ".peer" / "bin" / "python"))
    (folder,) = (python.parents[1] / "lib").glob("python*/site-packages/torch")
    return folder


class Absent:
    """Stands for a name that Facula does not have."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Absent(f"{self._name}.{attribute}")

    def __call__(self, *args, **kwargs):
        raise NotImplementedError(f"{self._name} is not in Facula")

    def __mro_entries__(self, bases):
        return (object,)

    def __iter__(self):
        return iter(())

    def __bool__(self):
        return False

    def __instancecheck__(self, instance):
        return False

    __subclasscheck__ = __instancecheck__

    def __or__(self, other):
        return self

    __ror__ = __getitem__ = __or__


def lenient_import(name, as_name=None):
    try:
        module = importlib.import_module(name)
        if as_name:
            return module
        return importlib.import_module(name.partition(".")[0])
    except (ImportError, AttributeError):
        if as_name:
            return Absent(name)
        *path, last = name.split(".")
        at = importlib.import_module(path[0])
        for part in path[1:]:
            at = getattr(at, part, None) or Absent(part)
        if not isinstance(at, Absent):
            setattr(at, last, Absent(name))
        return sys.modules[path[0]]


def lenient_from(module, name):
    try:
        loaded = importlib.import_module(module)
        try:
            return getattr(loaded, name)
        except AttributeError:
            return importlib.import_module(f"{module}.{name}")
    except (ImportError, AttributeError):
        if module.startswith("torch.testing._internal"):
            raise
        return Absent(f"{module}.{name}")


class Lenient(ast.NodeTransformer):
    """Turns imports of torch's modules into calls that give placeholders."""

    def visit_Import(self, node):
        lines = []
        for alias in node.names:
            if alias.name.split(".")[0] != "torch":
                lines.append(ast.Import([alias]))
                continue
            target = alias.asname or "torch"
            text = f"{target} = __import__('peer_tests').lenient_import({alias.name!r}, {alias.asname!r})"
            lines.append(ast.parse(text).body[0])
        return [ast.copy_location(ast.fix_missing_locations(line), node) for line in lines]

    def visit_ImportFrom(self, node):
        if not node.module or node.level or node.module.split(".")[0] != "torch" or node.names[0].name == "*":
            return node
        lines = [
            f"{a.asname or a.name} = __import__('peer_tests').lenient_from({node.module!r}, {a.name!r})"
            for a in node.names
        ]
        return [ast.copy_location(ast.fix_missing_locations(ast.parse(t).body[0]), node) for t in lines]


def note():
    """Prints why a statement of the helpers failed, if FACULA_PEER_NOTES is set."""
    if "FACULA_PEER_NOTES" in os.environ:
        import traceback

        print(traceback.format_exc().strip().split("\n")[-3:], file=sys.stderr)


def tolerant(tree):
    """Wraps each statement of a module of helpers: what fails leaves placeholders for the names it binds."""
    body = []
    for statement in tree.body:
        names = {
            n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names = {statement.name}
        if isinstance(statement, (ast.ImportFrom, ast.Import)) or not isinstance(
            statement, (ast.Assign, ast.AnnAssign, ast.Expr, ast.If, ast.FunctionDef, ast.ClassDef, ast.With)
        ):
            body.append(statement)
            continue
        lines = ["__import__('peer_tests').note()"]
        lines += [
            f"globals().setdefault({n!r}, __import__('peer_tests').Absent({n!r}))" for n in sorted(names)
        ]
        handler = ast.ExceptHandler(
            ast.Name("Exception", ast.Load()), None, [ast.parse(line).body[0] for line in lines]
        )
        body.append(ast.copy_location(ast.Try([statement], [handler], [], []), statement))
    tree.body = body
    return tree


class PeerLoader(importlib.machinery.SourceFileLoader):
    def source_to_code(self, data, path, *, _optimize=-1):
        tree = Lenient().visit(ast.parse(data, path))
        if not path.endswith("distributed_test.py"):
            tree = tolerant(tree)
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True, optimize=_optimize)

    def get_code(self, fullname):
        return self.source_to_code(self.get_data(self.path), self.path)


class Same(importlib.abc.Loader):
    """Loads a module that exists."""

    def __init__(self, module):
        self.module = module

    def create_module(self, spec):
        return self.module

    def exec_module(self, module):
        pass


class PeerFiles(importlib.abc.MetaPathFinder):
    """Finds modules of torch.testing._internal in the peer's installation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name.startswith("facula.testing._internal"):  # the name by which classes are pickled
            module = importlib.import_module("torch" + name.removeprefix("facula"))
            return importlib.util.spec_from_loader(name, Same(module))
        if name == "expecttest":  # installed with the peer
            return importlib.machinery.PathFinder.find_spec(name, [str(self.folder.parent)])
        if not name.startswith(("torch.testing._", "torch.utils._import_utils")):
            return None
        at = self.folder.joinpath(*name.split(".")[1:])
        package = at / "__init__.py"
        file = package if package.exists() else at.with_suffix(".py")
        if not file.exists():
            return None
        places = [str(at)] if file == package else None
        loader = PeerLoader(name, str(file))
        return importlib.util.spec_from_file_location(
            name, file, loader=loader, submodule_search_locations=places
        )


def install() -> None:
    from facula import _alias

    _alias.install()
    import torch.testing

    sys.modules["torch"]._C._TorchFunctionState = Absent("_TorchFunctionState")  # of its TestCase
    os.environ["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"
    sys.modules["peer_tests"] = sys.modules[__name__]
    torch.testing.__path__ = []  # its submodules are found by name
    sys.meta_path.insert(0, PeerFiles(peer_folder()))


LIMIT = 90  # seconds for a test
LEAST = 0.85  # of the tests that need no GPU have to pass
GPU = "it needs a GPU or NCCL"
# Why tests do not pass. Those that need a GPU are not counted; another one that fails is an error.
REASONS = {
    GPU: """
        test_all_to_all_cuda test_all_to_all_cuda_complex test_all_to_all_full_group_cuda
        test_batch_isend_irecv_mixed_backend_err test_batch_isend_irecv_op_err
    """,
    "the profiler shows one message of all tensors, since they are sent together": """
        test_all_gather_coalesced_complex test_all_gather_coalesced_full_group
        test_all_gather_coalesced_simple test_all_gather_coalesced_with_empty
    """,
    "times are taken in every iteration and not in a sample of them, and there are no threads of Gloo": """
        test_ddp_logging_data_cpu
    """,
    "a sum of sparse tensors keeps equal indices of both apart until it is coalesced": """
        test_sparse_all_reduce_sum
    """,
}
KNOWN = {name: reason for reason, names in REASONS.items() for name in names.split()}


def run_rank(case, name, rank, folder, answer):
    """Runs a test as one rank, in a process of its own, and writes how it ended."""
    import traceback
    import unittest

    import torch.distributed as dist

    def tell(status, text=""):
        Path(answer).write_text(json.dumps([status, text]))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    try:
        out = os.open(f"{folder}/log.{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        self = case(name)
        if getattr(getattr(self, name), "__unittest_skip__", False):
            raise unittest.SkipTest(getattr(self, name).__unittest_skip_why__)
        self.rank, self.file_name = rank, f"{folder}/init"
        from datetime import timedelta

        module = sys.modules[MODULE]
        seconds = module.CUSTOM_PG_TIMEOUT.get(name, 60)
        dist.init_process_group(
            "gloo",
            init_method=self.init_method,
            world_size=int(self.world_size),
            rank=rank,
            timeout=timedelta(seconds=seconds),
        )
        self._barrier()
        torch = sys.modules["torch"]
        torch.manual_seed(1234)
        getattr(self, name)()
        self._barrier()
        if dist.is_initialized():
            dist.destroy_process_group()
        tell("passed")
    except unittest.SkipTest as skip:
        tell("skipped", str(skip))
    except SystemExit as end:
        reasons = {v.exit_code: v.message for v in module.TEST_SKIPS.values()}
        tell("skipped" if end.code in reasons else "failed", reasons.get(end.code, f"exit {end.code}"))
    except BaseException as error:
        while isinstance(error, NotImplementedError) and error.__context__ is not None:
            error = error.__context__  # the helpers report a failure by means that are absent
        tell("failed", "".join(traceback.format_exception(error)))


def run_test(case, name, size, environment=None):
    """Returns the status of a test, the reason, and the seconds it took."""
    import tempfile

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for part in ("barrier", "test_dir", "init_dir"):
            os.mkdir(f"{folder}/{part}")
        os.environ |= {"TEMP_DIR": folder, "INIT_METHOD": f"file://{folder}/init_dir/shared"}
        children = []
        for rank in range(size):
            if not (pid := os.fork()):
                os.setpgid(0, 0)
                run_rank(case, name, rank, folder, f"{folder}/answer.{rank}")
            children.append(pid)
        left = set(children)
        while left and time.monotonic() < began + LIMIT:
            for pid in list(left):
                if os.waitpid(pid, os.WNOHANG)[0]:
                    left.discard(pid)
            time.sleep(0.01)
        for pid in children:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in left:
            os.waitpid(pid, 0)
        seconds = time.monotonic() - began
        answers = []
        for rank in range(size):
            path = Path(folder, f"answer.{rank}")
            answers.append(json.loads(path.read_text()) if path.exists() else ["failed", "no answer in time"])
        for status in ("failed", "skipped"):
            texts = [t for s, t in answers if s == status]
            if texts:
                return status, max(texts, key=lambda t: t != "no answer in time"), seconds
        return "passed", "", seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--report", default="")
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    os.environ |= {
        "BACKEND": "gloo",
        "WORLD_SIZE": str(arguments.size),
        "TEMP_DIR": "/tmp",
        "OMP_NUM_THREADS": "1",
    }
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    install()
    module = importlib.import_module(MODULE)
    case = type("TestFacula", (module.TestDistBackend, module.DistributedTest._DistTestBase), {})
    names = [n for n in dir(case) if n.startswith("test_") and re.search(arguments.only, n)]
    outcome = {}
    for name in names:
        status, text, seconds = run_test(case, name, arguments.size)
        if status == "failed" and KNOWN.get(name) == GPU:
            status = "skipped"
        reason = KNOWN.get(name, "") if status != "passed" else ""
        outcome[name] = (status, reason or text)
        last = reason or text.strip().split("\n")[-1][:150]
        print(f"{status:8}{seconds:6.1f} s  {name}  {last}", flush=True)
        if arguments.verbose and status == "failed":
            print(text, flush=True)
    counts = {s: sum(o[0] == s for o in outcome.values()) for s in ("passed", "failed", "skipped")}
    share = counts["passed"] / max(1, counts["passed"] + counts["failed"])
    print(counts, f"{share:.1%} of those that need no GPU")
    if arguments.report:
        Path(arguments.report).write_text(json.dumps(outcome, indent=1))
    new = [n for n, (status, _) in outcome.items() if status == "failed" and n not in KNOWN]
    mended = [n for n, (status, _) in outcome.items() if status == "passed" and n in KNOWN]
    if new:
        print("fail without a known reason:", *new)
    if mended:
        print("pass, and have a reason not to:", *mended)
    sys.exit(bool(new or mended or (not arguments.only and share < LEAST)))


if __name__ == "__main__":
    main()
