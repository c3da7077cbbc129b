"""The command line: ``boa VERB``. Each verb lives in its own module and is registered here."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from boa_daemon import __version__
from boa_daemon.cli import daemon, gate, jobs, network, state, trace
from boa_daemon.cli.catalog import list_types
from boa_daemon.cli.classes import classes
from boa_daemon.cli.compare import compare
from boa_daemon.cli.demo import demo
from boa_daemon.cli.doctor import doctor
from boa_daemon.cli.down import down
from boa_daemon.cli.frontier import frontier
from boa_daemon.cli.gc import gc
from boa_daemon.cli.iam import iam
from boa_daemon.cli.orders import resize, simulate_interrupt
from boa_daemon.cli.output import stderr_console
from boa_daemon.cli.plan import plan
from boa_daemon.cli.run import run
from boa_daemon.cli.simulate import simulate
from boa_daemon.cli.solve import solve
from boa_daemon.cli.systemd import systemd
from boa_daemon.cli.up import up
from boa_daemon.errors import BoaError, exit_code_of
from policies.errors import PolicyError

app = typer.Typer(
    name="boa",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo)
app.command("solve")(solve)
app.command("frontier")(frontier)
app.command("plan")(plan)
app.command("simulate")(simulate)
app.command("compare")(compare)
app.add_typer(network.app, name="network")
app.add_typer(gate.app, name="gate")
app.add_typer(trace.app, name="trace")
app.command("catalog")(list_types)
app.command("up")(up)
app.command("daemon")(daemon.daemon)
app.command("run")(run)
app.command("submit")(jobs.submit)
app.command("jobs")(jobs.jobs)
app.command("status")(state.status)
app.command("explain")(jobs.explain)
app.command("classes")(classes)
app.command("decisions")(state.decisions)
app.command("replay")(state.replay)
app.command("logs")(jobs.logs)
app.command("resize")(resize)
app.command("simulate-interrupt")(simulate_interrupt)
app.command("cancel")(jobs.cancel)
app.command("instances")(state.instances)
app.command("cost")(state.cost)
app.command("recover")(daemon.recover)
app.command("schema")(daemon.schema)
app.command("systemd")(systemd)
app.command("doctor")(doctor)
app.command("gc")(gc)
app.command("iam")(iam)
app.command("down")(down)


def _print_version(wanted: bool) -> None:
    """Print the version and leave, when asked."""
    if wanted:
        typer.echo(f"boa {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Plan and run rented GPUs for training jobs: the least waiting that a budget can buy."""


def main() -> None:
    """Run the command line; turn known errors into one sentence and the exit code that they have."""
    try:
        app()
    except (BoaError, PolicyError) as error:
        console = stderr_console()
        console.print(f"[bold red]{type(error).__name__}[/]: ", end="")
        console.print(str(error), markup=False)
        sys.exit(exit_code_of(error))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader went away (`boa ... | head`): nobody is left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
