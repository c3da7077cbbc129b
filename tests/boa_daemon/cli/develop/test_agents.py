"""The server for agents, spoken to by the client of its own library."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_site import SETTINGS, Site, a_site
from mcp import Client, StdioServerParameters

from boa_daemon.cli.develop import agents
from boa_daemon.cli.develop.agents import Allowance
from boa_daemon.errors import InputError, MissingExtra

ROOT = Path(__file__).parents[4]
READING = {"plan", "status", "jobs", "explain", "cost"}
PROBLEM = str(ROOT / "examples" / "two-gpu-types.yaml")
JOB = "{name: small, class: default, run: 'true', max_gpus: 1, max_usd: %s}"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Yield a daemon in its own process that runs jobs as processes."""
    with a_site(SETTINGS.format(usd=10.0)) as found:
        found.up()
        yield found


async def _talk(socket: str, flags: tuple[str, ...], calls: list[tuple[str, dict[str, Any]]]) -> Any:
    words = ["-m", "boa_daemon", "mcp", "--socket", socket, *flags]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("BOA_")}
    async with Client(StdioServerParameters(command=sys.executable, args=words, env=environment)) as client:
        tools = (await client.list_tools()).tools
        return tools, [await client.call_tool(name, given) for name, given in calls]


def talk(socket: Path | str, *calls: tuple[str, dict[str, Any]], flags: tuple[str, ...] = ()) -> Any:
    """Start `boa mcp`, call its tools one after the other, and return its tools and the answers."""
    return asyncio.run(_talk(str(socket), flags, list(calls)))


def said(answer: Any) -> str:
    """Return the text of an answer."""
    return " ".join(part.text for part in answer.content)


def test_without_an_allowance_the_tools_only_read(site: Site) -> None:
    """Each says so to the agent's host, which need not ask for consent; there is no `submit`."""
    tools, answers = talk(
        site.socket,
        ("plan", {"classes_file": PROBLEM, "budget": "25/h"}),
        ("status", {}),
        ("jobs", {}),
        ("cost", {"by": "user"}),
        ("submit", {"job_file": "job.yaml"}),
    )
    assert {tool.name for tool in tools} == READING
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    *read, submitted = answers
    assert not any(answer.is_error for answer in read)
    planned, status, jobs, cost = (answer.structured_content for answer in read)
    assert planned["mean_spend"] == pytest.approx(25.0, rel=0.01)
    assert status["usd_per_hour"] >= 0.0
    assert jobs["jobs"] == []
    assert cost["by"] == "user"
    assert submitted.is_error


def test_submitted_jobs_share_one_allowance(site: Site, tmp_path: Path) -> None:
    """What jobs may cost counts before they are sent; a refusal of the daemon gives it back."""
    (tmp_path / "cheap.yaml").write_text(JOB % 3)
    (tmp_path / "group.yaml").write_text((JOB % 2).replace("}", ", count: 3}"))
    (tmp_path / "unknown.yaml").write_text((JOB % 7).replace("default", "no-such-class"))
    (tmp_path / "open.yaml").write_text((JOB % 1).replace(", max_usd: 1", ""))
    names = ("group", "unknown", "open", "cheap", "cheap")
    calls = [("submit", {"job_file": str(tmp_path / f"{name}.yaml")}) for name in names]
    tools, (group, unknown, limitless, cheap, again) = talk(site.socket, *calls, flags=("--max-usd", "10"))

    assert {tool.name for tool in tools} == READING | {"submit"}
    assert len(group.structured_content["jobs"]) == 3
    assert group.structured_content["allowance_left_usd"] == 10.0 - 3 * 2.0
    assert unknown.is_error
    assert "no-such-class" in said(unknown) or "may cost $7.00" in said(unknown)
    assert limitless.is_error
    assert "states no max_usd" in said(limitless)
    assert cheap.structured_content["allowance_left_usd"] == 10.0 - 3 * 2.0 - 3.0
    assert again.is_error
    assert "may cost $3.00, and $1.00" in said(again)
    [explained] = talk(site.socket, ("explain", {"job": cheap.structured_content["jobs"][0]}))[1]
    assert not explained.is_error


def test_errors_are_sentences_for_the_agent(tmp_path: Path) -> None:
    """A daemon that is not there, a budget below the load, and a file that is missing end no server."""
    _, answers = talk(
        tmp_path / "boa.sock",
        ("status", {}),
        ("plan", {"classes_file": PROBLEM, "budget": "1/h"}),
        ("plan", {"classes_file": str(tmp_path / "none.yaml"), "budget": "40/h"}),
    )
    status, small, missing = answers
    assert all(answer.is_error for answer in answers)
    assert "no daemon listens" in said(status)
    assert "none.yaml" in said(missing)
    assert "is too small" in said(small)


def test_a_refusal_of_the_daemon_gives_the_allowance_back() -> None:
    """Taking more than is left subtracts nothing."""
    allowance = Allowance(5.0)
    amount = allowance.take([{"name": "one", "max_usd": 4.0}])
    with pytest.raises(InputError, match=r"\$1\.00 of --max-usd is left"):
        allowance.take([{"name": "two", "max_usd": 2.0}])
    assert allowance.left_usd == 5.0 - 4.0
    allowance.give_back(amount)
    assert allowance.left_usd == 5.0


def test_without_the_library_its_install_command_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is an extra, because few people have an agent."""
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with pytest.raises(MissingExtra, match="boa mcp needs the library mcp"):
        agents.server(lambda: None, max_usd=None)  # type: ignore[arg-type,return-value]
