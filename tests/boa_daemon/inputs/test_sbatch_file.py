"""Batch scripts of Slurm: what is meant, what is ignored, and what is refused by line."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.groups import members
from boa_daemon.inputs.job_file import check_job
from boa_daemon.inputs.sbatch_file import is_sbatch, read_sbatch
from boa_daemon.inputs.submission import read_job_file, read_submission, submission_of


def a_script(folder: Path, *options: str, body: str = "srun python train.py") -> Path:
    """Write a script with these options, each in a line of its own."""
    file = folder / "train.sbatch"
    file.write_text("\n".join(["#!/bin/bash", *(f"#SBATCH {one}" for one in options), "", body, ""]))
    return file


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-N 2", "--gres=gpu:4"], {"min_gpus": 8, "max_gpus": 8}),
        (["--nodes=1-4", "--gpus-per-node=a100:2"], {"min_gpus": 2, "max_gpus": 8}),
        (["-n 8", "--gpus-per-task=1"], {"min_gpus": 8}),
        (["--gpus=3"], {"min_gpus": 3}),
        (["-G a100:5"], {"min_gpus": 5}),
        (["-N2", "--ntasks-per-node=4", "--gpus-per-task=1", "-c 6"], {"min_gpus": 8, "cpus": 24.0}),
        ([], {"min_gpus": 1, "max_gpus": 1}),
        (["--gres=gpu:tesla:2(S:0)", "--cpus-per-gpu=8"], {"min_gpus": 2, "cpus": 16.0}),
        (["--time=30"], {"max_hours": 0.5}),
        (["--time=1:30"], {"max_hours": 0.025}),
        (["-t 02:00:00"], {"max_hours": 2.0}),
        (["--time=1-12"], {"max_hours": 36.0}),
        (["--time=1-12:30:00"], {"max_hours": 36.5}),
        (["--mem=64G"], {"memory_gb": 64 * 2**30 / 1e9}),
        (["--mem=1000"], {"memory_gb": 1000 * 2**20 / 1e9}),
        (["-c4", "--mem-per-cpu=2G"], {"cpus": 4.0, "memory_gb": 8 * 2**30 / 1e9}),
        (["--gpus-per-node=2", "--mem-per-gpu=10G"], {"memory_gb": 20 * 2**30 / 1e9}),
        (["-J 'my job'"], {"name": "my-job"}),
        (["--dependency=afterok:a-1:b-2,afterany:c-3"], {"after": ["a-1", "b-2", "c-3:end"]}),
        (["--mail-type=END,FAIL"], {"notify": ["end", "failure"]}),
        (["--signal=B:TERM@120"], {"stop_grace_seconds": 120.0}),
        (["--export=NONE,LR=0.1"], {"environment": {"LR": "0.1"}}),
        (["--qos=hi -A ml", "-p gpu"], {"slurm_options": ["--qos=hi", "--account=ml", "--partition=gpu"]}),
        (["--comment=boa:class=vision,max_gpus=16,elastic,max_usd=20"],
         {"class": "vision", "min_gpus": 1, "max_gpus": 16, "elastic": True, "max_usd": 20.0}),
        (["--comment='just a note'"], {"class": "default"}),
        (["--begin=2030-01-31T08:00:00"], {}),
        (["--begin=now+2hours"], {}),
        (["--output=x # a comment"], {}),
        (["--gres=gpu:a100:2,gpu:v100:1"], {"min_gpus": 3}),
        (["--gres=gpu:1g.10gb:2"], {"min_gpus": 2}),
        (["--gres=gpu:1g.10gb"], {"min_gpus": 1}),
        (["--comment='BOA: class = vision; elastic'"], {"class": "vision", "elastic": True}),
        (["--gres=gpu:a100:2(S:0),nvme:1,gpu:v100(S:1)"], {"min_gpus": 3}),
        (["--gpus=a100:2,v100:1"], {"min_gpus": 3}),
        (["--gpus-per-node a100:1,v100:1", "-N2"], {"min_gpus": 4}),
        (["--gpus-per-socket=2 --sockets-per-node=2 -N2"], {"min_gpus": 8}),
        (["--nice -N2"], {"min_gpus": 2, "slurm_options": ["--nice=100"]}),
        (["--nice=-5 --propagate -N2"], {"min_gpus": 2, "slurm_options": ["--nice=-5"]}),
        (["-v -W -O -Q --wait -N2"], {"min_gpus": 2}),
        (["--nodes='2'", "--job-name \"a b\"", "--time '1-0'"], {"name": "a-b", "max_hours": 24.0}),
        (["--time=1-1:30"], {"max_hours": 25.5}),
        (["--time=90:30"], {"max_hours": 90.5 / 60}),
        (["--mail-type=END,TIME_LIMIT_80"], {"notify": ["end"]}),
        (["--chdir=/"], {"workdir": "/"}),
        (["--begin=16:00"], {}),
        (["--begin=noon"], {}),
        (["--part=gpu --gpus-per-n=2"], {"min_gpus": 2, "slurm_options": ["--partition=gpu"]}),
        (["--job=a#b"], {"name": "a"}),
        (["--gpus=4 \\", "--time=10"], {"min_gpus": 4, "max_hours": 10 / 60}),
        (["--gres=gpu:a100,nvme:100G"], {"min_gpus": 1}),
        (["--gres=gres/gpu:a100:2"], {"min_gpus": 2}),
        (["--time-min=30 -t 1-0"], {"max_hours": 24.0, "slurm_options": ["--time-min=30"]}),
        (["-A proj_1.2-x@site"], {"slurm_options": ["--account=proj_1.2-x@site"]}),
        (["--stepmgr --oom-kill-step=1 --exclusive=user -G2"], {"min_gpus": 2}),
        (["-n4 --gpus-per-task=a100:1"], {"min_gpus": 4}),
        (["--gpus=1k"], {"min_gpus": 1024}),
        (["-n4 --tres-per-task=gres/gpu:a100:2"], {"min_gpus": 8}),
        (["-n4 --tres-per-task=cpu=6,gres/gpu=1,license/x=1"], {"min_gpus": 4, "cpus": 24.0}),
        (["-n2 --tres-per-task=cpu:3,gres:gpu:1"], {"min_gpus": 2, "cpus": 6.0}),
        (["--gres=gpu:3090:2"], {"min_gpus": 2}),
        (["--gres=shard:4 -N2"], {"min_gpus": 2}),
        (["--gres=gpu:2,mps:100"], {"min_gpus": 2}),
        (["--gres=gpu:no_consume:2,craynetwork"], {"min_gpus": 2}),
        (["--gres=gres:gpu:2 -N2"], {"min_gpus": 4}),
        (["-G8 --gpus-per-task=2 -c4"], {"min_gpus": 8, "cpus": 16.0}),
        (["-G8 --gpus-per-node=4 --cpus-per-gpu=2"], {"min_gpus": 8, "cpus": 8.0}),
    ],
)  # fmt: skip
def test_options_are_meant(tmp_path: Path, options: list[str], said: dict[str, Any]) -> None:
    """Each becomes the key of a job file, which the daemon accepts."""
    found = read_sbatch(a_script(tmp_path, *options))
    checked = check_job(Document(name="job", content=dict(found.content)))
    assert {key: checked[key] for key in said} == said


@pytest.mark.parametrize(
    "option",
    [
        "--uid=0", "--wrap=id", "--hold", "--nods=3", "--time=soon", "--time=1-", "--array=5-1", "--array=a",
        "--array=0-99999", "--dependency=singleton", "--dependency=after:3", "--mem=lots", "--nodes=0",
        "--nodes=two", "hetjob", "--gres=gpu:0", "word", "--begin=tomorrow", "--comment=boa:clas=x",
        "--nodes=2-1", "--nodes=1-", "--nodes=1,3", "--array=0-9%x", "--array=0-9%0", "-N2 : -N3",
        "--mail-type=BOGUS",
        "--time=\u0663", "--time=1:2:3:4", "--begin=25:00", "--umask=022", "packjob", "--gpus=a100:2,v100",
        "--comment=boa:max_usd=x", "--job-name", "--clusters=b", "'unclosed", "-Z 1", "--container=x",
        "--container-image=a#b", "--ntasks-p=2", "--gres=gpu/a100:2", "--job_name=x",
        "--tres-per-task=gres/gpu:0", "--tres-per-task=gpus=2", "--gpus=2,", "--gres=gpu:a:b:2", "--gpus=0",
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_line(tmp_path: Path, option: str) -> None:
    """The error names the file and the line."""
    with pytest.raises(InputError) as found:
        read_sbatch(a_script(tmp_path, "--nodes=1", option))
    assert found.value.line == 3
    assert str(found.value).startswith(f"{tmp_path}/train.sbatch:3: ")


SIGNALS = {
    "TERM": 60, "USR1": 60, "SIGUSR1": 60, "sigusr1": 60, "usr1": 60, "B:USR1@60": 60, "b:usr1@90": 90,
    "R:USR1@300": 300, "RB:USR1@5": 5, "BR:TERM": 60, "BTERM@7": 7, "10": 60, "B:10@60": 60, "64": 60,
    "TERM@0": None, "TERM@": None, "TERM@65535": 65535, "XCPU": 60, "URG@1": 1, "CONT": 60, "TTOU": 60,
}  # fmt: skip
"""Forms that `sbatch` takes, and the seconds before the end that each says."""
NO_SIGNALS = (
    "FOO", "SIGFOO", "BUS", "SIGBUS", "0", "RTMIN", "SIGRTMIN+1", "TERM@65536", "TERM@x", "@60", "B:", "R",
    "B:R:USR1", "R:B:USR1", "SIG10", "10x", "PIPE", "SEGV", "CHLD", "USR1@60@60", "USR3", "TERM@-1",
)  # fmt: skip
"""What `sbatch` refuses."""


@pytest.mark.parametrize("form", SIGNALS)
def test_a_signal_has_the_forms_of_sbatch(tmp_path: Path, form: str) -> None:
    """The seconds before the end are the grace of a stop; without them they are 60, as in Slurm."""
    content = read_sbatch(a_script(tmp_path, f"--signal={form}")).content
    assert content.get("stop_grace_seconds") == SIGNALS[form]


@pytest.mark.parametrize("form", NO_SIGNALS)
def test_what_is_no_signal_is_refused(tmp_path: Path, form: str) -> None:
    """By its line, with the forms that are taken; from the environment by the variable."""
    with pytest.raises(InputError, match=r"sbatch:2: --signal=.* names no signal of sbatch") as found:
        read_sbatch(a_script(tmp_path, f"--signal={form}"))
    assert "SIGUSR1" in found.value.hint
    with pytest.raises(InputError, match="variable SBATCH_SIGNAL") as found:
        read_sbatch(a_script(tmp_path), {"SBATCH_SIGNAL": form})
    assert "unset SBATCH_SIGNAL" in found.value.hint


@pytest.mark.skipif(shutil.which("sbatch") is None, reason="left out: no sbatch here")
@pytest.mark.parametrize("form", [*SIGNALS, *NO_SIGNALS])
def test_sbatch_takes_and_refuses_the_same_signals(tmp_path: Path, form: str) -> None:
    """The real one; a number of nodes that it refuses ends it before it waits for a controller."""
    lines = ("ClusterName=x", "SlurmctldHost=localhost", "NodeName=n", "PartitionName=p Nodes=n")
    (tmp_path / "slurm.conf").write_text("\n".join(lines))
    said = subprocess.run(
        ["sbatch", "--test-only", f"--signal={form}", "--nodes=none", "--wrap=true"],
        env={"SLURM_CONF": str(tmp_path / "slurm.conf"), "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=False, timeout=30.0,
    ).stderr  # fmt: skip
    assert ("not a valid node count" in said) is (form in SIGNALS), said
    assert ("Invalid --signal" in said) is (form in NO_SIGNALS), said


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"SBATCH_TIMELIMIT": "30"}, {"max_hours": 0.5}),
        ({"SBATCH_JOB_NAME": "other"}, {"name": "other"}),
        ({"SBATCH_GPUS_PER_NODE": "4"}, {"min_gpus": 8}),
        ({"SBATCH_GRES": "gpu:2"}, {"min_gpus": 4}),
        ({"SBATCH_MEM_PER_NODE": "1G"}, {"memory_gb": 2**30 / 1e9}),
        ({"SBATCH_ARRAY_INX": "0-2"}, {"matrix": {"SLURM_ARRAY_TASK_ID": [0, 1, 2]}}),
        ({"SBATCH_SIGNAL": "B:USR1@90"}, {"stop_grace_seconds": 90.0}),
        ({"SBATCH_EXPORT": "LR=1"}, {"environment": {"LR": "1"}}),
        ({"SBATCH_PARTITION": "b", "SBATCH_QOS": "hi"}, {"slurm_options": ["--partition=b", "--qos=hi"]}),
        ({"SBATCH_PARTITION": ""}, {"slurm_options": ["--partition=a"]}),
        ({"SBATCH_SPREAD_JOB": "yes"}, {"slurm_options": ["--partition=a", "--spread-job"]}),
        ({"SBATCH_SPREAD_JOB": ""}, {"slurm_options": ["--partition=a", "--spread-job"]}),
        ({"SBATCH_SPREAD_JOB": "no"}, {"slurm_options": ["--partition=a"]}),
        ({"SBATCH_SPREAD_JOB": "0"}, {"slurm_options": ["--partition=a"]}),
        ({"SBATCH_REQ_SWITCH": "1", "SBATCH_WAIT4SWITCH": "5:00"},
         {"slurm_options": ["--partition=a", "--switches=1@5:00"]}),
        ({"SBATCH_UNHEARD_OF": "x", "SBATCH_OUTPUT": "o", "SBATCH_NO_REQUEUE": "1"}, {"name": "train"}),
    ],
)  # fmt: skip
def test_variables_of_sbatch_override_the_script(
    tmp_path: Path, environ: dict[str, str], said: dict[str, Any]
) -> None:
    """As its manual says; each is told by its name, and nothing else of the script changes."""
    file = a_script(
        tmp_path, "-N2", "--gpus-per-node=1", "--time=60", "-p a", "--mem=9G", "-J train", "--signal=TERM@5",
        "--array=5", "--export=LR=0.1",
    )  # fmt: skip
    plain, found = read_sbatch(file, {}), read_sbatch(file, environ)
    assert {key: found.content[key] for key in said if key != "environment"} == {
        key: value for key, value in said.items() if key != "environment"
    }
    assert said.get("environment", {}).items() <= found.content["environment"].items()
    changed = {key for key in plain.content if plain.content[key] != found.content[key]} - {"run"}
    assert changed <= {*said, "min_gpus", "max_gpus", "environment"}
    told = {note.option for note in found.notes if note.line == 0}
    assert told <= set(environ)
    assert told >= {name for name in environ if environ[name] not in ("", "no", "0", "x", "5:00")}


@pytest.mark.parametrize("name", ["SBATCH_CLUSTERS", "SLURM_CLUSTERS", "SBATCH_CONTAINER", "SBATCH_GPU_FREQ"])
def test_a_variable_that_cannot_be_meant_is_refused(tmp_path: Path, name: str) -> None:
    """The error names the variable, and no line of the script."""
    with pytest.raises(InputError, match=f"variable {name}") as found:
        read_sbatch(a_script(tmp_path), {name: "b"})
    assert found.value.line is None


@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/bash\r\n#SBATCH -G2\r\necho\r\n",
        "#!/bin/bash\r#SBATCH -G2\recho\r",
        "\ufeff#!/bin/bash\n#SBATCH -G2\necho\n",
        "#!/bin/bash\n#SBATCH--gpus=2\necho\n",
        "#!/bin/bash\n#SBATCH\t-G\t2\necho\n",
        "#!/bin/bash\n##SBATCH -G4\n# SBATCH -G5\n #SBATCH -G6\n\n# why\n#SBATCH -G 2 # 2\necho\n#SBATCH -G7",
        "#!/bin/bash\n#SBATCH -G8\n#SBATCH --gpus=2\necho\n",
    ],
)
def test_lines_are_found_as_sbatch_finds_them(tmp_path: Path, text: str) -> None:
    """Whatever ends them; not those that are commented out, and the last of two counts."""
    file = tmp_path / "train.sbatch"
    file.write_bytes(text.encode())
    assert is_sbatch(file, file.read_text())
    assert read_sbatch(file).content["min_gpus"] == 2


def test_what_is_ignored_is_said_by_line(tmp_path: Path) -> None:
    """Also a line below the first command, which sbatch does not read."""
    file = a_script(tmp_path, "--output=x", "--exclusive", "--nodelist=n1", body="echo\n#SBATCH --uid=0")
    notes = [(note.line, note.option, note.fate) for note in read_sbatch(file).notes]
    assert (2, "--output", "ignored") in notes
    assert (3, "--exclusive", "ignored") in notes
    assert (7, "--", "ignored") in notes


def test_an_array_becomes_a_group(tmp_path: Path) -> None:
    """Each member has its number, as in Slurm, and the script's own variables."""
    (content,) = read_submission(a_script(tmp_path, "--array=1-7:3,20%2"))
    found = [member["environment"] for member in members(check_job(Document(name="job", content=content)))]
    assert [one["SLURM_ARRAY_TASK_ID"] for one in found] == ["1", "4", "7", "20"]
    assert {one["SLURM_ARRAY_TASK_MAX"] for one in found} == {"20"}


