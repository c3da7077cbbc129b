"""Files as other people have them, read right or refused with their line: encodings, packing, times, rows."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import zipfile
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.price_table import read_price_table
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.traces.workload import Options, Workload

HEAD = "JobID|Submit|Start|End|Elapsed|State|AllocTRES\n"
ROW = "7|2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T09:00:00|01:00:00|COMPLETED|gres/gpu=2\n"
SPAN, LATER = "|2026-03-02T08:00:00|2026-03-02T09", "|2026-03-02T10:00:00|2026-03-02T11"
NEXT = ROW.replace("7|", "8|", 1)
TIMES = "JobID|Submit|Start|End|AllocTRES\n7|{0}|{0}|{1}|gres/gpu=2\n"
ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration\n"
    "1,u,1,2,8,O,COMPLETED,2026-03-02 08:00:00,x,x,3600\n"
)
MANY = (HEAD + "".join(ROW.replace("7|", f"{n}|", 1) for n in range(3000))).encode()


def zipped(raw: bytes) -> bytes:
    """Return an archive with one file."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("sacct.txt", raw)
    return packed.getvalue()


def zstandard(raw: bytes) -> bytes:
    """Return a frame of Zstandard."""
    pyarrow = pytest.importorskip("pyarrow")
    found: bytes = pyarrow.Codec("zstd").compress(raw, asbytes=True)
    return found


def acme(before: str, after: str) -> bytes:
    """Return the table of Acme with a change."""
    assert before in ACME
    return ACME.replace(before, after).encode()


def row(before: str, after: str) -> bytes:
    """Return the output of sacct with a change in its only row."""
    assert before in ROW
    return (HEAD + ROW.replace(before, after)).encode()


def at(first: str, last: str) -> bytes:
    """Return the output of sacct with times in other words."""
    return TIMES.format(first, last).encode()


