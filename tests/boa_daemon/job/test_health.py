"""`boa_daemon/job/health.py`: a node is fit, or its faults are named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

GOOD = "0, 570.172.08, 0, 0\n1, 570.172.08, 0, 0\n"


def look(
    folder: Path,
    *flags: str,
    smi: str | None = GOOD,
    dmesg: str = "",
    cards: int = 0,
    links: str = "",
    fabric_says: tuple[str, int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Run the health check with fake tools that give these answers; return its result."""
    said = {"nvidia-smi": (smi, 0), "dmesg": (dmesg, 0), "nvlink": (links, 0), "fi_info": fabric_says}
    for name, answer in said.items():
        if answer is not None and answer[0] is not None:
            (folder / f"{name}.txt").write_text(answer[0])
            other = f'[ "$1" = nvlink ] && exec cat {folder}/nvlink.txt' if name == "nvidia-smi" else ":"
            (folder / name).write_text(f"#!/bin/sh\n{other}\ncat {folder / name}.txt\nexit {answer[1]}\n")
            (folder / name).chmod(0o755)
    fabric = folder / "infiniband"
    for number in range(cards):
        (fabric / f"rdmap{number}").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon.job.health", *flags],
        env={
            **os.environ,
            "PATH": f"{folder}:/usr/bin:/bin",
            "BOA_INFINIBAND": str(fabric),
            **(environment or {}),
        },
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def test_a_fit_node_has_no_fault(tmp_path: Path) -> None:
    """The GPUs and EFA cards match the type; a check that could not run is a note."""
    found = look(tmp_path, "--gpus", "2", "--efa", "1", cards=1)

    assert (found["faults"], found["gpus"], found["driver"]) == ([], 2, "570.172.08")
    assert "all-reduce" in str(found["notes"])


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        ({"smi": "0, 570.1, 0, 0\n"}, "1 of 2 GPUs answer nvidia-smi"),
        ({"smi": None}, "nvidia-smi: not installed"),
        ({"smi": "Unable to determine the device handle: GPU is lost\n"}, "nvidia-smi: Unable to determine"),
        (
            {"smi": GOOD.replace("1, 570.172.08, 0", "1, 570.172.08, 3")},
            "GPU 1 has 3 uncorrectable memory errors",
        ),
        ({"smi": GOOD.replace("0, 0\n", "0, Yes\n", 1)}, "GPU 0 has no spare memory rows left"),
        (
            {"dmesg": "[9.1] NVRM: Xid (PCI:0000:10:1c): 79, pid=1, GPU has fallen off the bus.\n"},
            "Xid 79 at PCI",
        ),
        ({"cards": 3}, "3 of 4 EFA cards are there"),
    ],
)
def test_each_hardware_fault_is_named(tmp_path: Path, case: dict[str, object], fault: str) -> None:
    """Missing GPUs or cards, memory errors and Xid messages are faults."""
    found = look(tmp_path, "--gpus", "2", "--efa", "4" if "cards" in case else "0", **case)  # type: ignore[arg-type]

    assert fault in str(found["faults"])


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_xid_messages_caused_by_programs_are_not_faults(tmp_path: Path, xid: int) -> None:
    """An invalid memory access of a program says nothing about the GPU."""
    said = f"[9.1] NVRM: Xid (PCI:0000:10:1c): {xid}, pid=1, name=python3\n"

    assert look(tmp_path, "--gpus", "2", dmesg=said)["faults"] == []


def test_gpus_without_error_counters_are_fit(tmp_path: Path) -> None:
    """Small GPUs answer [N/A]."""
    assert look(tmp_path, "--gpus", "1", smi="0, 570.1, [N/A], [N/A]\n")["faults"] == []


