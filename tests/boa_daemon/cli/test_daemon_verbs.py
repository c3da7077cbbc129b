"""The output of the daemon's commands: tables, proposed commands, checks of job files, and the live view."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner
from verbs import exit_code

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.server import ApiServer, unix_socket
from boa_daemon.cli import app
from boa_daemon.cli.verbs import VERBS
from boa_daemon.daemon.planner import planner
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.job import container
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

Boa = Callable[..., tuple[int, str]]
SETTINGS = {
    "cloud": {"boot_seconds": 0.0, "instance_types": ["g4dn.12xlarge"]},
    "budget": {"usd_per_hour": 10.0, "usd_per_day_cap": 500.0, "max_instances": 7},
}
PATIENCE_SECONDS = 180.0


@pytest.fixture
def play() -> Iterator[tuple[DaemonInAFolder, Path]]:
    """A daemon with an API, and with one job that runs, one that is finished and one that was cancelled."""
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        clock = ManualClock(1_800_000_000.0)
        found = DaemonInAFolder(Path(name), clock, SETTINGS)
        names = found.service.submit(
            [
                job_content("short", hours=0.01),
                job_content("long", hours=50.0, max_gpus=4),
                job_content("gone"),
            ],
            user="ann",
        )["jobs"]
        found.service.cancel(names[-1], user="ann", is_admin=False)
        for _ in range(10):
            found.daemon.tick()
            clock.instant += 30.0
        server = ApiServer(
            create_app(found.service, Authenticator(ApiSettings())), [unix_socket(Path(name) / "boa.sock")]
        )
        server.start()
        yield found, Path(name) / "boa.sock"
        server.stop()
        found.close()


@pytest.fixture
def boa(
    play: tuple[DaemonInAFolder, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Boa:
    """Return a function that runs a command and gives its exit code and output."""
    monkeypatch.setenv("COLUMNS", "140")

    def run(*words: str) -> tuple[int, str]:
        code = exit_code(monkeypatch, *words, "--socket", str(play[1]))
        printed = capsys.readouterr()
        return code, printed.out or printed.err

    return run


def cells(line: str) -> list[str]:
    """Return the cells of a line of a table."""
    return re.split(r"\s{2,}", line.strip())


def next_commands(said: str) -> list[str]:
    """Return the commands that the output proposes at its end."""
    lines = said.splitlines()
    return [line.strip() for line in lines[lines.index("next:") + 1 :]] if "next:" in lines else []


def test_status_shows_state_nodes_jobs_and_costs(boa: Boa, play: tuple[DaemonInAFolder, Path]) -> None:
    """It shows state, nodes, jobs, burn rate, today's cost and the instant of the answer."""
    code, said = boa("status")
    rows = {cells(line)[0]: line for line in said.splitlines() if line.strip()}
    assert code == 0
    assert "well" in rows["state"]
    assert "1 running, 0 waiting" in rows["jobs"]
    assert "1 of 7, 4 of 4 GPUs in use" in rows["nodes"]
    price = play[0].service.status()["usd_per_hour"]
    assert f"${price:,.2f}/hour; budget $10.00 on average" in rows["burn rate"]
    assert "of $500.00" in rows["this day"]
    assert "as of 2027-01-15 08:04:30 UTC" in said
    assert next_commands(said) == ["boa jobs", "boa instances", "boa cost"]


def test_a_job_is_held_and_released(boa: Boa, play: tuple[DaemonInAFolder, Path]) -> None:
    """Each says what happens, also the second time; JSON has whether something changed."""
    queue = play[0].storage.queue
    job = next(iter(queue.active))
    assert boa("hold", job) == (
        0,
        f"{job} waits until `boa release`\nnext:\n  boa release {job}\n  boa explain {job}\n",
    )
    assert queue.active[job].content["held_by"]
    assert f"{job} is held already" in boa("hold", job)[1]
    assert json.loads(boa("release", job, "-o", "json")[1])["changed"] is True
    assert "held_by" not in queue.active[job].content
    assert f"{job} is not held; nothing is changed" in boa("release", job)[1]
    code, said = boa("hold", "nobody-7")
    assert (code, "no job 'nobody-7'" in said) == (2, True)


