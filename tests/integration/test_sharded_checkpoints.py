"""Checkpoints of many files from several ranks and nodes, on a shared folder and through S3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_bench import EXAMPLES, TORCHRUN, Bench, loss_alone, until
from engine_worlds import ENGINES

from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted

FSDP = f"{TORCHRUN} {EXAMPLES / 'train_fsdp.py'}"


def a_bench(make: object, folder: Path) -> Bench:
    """Return an engine with two ready nodes."""
    bench = Bench(engine=make(), workdir=folder)  # type: ignore[operator]
    until(lambda: set(bench.engine.prepare([a_node(name) for name in bench.nodes]).values()) == {Accepted()})
    return bench


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.exhaustive] if name == "ssm" else []) for name in ENGINES]
)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Each engine."""
    with ENGINES[request.param](tmp_path / "root") as make:
        (tmp_path / "work").mkdir()
        yield a_bench(make, tmp_path / "work")


@pytest.fixture
def rented(tmp_path: Path) -> Iterator[Bench]:
    """Rented nodes without a shared disk."""
    with ENGINES["ssm"](tmp_path / "root") as make:
        (tmp_path / "work").mkdir()
        yield a_bench(make, tmp_path / "work")


@pytest.mark.exhaustive
def test_fsdp_goes_from_1_to_2_nodes_to_1_and_loses_no_step(bench: Bench) -> None:
    """Shards of two nodes form one checkpoint that loads at another width; the loss is that of one run."""
    bench.admit(f"{FSDP} --steps 100000 --every 1000 --pause 0.02", stop_grace_seconds=60.0)
    done = 0
    for nodes in (1, 2):
        bench.start(nodes, nodes=nodes)
        bench.wait_step(done + 4)
        bench.stop()
        end = bench.wait_end()
        done = end.step or 0
        assert (end.phase, end.lost_steps) == ("stopped", 0), end
        assert end.manifest is not None
        assert (end.manifest.generation, end.manifest.step) == (bench.generation, done)
    bench.admit(f"{FSDP} --steps {done + 5} --every 1000")
    bench.start(1)
    resized = bench.wait_end()
    whole = loss_alone(bench.workdir, EXAMPLES / "train_fsdp.py", steps=done + 5)

    assert resized.phase == "finished"
    assert resized.loss == pytest.approx(whole, rel=1e-9)


def node_home(bench: Bench, node: str) -> Path:
    """Return the home folder of a node, where a file makes its S3 fail."""
    return bench.workdir.parent / "root" / "nodes" / node


NUMPY_LIKE = """
import json, sys, time
from pathlib import Path
from boa_daemon import job
seen = []
def load(path): seen.extend(json.loads(path.read_text()))
def save(file): file.write(json.dumps(seen).encode())
for step in job.steps(int(sys.argv[1]), load=load, save=save, every=5):
    time.sleep(0.02)
    seen.append(step)
    print("step", step, flush=True)
"""


def standing(bench: Bench) -> list[int]:
    """Return the steps of the first generation's complete checkpoints in S3."""
    listed = bench.engine.s3.list_objects_v2(Bucket="boa", Prefix="jobs/a/g1/checkpoint/manifest-")  # type: ignore[attr-defined]
    return [int(row["Key"].rpartition("-")[2][:-5]) for row in listed.get("Contents", [])]


@pytest.mark.exhaustive
def test_a_job_resumes_from_the_last_checkpoint_that_was_uploaded(rented: Bench) -> None:
    """If the last upload fails, only the steps since the checkpoint before are lost."""
    (rented.workdir / "train.py").write_text(NUMPY_LIKE)
    rented.admit("python3 train.py 100000", workdir=str(rented.workdir))
    rented.start(1)
    rented.wait_step(5)
    until(lambda: bool(standing(rented)))
    (node_home(rented, "n1") / "s3-fails").touch()
    rented.wait_step(max(standing(rented)) + 60)
    rented.stop()
    # The report of the end goes through SQS, which works.
    end = rented.wait_end()
    assert end.manifest is not None
    assert 0 < end.manifest.step < (end.step or 0)
    assert end.lost_steps == (end.step or 0) - end.manifest.step

    rented.nodes = ("n2", "n1")
    rented.start(1)
    rented.wait_step(end.manifest.step + 1)
    until(lambda: "step " in rented.printed())
    assert rented.printed().splitlines()[0] == f"step {end.manifest.step}"


@pytest.mark.exhaustive
def test_a_start_that_cannot_fetch_its_checkpoint_fails_and_says_so(rented: Bench) -> None:
    """The cause is "no-checkpoint" and the log has the reason; the next start resumes from the checkpoint."""
    (rented.workdir / "train.py").write_text(NUMPY_LIKE)
    rented.admit("python3 train.py 100000", workdir=str(rented.workdir))
    rented.start(1)
    rented.wait_step(7)
    rented.stop()
    end = rented.wait_end()
    assert end.manifest is not None
    assert end.lost_steps == 0

    damaged = rented.engine.s3.get_object(Bucket="boa", Key=f"jobs/a/g1/checkpoint/{end.manifest.path}")  # type: ignore[attr-defined]
    whole = damaged["Body"].read()
    put = rented.engine.s3.put_object  # type: ignore[attr-defined]
    put(Bucket="boa", Key=f"jobs/a/g1/checkpoint/{end.manifest.path}", Body=whole[:-1] + b"?")
    rented.nodes = ("n2", "n1")
    rented.start(1)
    failed = rented.wait_end()
    assert (failed.phase, failed.cause) == ("failed", "no-checkpoint"), failed
    assert "digest" in failed.evidence
    assert (failed.manifest, failed.lost_steps) == (end.manifest, 0)
    assert "it is not started without what it needs" in "\n".join(failed.last_lines)

    put(Bucket="boa", Key=f"jobs/a/g1/checkpoint/{end.manifest.path}", Body=whole)
    rented.start(1)
    rented.wait_step(end.manifest.step + 1)
    until(lambda: "step " in rented.printed())
    assert rented.printed().splitlines()[0] == f"step {end.manifest.step}"


@pytest.mark.exhaustive
def test_only_the_newest_checkpoints_stay_in_s3(rented: Bench) -> None:
    """S3 keeps at most `keep_checkpoints` checkpoints and their manifests, among them the newest."""
    (rented.workdir / "train.py").write_text(NUMPY_LIKE)
    rented.admit("python3 train.py 400", workdir=str(rented.workdir), keep_checkpoints=2)
    rented.start(1)
    rented.wait_end()
    listed = rented.engine.s3.list_objects_v2(Bucket="boa", Prefix="jobs/a/g1/checkpoint/")  # type: ignore[attr-defined]
    names = sorted(row["Key"].rpartition("/")[2] for row in listed["Contents"])

    assert len([name for name in names if name.endswith(".ckpt")]) <= 2, names
    assert len([name for name in names if name.startswith("manifest-")]) <= 2, names
    newest = max(int(name[9:-5]) for name in names if name.startswith("manifest-"))
    body = rented.engine.s3.get_object(  # type: ignore[attr-defined]
        Bucket="boa", Key=f"jobs/a/g1/checkpoint/manifest-{newest}.json"
    )["Body"].read()
    assert json.loads(body)["path"] in names