@pytest.mark.parametrize(
    ("case", "faults"),
    [
        ({}, []),
        # A machine without NVIDIA's tools has no GPUs that could fail.
        ({"smi": None}, []),
        (
            {"smi": GOOD.replace("1, 570.172.08, 0", "1, 570.172.08, 1")},
            ["GPU 1 has 1 uncorrectable memory error"],
        ),
        ({"smi": "Unable to determine the device handle for GPU0000: GPU is lost\n"}, ["nvidia-smi: Unable"]),
        (
            {"dmesg": "[9.1] NVRM: Xid (PCI:0000:10:1c): 74, pid=1, NVLink\n"},
            ["Xid 74 at PCI:0000:10:1c: an NVLink"],
        ),
        # Xid 13 and 31 come from wrong kernels or wrong pointers.
        ({"dmesg": "[9.1] NVRM: Xid (PCI:0000:10:1c): 31, pid=1, MMU fault\n"}, []),
    ],
)
def test_the_short_check_beside_a_job_writes_hardware_faults_to_a_file(
    tmp_path: Path, case: dict[str, str], faults: list[str]
) -> None:
    """A check that cannot run is not a fault."""
    file = tmp_path / "health.json"
    with pytest.raises(json.JSONDecodeError):
        look(tmp_path, "--watch", str(file), **case)  # type: ignore[arg-type]
    found = json.loads(file.read_text())["faults"]

    assert len(found) == len(faults)
    assert all(wanted in said for wanted, said in zip(faults, found, strict=True))


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        ({"Overall Health": {"value": "Healthy"}}, []),
        ({"Overall Health": {"value": "Failure"}}, ["DCGM calls Overall Health a failure"]),
        (
            {
                "Overall Health": {"value": "Failure"},
                "GPU": {
                    "children": {
                        "0": {
                            "value": "Failure",
                            "children": {
                                "Errors": {
                                    "children": {
                                        "Memory system": {
                                            "value": "Failure",
                                            "overflow": ["DBE"],
                                        },
                                        "PCIe system": {"value": "Warning"},
                                    }
                                }
                            },
                        },
                        "1": {"value": "Warning", "children": {"Errors": {"children": {}}}},
                    }
                },
            },
            ["DCGM calls GPU 0 Memory system a failure"],
        ),
        ([], []),
    ],
)
def test_failures_in_dcgmis_output_are_faults(tmp_path: Path, body: object, faults: list[str]) -> None:
    """Output as `Health.cpp` and `DcgmiOutput.cpp` of NVIDIA/DCGM write it; each fault is named once."""
    document = {"header": ["Health Monitor Report"], "body": body}
    (tmp_path / "dcgmi").write_text(f"#!/bin/sh\necho '{json.dumps(document)}'\n")
    (tmp_path / "dcgmi").chmod(0o755)
    file = tmp_path / "health.json"
    with pytest.raises(json.JSONDecodeError):
        look(tmp_path, "--watch", str(file))
    assert json.loads(file.read_text())["faults"] == faults


def test_a_dcgm_failure_is_a_fault_and_a_warning_is_not(tmp_path: Path) -> None:
    """The check uses DCGM if it is installed."""
    body = {
        "body": {
            "GPU": {
                "children": {
                    "0": {"children": {"NVLink": {"value": "Failure"}, "PCIe": {"value": "Warning"}}}
                }
            }
        }
    }
    (tmp_path / "dcgmi").write_text(f"#!/bin/sh\necho '{json.dumps(body)}'\n")
    (tmp_path / "dcgmi").chmod(0o755)
    file = tmp_path / "health.json"
    with pytest.raises(json.JSONDecodeError):
        look(tmp_path, "--watch", str(file))
    assert json.loads(file.read_text())["faults"] == ["DCGM calls GPU 0 NVLink a failure"]


A100 = """GPU {gpu}: NVIDIA A100-SXM4-40GB (UUID: GPU-0b9e5b0c-1a61-7a2c-0000-00000000000{gpu})
{links}"""
UP, DOWN = "\t Link {}: 25 GB/s\n", "\t Link {}: <inactive>\n"


def nvlinks(*up: int, of: int = 12) -> str:
    """Return the output of `nvidia-smi nvlink --status` for GPUs with these numbers of links up."""
    rows = ["".join((UP if link < count else DOWN).format(link) for link in range(of)) for count in up]
    return "".join(A100.format(gpu=gpu, links=row) for gpu, row in enumerate(rows))


