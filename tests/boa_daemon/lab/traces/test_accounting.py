"""Logs of batch systems: folders, attempts, forms of requests for GPUs, and what is refused by line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.traces.workload import Options, Workload

START = 1772438400


def gpu_hours(found: Workload) -> dict[str, float]:
    """Return the GPU-hours of each job."""
    size = {job_class.name: job_class.size_gpu_hours for job_class in found.classes}
    return {job.id: round(size[job.class_name] * job.scale, 9) for job in found.trace.jobs}


def pbs(
    job: str = "7.s", values: str = "", *, kind: str = "E", start: int = START, end: int = START + 3600
) -> str:
    """Return a record of PBS of an hour."""
    times = f"ctime={START} qtime={START} start={start} end={end}"
    return f"03/02/2026 09:00:00;{kind};{job};user=u group=g jobname=j {times} {values}\n"


def swf(job: int = 7, submit: int = 0, run: str = "3600", procs: str = "2", status: str = "1") -> str:
    """Return a line of the Standard Workload Format."""
    return f"{job} {submit} 0 {run} {procs} -1 -1 2 7200 -1 {status} 1 1 -1 1 -1 -1 -1\n"


def condor(**values: object) -> str:
    """Return a job of HTCondor of an hour, as JSON."""
    plain = {"ClusterId": 7, "ProcId": 0, "JobStatus": 4, "QDate": START, "RemoteWallClockTime": 3600.0}
    return json.dumps(plain | values)


def lsf(needs: str, hosts: str = '1 "h1"', slots: int = 1) -> str:
    """Return a record of LSF of an hour with a resource requirement in effect."""
    usage = " ".join(["0.1"] * 19)
    return (
        f'"JOB_FINISH" "10.1" {START + 3600} 7 1 2 {slots} {START} 0 0 {START} "u" "q" "" "" "" "h" '
        f'"" "" "" "" "f" 0 {hosts} 64 1.0 "j" "c" {usage} "" "p" 0 1 "" "" 0 1 0 "{needs}"\n'
    )


def sge(category: str, *, job: str = "7", start: str = str(START), end: str = str(START + 3600)) -> str:
    """Return a line of Grid Engine's accounting of an hour."""
    cells = ["q", "h", "g", "u", "j", job, "sge", "0", str(START), start, end, "0", "0", "3600", *["0"] * 17]
    return ":".join([*cells, "NONE", "d", "NONE", "1", "0", "1", "0", "0", category, "0", "NONE", "0"]) + "\n"


