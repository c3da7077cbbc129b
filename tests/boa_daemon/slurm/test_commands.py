"""What Slurm's commands print is read; a controller that does not answer is not asked again at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boa_daemon.slurm.commands import Slurm, SlurmJob, SlurmRefused, SlurmSilent, expand


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("c1", ["c1"]),
        ("c[1-3,7],login", ["c1", "c2", "c3", "c7", "login"]),
        ("c[08-11]", ["c08", "c09", "c10", "c11"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu-a[1-2]-x,b", ["gpu-a1-x", "gpu-a2-x", "b"]),
        ("n[01-03,7]", ["n01", "n02", "n03", "n7"]),
        ("r[01-02]c[0,2]s1", ["r01c0s1", "r01c2s1", "r02c0s1", "r02c2s1"]),
        ("n[1-2], n4\n", ["n1", "n2", "n4"]),
        ("n1[2-3],[7-8],n_1.x", ["n12", "n13", "7", "8", "n_1.x"]),
        ("", []),
    ],
)
def test_a_host_list_is_expanded(hostlist: str, names: list[str]) -> None:
    """Ranges, leading zeros, several brackets and several parts."""
    assert expand(hostlist) == names


@pytest.mark.parametrize(
    "hostlist",
    [
        "c[1-", "c[1-x]", "c]1[", "c[]-2]", "c[]", "c[5-1]", "c[1,]", "c[-3]", "c[1-2-3]", "c[[1]]",
        "c[\u0663]", "c[\u00b2]", "(null)", "None assigned", "c1 c2", "c[1 - 3]", "c[1-3:2]",
    ],
)  # fmt: skip
def test_a_broken_host_list_is_refused(hostlist: str) -> None:
    """It names the part that is none."""
    with pytest.raises(ValueError, match="is no"):
        expand(hostlist)


def test_a_thousand_names_are_expanded() -> None:
    """A request for a thousand nodes is one word."""
    assert expand("c[1-1000]")[-1] == "c1000"


@pytest.mark.parametrize("hostlist", ["c[1-999999999999]", "c[1-60000,1-60000]", "r[1-999]n[1-999]"])
def test_a_word_that_stands_for_too_many_names_is_refused(hostlist: str) -> None:
    """At once: the daemon neither fills its memory nor counts to a trillion."""
    with pytest.raises(ValueError, match="more than 65,536 names"):
        expand(hostlist)


def test_a_job_whose_nodes_cannot_be_read_has_none() -> None:
    """One bad line in the queue is not the end of the list."""
    assert SlurmJob(id="1", state="RUNNING", nodes="n[1-").hosts == []
    assert SlurmJob(id="1", state="RUNNING", nodes="n[1-2]").hosts == ["n1", "n2"]


def fake(folder: Path, name: str, script: str) -> None:
    """Put a program of that name into a folder."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def fake_queue(folder: Path, rows: str) -> None:
    """Put a `squeue` into a folder that prints these rows; `@` is the word with which each of them begins."""
    fake(folder, "squeue", f"for last; do :; done\nprintf '{rows}' | sed \"s/^@/${{last%%|*}}/\"")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A Slurm whose commands are scripts of the test."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Slurm()


