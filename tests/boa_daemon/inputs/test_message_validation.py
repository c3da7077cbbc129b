"""Messages from outside: a malformed message raises nothing, is dropped, and is not received again."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import sampled

from boa_daemon.backends.aws.instances.events import InterruptionQueue, Notices
from boa_daemon.engines.inbox import Inbox
from boa_daemon.engines.local_units import read_unit_status
from boa_daemon.engines.run_reports import Generation, report_of
from boa_daemon.engines.ssm import SsmEngine, SsmSettings
from boa_daemon.engines.ssm_scripts import STATUS
from boa_daemon.inputs import message_validation
from boa_daemon.inputs.message_validation import DroppedMessages, parse_unit_status
from boa_daemon.job.seal import sealed
from boa_daemon.job.unit import Unit, status_of
from boa_daemon.testing import some_slots
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.ports import JobSpec, RunReport
from policies.model import Width

GOOD: dict[str, Any] = {
    "job": "a",
    "generation": 1,
    "rank": 0,
    "is_kept": True,
    "was_kept": True,
    "progress": {"generation": 1, "step": 7, "samples": 9.0, "seconds": 2.0, "loss": 0.5, "at": 0.0},
    "exit": {
        "code": 0,
        "stop_asked": False,
        "killed": False,
        "out_of_memory": False,
        "lingering": 0,
        "is_done": True,
        "lacks_result": False,
        "ended_at": 1000.0,
    },
    "failure": {"kinds": ["ValueError"], "errno": None, "said": "ValueError: no", "at": 999.0},
    "kept": [{"generation": 1, "step": 7, "sha256": "0", "path": "p"}],
    "quiet_seconds": 1.0,
    "node_faults": ["Xid 48"],
    "manifest": {"generation": 1, "step": 7, "sha256": "0", "path": "p"},
    "wrong_manifest": "",
    "last_lines": ["end"],
}
EVENT: dict[str, Any] = {
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "time": "2026-11-21T12:00:00Z",
    "detail": {"instance-id": "i-1", "state": "running"},
}
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -1, 2**63, 1e308, float("nan"), float("inf"), "", "\x00", "i-1", [], {}]),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


def paths(document: Any) -> list[tuple[Any, ...]]:
    """Return the path of every value in a document."""
    if not isinstance(document, dict):
        return []
    return [(key, *rest) for key in document for rest in ((), *paths(document[key]))]


@st.composite
def damaged(draw: st.DrawFn, good: Mapping[str, Any]) -> Any:
    """Draw a good message with some parts missing or replaced, or an arbitrary value."""
    if draw(st.integers(0, 9)) == 0:
        return draw(ODD)
    document = copy.deepcopy(dict(good))
    for path in draw(st.lists(st.sampled_from(paths(good)), min_size=1, max_size=3)):
        at: Any = document
        for key in path[:-1]:
            at = at.get(key) if isinstance(at, dict) else None
        if not isinstance(at, dict):
            continue
        if draw(st.booleans()):
            at.pop(path[-1], None)
        else:
            at[path[-1]] = draw(ODD)
    return document


class Queue:
    """Fake SQS: a message that is not deleted is received again."""

    def __init__(self, *bodies: Any) -> None:
        self.bodies = list(bodies)

    def receive_message(self, **_request: Any) -> Mapping[str, Any]:
        handles = enumerate(self.bodies[:10])
        return {"Messages": [{"Body": body, "ReceiptHandle": str(at)} for at, body in handles]}

    def delete_message_batch(self, **request: Any) -> Mapping[str, Any]:
        for _ in request["Entries"]:
            self.bodies.pop(0)
        return {}

    def call(self, operation: str, **request: Any) -> Mapping[str, Any]:
        name = "receive_message" if "Receive" in operation else "delete_message_batch"
        answer: Mapping[str, Any] = getattr(self, name)(**request)
        return answer


class Wires(Queue):
    """Fake SSM and S3 beside the queue, with a settable answer to probes."""

    answer: Any = None

    def send_command(self, **_request: Any) -> Any:
        return {"Command": {"CommandId": "1"}}

    def get_command_invocation(self, **_request: Any) -> Any:
        return self.answer


def an_engine(folder: Path, wires: Wires) -> SsmEngine:
    """Return an engine with job "a" on one node, at an instant of 1000 s."""
    given = SsmSettings(queue_url="q", uri="s3://b/j", state_file=folder / "ssm.json")
    engine = SsmEngine(wires, wires, wires, given, address_of=lambda _node: "10.0.0.1", now=lambda: 1000.0)  # type: ignore[arg-type]
    engine.admit(JobSpec(job="a", name="a", class_name="c", run="true"))
    start = StartJob(
        id="t1-start-a", job="a", generation=1, width=Width("gpu", 1), slots=some_slots("i-1", 0), reason=""
    )
    engine.start(start)
    return engine


def text_of(message: Any) -> str:
    """Return a message as text for the queue: as JSON if possible, else as Python writes it."""
    try:
        return json.dumps(message)
    except (TypeError, ValueError):
        return repr(message)


def test_the_good_message_has_every_field_of_a_unit_status(tmp_path: Path) -> None:
    """A field missing here would not be fuzzed."""
    unit = Unit(
        name="u", job="a", generation=1, rank=0, run="true", folder=tmp_path, workdir=str(tmp_path),
        progress_file="", checkpoint_dir=str(tmp_path),
    )  # fmt: skip
    unit.write()
    assert set(status_of(tmp_path, verify=True)) == set(GOOD)


@settings(max_examples=sampled(1500), deadline=None)
@given(message=damaged(GOOD))
def test_no_unit_status_breaks_its_readers(message: Any) -> None:
    """A malformed status is dropped, or a report can be made from it."""
    said = parse_unit_status(message, "test")
    if said is not None:
        found = report_of(Generation(job="a", number=1, gpus=1), [said])
        assert isinstance(found, RunReport)
        assert found.step is None or 0 <= found.step <= 2**53
        json.dumps(said, allow_nan=True)


@settings(max_examples=sampled(600), deadline=None)
@given(messages=st.lists(st.one_of(damaged(GOOD), damaged(EVENT)), min_size=1, max_size=12))
def test_malformed_messages_are_deleted_and_later_ones_are_read(
    messages: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The end message after them is received."""
    good = {**GOOD, "job": "b"}
    wires = Wires(*(text_of(message) for message in messages), text_of(good), text_of(EVENT))
    heard = list(Inbox(wires, "q", parse_unit_status).receive())
    assert wires.bodies == []
    assert heard[-1]["job"] == "b"
    for status in heard:
        assert isinstance(status["rank"], int)


