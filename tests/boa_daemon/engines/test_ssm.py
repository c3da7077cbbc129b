"""The `ssm` engine on fake wires: silence, late messages, warnings and refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from engine_bench import Bench

from boa_daemon.engines import ssm
from boa_daemon.engines.generation_units import units_of
from boa_daemon.engines.layout import Layout
from boa_daemon.engines.ssm import AGAIN_SECONDS, MOST_PROBES, SsmEngine, SsmSettings
from boa_daemon.engines.ssm_commands import BUNDLE_SECONDS
from boa_daemon.engines.ssm_runs import BEGIN_SECONDS
from boa_daemon.engines.ssm_scripts import (
    HEALTH,
    READY,
    SCRATCH,
    STATUS,
    bundle,
    start_script,
    status_script,
)
from boa_daemon.inputs import message_validation
from boa_daemon.inputs.message_validation import DroppedMessages
from boa_daemon.job.gpu_memory import VARIABLE
from boa_daemon.job.seal import KEY_FILE, sealed
from boa_daemon.testing import ManualClock, a_node, an_instance_type
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.ports import Accepted, JobSpec, Refused, Unknown
from policies.model import GpuSlot, Width

FIT = f'{HEALTH}{{"faults": []}}\n{READY}'
DENIED: Any = {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 400}}


@dataclass
class Wires:
    """Fake SSM, SQS and S3: the sent commands, the queue's messages, and the answers to commands."""

    sent: list[tuple[tuple[str, ...], str]] = field(default_factory=list)
    queue: list[str] = field(default_factory=list)
    answers: list[tuple[str, str]] = field(default_factory=list)
    put: list[Mapping[str, Any]] = field(default_factory=list)
    is_broken: bool = False
    gone: set[str] = field(default_factory=set)
    loses: set[str] = field(default_factory=set)
    tries: int = 0

    def send_command(self, **request: Any) -> Mapping[str, Any]:
        self.tries += 1
        if self.is_broken:
            raise ConnectionError("no route")
        if self.gone & set(request["InstanceIds"]):
            raise ValueError("InvalidInstanceId")
        self.sent.append((tuple(request["InstanceIds"]), request["Parameters"]["commands"][0]))
        if self.loses & set(request["InstanceIds"]):
            raise TimeoutError("no answer")
        return {"Command": {"CommandId": str(len(self.sent))}}

    def get_command_invocation(self, **_request: Any) -> Mapping[str, Any]:
        status, output = self.answers.pop(0)
        return {"Status": status, "StandardOutputContent": output}

    def receive_message(self, **_request: Any) -> Mapping[str, Any]:
        if self.is_broken:
            raise ConnectionError("no route")
        found, self.queue = self.queue[:10], self.queue[10:]
        return {"Messages": [{"Body": body, "ReceiptHandle": "r"} for body in found]}

    def delete_message_batch(self, **_request: Any) -> Mapping[str, Any]:
        return {}

    def list_objects_v2(self, **_request: Any) -> Mapping[str, Any]:
        return {}

    def get_object(self, **_request: Any) -> Mapping[str, Any]:
        raise AssertionError("nothing is there")

    def put_object(self, **request: Any) -> Mapping[str, Any]:
        if self.is_broken:
            raise ConnectionError("no route")
        self.put.append(request)
        return {}


class Stage:
    """An engine on fake wires with a manual clock."""

    def __init__(self, folder: Path) -> None:
        self.wires, self.clock, self.folder = Wires(), ManualClock(0.0), folder
        self.bench = Bench(engine=self.engine(), workdir=folder, nodes=("i-1", "i-2"))

    def engine(self) -> SsmEngine:
        settings = SsmSettings(
            queue_url="q", uri="s3://b/jobs", state_file=self.folder / "state" / "ssm.json"
        )
        return SsmEngine(
            self.wires, self.wires, self.wires, settings, address_of=lambda _n: "10.0.0.1", now=self.clock.now
        )

    def started(self) -> Bench:
        self.bench.admit("torchrun train.py", workdir=".")
        self.bench.start(1)
        return self.bench

    def started_on_two(self) -> Bench:
        self.bench.admit("torchrun train.py", workdir=".")
        self.bench.start(2, nodes=2)
        return self.bench

    def say(self, **changes: Any) -> None:
        self.wires.queue.append(json.dumps(self.sealed(**changes)))

    def sealed(self, *, key: str = "", **changes: Any) -> dict[str, Any]:
        """Return a unit's message with the seal of the job's newest generation, or of another key."""
        return sealed(a_status(**changes), key or self.key)

    @property
    def key(self) -> str:
        """The key of the newest generation, read from the script that was sent to its nodes."""
        scripts = [script for _, script in self.wires.sent if KEY_FILE in script]
        return re.findall(rf"printf '%s\\n' (\w+) > \S*{KEY_FILE}", scripts[-1])[0] if scripts else "none"