SACCT: dict[str, tuple[bytes, dict[str, float] | str]] = {
    # Encodings.
    "UTF-16": ((HEAD + ROW).encode("utf-16"), {"7": 2.0}),
    "UTF-16 without its mark": ((HEAD + ROW).encode("utf-16-le"), {"7": 2.0}),
    "UTF-16 of the other order": ((HEAD + ROW).encode("utf-16-be"), {"7": 2.0}),
    "cp1252": (f"JobName|{HEAD}M\xfcller|{ROW}".encode("cp1252"), ":2: not UTF-8 text: byte 0xfc"),
    "Shift-JIS": (f"JobName|{HEAD}\u5b66\u7fd2|{ROW}".encode("shift-jis"), ":2: not UTF-8 text: byte 0x8a"),
    "cp1252, packed": (gzip.compress(f"JobName|{HEAD}\xe9|{ROW}".encode("cp1252")), ":2: not UTF-8 text"),
    "zero bytes": ((HEAD + ROW).encode() + bytes(40), ":3: zero bytes in its text. It was not written whole"),
    "a zero byte in a cell": (
        (HEAD + ROW + NEXT.replace("COMPLETED", "COMP\0LETED")).encode(),
        ":3: zero bytes in its text",
    ),
    # Packing.
    "gzip of two members": (gzip.compress(HEAD.encode()) + gzip.compress(ROW.encode()), {"7": 2.0}),
    "bzip2 of two members": (bz2.compress(HEAD.encode()) + bz2.compress(ROW.encode()), {"7": 2.0}),
    "xz of two members": (lzma.compress(HEAD.encode()) + lzma.compress(ROW.encode()), {"7": 2.0}),
    "gzip with zeros behind it": (gzip.compress((HEAD + ROW).encode()) + bytes(512), {"7": 2.0}),
    "gzip with words behind it": (gzip.compress((HEAD + ROW).encode()) + b"words", "cannot be unpacked"),
    "gzip cut short": (gzip.compress(MANY)[:-40], "cannot be unpacked: .* The file may be cut short"),
    "bzip2 cut short": (bz2.compress(MANY)[:-40], "cannot be unpacked: .* The file may be cut short"),
    "xz cut short": (lzma.compress(MANY)[:-40], "cannot be unpacked: .* The file may be cut short"),
    "zip": (zipped((HEAD + ROW).encode()), {"7": 2.0}),
    "zip cut short": (zipped(MANY)[:-40], "cannot be unpacked: .* The file may be cut short"),
    "gzip in gzip": (gzip.compress(gzip.compress(MANY)), "it is packed twice. Unpack it once"),
    "gzip in zip": (zipped(gzip.compress(MANY)), "it is packed twice"),
    # Rows.
    "the header of a second file": ((HEAD + ROW + HEAD + NEXT).encode(), {"7": 2.0, "8": 2.0}),
    "the header twice": ((HEAD + HEAD + ROW).encode(), {"7": 2.0}),
    "a comment above": (("# march\n" + HEAD + ROW).encode(), {"7": 2.0}),
    "a comment between": ((HEAD + "# march | april\n" + ROW).encode(), {"7": 2.0}),
    "blank lines": ((HEAD + "\n  \n" + ROW + "\n").encode(), {"7": 2.0}),
    "no line end": ((HEAD + ROW).encode()[:-1], {"7": 2.0}),
    "carriage returns": ((HEAD + ROW).replace("\n", "\r").encode(), {"7": 2.0}),
    "capitals": ((HEAD.upper() + ROW).encode(), {"7": 2.0}),
    "spaces": ((HEAD + ROW).replace("|", " | ").encode(), {"7": 2.0}),
    "a row too short": (
        (HEAD + ROW + "8|2026").encode(),
        ":3: 2 cells where the header has 7. The file may be cut",
    ),
    "a bar in a name": ((HEAD + ROW + "a|" + NEXT).encode(), ":3: 8 cells .* leave JobName out"),
    "nothing": (b"", ":1: no header of sacct"),
    "a header alone": (HEAD.encode(), "no rows below the header"),
    "a row twice": ((HEAD + ROW + ROW).encode(), ":3: a second row for job 7; the first is on line 2"),
    # Jobs.
    "a limit for a run time": (row("|01:00:00", "|UNLIMITED"), ":2: Elapsed 'UNLIMITED'"),
    "an invalid run time": (row("|01:00:00", "|INVALID"), ":2: Elapsed 'INVALID'"),
    "a limit of the partition": (row("|01:00:00", "|Partition_Limit"), ":2: Elapsed 'Partition_Limit'"),
    "a run time below zero": (row("|01:00:00", "|-1:00:00"), ":2: Elapsed '-1:00:00'"),
    "an end before the start": (row("T09:", "T07:"), ":2: it ends 3600 s before it starts"),
    "an end on another day": (row("02T09:", "01T09:"), ":2: it ends 82800 s before it starts"),
    "an end before the start alone": (
        at("2026-03-02T08:00:00", "2026-03-02T06:00:00"),
        ":2: Start and End: 2026-03-02T06:00:00 is before",
    ),
    "an end that is not known": (row("2026-03-02T09:00:00", "Unknown"), {"7": 2.0}),
    "suspended for a while": (row("T09:", "T12:"), {"7": 2.0}),
    "one that runs": ((HEAD + NEXT.replace("COMPLETED", "RUNNING") + ROW).encode(), {"7": 2.0}),
    "an array that waits": (
        (HEAD + ROW + NEXT.replace("8|", "8_[3-5%2]|", 1).replace("COMPLETED", "PENDING")).encode(),
        {"7": 2.0},
    ),
    "a task of an array": (row("7|", "7_3|"), {"7_3": 2.0}),
    "a heterogeneous job": (
        (HEAD + ROW.replace("7|", "7+0|", 1) + ROW.replace("7|", "7+1|", 1)).encode(),
        {"7": 4.0},
    ),
    "steps": (
        (
            HEAD + ROW + "".join(ROW.replace("7|", f"7.{step}|", 1) for step in ("batch", "extern", "0"))
        ).encode(),
        {"7": 2.0},
    ),
    "a requeued job": (
        (HEAD + ROW.replace("COMPLETED", "REQUEUED") + ROW.replace(SPAN, LATER)).encode(),
        {"7": 4.0},
    ),
    # Times.
    "seconds": (at("1772438400", "1772442000"), {"7": 2.0}),
    "milliseconds": (at("1772438400000", "1772442000000"), {"7": 2.0}),
    "microseconds": (at("1772438400000000", "1772442000000000"), {"7": 2.0}),
    "nanoseconds": (at("1772438400000000000", "1772442000000000000"), {"7": 2.0}),
    "parts of seconds": (at("1772438400.5", "1772442000.5"), {"7": 2.0}),
    "an exponent": (at("1.7724384e9", "1.772442e9"), ":2: Start"),
    "ISO weeks": (at("2026-W10-1T08:00:00", "2026-W10-1T09:00:00"), {"7": 2.0}),
    "days of the year": (at("2026-061T08:00:00", "2026-061T09:00:00"), ":2: Start"),
    "Slurm's words": (at("Ystday 08:00", "Ystday 09:00"), ":2: Start"),
    "the month first, or the day": (at("03/02/2026 08:00", "03/02/2026 09:00"), "2026-02-03 or 2026-03-02"),
    "the day first": (at("22/03/2026 08:00", "22/03/2026 09:00"), {"7": 2.0}),
    "no such day": (at("2026-02-30T08:00:00", "2026-02-30T09:00:00"), ":2: Start"),
    "another weekday": (
        at("Tue Mar  2 08:00:00 2026", "Mon Mar  2 09:00:00 2026"),
        ":2: .* 2026-03-02 is a Monday",
    ),
    "offsets": (at("2026-03-02T08:00:00+05:30", "2026-03-02T08:00:00+04:30"), {"7": 2.0}),
    "an offset alone": (
        at("2026-03-02T08:00:00+05:30", "2026-03-02T08:00:00"),
        ":2: .* one alone has a zone",
    ),
}


