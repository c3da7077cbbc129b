"""`engines/generation_units.py`: the units of a generation, and the variables that tell a job its place."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis.strategies import integers, text

from boa_daemon.engines.accounts import UnixAccount
from boa_daemon.engines.generation_units import RIGID, readable, unit_name, units_of
from boa_daemon.engines.layout import Layout, UnitScripts
from boa_daemon.job.unit import Unit
from boa_daemon.tick.facts.actions import StartJob
from boa_daemon.tick.facts.job_spec import JobSpec
from policies.model import GpuSlot, Width

LAYOUT = Layout(root=Path("/srv/boa"))
SPEC = JobSpec(job="train-7", name="train", class_name="bert", run="python train.py")
SLOTS = [("n2", 3), ("n2", 1), ("n1", 0)]
"""Two GPUs of the leader, which is not the first by its name, and one of another node."""


def units(*slots: tuple[str, int], spec: JobSpec = SPEC, places: int = 1, **others: Any) -> tuple[Unit, ...]:
    """Return the units of generation 4."""
    taken = slots or SLOTS
    action = StartJob(
        id="s",
        job=spec.job,
        generation=4,
        width=Width("gpu", len(taken)),
        slots=tuple(GpuSlot(*slot) for slot in taken),
        reason="",
        places_per_gpu=places,
    )
    addresses = {node: f"10.0.0.{node[1:]}" for node, _ in taken}
    return units_of(spec, action, LAYOUT, addresses=addresses, port=29500, **others)


def test_each_node_has_one_unit_and_the_node_of_the_first_slot_leads() -> None:
    """GPUs are listed in order, so that two processes of a node agree on them."""
    leader, other = units()
    own = [
        {name: unit.environment[name] for name in ("BOA_NODE_ID", "BOA_NODE_RANK", "BOA_GPUS_PER_NODE")}
        for unit in (leader, other)
    ]
    assert own == [
        {"BOA_NODE_ID": "n2", "BOA_NODE_RANK": "0", "BOA_GPUS_PER_NODE": "2"},
        {"BOA_NODE_ID": "n1", "BOA_NODE_RANK": "1", "BOA_GPUS_PER_NODE": "1"},
    ]
    assert [unit.environment["CUDA_VISIBLE_DEVICES"] for unit in (leader, other)] == ["1,3", "0"]
    assert [(unit.rank, unit.job, unit.generation) for unit in (leader, other)] == [
        (0, "train-7", 4),
        (1, "train-7", 4),
    ]


def test_all_units_meet_at_the_leader_and_count_the_same() -> None:
    """Three GPUs on two nodes; a generation's rendezvous is its own, and torchrun restarts nobody."""
    shared = {
        "BOA_GPUS": "3",
        "BOA_NODES": "2",
        "BOA_JOB_ID": "train-7",
        "BOA_GENERATION": "4",
        "PET_NNODES": "2",
        "PET_RDZV_ENDPOINT": "10.0.0.2:29500",
        "PET_RDZV_ID": "train-7-g4",
        "PET_RDZV_BACKEND": "static",
        "PET_MAX_RESTARTS": "0",
        "MASTER_ADDR": "10.0.0.2",
        "MASTER_PORT": "29500",
    }
    for unit in units():
        assert {name: unit.environment[name] for name in shared} == shared
    assert [unit.environment["PET_LOCAL_ADDR"] for unit in units()] == ["10.0.0.2", "10.0.0.1"]
    assert [
        (unit.environment["PET_NODE_RANK"], unit.environment["PET_NPROC_PER_NODE"]) for unit in units()
    ] == [
        ("0", "2"),
        ("1", "1"),
    ]


def test_a_job_file_cannot_replace_the_variables_of_boa_but_those_of_its_account() -> None:
    """Else a job would read another checkpoint, or another gate."""
    said = {
        "BOA_GPUS": "99",
        "BOA_CHECKPOINT_DIR": "/x",
        "CUDA_VISIBLE_DEVICES": "7",
        "HOME": "/mine",
        "A": "b",
    }
    account = UnixAccount(
        uid=70_001, gid=70_002, door_gid=70_003, name="u", home=Path("/home/u"), groups=(5,)
    )
    (unit,) = units(("n1", 0), spec=replace(SPEC, environment=said), account=account)
    found = unit.environment
    assert (found["BOA_GPUS"], found["CUDA_VISIBLE_DEVICES"], found["A"]) == ("1", "0", "b")
    assert found["BOA_CHECKPOINT_DIR"] == unit.checkpoint_dir == str(LAYOUT.checkpoints("train-7"))
    assert (found["HOME"], found["USER"]) == ("/mine", "u")
    assert (unit.uid, unit.gid, unit.door_gid, unit.groups) == (70_001, 70_002, 70_003, (5,))


@pytest.mark.parametrize(("places", "part"), [(1, None), (2, 0.5), (4, 0.25)])
def test_a_shared_gpu_is_shared_by_its_memory(places: int, part: float | None) -> None:
    """A whole GPU has no limit; what its shares leave is for the GPU itself."""
    found = units(places=places)[0].environment
    given = [found.get(name) for name in ("BOA_GPU_MEMORY_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")]
    if part is None:
        assert given == [None, None]
    else:
        assert given[0] == given[1]
        assert part * 0.8 < float(given[0] or 0.0) < part


def test_processes_of_one_gpu_have_no_marks_of_their_ranks() -> None:
    """Two or more have: their lines would mix. Where a failure is written is told to all."""
    one, two = units(("n1", 0))[0].environment, units(("n1", 0), ("n1", 1))[0].environment
    assert ("PET_TEE" in one, "PET_TEE" in two) == (False, True)
    assert {"TORCHELASTIC_ERROR_FILE"} <= {*one} & {*two}