def a_status(**changes: Any) -> dict[str, Any]:
    """Return a unit's message that it runs."""
    values = {
        "job": "a", "generation": 1, "rank": 0, "is_kept": True, "was_kept": True, "exit": None,
        "progress": {"generation": 1, "step": 7, "samples": 9.0, "seconds": 2.0, "loss": 0.5, "at": 0.0},
        "manifest": None, "wrong_manifest": "", "last_lines": [],
    }  # fmt: skip
    return values | changes


def an_end(**changes: Any) -> dict[str, Any]:
    """Return the end of a unit that ended by itself with exit code 0."""
    values = {"code": 0, "stop_asked": False, "killed": False, "out_of_memory": False, "lingering": 0}
    return {**values, "is_done": True, "lacks_result": False, **changes}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_heartbeats_and_end_messages_set_the_phase(stage: Stage) -> None:
    """A job is starting until its first message, then running at the reported step, then finished."""
    bench = stage.started()
    assert bench.report().phase == "starting"
    stage.say()
    assert (bench.report().phase, bench.report().step) == ("running", 7)
    stage.say(exit=an_end())
    assert bench.report().phase == "finished"


def test_a_node_fault_marks_the_node_unfit_and_explains_a_failure(stage: Stage) -> None:
    """The job runs on; if its command then fails, the cause is `node-fault`."""
    bench = stage.started_on_two()
    stage.say(rank=1, node_faults=["Xid 48 at PCI:0: an uncorrectable memory error"])
    stage.say()
    assert bench.report().phase == "running"
    assert stage.bench.engine.unfit() == {"i-2": "Xid 48 at PCI:0: an uncorrectable memory error"}
    stage.say(exit=an_end(code=1, is_done=False))
    stage.say(rank=1, exit=an_end(code=1, is_done=False), node_faults=["Xid 48"])
    report = bench.report()
    assert (report.phase, report.cause) == ("failed", "node-fault")
    assert report.evidence.startswith("its node is unfit: Xid 48; the job ended with exit code 1")


@pytest.mark.parametrize("faults", ["Xid 79", [1], ["x" * 501], [{"a": 1}], ["f"] * 65])
def test_malformed_node_faults_mark_no_node_unfit(stage: Stage, faults: Any) -> None:
    """A message with malformed faults is dropped."""
    bench = stage.started()
    stage.say(node_faults=faults)
    bench.report()
    assert stage.bench.engine.unfit() == {}


def test_a_silent_unit_is_unknown_and_is_asked_through_ssm(stage: Stage) -> None:
    """The engine asks after a minute of silence; the answer counts like a heartbeat."""
    bench = stage.started()
    stage.say()
    bench.report()
    stage.clock.instant = 61.0
    assert bench.report().phase == "unknown"
    assert "--status" in stage.wires.sent[-1][1]
    stage.wires.answers = [("Success", STATUS + json.dumps(stage.sealed()))]
    stage.clock.instant = 82.0
    assert bench.report().phase == "running"


def test_units_that_answer_and_never_report_are_a_lost_net(stage: Stage) -> None:
    """The nodes' role, the queue's policy or the network keeps reports back: told within five minutes."""
    bench = stage.started()
    stage.say()
    bench.report()
    why = stage.bench.engine.nets()["reports"]
    for at in (61.0, 82.0, 143.0, 164.0):
        assert why() == ""
        stage.clock.instant = at
        stage.wires.answers = [("Success", STATUS + json.dumps(stage.sealed()))]
        bench.report()
    assert bench.report().phase == "running"
    assert "i-1" in why()
    assert "boa doctor" in why()
    stage.say()
    bench.report()
    assert why() == ""


def test_an_unreachable_ssm_is_tried_once_per_poll(stage: Stage) -> None:
    """One time-out per unit would hold up a tick for minutes."""
    bench = stage.started_on_two()
    bench.report()
    stage.clock.instant = 61.0
    stage.wires.is_broken, before = True, stage.wires.tries
    for looks in (1, 2):
        assert bench.report().phase == "unknown"
        assert stage.wires.tries - before == looks
    stage.wires.is_broken = False
    bench.report()
    assert stage.wires.tries - before == 4