@pytest.mark.parametrize(
    ("first", "is_one"),
    [
        ("#!/bin/bash", True), ("#!/usr/local/bin/bash", True), ("#! /bin/sh", True),
        ("#!/bin/bash -l\r", True),
        ("#!/usr/bin/env -S bash -l", True), ("#!/opt/sw/bin/bash -e", True), ("#!/usr/bin/zsh", True),
        ("#!/usr/bin/env python3", False), ("#!/bin/tcsh", False), ("#!bash", False),
    ],
)  # fmt: skip
def test_only_a_script_of_a_shell_is_read(tmp_path: Path, first: str, is_one: bool) -> None:
    """A script in another language is refused with its first line."""
    file = tmp_path / "run.sh"
    file.write_text(f"{first}\n#SBATCH -N1\ntrue\n")
    assert is_sbatch(file, file.read_text())
    if is_one:
        assert read_sbatch(file).content["min_gpus"] == 1
    else:
        with pytest.raises(InputError, match="not with a shell"):
            read_sbatch(file)


def test_a_job_file_is_no_batch_script(tmp_path: Path) -> None:
    """Nor is a script without lines for sbatch."""
    assert not is_sbatch(tmp_path / "a.yaml", "name: a\n#SBATCH -N1\n")
    assert not is_sbatch(tmp_path / "b.sh", "#!/bin/sh\ntrue\n")


