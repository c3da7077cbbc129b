"""The contract that every engine keeps."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_shapes import SHAPES, try_shape
from engine_bench import NUMPY, Bench, numpy_loss, script, until
from engine_worlds import ENGINES

from boa_daemon.engines.layout import Layout
from boa_daemon.gate.companion import JobDoor
from boa_daemon.gate.thread import GateThread
from boa_daemon.gate.types import GateSettings
from boa_daemon.inputs.code_archive import pack
from boa_daemon.job.gate.address import GateAddress
from boa_daemon.job.gate.token import issue_token
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import (
    Accepted,
    AccessibleRunner,
    ArtifactStore,
    CodePruner,
    CodeStager,
    DataStager,
    JobFolderStore,
    Refused,
    Runner,
    SaidInside,
)
from policies.links.contention import Link

PATIENT = "--steps 100000 --pause 0.005"
LOCAL_FIRST = pytest.mark.parametrize(
    "bench",
    [pytest.param(name, marks=() if name == "local" else pytest.mark.exhaustive) for name in ENGINES],
    indirect=True,
)
"""Over SSM, which takes seconds, such a test is exhaustive: what that engine does of its own is in others."""


@pytest.fixture(params=list(ENGINES))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """An engine of each kind with prepared nodes, and a factory for a second engine on the same state."""
    with ENGINES[request.param](tmp_path / "root") as make:
        workdir = tmp_path / "work"
        workdir.mkdir()
        bench = Bench(engine=make(), workdir=workdir)
        nodes = [a_node(name) for name in bench.nodes]
        until(lambda: set(bench.engine.prepare(nodes).values()) == {Accepted()})
        bench.again = make  # type: ignore[attr-defined]
        yield bench
        for job, report in bench.engine.poll().items():
            if not report.is_over:
                bench.engine.kill(job, report.generation)
                bench.wait(lambda report: report.is_over)


@LOCAL_FIRST
def test_a_job_that_changes_its_width_loses_no_step(bench: Bench) -> None:
    """Stops at 1, 2 and 4 workers lose no step, and the final loss equals that of an uninterrupted run."""
    bench.admit(f"{NUMPY} {PATIENT}")
    done = 0
    for width in (1, 2, 4):
        bench.start(width)
        bench.wait_step(done + 5)
        bench.stop()
        end = bench.wait_end()
        done = end.step or 0
        assert end.phase == "stopped", end
        assert end.manifest is not None
        assert (end.manifest.generation, end.manifest.step, end.lost_steps) == (bench.generation, end.step, 0)
    bench.admit(f"{NUMPY} --steps {done + 10}")
    bench.start(1)
    end = bench.wait_end()

    assert (end.phase, end.step) == ("finished", done + 10)
    assert end.loss == pytest.approx(numpy_loss(done + 10), rel=1e-9)
    assert [end.gpus for end in bench.ends] == [1, 2, 4, 1]


@LOCAL_FIRST
def test_a_job_over_two_nodes_trains_and_stops_as_one(bench: Bench) -> None:
    """The workers on both nodes form one group and stop together without a lost step."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(4, nodes=2)
    bench.wait_step(5)
    bench.stop()
    end = bench.wait_end()

    assert end.phase == "stopped"
    assert end.lost_steps == 0
    assert "on 4 workers" in bench.printed()


