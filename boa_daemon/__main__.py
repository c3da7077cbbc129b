"""Run the `boa` command line, also as ``python -m boa_daemon``."""

import sys

from boa_daemon.api.standard_streams import open_standard_streams


def main() -> None:
    """Run the command line; a call of Slurm's power saving runs without its framework."""
    open_standard_streams()
    if sys.argv[1:2] == ["slurm"]:
        from boa_daemon.api.slurm_orders import answer_slurm  # noqa: PLC0415 - only for Slurm

        if (code := answer_slurm(sys.argv[1:])) is not None:
            sys.exit(code)
    from boa_daemon.cli import main as run  # noqa: PLC0415 - half a second to import on a busy machine

    run()


if __name__ == "__main__":
    main()