@pytest.mark.parametrize("about", ["job", "node", "kind"])
def test_decisions_about_something_are_listed(
    boa: Boa, play: tuple[DaemonInAFolder, Path], about: str
) -> None:
    """Those of the job, of the node that it runs on, or with a launch; none of what is not there."""
    job = next(iter(play[0].storage.queue.active.values()))
    named = {"job": job.id, "node": job.slots[0].node, "kind": "launch"}[about]
    code, said = boa("decisions", "--last", "50", f"--{about}", named)
    assert code == 0
    expected = {"job": f"start {job.id}", "node": f"start {job.id}", "kind": "launch "}[about]
    assert expected in said
    assert boa("decisions", f"--{about}", "nothing")[1].count("tick") == 0


def test_status_shows_a_fault_and_boa_down_in_its_first_row(
    boa: Boa, play: tuple[DaemonInAFolder, Path]
) -> None:
    """The row also says how to resume."""
    play[0].daemon.standing.fault = "OperationalError: disk full"
    play[0].daemon.standing.is_down = True
    (state,) = [line for line in boa("status")[1].splitlines() if line.strip().startswith("state")]
    assert "disk full" in state
    assert "down: nothing is started until `boa down --resume`" in state


def test_status_shows_brackets_as_they_are(boa: Boa, play: tuple[DaemonInAFolder, Path]) -> None:
    """Sentences about settings name their sections in brackets, which are no markup for a terminal."""
    standing = play[0].daemon.standing
    standing.settings_note = "the new settings would loosen [budget] usd_per_day_cap"
    standing.setting_warnings = ("[teams.vision] has no members",)
    standing.fault = "a [red] fault"
    _, said = boa("status")
    for words in ("[budget]", "[teams.vision]", "[red]"):
        assert words in said


def test_boa_jobs_lists_active_jobs_or_all_newest_first(boa: Boa) -> None:
    """It proposes the next commands."""
    code, said = boa("jobs")
    assert code == 0
    header = next(line for line in said.splitlines() if line.strip().startswith("id"))
    assert cells(header) == ["id", "user", "class", "status", "GPUs", "step", "age", "cost"]
    rows = {cells(line)[0]: cells(line) for line in said.splitlines() if "default" in line}
    assert list(rows) == ["long-2"]
    assert rows["long-2"][:2] == ["long-2", "ann"]
    assert "running" in rows["long-2"]
    assert next_commands(said) == ["boa explain long-2", "boa status"]
    everything = boa("jobs", "--all")[1]
    assert everything.index("gone-3") < everything.index("long-2") < everything.index("short-1")


def test_a_list_cut_by_limit_says_so(boa: Boa) -> None:
    """A limit above the number of jobs gives no such sentence."""
    said = boa("jobs", "--all", "--limit", "2")[1]
    assert "There are more: --before" in said
    assert "There are more" not in boa("jobs", "--all", "--limit", "4")[1]


@pytest.mark.parametrize("verb", ["explain", "logs", "cancel"])
def test_a_malformed_job_id_is_refused_with_a_hint(boa: Boa, verb: str) -> None:
    """The exit code is 2, and the hint is `boa jobs --all`."""
    for name in ("my_job.v2", "a b", "../x", "", "x" * 200, "%", "é"):
        code, said = boa(verb, name)
        assert code == 2, name
        assert "boa jobs --all" in said, name