@settings(max_examples=sampled(300), deadline=None)
@given(answer=st.one_of(ODD, damaged({"Status": "Success", "StandardOutputContent": STATUS + "{}"})))
def test_no_answer_to_a_probe_stops_the_engine(answer: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A node can print anything, and SSM returns that."""
    wires = Wires()
    engine = an_engine(tmp_path_factory.mktemp("e"), wires)
    wires.answer = answer
    run = engine._jobs["a"].run
    assert run is not None
    run.started_at, run.probes = 0.0, {0: ("1", 0.0)}
    for _ in range(5):
        assert engine.poll()["a"].generation == 1


@settings(max_examples=sampled(600), deadline=None)
@given(messages=st.lists(damaged(EVENT), min_size=1, max_size=9))
def test_no_interruption_event_stops_the_listener(messages: list[Any]) -> None:
    """Malformed events are deleted, and the valid one is recorded."""
    wires, notices, woken = Queue(*map(text_of, messages), text_of(EVENT)), Notices(), []
    queue = InterruptionQueue(wires, "q", notices, lambda: woken.append(1))  # type: ignore[arg-type]
    queue.poll_once(0)
    assert wires.bodies == []
    assert notices.ends_by("i-1") is not None
    assert woken


@settings(max_examples=sampled(200), deadline=None)
@given(
    files=st.dictionaries(
        st.sampled_from(["keeper.json", "exit.json", "ending.json", "progress.json"]),
        st.one_of(
            damaged(GOOD["exit"]).map(text_of),
            damaged(GOOD["progress"]).map(text_of),
            damaged({"pid": 2**22 + 1, "ticks": 1}).map(text_of),
            st.sampled_from(["deep", "{", "\x00", "long"]),
        ),
    )
)
def test_no_files_in_a_units_folder_break_its_status(
    files: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A job can write into its folder; a unit without a keeper and with unreadable files has ended."""
    folder = tmp_path_factory.mktemp("u")
    Unit(
        name=f"boa-fuzz-{folder.name}",
        job="a",
        generation=1,
        rank=0,
        run="true",
        folder=folder,
        workdir=str(folder),
        progress_file=str(folder / "progress.json"),
        checkpoint_dir=str(folder / "c"),
    ).write()
    for name, text in files.items():
        (folder / name).write_text({"deep": "[" * 100_000, "long": "9" * 5000}.get(text, text))
    said = read_unit_status(folder)
    if said is not None:
        report_of(Generation(job="a", number=1, gpus=1), [said])
    if {"keeper.json", "exit.json"} & files.keys():
        assert said is not None
        assert said["exit"] is not None


def test_dropped_messages_are_counted_by_source_and_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A hundred equal faults give a count of a hundred and one log line."""
    monkeypatch.setattr(message_validation, "DROPPED_MESSAGES", DroppedMessages())
    for _ in range(100):
        assert parse_unit_status({**GOOD, "rank": "nought"}, "here") is None
    assert message_validation.DROPPED_MESSAGES.counts() == {"here": 100}
    assert len([line for line in caplog.messages if "here" in line]) == 1


def test_malformed_progress_does_not_hide_an_end() -> None:
    """Only the malformed parts of the status are left out."""
    said = parse_unit_status({**GOOD, "progress": {"step": "x"}, "manifest": 5}, "test")
    assert said is not None
    assert (said["progress"], said["manifest"], said["exit"]["code"]) == (None, None, 0)


def test_an_end_is_on_disk_before_its_message_is_deleted(tmp_path: Path) -> None:
    """A daemon that dies in between loses no end."""
    wires = Wires()
    engine = an_engine(tmp_path, wires)
    run = engine._jobs["a"].run
    assert run is not None
    wires.bodies.append(text_of(sealed(GOOD, run.key)))

    def deleted(**_request: Any) -> Mapping[str, Any]:
        assert an_engine_that_reads(tmp_path).reattach()["a"].phase == "finished"
        raise ConnectionError("the daemon dies here")

    wires.delete_message_batch = deleted  # type: ignore[method-assign]
    assert engine.poll()["a"].phase == "finished"


def an_engine_that_reads(folder: Path) -> SsmEngine:
    """Return the engine of a restarted daemon, with an empty queue."""
    wires = Wires()
    given = SsmSettings(queue_url="q", uri="s3://b/j", state_file=folder / "ssm.json")
    return SsmEngine(wires, wires, wires, given, address_of=lambda _node: "10.0.0.1", now=lambda: 1000.0)  # type: ignore[arg-type]
