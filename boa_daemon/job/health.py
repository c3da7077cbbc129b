"""Health check of a node, run before its first job.  Standard library only.

`python3 -m boa_daemon.job.health --gpus 8 --efa 4` prints one line of JSON. `faults` are reasons not to use
the node: a GPU is missing, has uncorrectable memory errors, has fallen off the bus, has fewer NVLinks than
others, or fails an all-reduce with the others; an EFA card is missing, or libfabric does not find it. `notes`
are checks that could not be made. The exit code is always 0: a failed check is a finding, not an error.

`--watch FILE` is the short check beside a running job: it writes `faults` into the file and does not use the
GPUs. A check that cannot be made is not a fault.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from boa_daemon.job.whole_files import write_whole

QUERY = "index,driver_version,ecc.errors.uncorrected.volatile.total,remapped_rows.failure"
LOOK_SECONDS, REDUCE_SECONDS = 20.0, 40.0
MOST_FAULTS = 8
BAD_XIDS = {
    48: "an uncorrectable memory error",
    62: "the GPU's own controller halted",
    64: "a memory row could not be replaced",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    95: "an uncontained memory error",
    119: "the GPU's own processor does not answer",
    120: "the GPU's own processor failed",
}
"""Xid errors of the driver that only broken hardware causes; others come from the job, or are transient."""
_OVERALL = "Overall Health"
_ABSENT, _SLOW = "not installed", "no answer within"
_LINKS_OF, _LINK = re.compile(r"GPU (\d+):"), re.compile(r"\s+Link \d+: [\d.]+ GB/s")
_FI_INFO = ("fi_info", "/opt/amazon/efa/bin/fi_info")
_DOMAIN = re.compile(r"^\s+domain: (\S+)", re.MULTILINE)
_XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d+)")
_REDUCE = """
import os, torch, torch.distributed as dist, torch.multiprocessing as mp
def one(rank, size):
    torch.cuda.set_device(rank)
    meet = "file://" + os.environ["BOA_MEET"]
    dist.init_process_group("nccl", rank=rank, world_size=size, init_method=meet)
    x = torch.full((1 << 20,), float(rank + 1), device="cuda")
    dist.all_reduce(x)
    assert x.eq(size * (size + 1) / 2).all(), "the sum is wrong"
    dist.destroy_process_group()
if __name__ == "__main__":
    n = torch.cuda.device_count()
    mp.spawn(one, args=(n,), nprocs=n)
    print("reduced over", n)
"""


def look(gpus: int, efa: int) -> dict[str, object]:
    """Return the result of the full check: faults, notes, the number of GPUs that answer, and the driver."""
    faults: list[str] = []
    notes: list[str] = []
    rows = list(_gpus(faults))
    if not faults and len(rows) < gpus:
        faults.append(f"{len(rows)} of {gpus} GPUs answer nvidia-smi")
    faults += [fault for row in rows for fault in _faults_of(row)]
    faults += [*_links(), *_xids(notes)]
    if gpus > 1 and not faults:
        faults += _reduced(notes)
    if efa:
        faults += _efa(efa, notes)
    return {"faults": faults, "notes": notes, "gpus": len(rows), "driver": rows[0][1] if rows else ""}


def watch() -> list[str]:
    """Return the faults that can be found while a job runs."""
    faults: list[str] = []
    rows = list(_gpus(faults))
    # A slow nvidia-smi is no fault here: only the kernel's messages tell a hanging driver from a busy one.
    faults = [fault for fault in faults if _ABSENT not in fault and _SLOW not in fault]
    faults += [fault for row in rows for fault in _faults_of(row)]
    return [*faults, *_links(), *_xids([]), *_dcgm()]


def _dcgm() -> list[str]:
    """Return the failures that NVIDIA's DCGM reports, if it is installed and set up."""
    said, why = _run(["dcgmi", "health", "-c", "-j"], LOOK_SECONDS)
    try:
        found = [] if why else sorted(set(_failures(json.loads(said).get("body"), ())))
    except (ValueError, AttributeError):
        return []
    # Report the overall health only if no part is named.
    found = [name for name in found if name != _OVERALL] or found
    return [f"DCGM calls {name} a failure" for name in found]