def test_an_id_is_never_cut(
    boa: Boa, play: tuple[DaemonInAFolder, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 60 columns a long id continues in the next line."""
    monkeypatch.setenv("COLUMNS", "60")
    name = "resnet-pretrain-imagenet-21k-batch-4096"
    (job,) = play[0].service.submit([job_content(name)], user="ann")["jobs"]
    said = boa("jobs")[1]
    assert "…" not in said
    assert "".join(cells(f"{line} ")[0] for line in said.split("long-2")[0].splitlines()[2:]) == job


def test_instances_are_listed_with_their_jobs_and_prices(
    boa: Boa, play: tuple[DaemonInAFolder, Path]
) -> None:
    """Each node has a row with its price per hour and its cost so far."""
    said = boa("instances")[1]
    (record,) = play[0].service.instances()["instances"]
    (row,) = [cells(line) for line in said.splitlines() if record["id"] in line]
    assert row[:4] == [record["id"], record["instance_type"], "ready", "long-2"]
    assert row[-2:] == [f"${record['usd_per_hour']:,.2f}", f"${record['usd']:,.2f}"]
    assert next_commands(said) == ["boa cost", "boa down"]


def test_the_costs_by_user_add_up_to_the_total(boa: Boa) -> None:
    """The forecast and the cap are below the table."""
    said = boa("cost", "--by", "user")[1]
    lines = said.splitlines()
    first = next(number for number, line in enumerate(lines) if cells(line)[-1] == "cost") + 1
    last = next(number for number, line in enumerate(lines) if cells(line)[0] == "in all")
    amounts = [float(cells(line)[-1].removeprefix("$")) for line in lines[first:last]]
    assert sum(amounts) == pytest.approx(
        float(cells(lines[last])[-1].removeprefix("$")), abs=0.01 * len(amounts)
    )
    assert "this day: at the present rate" in said
    assert "cap $500.00" in said


def test_costs_are_grouped_by_market_and_by_tags_in_json_and_csv(boa: Boa) -> None:
    """An unknown grouping or key is bad input, with the ones that exist."""
    document = json.loads(boa("cost", "--by", "market", "-o", "json")[1])
    assert document["by"] == "market"
    assert document["rows"][0]["name"] == "on-demand"
    header, first, *_ = boa("cost", "--by", "machine", "-o", "csv")[1].splitlines()
    assert (header, first.split(",")[0]) == ("name,usd,boot_usd,gpu_hours", "g4dn.12xlarge")
    code, said = boa("cost", "--by", "tag:CostCentre")
    assert code == 2
    assert "nothing that cost money carries the tag 'CostCentre'" in said
    for by in ("users", "tag", "tags:CostCentre"):
        code, said = boa("cost", "--by", by)
        assert code == 2
        assert f"--by {by!r} is not one of 'job', 'class'" in " ".join(said.split())


def test_decisions_list_what_people_ordered_and_say_when_there_is_nothing(boa: Boa) -> None:
    """An order stands among the ticks; a kind that nobody had is said to be none."""
    assert boa("cancel", "long-2")[0] == 0
    assert re.search(r"^cancel by \S+ .*: job long-2 of ", boa("decisions", "--kind", "cancel")[1], re.M)
    assert "No decision is about that." in boa("decisions", "--kind", "weigh")[1]
    code, said = boa("decisions", "--kind", "cancell")
    assert code == 2
    assert "Did you mean 'cancel'?" in said
    code, said = boa("jobs", "--team", "nobodys")
    assert code == 2
    assert "there is no team 'nobodys'" in said


def test_a_daemon_whose_ticks_did_nothing_is_not_said_to_have_done_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With `--acting` the list is empty also where the daemon runs and has nothing to do."""
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        idle = DaemonInAFolder(Path(name), ManualClock(1_800_000_000.0), SETTINGS)
        socket = Path(name) / "boa.sock"
        server = ApiServer(create_app(idle.service, Authenticator(ApiSettings())), [unix_socket(socket)])
        server.start()
        said = []
        for ticks in (0, 1):
            for _ in range(ticks):
                idle.daemon.tick()
            assert exit_code(monkeypatch, "decisions", "--acting", "--socket", str(socket)) == 0
            said.append(capsys.readouterr().out)
        assert exit_code(monkeypatch, "decisions", "--socket", str(socket)) == 0
        assert "No tick is done yet." not in capsys.readouterr().out
        server.stop()
        idle.close()
    assert said == ["No tick has done anything yet.\n"] * 2


def test_decisions_are_listed_with_the_next_best_width(boa: Boa) -> None:
    """Each start has its reason, and the output says how to replay a decision."""
    said = boa("decisions", "--acting")[1]
    assert re.search(r"^tick \d+ .*, chose: \d+ GPUs? \(\$[\d.]+/hour\)", said, re.M)
    assert re.search(r"^  start long-2: ", said, re.M)
    assert re.search(r"^    \d x \S+ at \$[\d.,]+, not \d+ x \S+ at \$[\d.,]+$", said, re.M)
    assert next_commands(said) == [
        "boa decisions --record TICK > decision.json", "boa replay decision.json",
    ]  # fmt: skip


def test_explain_shows_the_chosen_and_the_next_best_width(boa: Boa) -> None:
    """Both widths have their cost of money and waiting."""
    said = " ".join(boa("explain", "long-2")[1].split())
    assert re.search(r"\d x \S+, at \$[\d.,]+ of money and waiting; \d+ x \S+ would be \$[\d.,]+", said)


def test_every_table_is_also_printed_as_json(boa: Boa) -> None:
    """Each document has the key `as_of`."""
    for words in (["status"], ["jobs"], ["instances"], ["cost"], ["decisions"], ["explain", "long-2"]):
        code, said = boa(*words, "--json")
        assert code == 0
        assert "as_of" in json.loads(said)


def read_until(channel: int, enough: Callable[[str], bool]) -> str:
    """Return a terminal's output until it is enough, its end or a time limit."""
    said, until = "", time.monotonic() + PATIENCE_SECONDS
    while not enough(said) and time.monotonic() < until:
        if not select.select([channel], [], [], 1.0)[0]:
            continue
        try:
            said += os.read(channel, 65536).decode(errors="replace")
        except OSError:
            break
    return said


def test_the_live_view_restores_the_terminal_after_ctrl_c(play: tuple[DaemonInAFolder, Path]) -> None:
    """The exit code is 130, the cursor is visible again, and no traceback is shown."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    command = [sys.executable, "-m", "boa_daemon", "status", "-w", "--socket", str(play[1])]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    try:
        said = read_until(ours, lambda text: text.count("burn rate") >= 3)
        process.send_signal(signal.SIGINT)
        said += read_until(ours, lambda _text: False)
        assert process.wait(PATIENCE_SECONDS) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert said.count("burn rate") >= 3
    assert said.rindex("\x1b[?25h") > said.rindex("\x1b[?25l")
    assert "Traceback" not in said


def completion_script() -> str:
    """Return the completion script for bash."""
    found = subprocess.run(
        [sys.executable, "-m", "boa_daemon", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    return found.stdout


def test_bash_accepts_the_completion_script() -> None:
    """`boa sta<TAB>` completes to `boa status`."""
    script = completion_script()
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=True).returncode == 0
    environment = {
        **os.environ,
        "_BOA_COMPLETE": "complete_bash",
        "COMP_WORDS": "boa sta",
        "COMP_CWORD": "1",
    }
    command = [sys.executable, "-c", "from boa_daemon.cli import app; app(prog_name='boa')"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert found.stdout.split() == ["status"]


def test_every_command_can_be_completed() -> None:
    """An empty word offers every command."""
    environment = {**os.environ, "_BOA_COMPLETE": "complete_bash", "COMP_WORDS": "boa ", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from boa_daemon.cli import app; app(prog_name='boa')"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert set(found.stdout.split()) == set(VERBS)


def test_check_names_rigid_jobs_and_how_to_make_them_elastic(boa: Boa, tmp_path: Path) -> None:
    """A script that imports `boa_daemon.job` is elastic; another script runs at one width."""
    (tmp_path / "with.py").write_text("from boa_daemon import job\n")
    (tmp_path / "without.py").write_text("print(1)\n")
    for name in ("with", "without"):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\nclass: default\nrun: python {name}.py\n")
    files = [str(tmp_path / f"{name}.yaml") for name in ("with", "without")]
    code, said = boa("submit", "--check", *files)
    assert (code, said.splitlines()[0]) == (0, "2 jobs valid: with, without")
    assert "without: this job runs at one width" in said
    assert "elastic: true" in said.replace("\n", " ")
    assert json.loads(boa("submit", "--check", *files, "-o", "json")[1])["rigid"] == ["without"]


def test_check_names_a_command_that_hands_its_work_over(boa: Boa, tmp_path: Path) -> None:
    """What runs on another machine is out of reach of a stop."""
    job = tmp_path / "job.yaml"
    job.write_text("name: far\nclass: default\nrun: ssh host python t.py\n")
    code, said = boa("submit", "--check", str(job))
    assert (code, "far: `ssh` hands its work to another machine" in said) == (0, True)
    assert json.loads(boa("submit", "--check", str(job), "-o", "json")[1])["handed_over"] == {"far": "ssh"}


def test_check_names_machine_types_that_are_too_small_for_a_job(boa: Boa, tmp_path: Path) -> None:
    """If every type is too small, the exit code is 2."""
    settings, job = tmp_path / "boa.toml", tmp_path / "job.yaml"
    settings.write_text('[cloud]\nprovider = "aws"\ninstance_types = ["g5.xlarge", "g5.4xlarge"]\n')
    check = ("submit", "--check", str(job), "--config", str(settings))
    job.write_text("name: a\nclass: default\nrun: sleep 1\ncpus: 8\n")
    code, said = boa(*check, "-o", "json")
    assert (code, json.loads(said)["not_planned_on"]) == (
        0,
        {"a": ["It is not planned on g5.xlarge: it has 4 vCPUs, and cpus is 8."]},
    )
    assert "a: It is not planned on g5.xlarge" in boa(*check)[1]
    job.write_text("name: a\nclass: default\nrun: sleep 1\ncpus: 99\n")
    assert boa(*check)[0] == 2


def test_check_for_the_local_cloud_ignores_the_cores_of_its_instance_types(boa: Boa, tmp_path: Path) -> None:
    """A local node has the cores of this machine, whatever its type has."""
    settings, job = tmp_path / "boa.toml", tmp_path / "job.yaml"
    settings.write_text('[cloud]\nprovider = "local"\ninstance_types = ["g5.xlarge"]\n')
    job.write_text("name: a\nclass: default\nrun: sleep 1\ncpus: 99\n")
    code, said = boa("submit", "--check", str(job), "--config", str(settings), "-o", "json")
    assert (code, json.loads(said)["not_planned_on"]) == (0, {})


def test_check_says_when_cpu_and_memory_limits_are_not_enforced(
    boa: Boa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without systemd and control groups they are not enforced, except in an image of podman or docker."""

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(container, "BOOTED", tmp_path / "none")
    monkeypatch.setattr(container.ControlGroup, "make", refused)
    monkeypatch.setattr(planner, "usable_tool", lambda: tool)
    tool = "podman"
    settings, job = tmp_path / "boa.toml", tmp_path / "job.yaml"
    settings.write_text('[cloud]\nprovider = "local"\n')
    check = ("submit", "--check", str(job), "--config", str(settings))
    job.write_text("name: a\nclass: default\nrun: sleep 1\nmemory_gb: 2\n")
    why = (
        "Its cpus and memory_gb are not enforced on this machine: systemd does not run here, and no control "
        "group can be made (Operation not permitted); in an `image` that podman or docker runs they are."
    )
    assert json.loads(boa(*check, "-o", "json")[1])["not_enforced"] == {"a": why}
    assert f"a: {why}" in " ".join(boa(*check)[1].split())
    for other in ("image: a/b:1\nmemory_gb: 2\n", "max_gpus: 1\n"):
        job.write_text(f"name: a\nclass: default\nrun: sleep 1\n{other}")
        assert json.loads(boa(*check, "-o", "json")[1])["not_enforced"] == {}
    tool = "apptainer"
    job.write_text("name: a\nclass: default\nrun: sleep 1\nimage: a/b:1\nmemory_gb: 2\n")
    assert json.loads(boa(*check, "-o", "json")[1])["not_enforced"] == {"a": why}


def test_a_check_of_many_jobs_asks_systemd_once(
    boa: Boa, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question starts a process, so one question per job would be slow."""
    asked: list[str] = []
    monkeypatch.setattr(planner, "why_unlimited", lambda: asked.append("") or "limits are not enforced")
    (tmp_path / "boa.toml").write_text('[cloud]\nprovider = "local"\n')
    jobs = [tmp_path / f"{name}.yaml" for name in "abc"]
    for job in jobs:
        job.write_text(f"name: {job.stem}\nclass: default\nrun: sleep 1\ncpus: 1\n")
    check = ("submit", "--check", *map(str, jobs), "--config", str(tmp_path / "boa.toml"), "-o", "json")
    assert json.loads(boa(*check)[1])["not_enforced"].keys() == {"a", "b", "c"}
    assert len(asked) == 1


def test_logs_of_a_missing_node_or_rank_are_an_error(boa: Boa, play: tuple[DaemonInAFolder, Path]) -> None:
    """The exit code is 2."""
    job = play[0].service.jobs(ended=False)["jobs"][0]["id"]
    for words, wanted in (
        (("--node", "3"), "has no node 3"),
        (("--rank", "7"), "no line of rank 7"),
        (("--node", "0", "--all"), "exclude each other"),
    ):
        code, said = boa("logs", job, *words)
        assert (code, wanted in said.replace("\n", " ")) == (2, True), said
    assert boa("logs", job, "--all")[0] == 0


def test_ticks_without_a_change_are_folded_into_one_line(
    boa: Boa, play: tuple[DaemonInAFolder, Path]
) -> None:
    """JSON lists each of them."""
    for _ in range(5):
        play[0].daemon.tick()
    said = boa("decisions", "--last", "8")[1].replace("\n", " ")
    assert re.search(r"ticks \d+ to \d+ .*?: nothing changed;", said)
    assert len(json.loads(boa("decisions", "--last", "8", "--json")[1])["decisions"]) >= 5


def test_jobs_quiet_prints_only_ids(boa: Boa) -> None:
    """Another command can take them as arguments."""
    lines = boa("jobs", "-q", "--all")[1].split()
    assert lines == [row["id"] for row in json.loads(boa("jobs", "--all", "--json")[1])["jobs"]]


@pytest.mark.parametrize(
    ("what", "key"),
    [
        ("job", "run"), ("settings", "budget"), ("problem", "classes"), ("prices", "discounts"),
        ("study", "traces"), ("world", "spot"), ("network", "servers"), ("trace", "arrived_at_seconds"),
        ("jobs", "deadline_at"), ("offers", "offers"), ("usage", "launched_at"), ("samples", "message_bytes"),
    ],
)  # fmt: skip
def test_every_file_has_a_schema_that_forbids_unknown_keys(what: str, key: str) -> None:
    """A key of each file's example is a property of its schema."""
    schema = json.loads(CliRunner().invoke(app, ["schema", what]).stdout)
    schema = schema.get("items", schema)
    assert key in schema["properties"]
    assert schema["additionalProperties"] is False
