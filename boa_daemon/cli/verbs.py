"""The table of verbs. A verb is imported when it is called; `boa --help` reads this table and the files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from boa_daemon.cli.common.output import JsonFlag
from boa_daemon.cli.signatures import signature

PLAN, RUN, OPERATE, DEVELOP = "Plan", "Run", "Operate", "Develop"


class Verb(NamedTuple):
    """A verb: its function as `module:function` below `boa_daemon`, and its heading in `boa --help`."""

    target: str
    panel: str

    @property
    def summary(self) -> str:
        """The first line of the verb's help, read from its file: importing it would take half a second."""
        module, _, function = self.target.partition(":")
        source = _SOURCES.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        found = re.search(
            rf'^(?:def {function}\(.*?\n    """|app = typer.Typer\(.*?help=")(.+?)["\n]', source, _LINES
        )
        return "" if found is None else found[1]


_SOURCES = Path(__file__).parents[1]
_LINES = re.MULTILINE | re.DOTALL
_PACKAGE = "boa_daemon."
VERBS: dict[str, Verb] = {
    "init": Verb("cli.plan.init:init", PLAN),
    "demo": Verb("cli.plan.demo:demo", PLAN),
    "solve": Verb("cli.plan.solve:solve", PLAN),
    "frontier": Verb("cli.plan.frontier:frontier", PLAN),
    "plan": Verb("cli.plan.plan:plan", PLAN),
    "calendar": Verb("cli.plan.calendar:calendar", PLAN),
    "commit": Verb("cli.plan.commit:commit", PLAN),
    "blocks": Verb("cli.plan.blocks:blocks", PLAN),
    "whatif": Verb("cli.plan.whatif:whatif", PLAN),
    "simulate": Verb("cli.plan.simulate:simulate", PLAN),
    "compare": Verb("lab.verbs.compare:compare", PLAN),
    "study": Verb("lab.verbs.study:study", PLAN),
    "trace": Verb("lab.verbs.trace:app", PLAN),
    "network": Verb("lab.verbs.network:app", PLAN),
    "catalog": Verb("cli.plan.catalog:list_types", PLAN),
    "bench": Verb("cli.run.bench:bench", PLAN),
    "run": Verb("cli.run.run:run", RUN),
    "dev": Verb("cli.run.dev:dev", RUN),
    "prices": Verb("cli.plan.prices:app", PLAN),
    "submit": Verb("cli.run.jobs:submit", RUN),
    "jobs": Verb("cli.run.jobs:jobs", RUN),
    "explain": Verb("cli.run.jobs:explain", RUN),
    "logs": Verb("cli.run.jobs:logs", RUN),
    "resize": Verb("cli.run.orders:resize", RUN),
    "hold": Verb("cli.run.orders:hold", RUN),
    "release": Verb("cli.run.orders:release", RUN),
    "simulate-interrupt": Verb("cli.run.orders:simulate_interrupt", RUN),
    "artifacts": Verb("cli.run.artifacts:artifacts", RUN),
    "exec": Verb("cli.run.job_sessions:execute", RUN),
    "shell": Verb("cli.run.job_sessions:shell", RUN),
    "port-forward": Verb("cli.run.job_sessions:port_forward", RUN),
    "cancel": Verb("cli.run.jobs:cancel", RUN),
    "classes": Verb("cli.run.classes:classes", RUN),
    "up": Verb("cli.operate.up:up", OPERATE),
    "daemon": Verb("cli.operate.daemon:daemon", OPERATE),
    "uninstall": Verb("cli.operate.uninstall:uninstall", OPERATE),
    "open": Verb("cli.common.open:open_page", OPERATE),
    "status": Verb("cli.common.daemon_status:status", OPERATE),
    "decisions": Verb("cli.operate.decisions:decisions", OPERATE),
    "replay": Verb("cli.operate.decisions:replay", OPERATE),
    "instances": Verb("cli.common.daemon_status:instances", OPERATE),
    "cost": Verb("cli.common.daemon_status:cost", OPERATE),
    "alerts": Verb("cli.operate.monitoring:alerts", OPERATE),
    "doctor": Verb("cli.operate.doctor:doctor", OPERATE),
    "image": Verb("cli.operate.image:app", OPERATE),
    "gc": Verb("cli.operate.gc:gc", OPERATE),
    "recover": Verb("cli.operate.daemon:recover", OPERATE),
    "down": Verb("cli.operate.down:down", OPERATE),
    "config": Verb("cli.develop.config:app", DEVELOP),
    "schema": Verb("cli.develop.schema:schema", DEVELOP),
    "gate": Verb("cli.develop.gate:app", DEVELOP),
    "grafana": Verb("cli.operate.monitoring:grafana", DEVELOP),
    "iam": Verb("cli.develop.iam:iam", DEVELOP),
    "slurm": Verb("cli.operate.slurm:app", OPERATE),
    "mcp": Verb("cli.develop.agents:mcp", DEVELOP),
    "systemd": Verb("cli.develop.systemd:systemd", DEVELOP),
}
"""In the order of `boa --help`."""


usage_errors: list[str] = []
"""The usage error of this command line, if any."""


@contextmanager
def _kept() -> Iterator[None]:
    """Store the message of a usage error in `usage_errors`."""
    try:
        yield
    except Exception as error:
        # The class of usage errors is typer's own copy of click's, which it does not export.
        if hasattr(error, "format_message"):
            from boa_daemon.cli.common.usage_message import improve_message  # noqa: PLC0415 - only where something is wrong

            improve_message(error)
            usage_errors[:] = [error.format_message()]
        raise


class _Loaded(MutableMapping[str, Any]):
    """Commands by name, each created on first use."""

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


def _command(name: str, verb: Verb, *, is_help: bool = False) -> Any:
    """Import a verb and return its command; with `is_help`, one that can print its help and no more."""
    module, _, function = verb.target.partition(":")
    if is_help and _PACKAGE + module not in sys.modules:
        found = signature(_PACKAGE + module, function)
    else:
        found = getattr(import_module(_PACKAGE + module), function)
    if isinstance(found, typer.Typer):
        group: Any = typer.main.get_group(found)
        group.name = name
        group.commands = {own: _with_json(command) for own, command in group.commands.items()}
        return _with_json(group)
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name)(found)
    return _with_json(typer.main.get_command(alone))


def _with_json(command: Any) -> Any:
    """Return a command with `--json` added after `--output`, if it has `--output`."""
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
    """The group of all verbs; help and completion list them without importing them."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _Loaded()
        self._is_listing = self._is_help = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb; while listing, a stub with its help line."""
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        if self._is_listing:
            return TyperCommand(name=cmd_name, help=verb.summary, rich_help_panel=verb.panel)
        return _command(cmd_name, verb, is_help=True) if self._is_help else self.commands[cmd_name]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs' names in the order of the table."""
        return list(VERBS)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, each flag with a default, or typer would load pydantic to convert nothing."""
        options = super().get_params(ctx)
        for option in options:
            if getattr(option, "is_flag", False) and option.default is None:
                option.default = False
        return options

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments; store a usage error in `usage_errors`."""
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        # After `--` come the words of another program, such as `boa exec JOB -- ls --help`.
        before = args[: args.index("--")] if "--" in args else args
        self._is_help = bool({"-h", "--help"}.intersection(before))
        with _kept():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; store a usage error in `usage_errors`."""
        with _kept():
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print help with the verbs under their headings."""
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