@LOCAL_FIRST
def test_code_is_staged_setup_runs_once_and_artifacts_are_kept(bench: Bench, tmp_path: Path) -> None:
    """Both nodes get the code; the second start skips the setup; artifacts can be listed and read."""
    folder = tmp_path / "project"
    (folder / "sub").mkdir(parents=True)
    (folder / "hello.py").write_text("print('hello')\n")
    (folder / "sub" / "note").write_text("kept")
    packed = pack(folder)
    engine = bench.engine
    assert isinstance(engine, CodeStager)
    assert isinstance(engine, ArtifactStore)
    assert not engine.has_code(packed.digest)
    engine.take_code(packed.digest, packed.archive)
    assert engine.has_code(packed.digest)

    run = (
        f"{sys.executable} ../hello.py; mkdir -p out/deep; echo $BOA_NODE_RANK > rank.$BOA_NODE_RANK; "
        "mv rank.$BOA_NODE_RANK out/deep/rank; "  # atomic: nodes on one machine share the folder
        "ln -s /etc/hostname out/leak; cat ready; true"
    )
    more = {
        "code": packed.digest,
        "workdir": "sub",
        "setup": "echo setting up; echo ready >> ready",
        "artifacts": ("out/**/*", "note", "no*thing"),
    }
    for number in (1, 2):
        bench.admit(run, **more)
        bench.start(2, nodes=2)
        assert bench.wait_end().phase == "finished"
        texts = [engine.logs(bench.job, node=node).text for node in (0, 1)]
        assert all("hello\n" in text for text in texts)
        assert sum(text.count("setting up") for text in texts) <= (2 if number == 1 else 0), number
        assert all("boa: no file matches the artifacts 'no*thing'" in text for text in texts)

    assert isinstance(engine, JobFolderStore)
    assert Layout(root=tmp_path).job(bench.job).name in engine.job_folders()
    found = engine.artifacts(bench.job)
    assert set(found) == {"out/deep/rank", "note", "node1/out/deep/rank", "node1/note"}
    assert found["note"] == 4
    assert b"".join(engine.artifact(bench.job, "note")) == b"kept"
    assert {b"".join(engine.artifact(bench.job, name)) for name in found if "rank" in name} <= {
        b"0\n",
        b"1\n",
    }


@LOCAL_FIRST
def test_data_is_copied_once_and_is_read_only(bench: Bench, tmp_path: Path) -> None:
    """Changed data is copied again. Missing data fails the start and is named in the evidence."""
    engine = bench.engine
    assert isinstance(engine, DataStager)
    put = getattr(engine, "s3", None)
    folder = tmp_path / "set"
    source = str(folder) if put is None else "s3://boa/sets/one"

    def write(text: str) -> None:
        (folder / "deep").mkdir(parents=True, exist_ok=True)
        (folder / "deep" / "a b.txt").write_text(text)
        if put is not None:
            put.put_object(Bucket="boa", Key="sets/one/deep/a b.txt", Body=text.encode())

    write("first")
    run = (
        'cat "$BOA_DATA_DIR/one/deep/a b.txt"; readlink $BOA_DATA_DIR/one; stat -c %a $BOA_DATA_DIR/one/deep'
    )
    said = []
    for _ in range(2):
        assert bench.run_to_end(run, data={"one": source}).phase == "finished", bench.printed()
        said.append(bench.printed())
    write("second one")
    end = bench.run_to_end(run, data={"one": source})
    changed = bench.printed()

    assert said[0].startswith("first"), said
    assert said[0].rstrip().endswith("555"), said
    assert said[0] == said[1]
    assert end.phase == "finished", end
    assert changed.startswith("second one"), changed
    if put is None:
        source = f"{folder}-gone"
    else:
        source = "s3://boa/sets/two"
        assert engine.lacks_data(source) == f"{source} holds no object"
        assert engine.lacks_data("s3://boa/sets/one") == ""
    end = bench.run_to_end("echo started", data={"": source})
    assert (end.phase, end.cause) == ("failed", "no-checkpoint")
    assert source in end.evidence


@LOCAL_FIRST
def test_a_command_runs_beside_a_job_and_ends_with_it(bench: Bench) -> None:
    """The command has the job's folder and environment; its end is an exit code or a reason."""
    engine = bench.engine
    assert isinstance(engine, AccessibleRunner)
    bench.admit("echo ready; sleep 60", environment={"LR": "0.1"})
    bench.start(2, nodes=2)
    until(lambda: "ready" in engine.logs(bench.job, node=1).text)

    def run(command: str, *, seconds: float = 20.0, node: int = 1) -> SaidInside:
        word = engine.inside.begin(bench.job, node, command, seconds=seconds)
        assert isinstance(word, str), word
        found: list[SaidInside] = []

        def is_over() -> bool:
            said = engine.inside.end(word)
            assert not isinstance(said, Refused)
            return said is not None and not found.append(said)  # type: ignore[func-returns-value]

        until(is_over)
        assert isinstance(engine.inside.end(word), Refused)
        return found[0]

    said = run("echo $BOA_JOB_ID $BOA_NODE_RANK $BOA_GPUS_PER_NODE $LR; pwd; exit 3")
    assert (said.code, said.why) == (3, "")
    assert said.output.splitlines() == [f"{bench.job} 1 1 0.1", str(bench.workdir)]
    said = run("sleep 50 & sleep 50", seconds=0.3)
    assert (said.code, said.why) == (None, "its 0.3 s are over")
    assert isinstance(engine.inside.begin(bench.job, 2, "true", seconds=1.0), Refused)
    word = engine.inside.begin(bench.job, 0, "sleep 50", seconds=50.0)
    assert isinstance(word, str)
    bench.stop()
    assert bench.wait_end().phase == "stopped"
    ended: list[SaidInside] = []
    until(lambda: isinstance(said := engine.inside.end(word), SaidInside) and not ended.append(said))  # type: ignore[func-returns-value]
    # The command was ended with the job, or it came too late.
    assert ended[0].code is None
    assert ended[0].why in ("the job has ended on this node", "the job does not run on this node")
    assert isinstance(engine.inside.way(bench.job, 0), Refused)