def gpu_hours(found: Workload) -> dict[str, float]:
    """Return the GPU-hours of each job."""
    size = {job_class.name: job_class.size_gpu_hours for job_class in found.classes}
    return {job.id: round(size[job.class_name] * job.scale, 9) for job in found.trace.jobs}


def check(
    kind: str, raw: bytes, expected: dict[str, float] | str, path: Path, zone: str | None = None
) -> None:
    """Check what a file is read as, or what is said against it."""
    path.write_bytes(raw)
    options = Options(time_zone=zone)
    if isinstance(expected, dict):
        assert gpu_hours(import_source(kind, path, options)) == expected
    else:
        with pytest.raises(InputError, match=expected):
            import_source(kind, path, options)


@pytest.mark.parametrize(("raw", "expected"), SACCT.values(), ids=SACCT)
def test_outputs_of_sacct(raw: bytes, expected: dict[str, float] | str, tmp_path: Path) -> None:
    """Two GPUs for an hour, or a sentence that names the line."""
    check("sacct", raw, expected, tmp_path / "sacct.txt")


def test_frames_of_zstandard(tmp_path: Path) -> None:
    """Two that follow each other, and one that is cut short."""
    check("sacct", zstandard(HEAD.encode()) + zstandard(ROW.encode()), {"7": 2.0}, tmp_path / "a")
    check("sacct", zstandard(MANY)[:-40], "cannot be unpacked: .* The file may be cut short", tmp_path / "b")