def test_a_unit_has_what_its_job_file_asks_for() -> None:
    """Its limits and options, the folders of its work, and where the gate is told."""
    spec = replace(
        SPEC, weight=2.5, keep_checkpoints=7, log_bytes=99, memory_gb=3.0, artifacts=("*.txt",),
        image="org/x:1", code="abc", workdir="below",
    )  # fmt: skip
    unit = units(("n1", 0), spec=spec, errands=UnitScripts(after="told"))[0]
    own = {name: unit.environment[name] for name in ("BOA_WEIGHT", "BOA_KEEP_CHECKPOINTS", "BOA_GATE")}
    gate = str(LAYOUT.generation("train-7", 4) / "gate.json")
    assert own == {"BOA_WEIGHT": "2.5", "BOA_KEEP_CHECKPOINTS": "7", "BOA_GATE": gate}
    assert (unit.log_bytes, unit.memory_gb, unit.artifacts, unit.image) == (99, 3.0, ("*.txt",), "org/x:1")
    assert unit.artifacts_dir == str(LAYOUT.artifacts("train-7"))
    assert unit.workdir == str(LAYOUT.work("train-7") / "below")
    assert unit.name in unit.after
    assert unit.after.endswith("; told")


def test_the_leader_is_the_node_of_the_first_slot_whatever_the_names() -> None:
    """Ranks follow the slots, and not the order of names."""
    assert units(("n1", 0), ("n2", 0))[1].environment["MASTER_ADDR"] == "10.0.0.1"
    assert units(("n2", 0), ("n1", 0))[1].environment["MASTER_ADDR"] == "10.0.0.2"
    assert len(readable("j" * 300)) == 64


def test_a_note_on_rigid_jobs_is_in_the_log_of_the_leader_alone() -> None:
    """Others would say it once for each node."""
    notes = [unit.note for unit in units(spec=replace(SPEC, is_rigid=True))]
    assert notes == [RIGID, ""]
    assert [unit.note for unit in units()] == ["", ""]


def test_torchrun_waits_as_long_as_the_job_has_for_its_checkpoint() -> None:
    """Whole seconds, rounded up: it would kill the job sooner."""
    unit = units(spec=replace(SPEC, stop_grace_seconds=0.5))[0]
    waits = [unit.environment[name] for name in ("PET_SHUTDOWN_TIMEOUT", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT")]
    assert (waits, unit.grace_seconds) == (["1", "1"], 0.5)


def test_only_who_names_secrets_code_or_data_gets_them() -> None:
    """The folder around the code is what a container sees."""
    plain = units(("n1", 0), secrets_file="/s", code_at="/c.tar")[0]
    assert (plain.secrets_file, plain.mounts, plain.data_cache, plain.bring) == ("", "", "", "")
    assert "BOA_DATA_DIR" not in plain.environment
    spec = replace(SPEC, code="abc", secrets={"TOKEN": "t"}, data={"set": "s3://b/set"})
    full = units(("n1", 0), spec=spec, secrets_file="/s", code_at="/c.tar")[0]
    assert (full.secrets_file, full.mounts, full.data_cache) == (
        "/s",
        str(LAYOUT.work("train-7")),
        str(LAYOUT.data),
    )
    assert full.environment["BOA_DATA_DIR"] == str(full.folder / "data")
    assert "/c.tar" in full.bring


def test_the_setup_marks_the_folder_of_the_job_or_of_its_users_home() -> None:
    """Another user than the daemon's may write only there."""
    spec = replace(SPEC, setup="pip install x")
    account = UnixAccount(uid=7, gid=7, door_gid=7, name="u", home=Path("/home/u"))
    assert "mkdir -p /srv/boa/train-7\n" in units(("n1", 0), spec=spec)[0].run
    assert "mkdir -p /srv/boa/train-7/home\n" in units(("n1", 0), spec=spec, account=account)[0].run


def test_errands_and_paths_of_a_unit_are_those_of_its_engine_and_rank() -> None:
    """Ranks write apart, below the part of the generation's folder that belongs to the command."""
    errands = UnitScripts(before="b", beat="t", after="a", keep="k", look="l", beat_seconds=7.0)
    leader, other = units(errands=errands)
    assert (other.before, other.beat, other.after, other.keep, other.look, other.beat_seconds) == (
        "b", "t", "a", "k", "l", 7.0,
    )  # fmt: skip
    folder = LAYOUT.generation("train-7", 4)
    assert (other.folder, other.progress_file) == (folder / "n1", str(folder / "own" / "progress.json"))
    assert [unit.environment["BOA_SCRATCH"] for unit in (leader, other)] == [
        str(folder / "own" / name / "scratch") for name in ("n0", "n1")
    ]
    assert [unit.environment["BOA_UNIT"] for unit in (leader, other)] == [leader.name, other.name]


@given(job=text(min_size=1), other=text(min_size=1), number=integers(1, 9))
def test_a_units_name_is_valid_and_differs_with_root_job_generation_and_node(
    job: str, other: str, number: int
) -> None:
    """Two daemons of one machine may have jobs of one id."""
    names = {
        unit_name(LAYOUT, job, number, 0),
        unit_name(LAYOUT, job, number, 1),
        unit_name(LAYOUT, job, number + 10, 0),
        unit_name(Layout(root=Path("/srv/other")), job, number, 0),
        *({unit_name(LAYOUT, other, number, 0)} if other != job else ()),
    }
    assert len(names) == 4 + (other != job)
    assert all(re.fullmatch(r"boa-[A-Za-z0-9_.-]{1,100}", name) for name in names)