TWO: dict[str, tuple[str, str]] = {
    "PBS, chunks": ("pbs", pbs(values="exec_vnode=(a:ncpus=1:ngpus=1)+(b:ncpus=1:ngpus=1)")),
    "PBS, chunks of one node": ("pbs", pbs(values="exec_vnode=(a:ncpus=1:ngpus=1+a[1]:mem=1kb:ngpus=1)")),
    "PBS, asked for": (
        "pbs",
        pbs(values="Resource_List.ncpus=8 Resource_List.ngpus=2 resources_used.ngpus=0"),
    ),
    "PBS, select": ("pbs", pbs(values="Resource_List.select=1:ncpus=8:ngpus=1+1:ngpus=1:mem=8gb")),
    "PBS, none given": ("pbs", pbs(values="exec_vnode=(a:ncpus=1) Resource_List.ngpus=2")),
    "Torque": (
        "pbs",
        pbs(values="Resource_List.neednodes=1:ppn=8 Resource_List.nodes=1:ppn=8:gpus=2:shared"),
    ),
    "Torque, named nodes": ("pbs", pbs(values="Resource_List.nodes=n1:gpus=1+n2:ppn=2:gpus=1")),
    "Torque, given": ("pbs", pbs(values="exec_gpus=n1-gpu/0+n1-gpu/1 Resource_List.nodes=1:gpus=4")),
    "PBS, a name with spaces": (
        "pbs",
        pbs(values='jobname="a b ngpus=9" account=x y=z Resource_List.ngpus=2'),
    ),
    "PBS, other records": (
        "pbs",
        pbs(kind="Q", values="Resource_List.ngpus=2") + pbs(values="Resource_List.ngpus=2") + "\n",
    ),
    "PBS, put back": (
        "pbs",
        pbs(kind="R", values="Resource_List.ngpus=2", end=START + 1800)
        + pbs(values="Resource_List.ngpus=2", start=START + 1800),
    ),
    "PBS through syslog": ("pbs", "torque: " + pbs(values="Resource_List.nodes=2:gpus=1")),
    "LSF": ("lsf", lsf("select[type == any] rusage[mem=1.00,ngpus_physical=2.00]")),
    "LSF, hosts": ("lsf", lsf("rusage[ngpus_physical=1.00]", hosts='3 "h1" "h1" "h2"')),
    "LSF, slots of hosts": ("lsf", lsf("rusage[ngpus_physical=1.00]", hosts='2 "4*h1" "4*h2"')),
    "LSF, per task": ("lsf", lsf("rusage[ngpus_physical=1.00:PER_TASK]", slots=2)),
    "LSF, exclusive": ("lsf", lsf("rusage[ngpus_excl_p=2]")),
    "Grid Engine": ("grid-engine", "# comment\n" + sge("-U a -l gpu=2,h_rt=3600")),
    "Grid Engine, several": ("grid-engine", sge("-l h_rt=1 -l ngpus=2 -q gpu.q")),
    "Grid Engine, milliseconds": (
        "grid-engine",
        sge("-l gpu=2", start=f"{START}000", end=f"{START + 3600}000").replace(f":{START}:", f":{START}000:"),
    ),
    "HTCondor": ("htcondor", f"[{condor(RequestGPUs=2)}]"),
    "HTCondor, a line each": ("htcondor", condor(RequestGPUs=2) + "\n" + condor(ProcId=1) + "\n"),
    "HTCondor, given": ("htcondor", f"[{condor(RequestGPUs=1, AssignedGPUs='GPU-1, GPU-2')}]"),
    "HTCondor, long": (
        "htcondor",
        f"RequestGPUs = 2\nClusterId = 7\nProcId = 0\nJobStatus = 4\nQDate = {START}\n"
        'RemoteWallClockTime = 3600.0\nCmd = "a = \\"b\\""\nRequirements = (TARGET.Arch == "X86_64")\n',
    ),
    "SWF": ("swf", swf()),
    "SWF, DOS": ("swf", ("; UnixStartTime: 5\n" + swf()).replace("\n", "\r\n")),
    "SWF, asked for": ("swf", swf(procs="-1")),
    "SWF, tabs and a comment": ("swf", swf().replace(" ", "\t").replace("\n", " ; said\n")),
    "GWF": ("swf", "# JobID SubmitTime ...\n" + swf().replace("\n", " -1" * 11 + "\n")),
}


@pytest.mark.parametrize(("kind", "text"), TWO.values(), ids=TWO)
def test_two_gpus_for_an_hour(kind: str, text: str, tmp_path: Path) -> None:
    """However a batch system says it."""
    path = tmp_path / "log"
    path.write_bytes(text.encode())
    found = import_source(kind, path, Options())
    assert list(gpu_hours(found).values()) == [2.0]
    assert [job_class.name.rpartition("-")[2] for job_class in found.classes] == ["2"]


