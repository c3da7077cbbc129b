"""The table of verbs. A verb is imported when it is called; `boa --help` reads this table and the files."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from boa_daemon.cli.output import JsonFlag

PLAN, RUN, OPERATE, DEVELOP = "Plan", "Run", "Operate", "Develop"


class Verb(NamedTuple):
    """A verb: its module and function as `module:function`, and its heading in `boa --help`."""

    target: str
    panel: str

    @property
    def summary(self) -> str:
        """The first line of the verb's help, read from its file: importing it would take half a second."""
        module, _, function = self.target.partition(":")
        source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
        found = re.search(
            rf'^(?:def {function}\(.*?\n    """|app = typer.Typer\(.*?help=")(.+?)["\n]', source, _LINES
        )
        return "" if found is None else found[1]


_LINES = re.MULTILINE | re.DOTALL
_ROOM = "boa_daemon.cli."
VERBS: dict[str, Verb] = {
    "init": Verb("init:init", PLAN),
    "demo": Verb("demo:demo", PLAN),
    "solve": Verb("solve:solve", PLAN),
    "frontier": Verb("frontier:frontier", PLAN),
    "plan": Verb("plan:plan", PLAN),
    "commit": Verb("commit:commit", PLAN),
    "blocks": Verb("blocks:blocks", PLAN),
    "whatif": Verb("whatif:whatif", PLAN),
    "simulate": Verb("simulate:simulate", PLAN),
    "compare": Verb("compare:compare", PLAN),
    "study": Verb("study:study", PLAN),
    "trace": Verb("trace:app", PLAN),
    "network": Verb("network:app", PLAN),
    "catalog": Verb("catalog:list_types", PLAN),
    "bench": Verb("bench:bench", PLAN),
    "run": Verb("run:run", RUN),
    "dev": Verb("dev:dev", RUN),
    "prices": Verb("prices:app", PLAN),
    "submit": Verb("jobs:submit", RUN),
    "jobs": Verb("jobs:jobs", RUN),
    "explain": Verb("jobs:explain", RUN),
    "logs": Verb("jobs:logs", RUN),
    "resize": Verb("orders:resize", RUN),
    "simulate-interrupt": Verb("orders:simulate_interrupt", RUN),
    "artifacts": Verb("artifacts:artifacts", RUN),
    "exec": Verb("job_sessions:execute", RUN),
    "shell": Verb("job_sessions:shell", RUN),
    "port-forward": Verb("job_sessions:port_forward", RUN),
    "cancel": Verb("jobs:cancel", RUN),
    "classes": Verb("classes:classes", RUN),
    "up": Verb("up:up", OPERATE),
    "daemon": Verb("daemon:daemon", OPERATE),
    "uninstall": Verb("uninstall:uninstall", OPERATE),
    "open": Verb("open:open_page", OPERATE),
    "status": Verb("daemon_status:status", OPERATE),
    "decisions": Verb("decisions:decisions", OPERATE),
    "replay": Verb("decisions:replay", OPERATE),
    "instances": Verb("daemon_status:instances", OPERATE),
    "cost": Verb("daemon_status:cost", OPERATE),
    "alerts": Verb("monitoring:alerts", OPERATE),
    "doctor": Verb("doctor:doctor", OPERATE),
    "image": Verb("image:app", OPERATE),
    "gc": Verb("gc:gc", OPERATE),
    "recover": Verb("daemon:recover", OPERATE),
    "down": Verb("down:down", OPERATE),
    "config": Verb("config:app", DEVELOP),
    "schema": Verb("daemon:schema", DEVELOP),
    "gate": Verb("gate:app", DEVELOP),
    "grafana": Verb("monitoring:grafana", DEVELOP),
    "iam": Verb("iam:iam", DEVELOP),
    "slurm": Verb("slurm:app", OPERATE),
    "systemd": Verb("systemd:systemd", DEVELOP),
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
            from boa_daemon.cli.usage_message import improve_message  # noqa: PLC0415 - only where something is wrong

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
        self._is_listing = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb; while listing, a stub with its help line."""
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        if self._is_listing:
            return TyperCommand(name=cmd_name, help=verb.summary, rich_help_panel=verb.panel)
        return self.commands[cmd_name]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the verbs' names in the order of the table."""
        return list(VERBS)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the arguments; store a usage error in `usage_errors`."""
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