def test_srun_starts_the_tasks_of_its_node_with_their_variables(tmp_path: Path) -> None:
    """Two tasks on the second of two nodes are 2 and 3 of 4; a failing task fails the script."""
    body = (
        'A=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1)\n'
        "srun --ntasks=4 -c 2 bash -c 'echo $SLURM_PROCID $SLURM_LOCALID of $SLURM_NTASKS' | sort\n"
        'echo $A $SLURM_NNODES $SLURM_NODEID "$SLURM_JOB_NAME"\nsrun false'
    )
    found = read_sbatch(
        a_script(tmp_path, "-N2", "--ntasks-per-node=2", "--gpus-per-node=2", "-J it", body=body)
    )
    place = {
        "BOA_NODES": "2", "BOA_NODE_RANK": "1", "BOA_GPUS_PER_NODE": "2", "BOA_JOB_ID": "it-1",
        "BOA_GENERATION": "1", "MASTER_ADDR": "10.0.0.1",
    }  # fmt: skip
    done = subprocess.run(
        ["/bin/bash", "-c", found.content["run"]], env={**os.environ, **place},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["2 0 of 4", "3 1 of 4", "10.0.0.1 2 1 it"], done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("first", "body", "printed"),
    [
        ("#!/bin/bash -e", "false\necho on", ""),
        ("#!/bin/bash", "false\necho on", "on\n"),
        ("#!/bin/bash -eu -o pipefail", "false | true\necho on", ""),
        ("#!/bin/bash -l", "echo $PROFILE", "was read\n"),
        ("#!/bin/bash --login", "echo $PROFILE", "was read\n"),
        ("#!/usr/bin/env bash", "echo $PROFILE.", ".\n"),
        ("#!/bin/bash", "cat <<X\n#SBATCH -N1\na\x0cb\u2028c\nX", "#SBATCH -N1\na\x0cb\u2028c\n"),
        ("#!/bin/bash", "srun --ntasks 4 --mpi pmix -l -u --nodes=2 echo it", "it\n"),
        ("#!/bin/bash", "srun -x n1 -r 1 --cpu-bind none --exclusive -- echo it", "it\n"),
        ("#!/bin/bash", "srun --nodelist n1 -K --kill-on-bad-exit --input x --export ALL echo it", "it\n"),
        ("#!/bin/bash", "scontrol show hostname $SLURM_NODELIST", "10.0.0.1\n"),
        ("#!/bin/zsh -f", "echo /bin/bas?", "/bin/bash\n"),
        ("#!/bin/bash -u", "echo $SLURM_ARRAY_JOB_ID", "it\n"),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_script_runs_as_under_slurm(tmp_path: Path, first: str, body: str, printed: str, end: str) -> None:
    """With its shell's options, with its own text, and with options of srun in both forms."""
    file = tmp_path / "it.sbatch"
    file.write_text(f"{first}\n#SBATCH --array=1\n{body}\n".replace("\n", end), newline="")
    (tmp_path / ".profile").write_text("PROFILE='was read'\n")
    place = {
        "BOA_NODES": "1", "BOA_NODE_RANK": "0", "BOA_GPUS_PER_NODE": "1", "BOA_JOB_ID": "it-1",
        "BOA_GROUP": "it", "BOA_GENERATION": "1", "MASTER_ADDR": "10.0.0.1",
        "HOME": str(tmp_path), "PATH": os.environ["PATH"],
    }  # fmt: skip
    done = subprocess.run(
        ["/bin/bash", "-c", read_sbatch(file).content["run"]], env=place,
        capture_output=True, text=True, encoding="utf-8", check=False, timeout=30,
    )  # fmt: skip
    assert done.stdout == printed, done.stderr


def test_a_folder_is_relative_to_where_it_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not to the folder of the script."""
    (tmp_path / "here" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    (content,) = read_submission(a_script(tmp_path, "--chdir=deep"))
    assert content["workdir"] == str(tmp_path / "here" / "deep")


SCRIPT = "#!/bin/bash\n#SBATCH --gpus=2\n#SBATCH --output=x\npython train.py\n"
JOB = "name: a\nclass: default\nrun: python train.py\n"


@pytest.mark.parametrize("text", [SCRIPT, JOB], ids=["script", "job file"])
@pytest.mark.parametrize("way", ["pipe", "-", "fifo"])
def test_a_job_may_come_from_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, way: str
) -> None:
    """``boa submit <(make-job)`` and ``boa submit - < train.sbatch``, as with sbatch: it can be read once."""
    monkeypatch.chdir(tmp_path)
    reading, writing = os.pipe()
    os.write(writing, text.encode())
    os.close(writing)
    path = Path("-")
    if way == "pipe":
        path = Path(f"/dev/fd/{reading}")
    elif way == "fifo":
        path = tmp_path / "fifo"
        os.mkfifo(path)
        threading.Thread(target=path.write_text, args=(text,), daemon=True).start()
    else:
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=os.fdopen(reading, "rb", closefd=False)))
    document, notes = read_job_file(path)
    os.close(reading)
    (content,) = submission_of(document, path)
    assert "python train.py" in content["run"]
    assert [note.option for note in notes] == (["--gpus", "--output"] if text is SCRIPT else [])
    if way == "-":
        assert (document.name, content["name"]) == ("standard input", "sbatch" if text is SCRIPT else "a")