ONE = pbs(values="Resource_List.ngpus=2")
REFUSED: dict[str, tuple[str, str, str]] = {
    "PBS, another file": ("pbs", "JobID|Submit\n", ":1: no record of PBS's accounting"),
    "PBS, an end before its start": (
        "pbs",
        pbs(values="Resource_List.ngpus=1", end=START - 60),
        ":1: job 7 ends 60 s before it starts",
    ),
    "PBS, a record twice": (
        "pbs",
        ONE + ONE,
        ":2: a second record of job 7 at the same time; the first is on line 1",
    ),
    "PBS, a job without a number": ("pbs", ONE.replace(";E;7", ";E;x7"), ":1: a job is named such as"),
    "PBS, no job": ("pbs", ONE.replace(";E;7", ";R;"), ":1: a job is named such as"),
    "PBS, no end": ("pbs", ONE.replace(" end=", " finish="), ":1: job 7 has no end"),
    "PBS, no time": ("pbs", ONE.replace("ctime=", "c=").replace("qtime=", "q="), ":1: job 7 has no ctime"),
    "PBS, a word for a time": (
        "pbs",
        ONE.replace(f"start={START}", "start=soon"),
        ":1: start must be seconds",
    ),
    "PBS, half a GPU": (
        "pbs",
        pbs(values="Resource_List.ngpus=0.5"),
        ":1: Resource_List.ngpus must be a whole",
    ),
    "LSF, cut short": ("lsf", lsf("")[:120], ":1: "),
    "LSF, what bacct prints": (
        "lsf",
        "Job <7>, User <u>, Project <default>\n",
        ":1: no record of LSF's accounting",
    ),
    "LSF, no number": (
        "lsf",
        lsf("").replace(' 0 1 "h1"', ' 0 x "h1"'),
        ":1: numExHosts must be a whole number",
    ),
    "Grid Engine, another file": ("grid-engine", "a:b:c\n", ":1: no record of Grid Engine's accounting"),
    "Grid Engine, a word for GPUs": (
        "grid-engine",
        sge("-l gpu=two"),
        ":1: gpu must be a whole number; got 'two'",
    ),
    "Grid Engine, an end before its start": (
        "grid-engine",
        sge("-l gpu=1", end=str(START - 5)),
        ":1: job 7 ends 5 s before it starts",
    ),
    "Grid Engine, half a block": (
        "grid-engine",
        "====\nqname q\njobnumber 7\n",
        ":1: the block of `qacct -j`",
    ),
    "HTCondor, a job twice": (
        "htcondor",
        f"[{condor(RequestGPUs=1)},{condor()}]",
        "a second record of job 7.0",
    ),
    "HTCondor, an expression": (
        "htcondor",
        f"[{condor(RequestGPUs='ifThenElse(x,1,2)')}]",
        "RequestGPUs must be a",
    ),
    "HTCondor, no time": ("htcondor", '[{"ClusterId": 7, "ProcId": 0}]', "RemoteWallClockTime is missing"),
    "HTCondor, a table": ("htcondor", " ID  OWNER\n7.0 u\n", ":1: no line of the form Name = value"),
    "SWF, a number too few": (
        "swf",
        swf() + swf(8).replace(" -1\n", "\n"),
        ":2: 17 numbers where the format has 18",
    ),
    "SWF, a job twice": ("swf", swf() + swf(), ":2: a second record of job 7"),
    "SWF, a word": ("swf", swf(run="long"), ":1: field 4 must be a number from -1; got 'long'"),
    "SWF, half a processor": ("swf", swf(procs="1.5"), ":1: field 5 must be a number"),
    "SWF, a burst alone": ("swf", swf(status="2"), ":1: job 7 has bursts"),
    "SWF, a time before the begin": ("swf", swf(submit=-1), ":1: job 7 has no time of submission"),
    "SWF, a table": ("swf", "job,submit\n1,2\n", ":1: 1 numbers where the format has 18"),
}


@pytest.mark.parametrize(("kind", "text", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_record_is_refused_by_line(kind: str, text: str, said: str, tmp_path: Path) -> None:
    """With the file, the line or the record, and what it may be."""
    path = tmp_path / "log"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        import_source(kind, path, Options())
    assert said in str(refused.value)


def test_a_folder_of_daily_logs_is_one_history(tmp_path: Path) -> None:
    """Packed or not, in the order of their names; a run that was put back stands in another file."""
    first = pbs(kind="R", values="Resource_List.ngpus=2", end=START + 1800) + pbs(
        "8", "Resource_List.ngpus=1"
    )
    (tmp_path / "20260301").write_text(first)
    last = pbs(values="Resource_List.ngpus=2", start=START + 1800)
    (tmp_path / "20260302.gz").write_bytes(gzip.compress(last.encode()))
    (tmp_path / "20260303").write_text("\n")
    (tmp_path / "notes").write_text("no log")
    found = import_source("pbs", tmp_path, Options())
    assert gpu_hours(found) == {"7": 2.0, "8": 1.0}
    assert found.source == f"PBS {tmp_path.name} (3 files)"


def test_parallel_environments_are_said(tmp_path: Path) -> None:
    """A consumable may be per slot, which the accounting does not say."""
    path = tmp_path / "accounting"
    path.write_text(sge("-l gpu=1 -pe smp 4").replace(":NONE:1:0:", ":smp:4:0:"))
    found = import_source("grid-engine", path, Options())
    assert gpu_hours(found) == {"7": 1.0}
    assert any("1 jobs asked for GPUs in a parallel environment" in note for note in found.notes)


def test_the_sums_below_qacct_end_a_file_and_not_the_folder(data: Path, tmp_path: Path) -> None:
    """Two of its files are read whole."""
    text = (data / "grid-engine" / "qacct.txt").read_text()
    (tmp_path / "qacct.1").write_text(text)
    (tmp_path / "qacct.2").write_text(text.replace("jobnumber    2", "jobnumber    3"))
    found = import_source("grid-engine", tmp_path, Options())
    assert gpu_hours(found) == {"21": 4.0, "22.7": 0.5, "31": 4.0, "32.7": 0.5}