def pods(resources: dict[str, str], selector: dict[str, str] | None = None) -> bytes:
    """Return two jobs of Kubernetes that ran for an hour: one on two GPUs, and one on what is given."""
    items = []
    for name, asked, chosen in (("whole", {"nvidia.com/gpu": "2"}, {}), ("part", resources, selector or {})):
        container = {"name": "c", "resources": {"limits": asked}}
        spec = {"template": {"spec": {"containers": [container], "nodeSelector": chosen}}}
        done = [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-03-02T09:00:00Z"}]
        times = {"startTime": "2026-03-02T08:00:00Z", "completionTime": "2026-03-02T09:00:00Z"}
        items.append(
            {
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-03-02T08:00:00Z"},
                "spec": spec, "status": {**times, "conditions": done},
            }
        )  # fmt: skip
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def answered(kind: str) -> bytes:
    """Return two jobs as `sacct --json` prints them: one on two GPUs, and one on slices of this kind."""
    at = 1_772_438_400
    jobs = [
        {
            "job_id": number, "state": {"current": ["COMPLETED"]},
            "time": {"submission": at, "start": at, "end": at + 3600, "elapsed": 3600},
            "tres": {"allocated": [{"type": "gres", "name": name, "count": 2}], "requested": []},
        }
        for number, name in ((7, "gpu"), (8, kind))
    ]  # fmt: skip
    return json.dumps({"jobs": jobs}).encode()


def runs(kind: str) -> bytes:
    """Return two runs of Weights & Biases, the second on this kind of GPU."""
    head = '"ID","State","Created","Runtime","GPU Count","GPU Type"\n'
    line = '"{0}","finished","2026-03-02T08:00:00Z","3600","2","{1}"\n'
    return f"{head}{line.format('whole', 'NVIDIA A100')}{line.format('part', kind)}".encode()


MIG = "nvidia.com/gpu.product"
SLICES: dict[str, tuple[str, bytes]] = {
    "sacct": ("sacct", (HEAD + ROW + NEXT.replace("gpu=2", "gpu:1g.10gb=2")).encode()),
    "sacct, with the sum": (
        "sacct", (HEAD + ROW + NEXT.replace("gpu=2", "gpu=2,gres/gpu:a100_3g.20gb=2")).encode()
    ),
    "sacct, by two kinds": (
        "sacct", (HEAD + ROW + NEXT.replace("gpu=2", "gpu:1g.5gb=2,gres/gpu:2g.10gb=1")).encode()
    ),
    "sacct in JSON": ("sacct", answered("gpu:1g.10gb")),
    "sacct in JSON, of a card": ("sacct", answered("gpu:nvidia_a100_1g.5gb")),
    "Kubernetes": ("kubernetes", pods({"nvidia.com/mig-1g.5gb": "2"})),
    "Kubernetes, shared": ("kubernetes", pods({"nvidia.com/gpu.shared": "2"})),
    "Kubernetes, one kind on all cards": (
        "kubernetes", pods({"nvidia.com/gpu": "2"}, {MIG: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"})
    ),
    "Weights & Biases": ("wandb", runs("NVIDIA A100-SXM4-40GB MIG 1g.5gb")),
    "Weights & Biases, without its size": ("wandb", runs("NVIDIA H100 MIG")),
}  # fmt: skip
"""Two jobs of two GPUs for an hour, of which the second had slices."""


@pytest.mark.parametrize(("kind", "raw"), SLICES.values(), ids=SLICES)
def test_slices_of_gpus_are_left_out_by_all_readers_alike(kind: str, raw: bytes, tmp_path: Path) -> None:
    """A seventh of a card is no GPU; that jobs were left out is said."""
    path = tmp_path / "history.json"
    path.write_bytes(raw)
    found = import_source(kind, path, Options())
    assert list(gpu_hours(found).values()) == [2.0]
    left_out = {why: number for why, number in found.dropped.items() if number}
    assert list(left_out.values()) == [1]
    assert "MIG" in next(iter(left_out)) or "several GPU types" in next(iter(left_out))


@pytest.mark.parametrize("name", ["migrator", "amigo", "g4dn", "a100-40gb", "rtx-3090", "l40s", "mi300x"])
def test_a_whole_gpu_is_no_slice(name: str, tmp_path: Path) -> None:
    """Whatever letters its name has."""
    raw = (HEAD + ROW + NEXT.replace("gpu=2", f"gpu:{name}=2")).encode()
    check("sacct", raw, {"7": 2.0, "8": 2.0}, tmp_path / "sacct.txt")


CLOCKS: dict[str, tuple[str, str, dict[str, float] | str]] = {
    "skipped": ("2026-03-29T02:30:00", "2026-03-29T03:30:00", ":2: .* the clocks of Europe/Berlin skip"),
    "across the skipped hour": ("2026-03-29T01:30:00", "2026-03-29T03:30:00", {"7": 2.0}),
    "shown twice": ("2026-10-25T02:30:00", "2026-10-25T02:10:00", {"7": round(2 * 40 / 60, 9)}),
    "across the hour shown twice": ("2026-10-25T01:30:00", "2026-10-25T03:30:00", {"7": 6.0}),
}


@pytest.mark.parametrize(("first", "last", "expected"), CLOCKS.values(), ids=CLOCKS)
def test_changes_of_clocks(first: str, last: str, expected: dict[str, float] | str, tmp_path: Path) -> None:
    """In Berlin."""
    check("sacct", at(first, last), expected, tmp_path / "sacct.txt", "Europe/Berlin")


TABLES: dict[str, tuple[bytes, dict[str, float] | str]] = {
    "Swiss thousands": (acme("3600", "3'600"), {"1": 2.0}),
    "Indian lakhs": (acme("3600", '"3,60,000"'), {"1": 200.0}),
    "a narrow space": (acme("3600", "3\u202f600"), {"1": 2.0}),
    "two readings": (acme("3600", '"3,600"'), ":2: duration .* which may be 3600 or 3.600"),
    "brackets": (acme("3600", "(3600)"), ":2: duration"),
    "less than zero": (acme("3600", "-3600"), ":2: duration must be a finite number"),
    "Excel's separator": (("sep=;\n" + ACME.replace(",", ";")).encode(), {"1": 2.0}),
    "Excel's separator, marked": (("\ufeffsep=;\r\n" + ACME.replace(",", ";")).encode(), {"1": 2.0}),
    "numbers of pandas": (acme("u,1,2,8", "u,1.0,2.0,8.0"), {"1": 2.0}),
    "not a number": (acme("u,1,2,8", "u,1,nan,8"), ":2: gpu_num"),
    "no number": (acme("u,1,2,8", "u,1,,8"), ":2: gpu_num"),
    "capitals": (
        ACME.partition("\n")[0].upper().encode() + b"\n" + ACME.partition("\n")[2].encode(),
        {"1": 2.0},
    ),
    "spaces in the header": (acme("job_id,user,node_num", " job_id , user, node_num "), {"1": 2.0}),
    "another name": (acme("gpu_num", "gpus"), ":1: column 'gpu_num' is missing"),
    "a column twice": (acme("cpu_num", "gpu_num"), ":1: column 'gpu_num' occurs twice"),
    "an index": ((",".join(["", ACME.replace("\n1,", "\n0,1,")])).encode(), {"1": 2.0}),
    "a job twice": (
        (ACME + ACME.partition("\n")[2]).encode(),
        ":3: job_id '1' occurs twice; the first is on line 2",
    ),
    "a row of totals": ((ACME + "Total,,,2,,,,,,,3600\n").encode(), ":3: submit_time is empty"),
    "a row of totals without a name": ((ACME + ",,,2,,,,,,,3600\n").encode(), ":3: job_id is empty"),
    "the header again": ((ACME + ACME.replace("\n1,", "\n2,")).encode(), {"1": 2.0, "2": 2.0}),
    "a line end in a cell": (acme(",u,", ',"u\nv",'), {"1": 2.0}),
    "quotes that do not end": (acme(",u,", ',"u,'), ":2: not CSV"),
    "a page": (b"<!DOCTYPE html><html></html>", "this is a web page"),
}


@pytest.mark.parametrize(("raw", "expected"), TABLES.values(), ids=TABLES)
def test_tables_of_people(raw: bytes, expected: dict[str, float] | str, tmp_path: Path) -> None:
    """Marks of countries and spreadsheets."""
    check("acme", raw, expected, tmp_path / "trace.csv")


PRICES: dict[str, tuple[str, list[float] | str]] = {
    "plain": ("gpu,gpus,usd_per_hour\nA100,1,2.5\n", [2.5]),
    "Swiss thousands": ("gpu,gpus,usd_per_hour\nA100,1,1'250.50\n", [1250.5]),
    "French": ("gpu;gpus;usd_per_hour\nA100;1;1\u202f250,50\n", [1250.5]),
    "Arabic": ("gpu,gpus,usd_per_hour\nA100,1,\u0662\u066b\u0665\n", [2.5]),
    "an exponent": ("gpu,gpus,usd_per_hour\nA100,1,2.5e0\n", [2.5]),
    "brackets": ("gpu,gpus,usd_per_hour\nA100,1,(2.50)\n", ":2: .* Write -2.50 if"),
    "less than zero": ("gpu,gpus,usd_per_hour\nA100,1,-2.50\n", ":2: the price"),
    "totals": ("gpu,gpus,usd_per_hour\nA100,1,2.5\nTotal,1,2.5\n", [2.5]),
    "totals without a name": ("gpu,gpus,usd_per_hour\nA100,1,2.5\n,,2.5\n", [2.5]),
    "the header again": (
        "gpu,gpus,usd_per_hour\nA100,1,2.5\ngpu,gpus,usd_per_hour\nH100,1,3.5\n",
        [2.5, 3.5],
    ),
    "a comment": ("gpu,gpus,usd_per_hour\n# old\nA100,1,2.5\n", [2.5]),
    "capitals and spaces": (" GPU , Gpus , USD per hour \n A100 , 1 , 2.5 \n", [2.5]),
    "Excel's separator": ("sep=;\r\ngpu;gpus;usd_per_hour\r\nA100;1;2,5\r\n", [2.5]),
    "euros": ("gpu,gpus,price per hour\nA100,1,2.50 \u20ac\n", ":2: .* is in \u20ac"),
    "a footnote": ("gpu,gpus,usd_per_hour\nA100,1,2.5*\n", ":2: the price"),
    "a row too short": ("gpu,gpus,usd_per_hour\nA100,1\n", ":2: 2 cells where the header has 3"),
    "a machine twice": ("gpu,gpus,usd_per_hour\nA100,1,2.5\nA100,1,2.6\n", ":3: a second price .* on line 2"),
    "nothing": ("gpu,gpus,usd_per_hour\nA100,1,nan\n", "no price|^$"),
}


@pytest.mark.parametrize(("text", "expected"), PRICES.values(), ids=PRICES)
def test_prices_of_people(text: str, expected: list[float] | str, tmp_path: Path) -> None:
    """A table of a small cloud."""
    path = tmp_path / "prices.csv"
    path.write_text(text, encoding="utf-8")
    if isinstance(expected, list):
        found = read_price_table(path, as_of="2026-11-20", cloud="x")
        assert [price.usd_per_hour for price in found.prices] == expected
    elif expected.startswith("no price"):
        assert read_price_table(path, as_of="2026-11-20", cloud="x").left_out == {"without a price": 1}
    else:
        with pytest.raises(InputError, match=expected):
            read_price_table(path, as_of="2026-11-20", cloud="x")
