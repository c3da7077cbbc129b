"""A value or parameter of a closed set that is misspelt is refused: what is possible, and the nearest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import anyio.to_thread
import pytest
from fastapi.testclient import TestClient
from page_site import TOKEN, TOKENS

from boa_daemon.api.answers import DecisionKind
from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.cli.operate.decisions import KINDS
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.dashboard.assets import asset
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Yield a client of a daemon with a team and eighty jobs that were ordered to start in one tick."""
    folder = tmp_path_factory.mktemp("site")
    settings = {
        "budget": {"usd_per_hour": 1000.0, "usd_per_day_cap": 1e5, "max_instances": 100},
        "teams": {"vision": {"members": ["ann"], "usd_per_day_cap": 900.0}},
    }
    play = DaemonInAFolder(folder, ManualClock(1_800_000_000.0), settings)
    play.service.submit([job_content(hours=5.0) for _ in range(80)], user="ann")
    for _ in range(12):
        play.daemon.tick()
        play.clock.instant += 60.0
    play.service.cancel("job-80", user="ann", is_admin=False)
    tokens = folder / "tokens"
    tokens.write_text("".join(f"{token} {user}\n" for user, token in TOKENS.items()))
    tokens.chmod(0o600)
    of_api = ApiSettings.model_validate({"listen": "127.0.0.1:1", "tokens": str(tokens)})
    found = TestClient(create_app(play.service, Authenticator(of_api)), base_url="http://127.0.0.1:1")
    found.headers["Authorization"] = f"Bearer {TOKEN}"
    yield found
    play.close()


@pytest.mark.parametrize(
    ("path", "threads"),
    [("status", 0), ("jobs?limit=5", 1), ("instances", 1)],
)
def test_parameters_are_checked_without_a_thread(
    http: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, threads: int
) -> None:
    """Only the answer itself may need a thread, which waits for its turn during a tick."""
    asked: list[object] = []
    run = anyio.to_thread.run_sync

    async def counted(call: object, *rest: object, **more: object) -> object:
        asked.append(call)
        return await run(call, *rest, **more)

    monkeypatch.setattr(anyio.to_thread, "run_sync", counted)
    answer = http.get(f"/v1/{path}")
    assert answer.status_code == 200, answer.text
    assert len(asked) == threads, asked


@pytest.mark.parametrize(
    ("path", "near", "possible"),
    [
        ("decisions?kind=lanch", "launch", "terminate"),
        ("decisions?kind=HELD", "held", "start"),
        ("decisions?kidn=launch", "kind", "limit"),
        ("decisions?acting=true&jobs=job-1", "job", "node"),
        ("cost?by=jbo", "job", "market"),
        ("cost?by=users", "user", "tag:KEY"),
        ("page/cost?by=clas", "class", "tag:KEY"),
        ("page/cost?hour=3", "hours", "by"),
        ("jobs?team=visoin", "vision", "vision"),
        ("jobs?status=running", "", "user"),
        ("jobs?usr=ann", "user", "group"),
        ("instances?aftr=x", "after", "limit"),
        ("months/2027-01?team=visoin", "vision", "vision"),
        ("page/history?hrs=3", "hours", "hours"),
    ],
)
def test_a_misspelt_value_or_parameter_is_refused(
    http: TestClient, path: str, near: str, possible: str
) -> None:
    """With status 422, exit code 2, the possible ones and the nearest."""
    answer = http.get(f"/v1/{path}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["exit_code"] == 2
    said = answer.json()["message"]
    assert possible in said, said
    assert (f"Did you mean {near!r}?" in said) is bool(near), said


def test_a_request_without_parameters_refuses_every_one(http: TestClient) -> None:
    """Such as the status."""
    assert "takes no parameters; got 'verbose'" in http.get("/v1/status?verbose=1").json()["message"]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_answered(http: TestClient, kind: str) -> None:
    """What the sentence lists is possible."""
    assert http.get("/v1/decisions", params={"kind": kind}).status_code == 200


def test_the_page_offers_the_same_kinds() -> None:
    """Its list is written in a script."""
    script = asset("page.js").decode()
    listed = script.partition("ACTION_KINDS = [")[2].partition("]")[0]
    assert {word.strip().strip('"') for word in listed.split(",")} == set(get_args(DecisionKind)) - {""}


def test_every_action_of_a_large_tick_is_found(http: TestClient) -> None:
    """Beyond the fifty that an answer lists: by job, by node and by kind; the counts are of all."""
    rows = http.get("/v1/decisions", params={"limit": 100, "acting": True}).json()["decisions"]
    starts = [row for row in rows if row["action_counts"].get("start", 0) > 50]
    assert starts, [row["action_counts"] for row in rows]
    assert len(starts[0]["actions"]) == 50
    for number in range(1, 81):
        found = http.get("/v1/decisions", params={"job": f"job-{number}", "kind": "start"}).json()[
            "decisions"
        ]
        [action] = [one for one in found[-1]["actions"] if one["target"] == f"job-{number}"]
        assert action["user"] == "ann"
        assert action["nodes"]
