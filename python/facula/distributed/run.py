"""Launcher of distributed programs, for one process: ``python -m torch.distributed.run script.py``.

It sets the environment as torchrun does: the program is process 0 of 1.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys

__all__ = ["main"]


def _arguments(args: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="torchrun", description="Runs a program as process 0 of 1.")
    parser.add_argument("--nnodes", default="1", type=str)
    parser.add_argument("--nproc-per-node", "--nproc_per_node", default="1", type=str)
    parser.add_argument("--node-rank", "--node_rank", "--machine_rank", default=0, type=int)
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1", type=str)
    parser.add_argument("--master-port", "--master_port", default=29500, type=int)
    for name, suffixes in (("rdzv", ("backend", "endpoint", "id", "conf")), ("max", ("restarts",))):
        for option in suffixes:
            parser.add_argument(f"--{name}-{option}", f"--{name}_{option}", default=None)
    for option in ("monitor-interval", "start-method", "role", "log-dir", "redirects", "tee"):
        parser.add_argument(f"--{option}", f"--{option.replace('-', '_')}", default=None)
    for option in ("standalone", "module", "no-python", "use-env"):
        short = ["-m"] if option == "module" else []
        parser.add_argument(*short, f"--{option}", f"--{option.replace('-', '_')}", action="store_true")
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser.parse_args(args)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def main(args: list[str] | None = None) -> None:
    """Runs the program and exits with its status; raises NotImplementedError for more than one process."""
    a = _arguments(args)
    processes = {"auto": 1, "cpu": 1}.get(a.nproc_per_node, a.nproc_per_node)
    if str(processes) != "1" or a.nnodes not in ("1", "1:1"):
        raise NotImplementedError(
            f"torchrun: --nnodes {a.nnodes} --nproc-per-node {a.nproc_per_node}; training by more than one "
            "process is not there yet, use 1"
        )
    names = {"RANK": 0, "LOCAL_RANK": 0, "GROUP_RANK": 0, "ROLE_RANK": 0}
    names |= {"WORLD_SIZE": 1, "LOCAL_WORLD_SIZE": 1, "ROLE_WORLD_SIZE": 1, "GROUP_WORLD_SIZE": 1}
    names |= {"TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": a.max_restarts or 0}
    names |= {"TORCHELASTIC_RUN_ID": a.rdzv_id or "none", "ROLE_NAME": a.role or "default"}
    names |= {"MASTER_ADDR": a.master_addr, "MASTER_PORT": _free_port() if a.standalone else a.master_port}
    environment = {**os.environ, **{k: str(v) for k, v in names.items()}}
    python = [] if a.no_python else [sys.executable, "-u", *(["-m"] if a.module else [])]
    sys.exit(
        subprocess.run([*python, a.training_script, *a.training_script_args], env=environment).returncode
    )


if __name__ == "__main__":
    main()
