"""The verbs by name, each imported when it is called: `boa --help` reads this table alone.

A test holds that a line here says what the verb's own help begins with.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from boa_daemon.cli.output import JsonFlag

PLAN, RUN, OPERATE, DEVELOP = "Plan", "Run", "Operate", "Develop"


class Verb(NamedTuple):
    """Where a verb stands, under which heading it is listed, and what it does."""

    target: str
    panel: str
    summary: str


_ROOM = "boa_daemon.cli."
VERBS: dict[str, Verb] = {
    "init": Verb("init:init", PLAN, "Ask five questions and write boa.toml, classes and a first job."),
    "demo": Verb(
        "demo:demo",
        PLAN,
        "Run real training jobs under BOA, then its rivals on the same money. No account, no network.",
    ),
    "solve": Verb(
        "solve:solve",
        PLAN,
        "Solve for the widths that wait least within a budget, with a proof of optimality.",
    ),
    "frontier": Verb(
        "frontier:frontier",
        PLAN,
        "Show what each budget buys: the knee, the floor, the cliff, and a plot for a slide.",
    ),
    "plan": Verb(
        "plan:plan",
        PLAN,
        "Plan a budget offline: widths, waiting and dollars per class, and what the next dollar would buy.",
    ),
    "commit": Verb(
        "commit:commit",
        PLAN,
        "Say which commitment pays: the level of least bill at the same waiting, and how sure that is.",
    ),
    "blocks": Verb(
        "blocks:blocks",
        PLAN,
        "List the Capacity Blocks of a type beside the same hours on demand; buy one at a named price.",
    ),
    "whatif": Verb(
        "whatif:whatif",
        PLAN,
        "Compare a base with changes of money, prices, quota or load, in one table and one plot.",
    ),
    "simulate": Verb(
        "simulate:simulate",
        PLAN,
        "Replay a trace under a policy: waiting, dollars, and the bound that no policy can beat.",
    ),
    "compare": Verb(
        "compare:compare",
        PLAN,
        "Run policies on the same jobs, each tuned to spend what BOA spends, and compare their waiting.",
    ),
    "study": Verb(
        "study:study",
        PLAN,
        "Run the traces, budgets, policies and worlds of a file, and report ratios, regret and robustness.",
    ),
    "trace": Verb("trace:app", PLAN, "Bring in traces of training jobs."),
    "network": Verb("network:app", PLAN, "Jobs that share network cards."),
    "catalog": Verb(
        "catalog:list_types",
        PLAN,
        "List instance types: GPUs, price, price per GPU-hour, the day of the price, and whether it is sold.",
    ),
    "bench": Verb(
        "bench:bench",
        PLAN,
        "Run a script for a short time at each width here, and write the class file of its step times.",
    ),
    "run": Verb(
        "run:run", RUN, "Run one job to its end: phases with seconds and dollars, its log, and a receipt."
    ),
    "dev": Verb(
        "dev:dev",
        RUN,
        "Rent a node to work on, with a shell, that always ends: by hours, dollars, or being left.",
    ),
    "prices": Verb(
        "prices:prices",
        PLAN,
        "Say how old each price is; with --refresh write fresh ones, from AWS or from a saved price list.",
    ),
    "submit": Verb("jobs:submit", RUN, "Give jobs to the daemon, all or none."),
    "jobs": Verb("jobs:jobs", RUN, "List jobs, the newest first."),
    "explain": Verb("jobs:explain", RUN, "Say why a job has its width and its nodes, or why it waits."),
    "logs": Verb("jobs:logs", RUN, "Print what a job printed."),
    "resize": Verb(
        "orders:resize", RUN, "Have a job run on so many GPUs: it writes a checkpoint and goes on from there."
    ),
    "simulate-interrupt": Verb(
        "orders:simulate_interrupt",
        RUN,
        "Rehearse that the cloud takes a node of a job back, with two minutes' notice.",
    ),
    "artifacts": Verb("artifacts:artifacts", RUN, "List the files that a job has left, or copy them here."),
    "exec": Verb(
        "inside:execute",
        RUN,
        "Run a command beside a job: on its node, as its user, in its folder, with its GPUs.",
    ),
    "shell": Verb(
        "inside:shell",
        RUN,
        "Open a shell beside a job: on its node, as its user, in its folder, with its GPUs.",
    ),
    "port-forward": Verb(
        "inside:port_forward", RUN, "Bring a port of a job here, TensorBoard's for instance, until Ctrl-C."
    ),
    "cancel": Verb("jobs:cancel", RUN, "Cancel jobs; one that runs may write its checkpoint first."),
    "classes": Verb(
        "classes:classes",
        RUN,
        "Show rate, size and speed-up of each class, stated and estimated, with 95 % intervals.",
    ),
    "up": Verb(
        "up:up",
        OPERATE,
        "Show what a site needs in this account and what that costs; with --yes make it, and write boa.toml.",
    ),
    "daemon": Verb(
        "daemon:daemon", OPERATE, "Run the daemon until SIGTERM; SIGHUP reads the settings again."
    ),
    "open": Verb(
        "open:open_page", OPERATE, "Show the daemon's page in a browser, as you and read-only, until Ctrl-C."
    ),
    "status": Verb("state:status", OPERATE, "Show what runs, what it costs, and what is wrong."),
    "decisions": Verb(
        "state:decisions", OPERATE, "List what was decided, what else there was, and what each would cost."
    ),
    "replay": Verb(
        "state:replay", OPERATE, "Decide from a record once more; the same facts must give the same actions."
    ),
    "instances": Verb("state:instances", OPERATE, "List the instances that are rented."),
    "cost": Verb("state:cost", OPERATE, "Say who spent what, and where the month will end."),
    "alerts": Verb("watching:alerts", OPERATE, "List what the daemon had to say, the newest first."),
    "doctor": Verb(
        "doctor:doctor",
        OPERATE,
        "Check this machine; on AWS also credentials, types, subnets, prices, quotas, images and rights.",
    ),
    "image": Verb("image:app", OPERATE, "Images of the nodes, with all that they need."),
    "gc": Verb(
        "gc:gc",
        OPERATE,
        "End instances, disks, interfaces and spot requests of this cluster that nobody wants any more.",
    ),
    "recover": Verb(
        "daemon:recover",
        OPERATE,
        "Make a database again: from the newest backup that can be read, and from what the cloud lists.",
    ),
    "down": Verb(
        "down:down",
        OPERATE,
        "Let everything go: jobs checkpoint and wait, instances are given back, nothing new is started.",
    ),
    "config": Verb("config:app", DEVELOP, "The settings in force, and where they come from."),
    "schema": Verb(
        "daemon:schema", DEVELOP, "Print the JSON schema of a file, for editors and for checks of your own."
    ),
    "gate": Verb("gate:app", DEVELOP, "Who sends first on shared network cards."),
    "grafana": Verb(
        "watching:grafana", DEVELOP, "Print a dashboard for Grafana, made of the daemon's metrics."
    ),
    "iam": Verb(
        "iam:iam",
        DEVELOP,
        "Print the policy that the daemon needs: these calls, on what bears the cluster's tag, and no more.",
    ),
    "systemd": Verb(
        "systemd:systemd", DEVELOP, "Print the hardened systemd unit of the daemon, or install it."
    ),
}
"""In the order in which they are listed."""


usage_errors: list[str] = []
"""What was wrong with the command line, if anything."""


@contextmanager
def _kept() -> Iterator[None]:
    """Keep what is wrong with the command line."""
    try:
        yield
    except Exception as error:
        # The class of usage errors is typer's own copy of click's, which it does not export.
        if hasattr(error, "format_message"):
            from boa_daemon.cli.usage import say_better  # noqa: PLC0415 - only where something is wrong

            say_better(error)
            usage_errors[:] = [error.format_message()]
        raise


class _Loaded(MutableMapping[str, Any]):
    """Commands by name, each made when it is asked for."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _command(name, VERBS[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


