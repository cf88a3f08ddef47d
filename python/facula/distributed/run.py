"""Launcher of distributed programs: ``python -m facula.distributed.run [options] program.py [arguments]``.

It starts processes on this node with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and the rest in
their environment, as torchrun does, and starts all again after a failure if ``--max-restarts`` allows it.
Every option may be an environment variable: PET_NPROC_PER_NODE for ``--nproc-per-node``.
"""

from __future__ import annotations

import argparse
import os
import sys
import uuid
from typing import Any

from ._agent import Agent, ChildFailedError, LaunchConfig
from ._replicas_agent import ReplicasAgent
from ._stores import DistError

__all__ = ["config_from_args", "get_args_parser", "main", "parse_args", "run"]

_OPTIONS: list[tuple[str, str, Any, str]] = [
    ("--nnodes", "1:1", str, "number of nodes, or the range MIN:MAX"),
    ("--nproc-per-node", "1", str, "processes on this node: a number, auto, cpu or gpu"),
    ("--rdzv-backend", "static", str, "how nodes meet: static, c10d or etcd"),
    ("--rdzv-endpoint", "", str, "host:port where they meet"),
    ("--rdzv-id", "none", str, "name of the job"),
    ("--rdzv-conf", "", str, "more settings: key=value,key=value"),
    ("--max-restarts", 0, int, "how often all processes are started again after a failure"),
    ("--monitor-interval", 0.1, float, "seconds between looks at the processes"),
    ("--start-method", "spawn", str, "not used: each process is a new program"),
    ("--event-log-handler", "null", str, "not used"),
    ("--role", "default", str, "name of the processes in messages"),
    ("--log-dir", None, str, "folder for the outputs of the processes"),
    ("--redirects", "0", str, "streams written to files: 0, 1 stdout, 2 stderr, 3 both, or RANK:STREAM,..."),
    ("--tee", "0", str, "streams written to files and shown"),
    ("--local-ranks-filter", "", str, "local ranks whose streams --tee shows: 0,1"),
    ("--duplicate-stdout-filters", "", str, "not used"),
    ("--duplicate-stderr-filters", "", str, "not used"),
    ("--node-rank", 0, int, "number of this node, for static rendezvous"),
    ("--master-addr", "127.0.0.1", str, "host of node 0, for static rendezvous"),
    ("--master-port", 29500, int, "port on that host, for static rendezvous"),
    ("--local-addr", None, str, "address of this node"),
    ("--logs-specs", None, str, "not used"),
    ("--numa-binding", None, str, "not used"),
    ("--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", str, "signals that end the processes"),
]
_FLAGS = {
    "--replicas": "processes (elastic.Replicas) go on without those that fail, which are started again alone",
    "--standalone": "one node that meets nobody, on a free port",
    "--module": "the program is a module, as with python -m",
    "--no-python": "the program is run as it is, without python",
    "--run-path": "the program is run by runpy in the interpreter of the process",
    "--use-agent-store": "the processes use the store of the agent, as always",
    "--virtual-local-rank": "LOCAL_RANK is 0 in each process",
}


def _spellings(option: str) -> list[str]:
    short = {"--redirects": "-r", "--tee": "-t", "--module": "-m"}.get(option)
    return [
        *([short] if short else []),
        option,
        *([f"--{option[2:].replace('-', '_')}"] if "-" in option[2:] else []),
    ]


def get_args_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="torchrun", description="Starts the processes of a distributed program."
    )
    for option, default, kind, text in _OPTIONS:
        variable = f"PET_{option[2:].replace('-', '_').upper()}"
        value = os.environ.get(variable, default)
        value = kind(value) if variable in os.environ else value
        parser.add_argument(*_spellings(option), default=value, type=kind, help=text)
    for option, text in _FLAGS.items():
        variable = f"PET_{option[2:].replace('-', '_').upper()}"
        default = os.environ.get(variable, "0") not in ("0", "", "false", "False")
        parser.add_argument(*_spellings(option), default=default, action="store_true", help=text)
    parser.add_argument("training_script", help="the program, or the module with --module")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes: str) -> tuple[int, int]:
    """Returns the bounds of "4" or "2:4"."""
    parts = nnodes.split(":")
    if (
        len(parts) not in (1, 2)
        or not all(p.isdigit() and int(p) > 0 for p in parts)
        or int(parts[0]) > int(parts[-1])
    ):
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format with 0 < MIN <= MAX')
    return int(parts[0]), int(parts[-1])


def determine_local_world_size(nproc_per_node: str) -> int:
    """Returns the number of processes; "gpu" is refused, as there is none."""
    if str(nproc_per_node).isdigit():
        return int(nproc_per_node)
    if nproc_per_node in ("auto", "cpu"):
        return os.cpu_count() or 1
    if nproc_per_node == "gpu":
        raise ValueError("Cuda is not available: --nproc-per-node gpu; use a number, auto or cpu")
    raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}")


def config_from_args(args: argparse.Namespace) -> tuple[LaunchConfig, list[str], list[str]]:
    """Returns the configuration, and the program and its arguments."""
    least, most = parse_min_max_nnodes(args.nnodes)
    processes = determine_local_world_size(args.nproc_per_node)
    if processes < 1 or args.max_restarts < 0:
        raise ValueError("--nproc-per-node must be positive, --max-restarts not negative")
    backend, endpoint, name = args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id
    if args.standalone:
        backend, endpoint, name = "c10d", "localhost:0", str(uuid.uuid4())
        least = most = 1
    if backend not in ("static", "c10d", "etcd", "etcd-v2"):
        raise ValueError(f"--rdzv-backend {backend} is not supported; static, c10d and etcd are")
    if backend == "static" and not endpoint:
        endpoint = f"{args.master_addr}:{args.master_port}"
    settings = dict(p.split("=", 1) for p in args.rdzv_conf.split(",") if p)
    chosen = {int(r) for r in args.local_ranks_filter.split(",") if r} or None
    config = LaunchConfig(
        min_nodes=least,
        max_nodes=most,
        nproc_per_node=processes,
        run_id=name,
        role=args.role,
        rdzv_endpoint=endpoint,
        rdzv_backend=backend,
        rdzv_configs=settings,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        log_dir=args.log_dir,
        redirects=args.redirects,
        tee=args.tee,
        local_addr=args.local_addr,
        local_ranks_filter=chosen,
        node_rank=args.node_rank,
        signals_to_handle=args.signals_to_handle,
        replicas=args.replicas,
    )
    python = [] if args.no_python else [sys.executable, "-u", *(["-m"] if args.module else [])]
    return config, [*python, args.training_script], args.training_script_args


def run(args: argparse.Namespace) -> None:
    config, command, arguments = config_from_args(args)
    agent = ReplicasAgent if config.replicas else Agent
    agent(config, [*command, *arguments]).run()


def main(args: list[str] | None = None) -> None:
    """Runs a program; exits with status 1 and says in a line what prevented it, or names the first process
    that failed.
    """
    try:
        run(parse_args(args))
    except (ChildFailedError, DistError, ValueError) as error:
        print(f"torchrun: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