def test_a_unit_is_lost_after_three_unanswered_questions(stage: Stage) -> None:
    """The cause is `agent-lost`, and the steps since the last checkpoint are lost."""
    bench = stage.started()
    stage.say()
    bench.report()
    stage.wires.answers = [("TimedOut", "")] * 3
    phases = []
    for at in (61, 82, 83, 104, 105, 126):
        stage.clock.instant = float(at)
        phases.append(bench.report().phase)

    assert phases == ["unknown"] * 5 + ["failed"]
    assert (bench.report().cause, bench.report().lost_steps) == ("agent-lost", 7)


NO_SIGNS_OF_LIFE: Mapping[str, Any] = {
    "no answer": lambda stage: ("TimedOut", ""),
    "a failed script": lambda stage: ("Failed", f"{STATUS}Traceback: No such file"),
    "an empty document": lambda stage: ("Success", STATUS + "{}"),
    "half a document": lambda stage: ("Success", STATUS + json.dumps(stage.sealed())[:40]),
    "no document": lambda stage: ("Success", STATUS),
    "another script's answer": lambda stage: ("Success", FIT),
    "another key": lambda stage: ("Success", STATUS + json.dumps(stage.sealed(key="ab" * 32))),
    "another generation": lambda stage: ("Success", STATUS + json.dumps(stage.sealed(generation=3))),
    "a unit that never began": lambda stage: (
        "Success",
        STATUS + json.dumps(stage.sealed(is_kept=False, was_kept=False, progress=None)),
    ),
    "a dead keeper": lambda stage: ("Success", STATUS + json.dumps(stage.sealed(is_kept=False))),
}


@pytest.mark.parametrize("has_been_heard", [False, True])
@pytest.mark.parametrize("way", sorted(NO_SIGNS_OF_LIFE))
def test_a_unit_of_which_nothing_good_is_heard_ends_after_three_questions(
    stage: Stage, way: str, has_been_heard: bool
) -> None:
    """Whatever its node answers: a unit without a sign of life is ended, or it would cost for ever."""
    bench = stage.started()
    if has_been_heard:
        stage.say()
    bench.report()
    phases = []
    for _ in range(MOST_PROBES):
        stage.clock.instant += 61.0
        phases.append(bench.report().phase)
        stage.wires.answers = [NO_SIGNS_OF_LIFE[way](stage)]
        stage.clock.instant += 21.0
        phases.append(bench.report().phase)

    assert phases[-2:] == ["unknown", "failed"]
    assert bench.report().cause == "agent-lost"
    assert "systemctl kill" in stage.wires.sent[-1][1], "what may still run there is ended first"


def test_a_unit_that_cannot_be_told_to_end_is_not_replaced(stage: Stage) -> None:
    """While SSM takes no order, the unit may run; it is lost only once its end has been ordered."""
    bench = stage.started()
    bench.report()
    send = stage.wires.send_command
    stage.wires.send_command = lambda **request: (  # type: ignore[method-assign]
        (_ for _ in ()).throw(ConnectionError("no route"))
        if "systemctl kill" in request["Parameters"]["commands"][0]
        else send(**request)
    )
    for _ in range(MOST_PROBES + 1):
        stage.clock.instant += 61.0
        bench.report()
        stage.wires.answers = [("Success", STATUS)]
        stage.clock.instant += 21.0
        assert bench.report().phase == "unknown"
    stage.wires.send_command = send  # type: ignore[method-assign]
    stage.clock.instant += 61.0
    bench.report()
    stage.wires.answers = [("Success", STATUS)]
    stage.clock.instant += 21.0
    assert bench.report().phase == "failed"


def test_a_question_brings_the_key_that_the_daemon_knows(stage: Stage, tmp_path: Path) -> None:
    """A node with the key of an older order answers with the daemon's; a folder of others is not written."""
    bench = stage.started()
    bench.report()
    stage.clock.instant = 61.0
    bench.report()
    script = stage.wires.sent[-1][1]
    assert stage.key in script
    assert script.index(stage.key) < script.index("--status")
    folder = tmp_path / "g1"
    for is_ours in (True, False) if os.getuid() == 0 else (True,):
        folder.mkdir()
        (folder / KEY_FILE).write_text("older\n")
        if not is_ours:
            os.chown(folder, 65534, 65534)
        subprocess.run(
            ["bash", "-c", status_script(str(tmp_path), str(folder / "n0"), key="ab12")], check=False
        )
        assert (folder / KEY_FILE).read_text() == ("ab12\n" if is_ours else "older\n")
        shutil.rmtree(folder)