def _failures(value: object, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the innermost failures in a DCGM document, such as `GPU 0 Memory system` but not `GPU 0` as well.

    Each node is `{"value": ..., "children": {...}}`, as `dcgmi` writes all of its answers in JSON.
    """
    if not isinstance(value, dict):
        return
    below = {key: item for key, item in value.items() if isinstance(item, dict) and key != "children"}
    children = value.get("children")
    below |= children if isinstance(children, dict) else {}
    found = [
        each
        for key, item in below.items()
        for each in _failures(item, path if key == "Errors" else (*path, str(key)))
    ]
    yield from found
    if not found and value.get("value") == "Failure":
        yield " ".join(path)


def _gpus(faults: list[str]) -> Iterator[list[str]]:
    """Yield the fields of each GPU that the driver knows."""
    said, why = _run(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"], LOOK_SECONDS)
    if why:
        faults.append(f"nvidia-smi: {why}")
        return
    for line in said.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == len(QUERY.split(",")):
            yield fields
        elif line.strip():
            faults.append(f"nvidia-smi: {line.strip()[:120]}")


def _faults_of(row: Sequence[str]) -> Iterator[str]:
    """Yield the faults of a GPU; small GPU types do not count these errors and report [N/A]."""
    index, _, errors, remap_failed = row
    if errors.isdigit() and int(errors):
        noun = "error" if int(errors) == 1 else "errors"
        yield f"GPU {index} has {errors} uncorrectable memory {noun}"
    if remap_failed.lower() in ("1", "yes"):
        yield f"GPU {index} has no spare memory rows left"


def _links() -> list[str]:
    """Return the GPUs that have fewer NVLinks up than other GPUs of this node.

    GPUs are compared within the node, because the number of links that are up depends on the instance type:
    some links of a smaller P3 lead nowhere.
    """
    said, why = _run(["nvidia-smi", "nvlink", "--status"], LOOK_SECONDS)
    counts: dict[str, int] = {}
    gpu = ""
    for line in [] if why else said.splitlines():
        if found := _LINKS_OF.match(line):
            gpu = found[1]
            counts[gpu] = 0
        elif gpu and _LINK.match(line):
            counts[gpu] += 1
    most = max(counts.values(), default=0)
    return [f"GPU {gpu} has {up} of {most} NVLinks up" for gpu, up in counts.items() if up < most]


def _xids(notes: list[str]) -> list[str]:
    """Return the driver's Xid errors since boot that mean broken hardware."""
    said, why = _run(["dmesg"], LOOK_SECONDS)
    if why:
        notes.append(f"the kernel's log could not be read: {why}")
    found = {(where, int(number)) for where, number in _XID.findall(said)}
    return [f"Xid {n} at {where}: {BAD_XIDS[n]}" for where, n in sorted(found) if n in BAD_XIDS]


def _reduced(notes: list[str]) -> list[str]:
    """Run one all-reduce over all GPUs, if the image has PyTorch; return why it failed."""
    device = Path(os.environ.get("BOA_NVIDIA", "/dev/nvidia0"))
    if not device.exists():
        notes.append(f"no all-reduce was tried: there is no {device}")
        return []
    _, lacking = _run([sys.executable, "-c", "import torch; assert torch.cuda.is_available()"], LOOK_SECONDS)
    if lacking:
        notes.append("no all-reduce was tried: python3 on this image has no PyTorch with CUDA")
        return []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "reduce.py")
        script.write_text(_REDUCE)
        environment = {**os.environ, "BOA_MEET": str(Path(folder, "meet"))}
        _, why = _run([sys.executable, str(script)], REDUCE_SECONDS, environment)
    return [f"an all-reduce over the GPUs failed: {why}"] if why else []


def _efa(wanted: int, notes: list[str]) -> list[str]:
    """Return what is wrong with the EFA cards: the kernel must list and libfabric must find all of them."""
    folder = Path(os.environ.get("BOA_INFINIBAND", "/sys/class/infiniband"))
    found = len(list(folder.glob("*"))) if folder.is_dir() else 0
    if found < wanted:
        return [f"{found} of {wanted} EFA cards are there"]
    for program in _FI_INFO:
        said, why = _run([program, "-p", "efa", "-t", "FI_EP_RDM"], LOOK_SECONDS)
        if why == _ABSENT:
            continue
        domains = set() if why else set(_DOMAIN.findall(said))
        because = f": {why}" if why else ""
        return [] if len(domains) >= wanted else [
            f"libfabric finds {len(domains)} of {wanted} EFA cards{because}"
        ]  # fmt: skip
    notes.append("libfabric was not asked for its EFA cards: fi_info is not installed")
    return []


def _run(
    command: Sequence[str], seconds: float, environment: dict[str, str] | None = None
) -> tuple[str, str]:
    """Run a command; return its output, and why it failed (empty if it did not)."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, env=environment,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        return "", _ABSENT
    except subprocess.TimeoutExpired:
        return "", f"{_SLOW} {seconds:.0f} s"
    except OSError as error:
        return "", str(error)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        return done.stdout, (lines[-1][:160] if lines else f"exit code {done.returncode}")
    return done.stdout, ""


def main() -> None:
    """Print the result of the full check, or write that of the short check into a file."""
    parser = argparse.ArgumentParser(description="Say whether this node is fit for work.")
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--efa", type=int, default=0)
    parser.add_argument("--watch", type=Path)
    options = parser.parse_args()
    if options.watch is not None:
        write_whole(options.watch, json.dumps({"faults": watch()[:MOST_FAULTS]}), durable=False)
        return
    print(json.dumps(look(options.gpus, options.efa)))  # noqa: T201 - read by whoever asked


if __name__ == "__main__":
    main()