@LOCAL_FIRST
def test_the_time_without_output_counts_from_the_start(bench: Bench, tmp_path: Path) -> None:
    """`quiet_seconds` grows for a job that never printed, and a printed line resets it."""
    mark = tmp_path / "mark"
    wait = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.05)\n"
    # The job keeps printing: a single line would be old before a busy machine looks.
    bench.admit(script(f"{wait}while True: print('x', flush=True); time.sleep(0.05)"))
    bench.start(1)
    silent = bench.wait(lambda report: (report.quiet_seconds or 0.0) > 2.0)
    assert silent.phase == "running"
    mark.touch()
    bench.wait(lambda report: report.quiet_seconds is not None and report.quiet_seconds < 2.0)
    bench.engine.kill("a", 1)
    bench.wait_end()


@LOCAL_FIRST
def test_unneeded_code_is_dropped(bench: Bench, tmp_path: Path) -> None:
    """`drop_code` removes archives older than an instant unless listed; a removed archive can come again."""
    (tmp_path / "project").mkdir()
    engine, digests = bench.engine, []
    assert isinstance(engine, CodeStager)
    assert isinstance(engine, CodePruner)
    for text in ("one", "two"):
        (tmp_path / "project" / "a").write_text(text)
        packed = pack(tmp_path / "project")
        engine.take_code(packed.digest, packed.archive)
        digests.append(packed.digest)
    assert engine.drop_code([], before=time.time() - 60.0) == 0
    assert engine.drop_code(digests[:1], before=time.time() + 60.0) == 1
    assert [engine.has_code(digest) for digest in digests] == [True, False]
    engine.take_code(packed.digest, packed.archive)
    assert engine.has_code(packed.digest)


@LOCAL_FIRST
def test_code_with_a_wrong_digest_does_not_start(bench: Bench, tmp_path: Path) -> None:
    """Code that is missing or does not match its digest fails the job before its command runs."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a").write_text("one")
    packed = pack(tmp_path / "project")
    engine = bench.engine
    assert isinstance(engine, CodeStager)
    engine.take_code("0" * 64, packed.archive)
    for digest, said in (("0" * 64, "has the digest"), ("1" * 64, "")):
        end = bench.run_to_end("echo started", code=digest, workdir=".")
        assert (end.phase, end.cause) == ("failed", "no-checkpoint")
        assert said in end.evidence
        assert "started" not in bench.printed().replace("not started", "")


@LOCAL_FIRST
def test_the_environment_has_the_documented_variables(bench: Bench) -> None:
    """A job finds the `BOA_` variables of `interfaces.md` with the values of its generation."""
    names = ["JOB_ID", "GENERATION", "GPUS", "NODES", "NODE_RANK", "GPUS_PER_NODE"]
    names += ["CHECKPOINT_DIR", "PROGRESS_FILE", "GATE"]
    end = bench.run_to_end(
        script(f"import os\nfor name in {names}: print(name, os.environ['BOA_' + name])"), gpus=2
    )

    said = dict(line.split(" ", 1) for line in end.last_lines)
    assert {name: said[name] for name in names[:6]} == {
        "JOB_ID": "a", "GENERATION": "1", "GPUS": "2", "NODES": "1", "NODE_RANK": "0", "GPUS_PER_NODE": "2",
    }  # fmt: skip
    assert end.phase == "finished"


@LOCAL_FIRST
def test_repeated_orders_are_accepted_and_outdated_starts_refused(bench: Bench) -> None:
    """A parallel or an older start is refused; a repeated stop and an outdated kill change nothing."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(1)
    assert bench.engine.start(bench.order(1)) == Accepted()
    assert isinstance(bench.engine.start(bench.order(2, generation=2)), Refused)
    bench.wait_step(2)
    bench.stop()
    bench.stop()
    first = bench.wait_end()
    bench.stop()
    assert bench.report() == first

    bench.start(2)
    assert isinstance(bench.engine.start(bench.order(1, generation=1)), Refused)
    bench.wait_step(4)
    bench.engine.kill("a", 1)
    assert bench.report().phase == "running"


