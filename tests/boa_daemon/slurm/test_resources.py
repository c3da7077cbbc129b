"""Every form of a list of resources that Slurm prints or takes, and what is none."""

from __future__ import annotations

import pytest

from boa_daemon.slurm.resources import read_gpus

GPUS: dict[str, dict[str, int]] = {
    "": {},
    "(null)": {},
    "N/A": {},
    "none": {},
    # sacct, and `scontrol show job`.
    "cpu=4,mem=8G,node=1": {},
    "cpu=4,gres/gpu=2,node=1": {"": 2},
    "gres/gpu:a100=2,gres/gpu=2": {"a100": 2},
    "gres/gpu=2,gres/gpu:A100=2": {"a100": 2},
    "gres/gpu:a100=2": {"a100": 2},
    "gres/gpu:tesla_v100=4": {"tesla_v100": 4},
    "gres/gpu:nvidia_a100-sxm4-80gb=8": {"nvidia_a100-sxm4-80gb": 8},
    "gres/gpu=3,gres/gpu:a100=1,gres/gpu:v100=2": {"a100": 1, "v100": 2},
    "gres/gpu=3,gres/gpu:a100=1": {"a100": 1, "": 2},
    "gres/gpumem=40G,gres/gpuutil=90,gres/gpu=1": {"": 1},
    "gres/gpu:1g.5gb=1": {"1g.5gb": 1},
    "GRES/GPU=2": {"": 2},
    "cpu=2, gres/gpu=2": {"": 2},
    "billing=8,cpu=1.5K,energy=0,fs/disk=10,license/m@h=1,mem=1.2T,vmem=2G,gres/gpu=2": {"": 2},
    "gres/gpu=1K": {"": 1024},
    "gres/gpu=0": {},
    # sinfo and slurm.conf.
    "gpu": {"": 1},
    "gpu:2": {"": 2},
    "gpu:tesla": {"tesla": 1},
    "gpu:3090:2": {"3090": 2},
    "gpu:1080ti:4": {"1080ti": 4},
    "gpu:a100:2(S:0-1)": {"a100": 2},
    "gpu(IDX:0-3)": {"": 1},
    "gpu:4(IDX:0-3)": {"": 4},
    "gpu:a100:3(IDX:0-1,3),gpu:v100:0(IDX:N/A)": {"a100": 3},
    "gpu:v100:4(S:0-1),craynetwork:1": {"v100": 4},
    "craynetwork:1,gpu:4(IDX:0-3,5)": {"": 4},
    "gpu:a100:2,gpu:v100:2": {"a100": 2, "v100": 2},
    "gpu:a100:4(S:0,1),gpu:a100:2(S:2-3)": {"a100": 6},
    "gpu:no_consume:4": {"": 4},
    "gpu:tesla:no_consume:2": {"tesla": 2},
    "gpu:nvidia_a100_1g.5gb:7": {"nvidia_a100_1g.5gb": 7},
    "gpu:1g.10gb:7(S:0)": {"1g.10gb": 7},
    "gpu:4(S:0-1),mps:400,shard:16": {"": 4},
    "nvme:no_consume:100G,lustre:1,gpu:1": {"": 1},
    "GPU:4": {"": 4},
    # squeue, old sacct.
    "gres:gpu:2": {"": 2},
    "gres:gpu:a100:2": {"a100": 2},
    "gres/gpu:2": {"": 2},
    "gres/gpu:a100:2": {"a100": 2},
    "gres:gpu": {"": 1},
    "PER_NODE:gpu:2": {"": 2},
    "cpu:4,gres:gpu:2": {"": 2},
    "7696487:2": {"": 2},
    # Parts alone.
    "gres/shard=4,cpu=1": {},
    "mps:100": {},
}


@pytest.mark.parametrize(("text", "by_type"), GPUS.items(), ids=[text or "nothing" for text in GPUS])
def test_gpus_by_type(text: str, by_type: dict[str, int]) -> None:
    """A sum and its parts count once; brackets and resources of other kinds are no GPUs."""
    found = read_gpus(text)
    assert (dict(found.by_type), found.unread) == (by_type, ())
    assert found.count == sum(by_type.values())
    named = [name for name in by_type if name]
    assert found.model == (named[0] if len(named) == 1 else "")


@pytest.mark.parametrize("text", ["gres:gpu:2", "gres/gpu:a100:2", "PER_NODE:gpu:2", "per_node:gres:gpu:1"])
def test_requests_are_per_node(text: str) -> None:
    """Unlike what is allocated, which has an equals sign."""
    assert read_gpus(text).is_per_node
    assert not read_gpus("gres/gpu:a100=2,gpu:2").is_per_node


@pytest.mark.parametrize(
    ("text", "units"),
    [("gres/shard=4", 4), ("mps:100", 100), ("gres/mps:a100=50,gpu:0", 50), ("gres/shard=0", 0)],
)
def test_parts_of_gpus_have_their_own_units(text: str, units: int) -> None:
    """Which are no numbers of GPUs."""
    assert (read_gpus(text).part_units, read_gpus(text).count) == (units, 0)


@pytest.mark.parametrize(
    "text",
    [
        "gres/g+", "cpu=8,gres/gpu=", "gpu/a100:2", "gpus=2", "gpus:2", "gres/gpu=two", "gpu:a:b:2",
        "gres/gpu=-1",
        "1=8,1001=2", "gpu:2=x", "=2", "gres/gpu:=2", "gpu::2", "cpu 8",
    ],
)  # fmt: skip
def test_what_is_no_resource_is_named(text: str) -> None:
    """It counts as nothing, and whoever asks decides."""
    assert read_gpus(text).unread
