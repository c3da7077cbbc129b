"""Run the `boa` command line, also as ``python -m boa_daemon``."""

import sys

from boa_daemon.api.standard_streams import open_standard_streams
from boa_daemon.job.processes import take_back_signals


def main() -> None:
    """Run the command line; a call of Slurm's power saving runs without its framework."""
    open_standard_streams()
    take_back_signals()
    if sys.argv[1:2] == ["slurm"]:
        from boa_daemon.api.slurm_orders import answer_slurm  # noqa: PLC0415 - only for Slurm

        if (code := answer_slurm(sys.argv[1:])) is not None:
            sys.exit(code)
    from boa_daemon.api.process_limits import (  # noqa: PLC0415 - for a few verbs
        OutOfResources,
        check_limits,
        import_numpy_with_one_thread,
        shortage_of,
    )

    try:
        if sys.argv[1:2] == ["daemon"] and not {"-h", "--help"} & set(sys.argv):
            # Before anything is imported: a library may end the process where memory or stack are short.
            check_limits()
            import_numpy_with_one_thread()
        from boa_daemon.cli import main as run  # noqa: PLC0415 - half a second to import on a busy machine

        run()
    except (OutOfResources, MemoryError, ImportError, RuntimeError, OSError) as error:
        said = str(error) if isinstance(error, OutOfResources) else shortage_of(error)
        if not said:
            raise
        sys.exit(f"OutOfResources: {said}")


if __name__ == "__main__":
    main()