@LOCAL_FIRST
def test_a_job_that_was_not_admitted_is_refused(bench: Bench) -> None:
    """Without `admit` the engine does not know the job's command."""
    bench.generation = 1

    assert isinstance(bench.engine.start(bench.order(1)), Refused)


@LOCAL_FIRST
def test_a_job_that_ignores_its_stop_is_ended_after_its_grace(bench: Bench) -> None:
    """The job loses the steps since its last checkpoint, and the evidence says that it was ended by force."""
    bench.admit(
        script(
            "import signal, time\nfrom boa_daemon import job\njob.report(1)\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "for step in range(2, 9): job.report(step)\ntime.sleep(600)"
        ),
        stop_grace_seconds=0.5,
    )
    bench.start(1)
    bench.wait_step(8)
    bench.stop()
    end = bench.wait_end()

    assert (end.phase, end.manifest, end.lost_steps) == ("stopped", None, 8)
    assert "by force" in end.evidence


@pytest.mark.first_set(1)
@LOCAL_FIRST
@pytest.mark.parametrize(
    "name", ["followed by &&", "bash run.sh", "2>&1 | tee", "with pool", "Popen, lines read"]
)
def test_a_stop_loses_no_step_of_an_ordinary_command(bench: Bench, name: str) -> None:
    """Each engine asks the process that saves first (all commands: `integration/test_commands`)."""
    end, printed = try_shape(bench, SHAPES[name], save_seconds=3.0)

    assert (end.phase, end.lost_steps) == ("stopped", 0), f"{end}\n{printed}"
    assert end.manifest is not None
    assert "it went on" not in printed


@pytest.mark.first_set(2)
@pytest.mark.parametrize("kill_at", [-0.5, 1.0, 3.2], ids=["before it", "while it saves", "after the save"])
def test_a_stop_loses_no_step_though_its_keeper_is_killed(bench: Bench, kill_at: float) -> None:
    """Each engine: the next keeper goes on (all commands: `integration/test_commands`)."""
    shape = SHAPES["followed by &&"]
    end, printed = try_shape(bench, shape, save_seconds=3.0, kill_at=kill_at)

    assert (end.phase, end.lost_steps) == ("stopped", 0), f"{end}\n{printed}"
    assert "it went on" not in printed


@pytest.mark.first_set(1)
@pytest.mark.parametrize("whom", [("guard",), ("guard", "pid")], ids=["it alone", "its keeper, too"])
def test_a_stop_loses_no_step_though_its_guard_is_killed(bench: Bench, whom: tuple[str, ...]) -> None:
    """Each engine: on a rented node systemd starts another guard, and ends nothing with the first."""
    shape = SHAPES["followed by &&"]
    end, printed = try_shape(bench, shape, save_seconds=3.0, kill_at=1.0, whom=whom)

    assert (end.phase, end.lost_steps) == ("stopped", 0), f"{end}\n{printed}"
    assert "it went on" not in printed


@LOCAL_FIRST
def test_a_stop_that_lost_steps_says_why_and_what_to_change(bench: Bench) -> None:
    """The evidence of the end, which `boa jobs` shows, and the job's log name the grace."""
    loop = SHAPES["| tee"].run
    bench.admit(loop.replace("loop.py", "loop.py --save 60"), stop_grace_seconds=1.5)
    bench.start(1)
    step = bench.wait_step(5).step or 0
    bench.stop()
    end = bench.wait_end()

    assert (end.phase, end.manifest) == ("stopped", None)
    assert end.lost_steps >= step
    for said in (end.evidence, bench.printed()):
        assert "within its grace of 1.5 s" in said
        assert "raise stop_grace_seconds" in said
    assert f"the stop lost {end.lost_steps} steps, all after step 0" in bench.printed()