def test_a_silent_unit_on_a_removed_node_is_lost_without_a_question(stage: Stage) -> None:
    """The cloud's list no longer has the node."""
    bench = stage.started()
    stage.say()
    bench.report()
    bench.engine.prepare([a_node("i-2")])
    assert bench.report().phase == "running", "not silent yet"
    stage.clock.instant = 61.0

    assert bench.report().cause == "agent-lost"


def test_messages_of_other_generations_and_jobs_are_ignored(stage: Stage) -> None:
    """Malformed messages are ignored too."""
    bench = stage.started()
    stage.say(generation=0, exit=an_end())
    stage.say(job="b")
    stage.wires.queue += ["not json", "[1]", '{"job": "a"}']

    assert bench.report().phase == "starting"


def test_a_message_after_the_end_changes_nothing(stage: Stage) -> None:
    """A queue can deliver twice and out of order."""
    bench = stage.started()
    stage.say(exit=an_end())
    bench.report()
    stage.say()

    assert bench.report().phase == "finished"


def test_a_spot_warning_gives_the_node_and_the_time_of_its_end(stage: Stage) -> None:
    """The node ends two minutes after the time in EventBridge's message."""
    stage.wires.queue.append(
        json.dumps(
            {
                "detail-type": "EC2 Spot Instance Interruption Warning",
                "time": "2026-11-21T12:00:00Z",
                "detail": {"instance-id": "i-1", "instance-action": "terminate"},
            }
        )
    )
    engine = stage.bench.engine
    engine.poll()

    assert engine.interruptions() == {"i-1": 1795262520.0}  # type: ignore[attr-defined]


def test_a_start_that_one_node_refuses_is_refused_and_ends_the_others(stage: Stage) -> None:
    """The unit of the first node must not wait for the second."""
    bench = stage.bench
    bench.admit("torchrun train.py", workdir=".")
    taken = stage.wires.send_command

    def second_fails(**request: Any) -> Mapping[str, Any]:
        if "i-2" in request["InstanceIds"]:
            raise ClientError(DENIED, "SendCommand")
        return taken(**request)

    stage.wires.send_command = second_fails  # type: ignore[method-assign]
    bench.generation = 1
    assert isinstance(bench.engine.start(bench.order(2, nodes=2)), Refused)
    assert "SIGUSR1" in stage.wires.sent[-1][1]
    assert bench.engine.poll() == {}


def test_a_start_without_an_answer_counts_as_started(stage: Stage) -> None:
    """No second generation starts meanwhile; if the unit never answers, it is lost."""
    bench = stage.bench
    bench.admit("torchrun train.py", workdir=".")
    stage.wires.is_broken = True
    bench.generation = 1
    assert bench.engine.start(bench.order(1)) == Accepted()
    stage.wires.is_broken = False
    assert isinstance(bench.engine.start(replace(bench.order(1), generation=2)), Refused)
    stage.wires.answers = [("Failed", "no such unit")] * 3
    for at in range(61, 200, 21):
        stage.clock.instant = float(at)
        report = bench.engine.poll()["a"]
    assert report.cause == "agent-lost"


def test_a_job_is_unknown_and_not_lost_while_aws_is_unreachable(stage: Stage) -> None:
    """After an hour without AWS the job is reported as running again."""
    bench = stage.started()
    stage.say()
    bench.report()
    stage.wires.is_broken = True
    for at in range(61, 3700, 20):
        stage.clock.instant = float(at)
        assert bench.report().phase == "unknown"
    stage.wires.is_broken = False
    stage.say()
    assert bench.report().phase == "running"


def test_a_stop_is_one_command_to_all_nodes(stage: Stage) -> None:
    """The command stops units by a name pattern; while SSM is unreachable the stop is refused."""
    bench = stage.bench
    bench.admit("torchrun train.py", workdir=".")
    bench.start(2, nodes=2)
    stage.clock.instant = BEGIN_SECONDS
    stage.wires.is_broken = True
    assert isinstance(bench.engine.stop(bench.stop_order()), Refused)
    stage.wires.is_broken = False
    bench.stop()

    nodes, script = stage.wires.sent[-1]
    assert nodes == ("i-1", "i-2")
    assert script == "systemctl kill --kill-who=main --signal=SIGTERM 'boa-a-*-g1-n*.service'\n"


