"""The OS account of each job, and what it keeps the job from; only as root do jobs get different accounts."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_shapes import kill_keepers
from engine_bench import Bench, until
from engine_worlds import ssm_world
from hypothesis import given, settings
from hypothesis import strategies as st

from boa_daemon.engines.accounts import COUNT, FIRST, account_here, own_account
from boa_daemon.engines.generation_units import Layout, units_of
from boa_daemon.engines.local import LocalEngine
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import check_job
from boa_daemon.job.seal import KEY_FILE
from boa_daemon.job.unit import acting_as
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted, JobSpec

IS_ROOT = os.geteuid() == 0


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other accounts can read, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="boa-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        (Path(name) / "work").mkdir(mode=0o777)
        (Path(name) / "work").chmod(0o777)
        yield Path(name)


def a_bench(place: Path, job: str, user: str) -> Bench:
    """Return a bench with `own_user` set that admits its job as submitted by this user."""
    bench = Bench(engine=LocalEngine(place / "root", own_user=True), workdir=place / "work", job=job)
    admit = bench.admit
    bench.admit = lambda run, **changes: admit(run, user=user, **changes)  # type: ignore[method-assign]
    return bench


@given(job=st.text(min_size=1), other=st.text(min_size=1))
def test_the_uid_of_a_job_follows_from_its_id_and_is_unique(job: str, other: str) -> None:
    """The uid depends only on the job's id and lies in the range reserved for job accounts."""
    account = own_account(job, Path("/h"))
    assert account == own_account(job, Path("/h"))
    assert FIRST <= account.uid < FIRST + COUNT < 2**31
    assert (account.uid == own_account(other, Path("/h")).uid) == (job == other)


def test_a_job_runs_as_its_submitter_or_as_an_account_of_its_own(place: Path) -> None:
    """Root's jobs run as root. A daemon that is not root runs every job as itself and reports that."""
    whose = {"nobody": "nobody", "no-such-account": own_account("c", place).name, "root": "root"}
    for job, (user, name) in zip("bcr", whose.items(), strict=True):
        bench = a_bench(place, job, user)
        assert bench.engine.runs_jobs_as_daemon == (not IS_ROOT)  # type: ignore[attr-defined]
        bench.run_to_end('echo "I am $(id -u), $USER, at $HOME"')
        account = account_here(user, job, bench.engine.layout.home(job))  # type: ignore[attr-defined]
        if not IS_ROOT or user == "root":
            assert account is None
            assert f"I am {os.getuid()}," in bench.printed()
        else:
            assert account is not None
            assert f"I am {account.uid}, {name}, at {account.home}" in bench.printed()
    assert not LocalEngine(place / "other", own_user=False)._own_user
    assert LocalEngine(place / "other").runs_jobs_as_daemon


TRIES = """
cd "$(dirname "$BOA_PROGRESS_FILE")"/.. || echo "way: no"
for file in {secrets}; do cat "$file" >/dev/null 2>&1 && echo "read $file"; done
for folder in {folders}; do ls "$folder" >/dev/null 2>&1 && echo "listed $folder"; done
for file in n0/exit.json n0/keeper.json {key} x; do echo x 2>/dev/null > $file && echo "wrote $file"; done
mv n0 m0 2>/dev/null && echo "moved"
cat /proc/$PPID/environ 2>/dev/null | grep -q . && echo "read its keeper's environment"
kill -9 $PPID 2>/dev/null && echo "killed its keeper"
echo "tried"
"""


def test_a_job_may_open_its_own_output_and_goes_on_without_its_keeper(place: Path) -> None:
    """`tee /dev/stderr` and the like work as without BOA; a next keeper keeps the job's account."""
    bench = a_bench(place, "c", "no-such-account")
    bench.admit(
        "echo told > /dev/stdout; echo piped | tee /dev/stderr > /dev/null; "
        "while [ ! -e go ]; do sleep 0.1; done; echo late as $(id -u) > /dev/stdout"
    )
    bench.start()
    until(lambda: "piped" in bench.printed())
    assert "told" in bench.printed()
    kill_keepers(bench)
    (place / "work" / "go").touch()
    end = bench.wait_end()
    assert end.phase == "finished", (end, bench.printed())
    account = own_account("c", place)
    assert f"late as {account.uid if IS_ROOT else os.getuid()}" in bench.printed()


