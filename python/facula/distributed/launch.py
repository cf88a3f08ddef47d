"""The former launcher: ``python -m facula.distributed.launch``. It passes ``--local-rank`` to the program
unless ``--use-env`` is given; the rest is ``facula.distributed.run``.
"""

from __future__ import annotations

import sys

from . import run as runner
from ._agent import Agent, ChildFailedError

__all__ = ["main"]

# The value of --local-rank differs between processes, so that each one is started by this program.
_WRAPPER = "import os, sys, runpy; sys.argv = sys.argv[1:]; sys.argv.insert(1, '--local-rank=' + "
"os.environ['LOCAL_RANK'])"


def main(args: list[str] | None = None) -> None:
    parser = runner.get_args_parser()
    parser.add_argument(
        "--use-env", "--use_env", action="store_true", help="pass LOCAL_RANK by the environment only"
    )
    options = parser.parse_args(args)
    config, command, arguments = runner.config_from_args(options)
    if not options.use_env and not options.no_python:
        start = "runpy.run_module(sys.argv[0], None, '__main__', True)"
        if not options.module:
            start = (
                "sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0]))); "
                "runpy.run_path(sys.argv[0], None, '__main__')"
            )
        command = [sys.executable, "-u", "-c", f"{_WRAPPER}; {start}", options.training_script]
    try:
        Agent(config, [*command, *arguments]).run()
    except ChildFailedError as error:
        print(f"launch: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
