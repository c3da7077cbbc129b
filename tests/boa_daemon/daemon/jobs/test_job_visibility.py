"""What a caller without rights sees of other users' jobs, through every route: nothing that is their text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_time import pass_time
from starlette.testclient import TestClient

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.daemon.jobs.job_visibility import FILE, ROW
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.inputs.job_file import JobFile
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.tick.facts.ports import RunReport

TOKENS = {"mallory": "a-token-of-mallory-x", "rita": "a-token-of-rita-the-r", "ann": "a-token-of-ann-owner"}
CANARY = "canary"
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 10.0, "max_instances": 4},
    "cloud": {"boot_seconds": 30.0},
    "daemon": {"tick_seconds": 30.0},
}
TEXTS: dict[str, Any] = {
    "run": "true canary-run",
    "workdir": "/canary-workdir",
    "result": "canary-result",
    "setup": "pip install --index-url https://me:canary-setup@host",
    "image": "canary/image:1",
    "artifacts": ["canary-artifacts/*"],
    "environment": {"CANARY_NAME": "canary-value"},
}


class Site:
    """A daemon with jobs of ann in every state, and its API."""

    def __init__(self, folder: Path) -> None:
        self.play = DaemonInAFolder(folder, ManualClock(1_800_000_000.0), SETTINGS, wrap_runner=self._wrapped)
        tokens = folder / "tokens"
        tokens.write_text("".join(f"{token} {user}\n" for user, token in TOKENS.items()))
        tokens.chmod(0o600)
        api = {"listen": "127.0.0.1:0", "tokens": str(tokens), "readers": ["rita"]}
        app = create_app(self.play.service, Authenticator(ApiSettings.model_validate(api)))
        self.app, self.web = app, TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 5))
        submit = self.play.service.submit
        self.dies = submit([job_content("dies", retries=0, **TEXTS)], user="ann")["jobs"][0]
        self.tries = submit([job_content("tries", retries=50, **TEXTS)], user="ann")["jobs"][0]
        self.runs = submit([job_content("runs", hours=9.0, **TEXTS)], user="ann")["jobs"][0]
        group = job_content("sweep", matrix={"CANARY_KEY": ["canary-a", "canary-b"]}, **TEXTS)
        self.members = submit([group], user="ann")["jobs"]
        self.cancelled = submit([job_content("gone", **TEXTS)], user="ann")["jobs"][0]
        self.play.service.cancel(self.cancelled, user="ann", is_admin=False)
        pass_time(self.play, 900.0)

    def _wrapped(self, runner: Any) -> Any:
        poll = runner.poll

        def told() -> dict[str, RunReport]:
            return {job: self._failed(report) for job, report in poll().items()}

        runner.poll = told
        return runner

    def _failed(self, report: RunReport) -> RunReport:
        is_to_fail = report.job.startswith(("dies", "tries"))
        if not is_to_fail:
            return report
        said = "ended with exit code 3: canary-printed"
        report = replace(report, phase="failed", cause="error", exit_code=3, evidence=said, manifest=None)
        return replace(report, last_lines=("canary-last-line",))

    def get(self, path: str, user: str) -> Any:
        return self.web.get(path, headers={"Authorization": f"Bearer {TOKENS[user]}"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(tmp_path_factory.mktemp("site"))
    yield found
    found.play.close()


def paths_of(site: Site) -> list[str]:
    """Return every GET route of the API, for every job, group and newest decision where it names one."""
    jobs = [site.dies, site.tries, site.runs, site.cancelled, *site.members]
    records = [site.play.service.job(job) for job in jobs]
    groups = [row["group"] for row in records if row["group"]]
    ticks = [one["tick"] for one in site.play.service.decisions(limit=1000, acting=True)["decisions"]]
    found: list[str] = []
    for path, operations in site.app.openapi()["paths"].items():
        if "get" not in operations:
            continue
        names = groups if "/groups/" in path else jobs
        filled = [path.replace("{name}", name) for name in names] if "{name}" in path else [path]
        filled = (
            [one.replace("{tick}", str(tick)) for one in filled for tick in ticks]
            if "{tick}" in path
            else filled
        )
        found += [
            one.replace("{file}", "x").replace("{word}", "0" * 32).replace("{digest}", "0" * 64)
            for one in filled
        ]
    return [
        *found,
        "/v1/decisions?limit=1000",
        "/v1/cost?by=class",
        "/v1/instances?ended=true",
        "/v1/jobs?ended=true",
    ]


def test_no_route_shows_a_strangers_texts(site: Site) -> None:
    """Values in every text field of a job, and in what it prints, do not reach a caller without rights."""
    paths = paths_of(site)
    assert len(paths) > 40
    for path in paths:
        answer = site.get(path, "mallory")
        assert CANARY not in answer.text.lower(), (path, answer.text)
        assert answer.status_code < 500, (path, answer.text)
    # The same routes show them to who may read.
    for user in ("rita", "ann"):
        said = "".join(site.get(path, user).text for path in paths)
        for words in (
            "canary-run",
            "canary-value",
            "canary-setup",
            "canary-printed",
            "canary-last-line",
            "canary-a",
        ):
            assert words in said, (user, words)


def test_what_a_stranger_sees_explains_the_queue(site: Site) -> None:
    """State, sizes, money and the code of a cause are there; a row has the same keys for everybody."""
    row, own = (
        site.get(f"/v1/jobs/{site.dies}", "mallory").json(),
        site.get(f"/v1/jobs/{site.dies}", "ann").json(),
    )
    assert row.keys() == own.keys()
    assert (row["status"], row["exit_code"], row["cause"]) == ("failed", 3, "error, exit code 3")
    assert own["cause"].endswith("canary-printed")
    text = site.get(f"/v1/jobs/{site.tries}/explain", "mallory").json()["text"]
    assert "how it ended last: error, exit code 3" in text
    said = site.get(f"/v1/jobs/{site.tries}/explain", "ann").json()["text"]
    assert "Its last end in full: " in said


def test_a_new_field_is_hidden_until_it_is_listed(site: Site) -> None:
    """Every field of an answer and every key of a job file is on a list, or is empty for strangers."""
    row = site.get(f"/v1/jobs/{site.members[0]}", "mallory").json()
    assert {key for key, value in row.items() if value} <= ROW | {"as_of", "file", "cause"}
    assert {key for key, value in row["file"].items() if value and value != "(only for its user)"} <= FILE
    texts = {
        "run",
        "setup",
        "workdir",
        "environment",
        "secrets",
        "code",
        "data",
        "image",
        "artifacts",
        "matrix",
    }
    assert not FILE & {*texts, "result", "notify"}
    assert FILE - {"ordered_gpus"} <= {field.alias or name for name, field in JobFile.model_fields.items()}


def test_rows_and_records_are_json(site: Site) -> None:
    """A stranger's list of jobs has all jobs, newest first."""
    rows = json.loads(site.get("/v1/jobs", "mallory").text)["jobs"]
    assert len(rows) == 4 + len(site.members)