def test_a_job_cannot_touch_files_of_other_jobs_or_of_its_keeper(place: Path) -> None:
    """A job can neither read nor write secrets, keys and folders that are not its own, nor end its keeper."""
    first = a_bench(place, "a", "ann")
    first.run_to_end(
        "echo secret > $HOME/s; echo secret > $BOA_CHECKPOINT_DIR/s; echo 1 > $BOA_PROGRESS_FILE"
    )
    layout = first.engine.layout  # type: ignore[attr-defined]
    (place / "database").write_text("all jobs")
    (place / "database").chmod(0o600)
    own = layout.generation("b", 1)
    secrets = [layout.home("a") / "s", layout.checkpoints("a") / "s", place / "database", own / KEY_FILE]
    secrets += [layout.generation("a", 1) / "own" / "progress.json", *layout.unit("a", 1, 0).glob("*")]
    folders = [layout.job("a"), layout.unit("a", 1, 0), layout.home("a"), layout.job("b")]
    run = TRIES.format(
        secrets=" ".join(map(str, secrets)), folders=" ".join(map(str, folders)), key=own / KEY_FILE
    )
    second = a_bench(place, "b", "ben")
    if not IS_ROOT:
        assert second.engine.runs_jobs_as_daemon  # type: ignore[attr-defined]
        return
    second.run_to_end(run)
    assert second.printed().split("\n")[-2:] == ["tried", ""]
    assert [line for line in second.printed().splitlines() if line != "tried" and "boa:" not in line] == []


def test_waiting_jobs_and_packed_code_are_closed_to_others(place: Path) -> None:
    """The file of a job that has not started, and everybody's unpacked code, are for the daemon alone."""
    bench = a_bench(place, "a", "ann")
    archive = gzip.compress(b"code")
    assert bench.admit("true", environment={"TOKEN": "x"}) == Accepted()
    bench.engine.take_code("0" * 64, archive)  # type: ignore[attr-defined]
    layout = bench.engine.layout  # type: ignore[attr-defined]
    for folder in (layout.job("a"), layout.code):
        assert folder.stat().st_mode & 0o077 == 0
    bench.start()
    bench.wait_end()
    assert layout.job("a").stat().st_mode & 0o077 == (0o010 if IS_ROOT else 0)


def test_symlinks_planted_by_a_job_do_not_expose_files_of_root(place: Path) -> None:
    """Keeper and daemon use the job's account in the job's folders, so a planted link has no effect."""
    precious = place / "precious.json"
    precious.write_text(json.dumps({"generation": 1, "step": 41, "path": "x", "sha256": "y"}))
    precious.chmod(0o600)
    before = precious.read_text()
    bench = a_bench(place, "a", "ann")
    plant = (
        "for f in $BOA_PROGRESS_FILE $BOA_CHECKPOINT_DIR/manifest.json "
        "$(dirname $BOA_PROGRESS_FILE)/n0/error.json; "
        f"do ln -sf {precious} $f; done; rm -f $BOA_CHECKPOINT_DIR/.lock $BOA_CHECKPOINT_DIR/generation; "
        f"ln -s {precious} $BOA_CHECKPOINT_DIR/.lock; ln -s {precious} $BOA_CHECKPOINT_DIR/generation; exit 3"
    )
    for _ in range(2):
        end = bench.run_to_end(plant)
        assert precious.read_text() == before
        if IS_ROOT:
            assert (end.step, end.manifest, end.exit_code) == (None, None, 3)