def test_a_stop_waits_for_the_units_first_message(stage: Stage) -> None:
    """SSM delivers commands in any order, so an early stop might find no unit."""
    bench = stage.started()
    sent = len(stage.wires.sent)
    bench.stop()
    bench.report()
    assert len(stage.wires.sent) == sent, "the unit may not be there yet"
    stage.say()
    bench.report()
    assert [script for _, script in stage.wires.sent[sent:]] == [
        "systemctl kill --kill-who=main --signal=SIGTERM 'boa-a-*-g1-n*.service'\n"
    ]


def test_an_unanswered_stop_is_repeated_and_a_kill_is_not(stage: Stage) -> None:
    """A second kill would end the upload of the last checkpoint."""
    bench = stage.started()
    stage.say()
    bench.report()
    bench.stop()
    sent = len(stage.wires.sent)
    for seconds, more in ((AGAIN_SECONDS - 1.0, 0), (1.0, 1), (1.0, 1), (AGAIN_SECONDS, 2)):
        stage.clock.instant += seconds
        stage.say()
        bench.report()
        assert len(stage.wires.sent) == sent + more
    assert {script for _, script in stage.wires.sent[sent:]} == {
        "systemctl kill --kill-who=main --signal=SIGTERM 'boa-a-*-g1-n*.service'\n"
    }
    bench.engine.kill("a", 1)
    sent = len(stage.wires.sent)
    stage.clock.instant += 3.0 * AGAIN_SECONDS
    stage.say()
    bench.report()
    assert len(stage.wires.sent) == sent


def test_a_new_generation_starts_once_the_old_ones_node_is_gone(stage: Stage) -> None:
    """The start is refused while the cloud lists the node and until the old end is reported."""
    bench = stage.started()
    stage.say()
    bench.report()
    order = replace(bench.order(1, generation=2), slots=(GpuSlot("i-2", 0),))
    bench.engine.prepare([a_node("i-1"), a_node("i-2")])
    assert isinstance(bench.engine.start(order), Refused), "two of one job"
    bench.report()
    assert isinstance(bench.engine.start(order), Refused), "two of one job"
    bench.engine.prepare([a_node("i-2")])
    assert isinstance(bench.engine.start(order), Refused), "its end is reported first"
    assert (bench.report().cause, bench.report().lost_steps) == ("agent-lost", 7)
    assert bench.engine.start(order) == Accepted()
    assert bench.engine.poll()["a"].generation == 2


def test_a_restarted_daemon_knows_its_jobs(stage: Stage) -> None:
    """The state file holds the generation, the GPUs and the last reported step."""
    bench = stage.started()
    stage.say()
    bench.report()
    found = stage.engine().reattach()["a"]

    assert (found.phase, found.step, found.gpus) == ("running", 7, 1)


def test_a_last_message_from_the_future_does_not_stop_questions(stage: Stage) -> None:
    """An earlier daemon's clock may have been ahead."""
    bench = stage.started()
    stage.clock.instant = 1e9
    stage.say()
    bench.report()
    stage.clock.instant = 100.0
    engine = stage.engine()
    engine.reattach()
    sent = len(stage.wires.sent)
    stage.clock.instant = 161.0
    assert engine.poll()["a"].phase == "unknown"
    assert len(stage.wires.sent) == sent + 1


def test_a_node_is_accepted_once_its_setup_script_succeeds(stage: Stage) -> None:
    """An unreachable node, a running script and a failed script give `Unknown`."""
    engine, node = stage.bench.engine, a_node("i-1")
    stage.wires.is_broken = True
    assert isinstance(engine.prepare([node])["i-1"], Unknown)
    stage.wires.is_broken = False
    stage.wires.answers = [("InProgress", ""), ("Failed", "no aws"), ("Success", FIT)]
    said = []
    for _ in range(6):
        stage.clock.instant += 10.0
        said.append(engine.prepare([node])["i-1"])

    assert [type(answer) for answer in said] == [Unknown, Unknown, Unknown, Unknown, Accepted, Accepted]
    assert "no aws" in getattr(said[2], "reason", "")