def test_nodes_and_jobs_are_read(slurm: Slurm, tmp_path: Path) -> None:
    """Marks behind states, bars in reasons and comments, and lines that are none."""
    fake(
        tmp_path, "sinfo",
        "echo 'n1|gpu|mixed-|64+|257000+|gpu:a100:4(S:0-1)|10.0.0.1|none'; "
        "echo 'n2|gpu|drained*|64|1||n2|bad | disk'; echo 'c1|cloud|idle~|4|1|(null)|c1|none'; echo junk",
    )  # fmt: skip
    fake_queue(
        tmp_path,
        r"Welcome\n@|7|RUNNING|ann|ml|n[1-2]|gpu|2|7|boa:a|b:g1:x|None\n"
        r"@|8|PENDING|bob|||p,q|4-8|8_[0-9%%3]||Priority\n",
    )
    one, two, cloud = slurm.nodes()
    assert (one.cpus, one.memory_mb, one.gpus, one.gpu_model, one.address) == (
        64,
        257000,
        4,
        "a100",
        "10.0.0.1",
    )
    assert (one.is_up, one.is_free, two.is_up, two.is_lost, two.is_leaving) == (
        True,
        False,
        False,
        True,
        True,
    )
    assert two.reason == "bad | disk"
    assert (cloud.is_up, cloud.is_free, cloud.is_joined) == (False, True, False)
    running, waiting = slurm.jobs()
    assert (running.comment, running.reason, running.account, running.is_live) == (
        "boa:a|b:g1:x",
        "None",
        "ml",
        True,
    )
    assert (waiting.waits, waiting.reason) == (True, "Priority")


@pytest.mark.parametrize(
    "said",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "squeue: error: slurm_receive_msg: Socket timed out on send/recv operation",
        "slurm_load_jobs error: Zero Bytes were transmitted or received",
        "slurm_load_jobs error: Insane message length",
        "slurm_load_jobs error: Unexpected missing socket error",
        "slurm_load_jobs error: Protocol authentication error",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
        "squeue: fatal: Could not establish a configuration source",
    ],
)
def test_a_silent_controller_is_not_asked_again_at_once(slurm: Slurm, tmp_path: Path, said: str) -> None:
    """A tick must not wait for each of many questions."""
    fake(tmp_path, "squeue", f"echo x >> {tmp_path}/asked; echo '{said}' >&2; exit 1")
    for _ in range(3):
        with pytest.raises(SlurmSilent):
            slurm.jobs()
    assert (tmp_path / "asked").read_text().count("x") == 1


@pytest.mark.parametrize("said", ["junk", "<html>503</html>", "a|b", "\\0\\0|"])
def test_an_answer_that_is_no_list_is_no_answer(slurm: Slurm, tmp_path: Path, said: str) -> None:
    """An empty queue would count running jobs as lost, a cluster without nodes would end all of ours."""
    for name in ("squeue", "sinfo", "sbatch"):
        fake(tmp_path, name, f"printf '{said}\\n'")
    with pytest.raises(SlurmSilent, match="squeue lists no job"):
        slurm.jobs()
    with pytest.raises(SlurmSilent, match="sinfo lists no node"):
        Slurm().nodes()
    with pytest.raises(SlurmSilent, match="sbatch names no job"):
        Slurm().submit([], "#!/bin/sh", environment={"PATH": os.environ["PATH"]})


def test_an_empty_queue_is_an_answer_and_a_cluster_without_nodes_is_none(
    slurm: Slurm, tmp_path: Path
) -> None:
    """Also an sbatch that prints nothing has named no job."""
    for name in ("squeue", "sinfo", "sbatch"):
        fake(tmp_path, name, "exit 0")
    assert slurm.jobs() == []
    with pytest.raises(SlurmSilent, match="sbatch names no job"):
        slurm.submit([], "#!/bin/sh", environment={"PATH": os.environ["PATH"]})
    with pytest.raises(SlurmSilent, match="sinfo lists no node"):
        slurm.nodes()


def test_a_refusal_is_told_in_slurms_words(slurm: Slurm, tmp_path: Path) -> None:
    """Without the name of the program in front."""
    fake(tmp_path, "sbatch", "echo 'sbatch: error: invalid partition specified: gp' >&2; exit 1")
    with pytest.raises(SlurmRefused, match=r"^invalid partition specified: gp$"):
        slurm.submit([], "#!/bin/sh", environment={"PATH": os.environ["PATH"]})