@LOCAL_FIRST
def test_a_killed_job_keeps_its_last_checkpoint(bench: Bench) -> None:
    """The steps after the last checkpoint are reported as lost."""
    bench.admit(f"{NUMPY} {PATIENT} --every 5")
    bench.start(2)
    step = bench.wait_step(6).step or 0
    bench.engine.kill("a", 1)
    end = bench.wait_end()

    assert (end.phase, end.cause) == ("failed", "killed")
    assert end.manifest is not None
    assert end.manifest.step >= step - 5
    assert end.lost_steps == (end.step or 0) - end.manifest.step


@LOCAL_FIRST
def test_logs_are_read_from_any_byte_and_are_kept(bench: Bench) -> None:
    """Reading at the end gives no text, and logs of older generations can still be read."""
    bench.run_to_end("echo one; echo two")
    first = bench.engine.logs("a")
    assert first.text == "one\ntwo\n"
    assert bench.engine.logs("a", since=4).text == "two\n"
    assert bench.engine.logs("a", since=first.next_offset).text == ""

    bench.run_to_end("echo three")
    assert bench.engine.logs("a").text == "three\n"
    assert bench.engine.logs("a", generation=1).text == "one\ntwo\n"


@LOCAL_FIRST
def test_a_missing_command_has_its_own_cause(bench: Bench) -> None:
    """A retry cannot mend the cause `missing-command` (all causes: `test_local`)."""
    end = bench.run_to_end("trane.py --fast")

    assert (end.phase, end.cause) == ("failed", "missing-command"), end


@LOCAL_FIRST
def test_a_missing_result_file_fails_the_job(bench: Bench) -> None:
    """Exit code 0 is not enough for a job with `result`."""
    assert bench.run_to_end("true", result="model.bin").cause == "no-result"
    assert bench.run_to_end("touch model.bin", result="model.bin").phase == "finished"


@pytest.mark.first_set(1)
def test_a_restarted_engine_finds_its_running_jobs(bench: Bench) -> None:
    """A second engine on the same state reports, stops and restarts the job without a lost step."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(2)
    step = bench.wait_step(3).step or 0
    again: Callable[[], Runner] = bench.again  # type: ignore[attr-defined]
    bench.engine = again()
    # The daemon admits its jobs first.
    bench.admit(f"{NUMPY} {PATIENT}")
    found = bench.engine.reattach()["a"]
    assert (found.generation, found.gpus) == (1, 2)
    assert found.phase in ("running", "starting", "unknown")

    bench.wait_step(step + 1)
    bench.stop()
    assert bench.wait_end().lost_steps == 0
    bench.start(1)
    bench.wait_step(step + 4)


@LOCAL_FIRST
def test_a_forgotten_job_is_in_no_report(bench: Bench) -> None:
    """`forget` drops a job that has ended, also for a restarted engine, and keeps a job that runs."""
    bench.admit(f"{NUMPY} {PATIENT}")
    bench.start(1)
    bench.engine.forget("a")
    bench.wait_step(1)
    bench.stop()
    bench.wait_end()
    bench.engine.forget("a")

    assert "a" not in bench.engine.poll()
    again: Callable[[], Runner] = bench.again  # type: ignore[attr-defined]
    bench.engine = again()
    assert "a" not in bench.engine.reattach()


GATE = GateSettings(
    link=Link(latency_seconds=0.0, seconds_per_byte=1e-9, contention_seconds_per_byte=0.0), is_always_on=True
)
DDP_JOB = Path(__file__).parents[2] / "integration" / "gate_job.py"


def start_ddp(bench: Bench, door: JobDoor, **changes: object) -> Callable[[], int]:
    """Start the DDP job over two nodes, and return a function that reads its step."""
    bench.engine = bench.again(gate=door)  # type: ignore[attr-defined]
    until(lambda: set(bench.engine.prepare([a_node(n) for n in bench.nodes]).values()) == {Accepted()})
    environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    bench.admit(f"exec {sys.executable} {DDP_JOB}", environment=environment, **changes)
    bench.start(2, nodes=2)

    def steps() -> int:
        files = [bench.workdir / f"step-{rank}" for rank in (0, 1)]
        return min(int(file.read_text() or 0) if file.exists() else 0 for file in files)

    return steps


@LOCAL_FIRST
def test_each_node_gets_the_gates_address_and_its_generations_token(bench: Bench, tmp_path: Path) -> None:
    """The address includes the job's uplinks; only the owner can read the token file."""
    (tmp_path / "gate.secret").write_text("secret")
    address = GateAddress(host="127.0.0.1", port=7411)
    bench.engine = bench.again(gate=JobDoor(tmp_path, address, uplinks={"core": ["*"]}))  # type: ignore[attr-defined]
    until(lambda: set(bench.engine.prepare([a_node(n) for n in bench.nodes]).values()) == {Accepted()})
    bench.admit('echo "$(cat "$BOA_GATE")" >> told')
    bench.start(2, nodes=2)
    assert bench.wait_end().phase == "finished"

    lines = (bench.workdir / "told").read_text().split("\n")
    told = [GateAddress.parse(json.loads(line)["address"]) for line in lines if line]
    assert [(one.host, one.port, one.generation, one.uplinks) for one in told] == [
        ("127.0.0.1", 7411, 1, ("core",))
    ] * 2
    tokens = list(tmp_path.rglob("gate.token"))
    assert {token.parent.name: token.stat().st_mode & 0o777 for token in tokens} == {"g1": 0o600}
    assert {token.read_text().strip() for token in tokens} == {issue_token("secret", job="a", generation=1)}