@pytest.mark.parametrize(
    ("links", "faults"),
    [
        (nvlinks(12, 12), []),
        (nvlinks(12, 11), ["GPU 1 has 11 of 12 NVLinks up"]),
        (nvlinks(0, 12), ["GPU 0 has 0 of 12 NVLinks up"]),
        # On a part of a P3, every GPU has links to GPUs outside the instance.
        (nvlinks(4, 4, of=6), []),
        ("Unable to retrieve NVLink information as all links are inActive\n", []),
        ("", []),
    ],
)
def test_a_gpu_with_fewer_nvlinks_up_than_the_others_is_a_fault(
    tmp_path: Path, links: str, faults: list[str]
) -> None:
    """Both the check at admission and the short check find it."""
    assert look(tmp_path, "--gpus", "2", links=links)["faults"] == faults
    file = tmp_path / "health.json"
    with pytest.raises(json.JSONDecodeError):
        look(tmp_path, "--watch", str(file), links=links)
    assert json.loads(file.read_text())["faults"] == faults


CARD = """provider: efa
    fabric: efa
    domain: rdmap{}s27-rdm
    version: 119.0
    type: FI_EP_RDM
    protocol: FI_PROTO_EFA
"""
NONE = "fi_getinfo: -61 (No data available)\n"


@pytest.mark.parametrize(
    ("fabric_says", "faults", "notes"),
    [
        (("".join(CARD.format(number) for number in range(4)), 0), "[]", "[]"),
        # Each card is listed once per protocol.
        ((CARD.format(0) * 4, 0), "libfabric finds 1 of 4 EFA cards", "[]"),
        ((NONE, 61), "libfabric finds 0 of 4 EFA cards: fi_getinfo: -61 (No data available)", "[]"),
        (None, "[]", "fi_info is not installed"),
    ],
)
def test_efa_cards_that_libfabric_does_not_find_are_a_fault(
    tmp_path: Path, fabric_says: tuple[str, int] | None, faults: str, notes: str
) -> None:
    """NCCL would fall back to TCP, which is ten times slower."""
    found = look(
        tmp_path, "--gpus", "1", "--efa", "4", smi="0, 570.1, 0, 0\n", cards=4, fabric_says=fabric_says
    )

    assert faults in str(found["faults"])
    assert notes in str(found["notes"])


TORCH = """
import os
class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 2)
    set_device = staticmethod(lambda rank: None)
class Tensor:
    def __init__(self, value): self.value = value
    def eq(self, other): return Tensor(self.value == other)
    def all(self): return self.value
full = lambda shape, value, device: Tensor(value)
"""
DISTRIBUTED = """
import os
def init_process_group(kind, rank, world_size, init_method): assert (kind, world_size) == ("nccl", 2)
def destroy_process_group(): pass
def all_reduce(x):
    if os.environ["FAKE_SUM"] == "error":
        raise RuntimeError("NCCL error: unhandled cuda error")
    x.value = float(os.environ["FAKE_SUM"])
"""
SPAWN = "def spawn(one, args, nprocs):\n    for rank in range(nprocs): one(rank, *args)\n"


@pytest.mark.parametrize(
    ("total", "fault"),
    [("3", ""), ("2", "the sum is wrong"), ("error", "NCCL error: unhandled cuda error")],
)
def test_a_wrong_or_failed_all_reduce_is_a_fault(tmp_path: Path, total: str, fault: str) -> None:
    """The check's real script runs against a fake torch with a given sum."""
    package = tmp_path / "torch"
    package.mkdir()
    for name, text in (("__init__", TORCH), ("distributed", DISTRIBUTED), ("multiprocessing", SPAWN)):
        (package / f"{name}.py").write_text(text)
    paths = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}:{Path(__file__).parents[3]}"
    environment = {"PYTHONPATH": paths, "BOA_NVIDIA": str(tmp_path), "FAKE_SUM": total}
    found = look(tmp_path, "--gpus", "2", environment=environment)

    assert found["notes"] == []
    assert (fault in str(found["faults"])) if fault else found["faults"] == []
