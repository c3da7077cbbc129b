"""The command line: ``boa VERB``. Each verb lives in its own module and is named in `verbs`."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Annotated, NoReturn

import typer

from boa_daemon.cli.common.output import (
    NEAREST,
    OutputFailed,
    discard_output,
    exit_quietly_without_readers,
    forget_printed,
    print_json,
    stderr_console,
    streams_that_may_fail,
    was_printed,
)
from boa_daemon.cli.verbs import Verbs, usage_errors
from boa_daemon.errors import FAILED, USAGE, BoaError, exit_code_of
from boa_daemon.version import __version__
from policies.errors import InfeasibleBudget, PolicyError

OF_THE_DAEMON = frozenset(
    {"alembic", "apscheduler", "boto3", "botocore", "fastapi", "prometheus_client", "scipy", "sqlalchemy"}
)
"""Packages that the distribution boa-client does not bring."""

app = typer.Typer(
    name="boa",
    cls=Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"boa {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Plan and run training jobs on rented GPUs, with the least waiting that a budget can buy."""


def main() -> None:
    """Run the command line; print a known error as one sentence and exit with its code."""
    forget_printed()
    exit_quietly_without_readers()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name or a line of a log may have characters that a terminal's encoding lacks.
            stream.reconfigure(errors=NEAREST)
    with streams_that_may_fail():
        try:
            _run()
        except OutputFailed as fault:
            sentence = f"the answer could not be written to standard output: {fault}. No part of it counts"
            stderr_console().print(f"[bold red]OutputError[/]: {sentence}")
            discard_output()
            sys.exit(FAILED)
        except BrokenPipeError:
            # The reader closed the pipe (`boa ... | head`), so an error message would reach nobody.
            discard_output()
            sys.exit(0)


def _run() -> NoReturn:
    """Run the command line in `sys.argv`, and exit."""
    try:
        app()
        sys.exit(0)
    except (BoaError, PolicyError) as error:
        _say(type(error).__name__, str(_in_unit_asked(error)), exit_code_of(error))
        sys.exit(exit_code_of(error))
    except SystemExit as end:
        with _own_code_first(end.code):
            if end.code == USAGE and _wants_json() and not was_printed():
                said = usage_errors[0] if usage_errors else "the command line is wrong: add --help"
                print_json({"error": "UsageError", "message": said, "exit_code": USAGE})
            if sys.stdout is not None:
                sys.stdout.flush()
        raise
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in OF_THE_DAEMON:
            raise
        from boa_daemon.extras import install_daemon_command  # noqa: PLC0415 - only where something is missing

        missing = f"this command needs {error.name}, which boa-client leaves out. {install_daemon_command()}"
        _say("MissingExtra", missing, USAGE)
        sys.exit(USAGE)
    except FileNotFoundError:
        if _has_folder():
            raise
        _say(
            "InputError", "the folder that this command runs in is gone. Change to another, as by `cd`", USAGE
        )
        sys.exit(USAGE)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _has_folder() -> bool:
    """Return whether the folder that this process runs in still exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


@contextmanager
def _own_code_first(code: object) -> Iterator[None]:
    """Where a command has failed, its own exit code matters more than a disk without room for its words."""
    try:
        yield
    except (OutputFailed, BrokenPipeError):
        if code in (None, 0):
            raise
        discard_output()


def _in_unit_asked(error: BoaError | PolicyError) -> Exception:
    """Return the error; an infeasible budget per month, if it was typed per month, whatever the verb."""
    if not isinstance(error, InfeasibleBudget) or error.budget is None:
        return error
    typed = next((value for value in _values_of("--budget", "--budgets")), None)
    from boa_daemon.cli.common.planning_options import said_in  # noqa: PLC0415 - only where something is wrong
    from boa_daemon.units import per_of, split_budgets  # noqa: PLC0415

    return error if typed is None else said_in(error, per_of(split_budgets(typed).texts[0]))


def _values_of(*options: str) -> Iterator[str]:
    """Yield the values of options in `sys.argv`, as ``--option VALUE`` or ``--option=VALUE``."""
    for first, second in pairwise([*sys.argv[1:], ""]):
        name, has_value, value = first.partition("=")
        if name in options:
            yield value if has_value else second


def _say(name: str, sentence: str, code: int) -> None:
    """Print an error on standard error, and with --json also as the one document on standard output."""
    console = stderr_console()
    console.print(f"[bold red]{name}[/]: ", end="")
    console.print(sentence, markup=False)
    with _own_code_first(code):
        if _wants_json() and not was_printed():
            print_json({"error": name, "message": sentence, "exit_code": code})


def _wants_json() -> bool:
    """Return whether the arguments ask for JSON, read from `sys.argv` because parsing may have failed."""
    words = sys.argv[1:]
    return bool({"--json", "-ojson", "-o=json", "--output=json"} & set(words)) or any(
        first in ("-o", "--output") and second.lower() == "json" for first, second in pairwise(words)
    )