def test_acting_as_another_account_ends_with_its_block(place: Path) -> None:
    """The account is the daemon's again after the block, also after an exception."""
    (place / "mine").write_text("x")
    (place / "mine").chmod(0o600)
    if IS_ROOT:
        with pytest.raises(PermissionError), acting_as(own_account("a", place).uid, 7):
            (place / "mine").read_text()
    with acting_as(None, 0):
        assert (place / "mine").read_text() == "x"
    assert (place / "mine").read_text() == "x"


TRAIN = """
python3 -u -c '
import os, time
import boa_daemon.job as job
print("I am", os.getuid())
steps = int(os.environ["STEPS"])
for step in job.steps(steps, load=lambda path: print("from", path.name), save=lambda file: file.write(b"x")):
    time.sleep(0.02)
'
"""


@pytest.mark.exhaustive
def test_an_ssm_job_with_its_own_account_saves_and_resumes(place: Path) -> None:
    """The job's checkpoint reaches S3 and comes back, and its home belongs to its account."""
    with ssm_world(place, own_user=True) as make:
        bench = Bench(engine=make(), workdir=place / "work")
        nodes = [a_node("n1")]
        until(lambda: bench.engine.prepare(nodes)["n1"] == Accepted())
        # The job trains until it is stopped.
        bench.admit(TRAIN, workdir=".", environment={"STEPS": "1000000"})
        bench.start(1)
        bench.wait_step(10)
        bench.stop()
        assert bench.wait_end().manifest is not None, bench.printed()
        uid = own_account("a", place).uid if IS_ROOT else os.getuid()
        until(lambda: f"I am {uid}" in bench.printed())
        bench.admit(TRAIN, workdir=".", environment={"STEPS": "1"})
        bench.start(1)
        assert bench.wait_end().phase == "finished"
        assert "from g1-step" in bench.printed()
        (home,) = place.glob("nodes/n1/boa/jobs/a/home")
        assert home.stat().st_uid == uid


@settings(deadline=None)
@given(
    gpus=st.integers(min_value=1, max_value=4), nodes=st.integers(min_value=1, max_value=2), data=st.data()
)
def test_a_job_file_cannot_set_variables_that_the_daemon_sets(
    gpus: int, nodes: int, data: st.DataObject
) -> None:
    """Every variable in a unit's environment is refused in a job file."""
    bench = Bench(engine=LocalEngine(Path("/nowhere")), workdir=Path("/nowhere"))
    units = units_of(
        JobSpec(job="a", name="a", class_name="c", run="true"),
        bench.order(gpus * nodes, nodes=nodes, generation=1),
        Layout(root=Path("/r")),
        addresses=dict.fromkeys(bench.nodes, "10.0.0.1"),
        port=1,
    )
    name = data.draw(st.sampled_from(sorted(units[-1].environment)))
    content = {"name": "a", "class": "c", "run": "true", "environment": {name: "x"}}
    with pytest.raises(InputError, match=f"environment: {name} is set by the daemon"):
        check_job(Document(name="job.yaml", content=content, language="json"))


def test_data_is_read_as_the_jobs_account_and_is_read_only(place: Path) -> None:
    """The job reads data that its account may read and cannot change it; other data fails the job."""
    for name, mode in (("open", 0o755), ("closed", 0o700)):
        (place / name).mkdir()
        (place / name / "file").write_text("content\n")
        (place / name).chmod(mode)
    one, two = a_bench(place, "a", "no-such-user"), a_bench(place, "b", "no-such-user")
    run = 'cat "$BOA_DATA_DIR/file"; echo more 2>/dev/null > "$BOA_DATA_DIR/file"; true'
    assert one.run_to_end(run, data={"": str(place / "open")}).phase == "finished", one.printed()
    end = two.run_to_end(run, data={"": str(place / "closed")})

    assert one.printed().startswith("content\n")
    assert end.phase == ("failed" if IS_ROOT else "finished")
    if IS_ROOT:
        [copy] = (place / "root" / "=data").rglob("file")
        assert "cannot be read" in end.evidence
        assert copy.read_text() == "content\n"
