"""`boa_daemon/job/health.py`: a node is fit, or its fault is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

GOOD = "0, 570.172.08, 0, 0\n1, 570.172.08, 0, 0\n"


def look(
    folder: Path, *flags: str, smi: str | None = GOOD, dmesg: str = "", cards: int = 0
) -> dict[str, object]:
    """Return what the program finds with these tools in its path."""
    for name, text in (("nvidia-smi", smi), ("dmesg", dmesg)):
        if text is not None:
            (folder / f"{name}.txt").write_text(text)
            (folder / name).write_text(f"#!/bin/sh\ncat {folder / name}.txt\n")
            (folder / name).chmod(0o755)
    fabric = folder / "infiniband"
    for number in range(cards):
        (fabric / f"rdmap{number}").mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-m", "boa_daemon.job.health", *flags],
        env={**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "BOA_INFINIBAND": str(fabric)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def test_a_fit_node_has_no_fault(tmp_path: Path) -> None:
    """As many GPUs as the type has, cards too; what could not be tried is a note."""
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
def test_what_is_wrong_is_named(tmp_path: Path, case: dict[str, object], fault: str) -> None:
    """One sentence per fault of the hardware."""
    found = look(tmp_path, "--gpus", "2", "--efa", "4" if "cards" in case else "0", **case)  # type: ignore[arg-type]

    assert fault in str(found["faults"])


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_faults_of_jobs_are_not_the_nodes(tmp_path: Path, xid: int) -> None:
    """A program that reads where it may not leaves a message that says nothing of the GPU."""
    said = f"[9.1] NVRM: Xid (PCI:0000:10:1c): {xid}, pid=1, name=python3\n"

    assert look(tmp_path, "--gpus", "2", dmesg=said)["faults"] == []


def test_small_gpus_that_count_no_errors_are_fit(tmp_path: Path) -> None:
    """They answer [N/A]."""
    assert look(tmp_path, "--gpus", "1", smi="0, 570.1, [N/A], [N/A]\n")["faults"] == []


@pytest.mark.parametrize(
    ("case", "faults"),
    [
        ({}, []),
        # A machine without NVIDIA's tools has no GPUs to be sick.
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
        # 13 and 31 are what a wrong kernel or a wrong pointer does.
        ({"dmesg": "[9.1] NVRM: Xid (PCI:0000:10:1c): 31, pid=1, MMU fault\n"}, []),
    ],
)
def test_the_short_look_beside_a_job(tmp_path: Path, case: dict[str, str], faults: list[str]) -> None:
    """What the hardware says is in the file; what could not be looked at is no fault."""
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
def test_answers_as_dcgmi_writes_them(tmp_path: Path, body: object, faults: list[str]) -> None:
    """In the form of `Health.cpp` and `DcgmiOutput.cpp` of NVIDIA/DCGM: one fault, named once."""
    document = {"header": ["Health Monitor Report"], "body": body}
    (tmp_path / "dcgmi").write_text(f"#!/bin/sh\necho '{json.dumps(document)}'\n")
    (tmp_path / "dcgmi").chmod(0o755)
    file = tmp_path / "health.json"
    with pytest.raises(json.JSONDecodeError):
        look(tmp_path, "--watch", str(file))
    assert json.loads(file.read_text())["faults"] == faults


def test_what_nvidias_own_watcher_calls_a_failure(tmp_path: Path) -> None:
    """Where DCGM is there and was set up; a warning of it is none."""
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
