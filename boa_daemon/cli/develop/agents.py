"""``boa mcp``: the daemon's answers for agents, by the Model Context Protocol over standard input."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from boa_daemon.cli.common.daemon_client import ConfigOption, SocketOption, a_client
from boa_daemon.errors import BoaError, InputError, MissingExtra
from boa_daemon.extras import install_command
from boa_daemon.version import __version__
from policies.errors import PolicyError
from policies.money_text import in_dollars

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from boa_daemon.api.client import Client

Tool: TypeAlias = Callable[..., dict[str, Any]]
INSTRUCTIONS = """BOA plans and runs rented GPUs for training jobs within a budget. These tools only read,
except `submit`, which is there when the person who started this server allowed it an amount. Money is US
dollars, durations are seconds unless the name says otherwise, and `jct` is the job completion time, from
arrival to end. Before you recommend a budget, call `plan` for at least two of them. When a job waits,
`explain` has the reason: quote its sentence."""


def mcp(
    *,
    max_usd: Annotated[
        float | None,
        typer.Option(
            "--max-usd",
            min=0.0,
            metavar="USD",
            help="Allow `submit`: the `max_usd` of all jobs that this server submits add up to at most this.",
        ),
    ] = None,
    config: ConfigOption = None,
    socket: SocketOption = None,
) -> None:
    """Serve plan, explain, cost and status to agents, by the Model Context Protocol on standard input."""
    if max_usd is not None and not math.isfinite(max_usd):
        raise InputError(f"--max-usd {max_usd} is not an amount", hint="For example --max-usd 50")
    server(lambda: a_client(config, socket), max_usd=max_usd).run("stdio")


def server(connect: Callable[[], AbstractContextManager[Client]], *, max_usd: float | None) -> MCPServer:
    """Return the server; `connect` opens a client of the daemon for each call.

    Raises:
        MissingExtra: when the library of the protocol is not installed.
    """
    try:
        from mcp.server import MCPServer  # noqa: PLC0415 - an extra
        from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415
        from mcp.types import ToolAnnotations  # noqa: PLC0415
    except ImportError:
        raise MissingExtra("boa mcp needs the library mcp", hint=install_command("mcp")) from None

    found: MCPServer = MCPServer("boa", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")

    def tool(hints: ToolAnnotations) -> Callable[[Tool], Tool]:
        """Add a function as a tool; an error of ours is a sentence that the agent may read."""

        def add(function: Tool) -> Tool:
            @wraps(function)
            def answer(*words: Any, **given: Any) -> dict[str, Any]:
                try:
                    return function(*words, **given)
                except (BoaError, PolicyError) as error:
                    raise ToolError(f"{type(error).__name__}: {error}") from None

            found.add_tool(answer, annotations=hints)
            return function

        return add

    reads = tool(ToolAnnotations(read_only_hint=True, open_world_hint=False))

    @reads
    def plan(classes_file: str, budget: str) -> dict[str, Any]:
        """Plan a budget offline: widths per class, mean completion time, and what one more dollar saves.

        Args:
            classes_file: path of a problem or class file (YAML or JSON).
            budget: dollars with their time, such as "40/h", "900/day", "25000/month", or "gpus:48".
        """
        from boa_daemon.library.functions import plan as plan_problem  # noqa: PLC0415 - slow to import
        from boa_daemon.library.problem import Problem  # noqa: PLC0415

        return dict(plan_problem(Problem.from_file(classes_file), budget).document)

    @reads
    def status() -> dict[str, Any]:
        """Return what runs, what it costs per hour, the money left under each cap, and what is wrong."""
        with connect() as boa:
            return dict(boa.status())

    @reads
    def jobs(include_ended: bool = False) -> dict[str, Any]:
        """List jobs with status, GPUs, cost, the reason why one waits, and its place in the queue."""
        with connect() as boa:
            return dict(boa.jobs(ended=include_ended))

    @reads
    def explain(job: str) -> dict[str, Any]:
        """Say why a job waits, runs at its width, or ended; sentences with their figures."""
        with connect() as boa:
            return dict(boa.explain(job))

    @reads
    def cost(by: str = "job") -> dict[str, Any]:
        """Return this month's costs by job, class, user, team, market, region, machine, day or tag:KEY."""
        with connect() as boa:
            return dict(boa.get("/cost", by=by))

    if max_usd is not None:
        allowance = Allowance(max_usd)

        @tool(ToolAnnotations(destructive_hint=False, open_world_hint=True))
        def submit(job_file: str) -> dict[str, Any]:
            """Submit the jobs of a file, all or none; each needs `max_usd`, and their sum must be allowed.

            Args:
                job_file: path of a job file (YAML); what it says runs on rented machines and costs money.
            """
            from boa_daemon.api.connection import RefusedByDaemon  # noqa: PLC0415 - few servers may submit
            from boa_daemon.inputs.submission import read_submission  # noqa: PLC0415

            contents = read_submission(Path(job_file), now=time.time())
            with connect() as boa:
                amount = allowance.take(contents)
                try:
                    answer = dict(boa.submit_checked(contents))
                except RefusedByDaemon:
                    # The daemon said no, so nothing runs. After silence the jobs may run, so that is spent.
                    allowance.give_back(amount)
                    raise
            return answer | {"allowance_left_usd": allowance.left_usd}

    return found


class Allowance:
    """What this server may still commit, in dollars."""

    def __init__(self, left_usd: float) -> None:
        self.left_usd = left_usd
        self._lock = Lock()

    def take(self, contents: list[dict[str, Any]]) -> float:
        """Subtract the most that jobs may cost, and return it.

        Raises:
            InputError: when a job states no `max_usd`, or the sum is above what is left.
        """
        amount = math.fsum(_most_usd(content) for content in contents)
        with self._lock:
            if amount > self.left_usd:
                raise InputError(
                    f"the jobs may cost {in_dollars(amount)}, and "
                    f"{in_dollars(self.left_usd)} of --max-usd is left",
                    hint="Lower max_usd in the job file, or ask the person who started `boa mcp`",
                )
            self.left_usd -= amount
        return amount

    def give_back(self, amount: float) -> None:
        """Add an amount that was not spent after all."""
        with self._lock:
            self.left_usd += amount


def _most_usd(content: Mapping[str, Any]) -> float:
    """Return the most that a job, or all members of a group, may cost.

    Raises:
        InputError: when it states no `max_usd`.
    """
    from boa_daemon.inputs.groups import size_of  # noqa: PLC0415 - few servers may submit

    most = content.get("max_usd")
    if most is None:
        hint = "Add `max_usd: 5` to its file: an agent submits only what has a limit"
        raise InputError(f"{content['name']}: the job states no max_usd", hint=hint)
    return float(most) * size_of(content)