def test_shared_gpus_are_counted_once_and_their_memory_is_divided(stage: Stage) -> None:
    """Eight places on four GPUs need four GPUs; each process gets a part of a GPU's memory."""
    kind = replace(an_instance_type(gpus=8), places_per_gpu=2)
    engine, node = stage.bench.engine, a_node("i-1", kind=kind)
    engine.prepare([node])
    assert any("--gpus 4" in script for _, script in stage.wires.sent)
    start = StartJob(
        id="s", job="a", generation=1, width=Width(kind.gpu_type, 2), reason="", places_per_gpu=2,
        slots=(GpuSlot("i-1", 1), GpuSlot("i-1", 3)),
    )  # fmt: skip
    layout, spec = (
        Layout(root=Path("/srv")),
        JobSpec(job="a", name="a", class_name="c", run="true", workdir="."),
    )
    (unit,) = units_of(spec, start, layout, addresses={"i-1": "10.0.0.1"}, port=7)
    assert unit.environment["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert 2.0 * float(unit.environment[VARIABLE]) < 1.0
    (unit,) = units_of(spec, replace(start, places_per_gpu=1), layout, addresses={"i-1": "10.0.0.1"}, port=7)
    assert VARIABLE not in unit.environment


def test_a_node_that_ssm_does_not_reach_is_tried_at_growing_intervals(stage: Stage) -> None:
    """The reason is reported throughout, and the node is accepted within 70 seconds of becoming reachable."""
    engine, node = stage.bench.engine, a_node("i-1")
    stage.wires.gone = {"i-1"}
    said = []
    for _ in range(180):
        stage.clock.instant += 10.0
        said.append(engine.prepare([node])["i-1"])
    assert {type(each) for each in said} == {Unknown}
    assert all("SSM does not reach i-1 yet" in getattr(each, "reason", "") for each in said)
    assert 30 <= stage.wires.tries <= 45
    stage.wires.gone, stage.wires.answers = set(), [("Success", FIT)]
    for _ in range(7):
        stage.clock.instant += 10.0
        last = engine.prepare([node])["i-1"]
    assert last == Accepted()


def test_the_next_generation_fetches_the_last_uploaded_checkpoint(stage: Stage) -> None:
    """Each generation uploads below a prefix of its own."""
    bench = stage.started()
    manifest = {"generation": 1, "step": 7, "sha256": "0", "path": "g1-step7.ckpt"}
    stage.say(kept=[manifest], exit=an_end(stop_asked=True, is_done=False))
    assert (bench.report().phase, bench.report().lost_steps) == ("stopped", 0)
    bench.start(1)
    unit = json.loads(stage.wires.sent[-1][1].split("<<'UNIT'\n")[1].split("\nUNIT\n")[0])

    assert unit["before"].endswith("s3://b/jobs/a/g1/checkpoint 7 0"), "of that step and digest, no other"
    assert unit["keep"].endswith("s3://b/jobs/a/g2/checkpoint")
    assert stage.engine().reattach()["a"].generation == 2, "and a daemon that comes back knows it"


def test_a_checkpoint_that_was_not_uploaded_does_not_count(stage: Stage) -> None:
    """A checkpoint on a node is lost with the node, so its steps are reported as lost."""
    bench = stage.started()
    manifest = {"generation": 1, "step": 7, "sha256": "0", "path": "g1-step7.ckpt"}
    stage.say(manifest=manifest, exit=an_end(stop_asked=True, is_done=False))

    assert (bench.report().manifest, bench.report().lost_steps) == (None, 7)
    bench.start(1)
    unit = json.loads(stage.wires.sent[-1][1].split("<<'UNIT'\n")[1].split("\nUNIT\n")[0])
    assert "transfer forget" in unit["before"], "what lies on one node is no checkpoint of the job"


def test_scripts_quote_job_ids_and_commands() -> None:
    """A job's id and command may hold quotes."""
    spec = JobSpec(job="it's", name="n", class_name="c", run="echo 'a b'")
    unit = {"folder": "/x/it's", "name": "boa-it_s", "checkpoint_dir": "/c", "workdir": "/w", "run": spec.run}
    script = start_script("/var/lib/boa", unit)

    assert "'/x/it'\"'\"'s'" in script
    assert json.dumps(unit) in script


def test_a_stop_of_many_nodes_is_split_into_several_commands(tmp_path: Path) -> None:
    """SSM takes at most fifty instances in a command."""
    stage = Stage(tmp_path)
    stage.bench.nodes = tuple(f"i-{number}" for number in range(120))
    stage.bench.admit("torchrun train.py", workdir=".")
    stage.bench.start(120, nodes=120)
    stage.clock.instant += BEGIN_SECONDS
    stage.wires.sent.clear()
    stage.bench.stop()

    assert [len(nodes) for nodes, _ in stage.wires.sent] == [50, 50, 20]
    assert {node for nodes, _ in stage.wires.sent for node in nodes} == set(stage.bench.nodes)


def test_a_missing_node_does_not_keep_others_from_being_stopped(stage: Stage) -> None:
    """SSM refuses a whole command for one unknown instance, so the other nodes get a command each."""
    bench = stage.started_on_two()
    stage.wires.gone = {"i-2"}
    stage.wires.sent.clear()
    stage.clock.instant += BEGIN_SECONDS
    assert isinstance(bench.engine.stop(bench.stop_order()), Refused)

    assert stage.wires.sent == [(("i-1",), stage.wires.sent[0][1])]
    assert "SIGTERM" in stage.wires.sent[0][1]


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (f'{HEALTH}{{"faults": ["GPU 1 has fallen off the bus"]}}\n{READY}', "GPU 1 has fallen off the bus"),
        (f"{HEALTH}\n{READY}", "health check cannot be read"),
        (READY, "health check cannot be read"),
    ],
)
def test_a_node_that_fails_three_health_checks_is_refused(stage: Stage, said: str, reason: str) -> None:
    """The first two failures may come from a driver that still loads; the refusal gives the reason."""
    node = a_node("i-1")
    stage.wires.answers = [("Success", said)] * 3
    outcomes = [stage.bench.engine.prepare([node])["i-1"] for _ in range(7)]

    assert [type(each) for each in outcomes] == [Unknown] * 5 + [Refused] * 2
    assert isinstance(outcomes[-1], Refused)
    assert reason in outcomes[-1].reason