def test_a_job_gets_the_variables_that_are_meant_for_it_alone(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's secrets stay here; Slurm's own variables go along."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("SLURM_CONF", "/x/slurm.conf")
    fake(tmp_path, "sbatch", f"env > {tmp_path}/env; cat > {tmp_path}/script; echo '12;cluster'")
    path = os.environ["PATH"]
    assert slurm.submit([], "#!/bin/sh\n", environment={"PATH": path}) == "12"
    found = (tmp_path / "env").read_text()
    assert "secret" not in found
    assert "SLURM_CONF=/x/slurm.conf" in found
    assert (tmp_path / "script").read_text() == "#!/bin/sh\n"


def test_a_signal_for_a_job_that_is_over_is_no_error(slurm: Slurm, tmp_path: Path) -> None:
    """The order is repeated until the end is seen, so it often comes too late."""
    fake(
        tmp_path,
        "scancel",
        "echo 'scancel: error: Kill job error on job id 7: Invalid job id specified' >&2; exit 1",
    )
    slurm.signal("7", "TERM")
    slurm.cancel("7")


def test_commands_run_on_a_login_node_over_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words with blanks and quotes arrive as they are; the script comes on standard input."""
    fake(tmp_path, "ssh", 'while [ "$1" != login1 ]; do shift; done; shift; exec sh -c "$*"')
    fake(
        tmp_path,
        "sbatch",
        f'for word in "$@"; do echo "$word"; done > {tmp_path}/words; cat > /dev/null; echo 9',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    slurm = Slurm(ssh="login1")
    assert slurm.submit(["--job-name=it's a b"], "#!/bin/sh", environment={"PATH": os.environ["PATH"]}) == "9"
    assert "--job-name=it's a b" in (tmp_path / "words").read_text().splitlines()


def test_a_missing_slurm_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the setting for a login node."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SlurmRefused, match=r"cannot be run: No such file.*slurm_ssh"):
        Slurm(environment={"PATH": "/nowhere"}).jobs()


def test_options_in_variables_are_not_handed_on(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would hide jobs, change columns, or give each job the tasks of the one around the daemon."""
    options = ("SQUEUE_PARTITION", "SINFO_NODES", "SLURM_NTASKS", "SLURM_CLUSTERS", "SBATCH_QOS")
    for name in (*options, "SLURM_CONF", "LANG", "LC_ALL"):
        monkeypatch.setenv(name, "x")
    fake(tmp_path, "squeue", "env")
    fake(tmp_path, "sbatch", "env >&2; echo 7")
    listed = dict(line.partition("=")[::2] for line in slurm.run("squeue").splitlines())
    given = slurm.variables({"SLURM_NTASKS": "4", "LC_ALL": "de_DE.UTF-8"})
    assert not listed.keys() & set(options)
    assert (listed["SLURM_CONF"], listed["LC_ALL"]) == ("x", "C")
    assert given == {"LC_ALL": "de_DE.UTF-8", "SLURM_CONF": "x"}


# What `sinfo` shows, in versions from 20.11 on, and what it means: state, marks, up, free, joined.
STATES = {
    "idle": ("idle", "", True, True, True),
    "idle~": ("idle", "~", False, True, False),
    "IDLE+CLOUD+POWERED_DOWN": ("idle", "~", False, True, False),
    "idle+cloud+powering_up": ("idle", "#", False, True, False),
    "powering_up": ("idle", "#", False, True, False),
    "powering_down": ("idle", "%", False, False, True),
    "powered_down": ("idle", "~", False, True, False),
    "power_down": ("idle", "!", False, False, True),
    "mixed+planned": ("mixed", "-", True, False, True),
    "mixed-": ("mixed", "-", True, False, True),
    "idle+drain": ("drained", "", False, False, True),
    "mixed+drain": ("draining", "", False, False, True),
    "down+not_responding": ("down", "*", False, False, False),
    "idle+maintenance": ("idle", "$", True, False, True),
    "idle+reboot_requested": ("idle", "@", False, False, True),
    "planned": ("planned", "", True, False, True),
}


@pytest.mark.parametrize(("shown", "found"), STATES.items(), ids=STATES)
def test_a_state_means_the_same_in_marks_and_in_words(
    shown: str, found: tuple[object, ...], slurm: Slurm, tmp_path: Path
) -> None:
    """A node that is powered up is never taken for one that has joined."""
    fake(tmp_path, "sinfo", f"echo 'n1|gpu|{shown}|64|1|(null)|n1|none'")
    (node,) = slurm.nodes()
    assert (node.state, node.marks, node.is_up, node.is_free, node.is_joined) == found


def test_numbers_with_a_unit_are_read(slurm: Slurm, tmp_path: Path) -> None:
    """Slurm writes 1024 nodes as 1K, and 256 GiB in MB as 256G."""
    fake(tmp_path, "sinfo", "echo 'n1|gpu|idle|1K|256G|(null)|n1|none'")
    fake_queue(tmp_path, r"@|7|PENDING|ann|ml||gpu|2K|7|(null)|None\n")
    (node,), (job,) = slurm.nodes(), slurm.jobs()
    assert (node.cpus, node.memory_mb, job.node_count) == (1024, 262_144, 2048)


def test_a_comment_with_several_lines_is_that_of_one_job(slurm: Slurm, tmp_path: Path) -> None:
    """Its lines are no jobs, even where they look like those of somebody else; and no job is lost."""
    comment = r"grant 17\n9|RUNNING|bob|other|n2|gpu|1|9|boa:class=a"
    fake_queue(
        tmp_path, rf"@|7|RUNNING|ann|ml|n1|gpu|1|7|{comment}|None\n@|8|PENDING|bob|||p|1|8||Priority\n"
    )
    first, second = slurm.jobs()
    assert (first.id, first.comment.splitlines()[0], first.reason) == ("7", "grant 17", "None")
    assert (second.id, second.comment) == ("8", "")


@pytest.mark.parametrize(
    "said",
    [
        r"@|7|RUNNING|ann|ml|n1|gpu|1|7||None\n@|8|RUN",
        r"@|7|RUNNING|ann|ml|n1|gpu|1|7||None\n@|8|RUNNING|ann|ml|n2\n",
    ],
    ids=["within a line", "within a row"],
)
def test_half_an_answer_is_none(said: str, slurm: Slurm, tmp_path: Path) -> None:
    """To take it for the queue would count the jobs behind it as lost."""
    fake_queue(tmp_path, said)
    with pytest.raises(SlurmSilent, match=r"breaks off|too few columns"):
        slurm.jobs()


def test_jobs_of_other_clusters_of_a_federation_are_not_asked_for(slurm: Slurm, tmp_path: Path) -> None:
    """Their numbers and nodes would be taken for ours."""
    fake(tmp_path, "squeue", f'echo "$@" > {tmp_path}/squeue.args')
    fake(tmp_path, "sinfo", f'echo "$@" > {tmp_path}/sinfo.args; echo "n1|gpu|idle|1|1|x|n1|none"')
    slurm.jobs(), slurm.nodes()
    assert all("--local" in (tmp_path / f"{name}.args").read_text() for name in ("squeue", "sinfo"))


def test_commands_are_found_beside_the_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service's PATH has not /opt/slurm/bin; what is in PATH comes first."""
    for folder in ("slurm/bin", "slurm/etc", "path"):
        (tmp_path / folder).mkdir(parents=True)
    fake(tmp_path / "slurm" / "bin", "squeue", "echo beside")
    monkeypatch.setenv("PATH", f"{tmp_path}/path")
    monkeypatch.setattr("boa_daemon.slurm.commands._FOLDERS", ())
    slurm = Slurm(conf=str(tmp_path / "slurm" / "etc" / "slurm.conf"))
    (tmp_path / "path" / "squeue").symlink_to(tmp_path / "nothing")
    assert slurm.run("squeue") == "beside\n"
    (tmp_path / "path" / "squeue").unlink()
    fake(tmp_path / "path", "squeue", "echo first")
    assert slurm.run("squeue") == "first\n"