@pytest.mark.frameworks
@LOCAL_FIRST
def test_plain_ddp_uses_the_gate_and_survives_its_restart(bench: Bench, tmp_path: Path) -> None:
    """The engine adds address, token and hook.

    Training goes on without the gate and asks the restarted one.
    """
    with GateThread(GATE, "secret", GateAddress(host="127.0.0.1", port=0)) as gate:
        (tmp_path / "gate.secret").write_text("secret")
        (address,) = gate.addresses
        steps = start_ddp(bench, JobDoor(tmp_path, address, uplinks={"core": ["*"]}))
        until(lambda: sum(job["grants"] for job in gate.status()["jobs"]) > 5)  # type: ignore[index]
        (job,) = gate.status()["jobs"]  # type: ignore[index]
        assert (job["job"], job["nics"], job["gpus"]) == ("a", ["core", "n1", "n2"], 2)
        tokens = list(tmp_path.rglob("gate.token"))
        assert {token.stat().st_mode & 0o777 for token in tokens} == {0o600}
        assert {token.parent.name for token in tokens} == {"g1"}
    since = steps()
    until(lambda: steps() > since + 20)
    with GateThread(GATE, "secret", address) as gate:
        until(lambda: sum(job["grants"] for job in gate.status()["jobs"]) > 5)  # type: ignore[index]
    (bench.workdir / "go").touch()
    assert bench.wait_end().phase == "finished"


@pytest.mark.exhaustive
@pytest.mark.parametrize("why", ["wrong secret", "out of reach", "opted out"])
def test_a_job_without_access_to_the_gate_trains_without_it(bench: Bench, tmp_path: Path, why: str) -> None:
    """A wrong secret, a closed port or an opt-out does not keep the job from its end."""
    with GateThread(GATE, "secret", GateAddress(host="127.0.0.1", port=0)) as gate:
        (tmp_path / "gate.secret").write_text("another" if why == "wrong secret" else "secret")
        (address,) = gate.addresses
        if why == "out of reach":
            gate.close()
        steps = start_ddp(bench, JobDoor(tmp_path, address), gate=why != "opted out")
        until(lambda: steps() > 30)
        if why != "out of reach":
            status = gate.status()
            assert status is not None
            assert status["jobs"] == []
            assert bool(status["refusals"].get("wrong token")) == (why == "wrong secret")
    (bench.workdir / "go").touch()
    end = bench.wait_end()
    assert end.phase == "finished", f"{end}\n{bench.printed()}"