def test_a_node_that_passes_its_second_health_check_is_accepted(stage: Stage) -> None:
    """The driver may load during the first check."""
    node = a_node("i-1")
    stage.wires.answers = [("Success", f'{HEALTH}{{"faults": ["nvidia-smi: x"]}}\n{READY}'), ("Success", FIT)]

    assert [stage.bench.engine.prepare([node])["i-1"] for _ in range(4)][-1] == Accepted()


def test_an_accepted_node_logs_its_disks_and_skipped_checks(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has one line per node; without EFA cards the health check looks for none."""
    engine = SsmEngine(
        stage.wires, stage.wires, stage.wires, stage.engine()._settings,
        address_of=lambda _n: "10.0.0.1", now=stage.clock.now,
        efa_of=lambda node: (0, "EFA is not checked: [cloud] efa is false"),
    )  # fmt: skip
    disks = f'{SCRATCH}{{"on": "", "said": "jobs are on the root volume: no disks"}}'
    said = f'{disks}\n{HEALTH}{{"faults": [], "notes": ["no all-reduce was tried"]}}\n{READY}'
    stage.wires.answers = [("Success", said)]
    with caplog.at_level("INFO", logger="boa.engines.ssm"):
        outcomes = [engine.prepare([a_node("i-1")])["i-1"] for _ in range(3)]

    assert outcomes[-1] == Accepted()
    assert "--efa 0" in stage.wires.sent[0][1]
    assert [record.getMessage() for record in caplog.records] == [
        "i-1 has passed the health check: jobs are on the root volume: no disks; no all-reduce was tried; "
        "EFA is not checked: [cloud] efa is false"
    ]


def test_the_bundle_is_uploaded_before_nodes_are_prepared(stage: Stage) -> None:
    """The bundle is uploaded once for all nodes, again after a failed script, and again each day."""
    digest, packed = bundle()
    stage.wires.is_broken = True
    said = stage.bench.engine.prepare([a_node("i-1")])["i-1"]
    assert isinstance(said, Unknown)
    assert "could not be put into the bucket: no route" in said.reason
    assert not stage.wires.tries, "a node is not sent for what is not there"

    stage.wires.is_broken = False
    stage.clock.instant += 60.0
    stage.bench.engine.prepare([a_node("i-1"), a_node("i-2")])
    assert [(each["Key"], each["Body"]) for each in stage.wires.put] == [
        (f"jobs/=code/{digest}.tar.gz", packed)
    ]
    assert all(f"s3://b/jobs/=code/{digest}.tar.gz" in script for _, script in stage.wires.sent)

    stage.wires.answers = [("Failed", "404"), ("Success", FIT)]
    stage.bench.engine.prepare([a_node("i-1"), a_node("i-2")])
    stage.clock.instant += 60.0
    stage.bench.engine.prepare([a_node("i-1")])
    assert len(stage.wires.put) == 2
    stage.clock.instant += BUNDLE_SECONDS
    stage.bench.engine.prepare([a_node("i-3")])
    assert len(stage.wires.put) == 3


OTHERS: Mapping[str, Any] = {
    "no seal": lambda stage: a_status(exit=an_end()),
    "a made-up seal": lambda stage: {**stage.sealed(exit=an_end()), "seal": "0" * 64},
    "another key": lambda stage: stage.sealed(key="ab" * 32, exit=an_end()),
    "a changed word": lambda stage: {**stage.sealed(), "exit": an_end()},
    "another rank's": lambda stage: {**stage.sealed(exit=an_end()), "rank": 1},
    "another generation's": lambda stage: stage.sealed(exit=an_end(), generation=2),
    "another job's": lambda stage: stage.sealed(exit=an_end(), job="b"),
    "a number that is none": lambda stage: {**stage.sealed(exit=an_end()), "told": "now"},
}


@pytest.mark.parametrize("way", sorted(OTHERS))
@pytest.mark.parametrize("is_probe", [False, True])
def test_a_forged_message_is_dropped_counted_and_logged_once(
    stage: Stage, way: str, is_probe: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message without the generation's seal cannot end a job, and is no sign of life either."""
    refused = DroppedMessages()
    monkeypatch.setattr(message_validation, "DROPPED_MESSAGES", refused)
    monkeypatch.setattr(ssm, "DROPPED_MESSAGES", refused)
    bench = stage.started_on_two()
    stage.say(), stage.say(rank=1)
    assert bench.report().phase == "running"
    for times in range(1, MOST_PROBES if is_probe else 4):
        forged = json.dumps(OTHERS[way](stage))
        if is_probe:
            stage.clock.instant += 61.0
            bench.report()
            stage.wires.answers = [("Success", STATUS + forged)] * 2
            stage.clock.instant += 21.0
            assert bench.report().phase == "unknown"
        else:
            stage.wires.queue.append(forged)
            assert bench.report().phase == "running"
        assert sum(refused.counts().values()) == (2 * times if is_probe else times)
        assert len([line for line in caplog.records if "was dropped" in line.message]) == 1
    stage.say(exit=an_end()), stage.say(rank=1, exit=an_end())
    assert bench.report().phase == "finished"


def test_a_replayed_heartbeat_is_ignored(stage: Stage) -> None:
    """A repeated heartbeat does not keep a silent unit alive."""
    bench = stage.started()
    stage.say()
    (first,) = stage.wires.queue
    stage.say()
    assert bench.report().phase == "running"
    stage.clock.instant = 61.0
    for _ in range(3):
        stage.wires.queue.append(first)
        assert bench.report().phase == "unknown"


def test_each_generation_has_its_own_key_which_survives_a_restart(stage: Stage) -> None:
    """A message sealed with the first generation's key is dropped for the second generation."""
    bench = stage.started()
    stage.say()
    bench.report()
    first = stage.key
    stage.say(exit=an_end(is_done=False, stop_asked=True))
    assert bench.report().phase == "stopped"
    bench.start(1)
    assert stage.key != first
    bench.engine = stage.engine()
    bench.engine.reattach()
    stage.wires.queue.append(json.dumps(stage.sealed(key=first, generation=2, exit=an_end())))
    assert bench.report().phase == "starting"
    stage.say(generation=2)
    assert bench.report().phase == "running"


def test_units_are_lost_after_their_node_rebooted(stage: Stage) -> None:
    """The node's answers are older than earlier messages; after three answers the units are lost."""
    bench = stage.started()
    stage.wires.queue.append(json.dumps(sealed(a_status(), stage.key, told=10**12)))
    assert bench.report().phase == "running"
    for _ in range(3):
        stage.clock.instant += 61.0
        bench.report()
        stage.wires.answers = [("Success", STATUS + json.dumps(sealed(a_status(), stage.key, told=10**6)))]
        stage.clock.instant += 21.0
        bench.report()
    assert (bench.report().phase, bench.report().cause) == ("failed", "agent-lost")