def _command(name: str, verb: Verb) -> Any:
    """Import a verb and return its command."""
    module, _, function = verb.target.partition(":")
    found = getattr(import_module(_ROOM + module), function)
    if isinstance(found, typer.Typer):
        group: Any = typer.main.get_group(found)
        group.name = name
        group.commands = {own: _with_json(command) for own, command in group.commands.items()}
        return _with_json(group)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(found)
    return _with_json(typer.main.get_command(alone))


def _with_json(command: Any) -> Any:
    """Return a command with `--json` after `--output`, where it has that."""
    names = [option.name for option in command.params]
    if "output" in names:
        command.params.insert(names.index("output") + 1, _json_flag())
    return command


@cache
def _json_flag() -> Any:
    """Return `--json` as an option of any command."""

    def only(*, as_json: JsonFlag = False) -> None:
        del as_json

    alone = typer.Typer(add_completion=False)
    alone.command()(only)
    return typer.main.get_command(alone).params[0]


class Verbs(TyperGroup):
    """The verbs; help and completion list them without importing them."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Loaded()
        self._is_listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb, or only its line in a list."""
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        if self._is_listing:
            return TyperCommand(name=cmd_name, help=verb.summary, rich_help_panel=verb.panel)
        return self.commands[cmd_name]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the table."""
        return list(VERBS)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Keep what is wrong, for programs."""
        with _kept():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Keep what is wrong, for programs."""
        with _kept():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """List the verbs under their headings."""
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the name of a verb."""
        self._is_listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._is_listing = False
