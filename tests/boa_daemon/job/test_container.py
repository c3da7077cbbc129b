"""Container images and limits: the command line on a node, and a fake tool that runs the command."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from engine_bench import Bench, script, until

from boa_daemon.engines.local import LocalEngine
from boa_daemon.engines.ssm_scripts import start_script
from boa_daemon.job import container
from boa_daemon.job.container import (
    LIMITED,
    NoContainers,
    command_of,
    in_container,
    pull,
    usable_tool,
    within_limits,
)
from boa_daemon.job.control_group import ControlGroup
from boa_daemon.job.unit import Unit
from boa_daemon.tick.facts.ports import Accepted

STAND_IN = """#!{python}
# Runs what is inside on this machine, with the variables that were named and no others.
import json, os, sys
from pathlib import Path
words = sys.argv[1:]
with open({record!r}, "a") as file:
    file.write(json.dumps(words) + chr(10))
if words[0] != "run":
    sys.exit({code} if words[0] in ("info", "version", "--scope") else 0)
names, where, at, entry = {{}}, ".", 1, ""
takes = "--env --volume --workdir --ulimit --name --entrypoint --device --gpus --user".split()
library = ""
while words[at].startswith("--"):
    if words[at] == "--env":
        name, has, value = words[at + 1].partition("=")
        names[name] = value if has else os.environ.get(name, "")
    if words[at] == "--workdir":
        where = words[at + 1]
    if words[at] == "--volume" and words[at + 1].endswith(":/opt/boa/boa_daemon:ro"):
        library = str(Path(words[at + 1].partition(":")[0]).parent)
    if words[at] == "--entrypoint":
        entry = words[at + 1]
    at += 2 if words[at] in takes else 1
names["PYTHONPATH"] = names["PYTHONPATH"].replace("/opt/boa", library)
os.chdir(where)
os.execve(entry, [entry, *words[at + 1:]], {{"PATH": os.environ["PATH"], **names}})
"""


def a_unit(folder: Path, **changes: object) -> Unit:
    unit = Unit(
        name="boa-a-1-g1-n0",
        job="a",
        generation=1,
        rank=0,
        run="train",
        folder=folder / "g1" / "n0",
        workdir=str(folder / "work" / "sub"),
        progress_file=str(folder / "g1" / "progress.json"),
        checkpoint_dir=str(folder / "checkpoint"),
        environment={"BOA_JOB_ID": "a", "CUDA_VISIBLE_DEVICES": "2,3", "WORD": "two\nlines"},
        image="ghcr.io/org/train:1",
        mounts=str(folder / "work"),
    )
    return replace(unit, **changes)  # type: ignore[arg-type]


def stand_in(folder: Path, tool: str, *, code: int = 0) -> Path:
    """Put a fake tool into a folder that is first on the PATH; return the file of its arguments."""
    folder.mkdir(exist_ok=True)
    record = folder / f"{tool}.said"
    file = folder / tool
    file.write_text(STAND_IN.format(python=sys.executable, record=str(record), code=code))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return record


def values(argv: list[str], flag: str) -> list[str]:
    return [argv[at + 1] for at, word in enumerate(argv) if word == flag]


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /dev with four GPUs and EFA cards."""
    folder = tmp_path / "dev"
    (folder / "infiniband").mkdir(parents=True)
    for number in range(4):
        (folder / f"nvidia{number}").touch()
    monkeypatch.setattr(container, "_DEVICES", folder)
    return folder


@pytest.mark.parametrize("tool", ["docker", "podman"])
def test_a_container_sees_its_gpus_and_no_others(tmp_path: Path, devices: Path, tool: str) -> None:
    """GPUs are numbered from 0 inside; EFA, the host network and the job's folders are available."""
    unit = a_unit(tmp_path, cpus=4.0, memory_gb=1.5)
    argv = in_container(unit, tool, unit.environment)

    assert argv[:4] == [tool, "run", "--rm", "--name"]
    if tool == "docker":
        assert values(argv, "--gpus") == ['"device=2,3"']
        assert values(argv, "--device") == ["/dev/infiniband"]
    else:
        assert values(argv, "--device") == ["nvidia.com/gpu=2", "nvidia.com/gpu=3", "/dev/infiniband"]
    assert "CUDA_VISIBLE_DEVICES=0,1" in values(argv, "--env")
    assert {"--network=host", "--ipc=private", "--cpus=4"} <= set(argv)
    assert any(word.startswith("--shm-size=") for word in argv)
    assert {"--memory=1500000000b", "--memory-swap=1500000000b"} <= set(argv)
    # Rootless podman may not raise limits, and would not start.
    ulimits = ["memlock=-1:-1", "stack=67108864:67108864"] if tool == "docker" else []
    assert values(argv, "--ulimit") == ulimits
    own = [f"{tmp_path}/{name}:{tmp_path}/{name}" for name in ("work", "checkpoint", "g1")]
    assert values(argv, "--volume")[:3] == own
    assert values(argv, "--workdir") == [f"{tmp_path}/work/sub"]
    # Values are never on the command line: they may be secret or contain line ends.
    assert {"BOA_IN_BOA_JOB_ID", "BOA_IN_WORD"} <= set(values(argv, "--env"))
    assert not any("two\nlines" in word for word in argv)
    assert argv[argv.index("--entrypoint") + 2] == "ghcr.io/org/train:1"


@pytest.mark.parametrize("tool", ["docker", "podman"])
def test_secret_values_are_not_on_the_containers_command_line(
    tmp_path: Path, devices: Path, tool: str
) -> None:
    """The tool takes the value from the keeper's environment by its name."""
    unit = a_unit(tmp_path, secrets={"HF_TOKEN": "env:HF_TOKEN"})
    argv = in_container(unit, tool, {**unit.environment, "HF_TOKEN": "hush-hush"})

    assert "BOA_IN_HF_TOKEN" in values(argv, "--env")
    assert not any("hush-hush" in word for word in argv)


def test_a_node_without_devices_passes_none_to_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool would refuse to start with missing devices."""
    monkeypatch.setattr(container, "_DEVICES", tmp_path)
    unit = a_unit(tmp_path)
    argv = in_container(unit, "docker", unit.environment)
    assert not values(argv, "--gpus") + values(argv, "--device")
    assert "CUDA_VISIBLE_DEVICES=2,3" in values(argv, "--env")


def test_apptainer_runs_images_of_registries_and_files(tmp_path: Path, devices: Path) -> None:
    """Registry names get the prefix `docker://`; a stop needs no extra command."""
    unit = a_unit(tmp_path)
    argv = in_container(unit, "apptainer", unit.environment)
    assert argv[:3] == ["apptainer", "exec", "--nv"]
    assert "docker://ghcr.io/org/train:1" in argv
    assert "kill" not in " ".join(argv)
    for image in ("docker://a/b", "/images/a.sif"):
        assert image in in_container(replace(unit, image=image), "apptainer", unit.environment)


def test_the_first_working_container_tool_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that is installed but fails is skipped; no working tool is an error."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoContainers, match="one of podman, docker, apptainer"):
        usable_tool()
    stand_in(tmp_path, "docker", code=1)
    with pytest.raises(NoContainers):
        usable_tool()
    stand_in(tmp_path, "apptainer")
    assert usable_tool() == "apptainer"
    stand_in(tmp_path, "podman")
    assert usable_tool() == "podman"


def test_limits_become_a_systemd_scope_or_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper is inside the scope; without a scope or a group a note says so."""

    def refused(*_: object, **__: object) -> ControlGroup:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    plain, limited = a_unit(tmp_path, image=""), a_unit(tmp_path, image="", cpus=1.5, memory_gb=2.0)
    shell = ["/bin/bash", "-c", "train"]
    monkeypatch.setattr(container, "BOOTED", tmp_path / "none")
    monkeypatch.setattr(ControlGroup, "make", refused)
    assert command_of(plain, {}) == command_of(limited, {LIMITED: "1"}) == (shell, "")
    note = "cpus and memory_gb are not enforced on this machine: systemd does not run here, and no control "
    note += "group can be made (Read-only file system)"
    assert command_of(limited, {}) == (shell, note)
    assert within_limits(limited, ["keeper"]) == ["keeper"]
    monkeypatch.setattr(container, "BOOTED", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    stand_in(tmp_path, "systemd-run", code=1)
    assert command_of(limited, {}) == (shell, note.replace("does not run here", "gives its user no scope"))
    stand_in(tmp_path, "systemd-run")
    argv = within_limits(limited, ["keeper"])
    assert argv[0] == "systemd-run"
    assert values(argv, "-p") == ["Delegate=yes", "CPUQuota=150%", "MemoryMax=2000000000", "MemorySwapMax=0"]
    assert argv[argv.index("--") :] == ["--", "env", f"{LIMITED}=1", "keeper"]
    assert within_limits(plain, ["keeper"]) == ["keeper"]
    monkeypatch.setattr(container, "BOOTED", tmp_path / "none")
    monkeypatch.setattr(ControlGroup, "make", lambda *_, **__: ControlGroup())
    assert command_of(limited, {}) == (shell, "")


def test_limits_on_rented_nodes_are_properties_of_the_systemd_unit(tmp_path: Path) -> None:
    """`OOMPolicy=continue` lets the keeper outlive a process that is killed for memory."""
    unit: Mapping[str, object] = {
        "folder": "/f", "name": "u", "checkpoint_dir": "/c", "workdir": "/w", "cpus": 2.0, "memory_gb": 8.0,
    }  # fmt: skip
    said = start_script("/root", unit)
    for one in ("CPUQuota=200%", "MemoryMax=8000000000", "MemorySwapMax=0"):
        assert f"-p {one} " in said
    assert "'-p OOMPolicy=continue'" in said
    assert f"--setenv={LIMITED}=1 " in said
    assert subprocess.run(["bash", "-n"], input=said, text=True, check=False).returncode == 0
    free = start_script("/root", {**unit, "cpus": 0.0, "memory_gb": 0.0})
    assert "CPUQuota" not in free
    assert LIMITED not in free


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The local engine on a machine with a working fake docker and a podman that fails."""
    tools = tmp_path / "tools"
    stand_in(tools, "podman", code=1)
    stand_in(tools, "docker")
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    (tmp_path / "work").mkdir()
    return Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path / "work")


def test_a_job_in_an_image_reports_and_stops(bench: Bench, tmp_path: Path) -> None:
    """The job uses the node's `boa_daemon.job`, and its container is removed after a stop."""
    run = script(
        "import time, boa_daemon; from boa_daemon import job; print(boa_daemon.__file__)\n"
        "for step in job.steps(100000, every=50, load=lambda p: None, save=lambda f: f.write(b'x')):\n"
        "    time.sleep(0.01); job.report(step + 1, samples=1)"
    )
    said = tmp_path / "tools" / "docker.said"
    bench.admit(f"echo in the image $MY; {run}; echo end", image="a/b:1", environment={"MY": "x y"})
    bench.start(2)
    report = bench.wait_step(5)
    assert report.phase == "running"
    bench.stop()
    end = bench.wait_end()
    assert (end.phase, end.lost_steps) == ("stopped", 0), bench.printed()
    assert "in the image x y" in bench.printed()
    assert str(Path(container.__file__).parents[1]) in bench.printed()
    lines = said.read_text()
    assert '"run", "--rm"' in lines
    until = time.monotonic() + 120.0
    while '"rm", "-f"' not in said.read_text():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_job_with_an_image_fails_without_a_container_tool(bench: Bench, tmp_path: Path) -> None:
    """The cause `missing-command` is not retried; log and evidence give the reason."""
    stand_in(tmp_path / "tools", "docker", code=1)
    end = bench.run_to_end("echo started", image="a/b:1")
    assert (end.phase, end.cause) == ("failed", "missing-command")
    why = "`image` needs one of podman, docker, apptainer, and none of them works here"
    assert why in bench.printed()
    assert why in end.evidence, "`boa explain` says it too"
    assert "started" not in bench.printed().splitlines()


@pytest.mark.parametrize("is_here", [True, False])
def test_an_image_is_pulled_once_if_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_here: bool
) -> None:
    """The tool that runs the image pulls it."""
    said = tmp_path / "said"
    (tmp_path / "podman").write_text(
        f'#!/bin/bash\necho "$@" >> {said}\n[ "$1 $2" != "image inspect" ] || exit {0 if is_here else 1}\n'
    )
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert pull("pytorch:2") == 0
    asked = ["info", "image inspect pytorch:2", *([] if is_here else ["pull pytorch:2"])]
    assert said.read_text().splitlines() == asked


HOSTILE = {
    "PATH": "{evil}:/usr/bin:/bin",
    "LD_PRELOAD": "{evil}/lib.so",
    "LD_LIBRARY_PATH": "{evil}",
    "LD_AUDIT": "{evil}/lib.so",
    "GLIBC_TUNABLES": "glibc.malloc.check=3",
    "PYTHONPATH": "{evil}",
    "PYTHONSTARTUP": "{evil}/start.py",
    "PYTHONHOME": "{evil}",
    "BASH_ENV": "{evil}/env",
    "ENV": "{evil}/env",
    "BASH_FUNC_podman%%": "() { touch {evil}/ran; }",
    "PS4": "$(touch {evil}/ran)",
    "IFS": "/",
    "DOCKER_HOST": "tcp://evil:1",
    "DOCKER_CONFIG": "{evil}",
    "DOCKER_CONTEXT": "evil",
    "CONTAINER_HOST": "ssh://evil",
    "CONTAINERS_CONF": "{evil}/containers.conf",
    "CONTAINERS_CONF_OVERRIDE": "{evil}/containers.conf",
    "CONTAINERS_STORAGE_CONF": "{evil}/storage.conf",
    "CONTAINERS_REGISTRIES_CONF": "{evil}/registries.conf",
    "REGISTRY_AUTH_FILE": "{evil}/auth.json",
    "STORAGE_DRIVER": "vfs",
    "XDG_RUNTIME_DIR": "{evil}",
    "XDG_CONFIG_HOME": "{evil}",
    "XDG_DATA_HOME": "{evil}",
    "HOME": "{evil}",
    "TMPDIR": "{evil}",
    "SSL_CERT_FILE": "{evil}/cert.pem",
    "HTTPS_PROXY": "http://evil:1",
    "AWS_CONFIG_FILE": "{evil}/config",
    "AWS_PROFILE": "evil",
    "GIT_CONFIG_GLOBAL": "{evil}/gitconfig",
    "GODEBUG": "http2debug=2",
    "LANG": "evil",
    "NOTIFY_SOCKET": "{evil}/socket",
    "LISTEN_FDS": "3",
}
"""Variables of a job that would make a program of root run the job's files, or talk to the job's server."""


@pytest.mark.first_set(1)
@pytest.mark.parametrize("tool", ["podman", "docker"])
def test_a_tool_of_root_runs_with_no_variable_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """A run, a command beside it, and the removal: the keeper's tool, its variables, and the job's inside."""
    tools, evil, seen = tmp_path / "tools", tmp_path / "evil", tmp_path / "seen"
    seen.mkdir()
    stand_in(tools, tool)
    told = f'#!/bin/sh\nenv -0 > {seen}/"$1".$$\npwd > {seen}/"$1".$$.folder\nexec {tools}/{tool} "$@"\n'
    wrapped = tmp_path / "wrapped"
    wrapped.mkdir()
    (wrapped / tool).write_text(told)
    (wrapped / tool).chmod(0o755)
    evil.mkdir()
    for name in ("podman", "docker", "systemd-run", "aws", "conmon", "crun"):
        (evil / name).write_text(f"#!/bin/sh\ntouch {evil}/ran\n")
        (evil / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapped}:/usr/bin:/bin")
    if tool == "docker":
        stand_in(wrapped, "podman", code=1)
    (tmp_path / "work").mkdir()
    bench = Bench(engine=LocalEngine(tmp_path / "root"), workdir=tmp_path / "work")
    given = {name: value.replace("{evil}", str(evil)) for name, value in HOSTILE.items() if "%" not in name}
    inside = tmp_path / "work" / "inside"
    run = f"/usr/bin/env -0 > {inside}; echo begun; /bin/sleep 5"
    assert bench.admit(run, image="a/b:1", environment=given) == Accepted()
    bench.start()
    bench.wait(lambda _: "begun" in bench.printed())
    token = bench.engine.inside.begin("a", 0, "true", seconds=20.0)  # type: ignore[attr-defined]
    assert isinstance(token, str), bench.printed()
    until(lambda: bench.engine.inside.end(token) is not None)  # type: ignore[attr-defined]
    bench.wait_end()
    until(lambda: any(file.match("rm.*.folder") and file.read_text() for file in seen.iterdir()))

    runs = {file.name.split(".")[0]: file for file in sorted(seen.iterdir()) if file.suffix != ".folder"}
    assert runs.keys() == {"info", "run", "exec", "rm"}
    for file in runs.values():
        theirs = variables(file)
        assert not {name: value for name, value in theirs.items() if value == given.get(name)}, file.name
        assert not [n for n in theirs if str(evil) in theirs[n] and not n.startswith("BOA_")], file.name
        assert file.with_name(f"{file.name}.folder").read_text() == "/\n"
    assert not (evil / "ran").exists()
    ours = variables(inside)
    assert ours.pop("PYTHONPATH").startswith(f"{evil}:")
    # The shell of a command sets these two itself.
    wanted = {name: value for name, value in given.items() if name not in ("PYTHONPATH", "IFS", "PS4")}
    assert {name: ours.get(name) for name in wanted} == wanted
    assert not [name for name in ours if name.startswith("BOA_IN_")]


def variables(file: Path) -> dict[str, str]:
    """Return variables that `env -0` wrote."""
    return dict(one.partition("=")[::2] for one in file.read_text().split("\0") if one)


@pytest.mark.parametrize("tool", ["podman", "docker"])
def test_a_container_has_no_privileges_and_only_its_folders(tmp_path: Path, tool: str) -> None:
    """No capability, no set-uid file; of the node it sees what it needs, and the generation read-only."""
    unit = a_unit(
        tmp_path, progress_file=str(tmp_path / "g1" / "own" / "progress.json"), data={"": "s3://b/x"}
    )
    entry = tmp_path / "cache" / ("0" * 64)
    entry.mkdir(parents=True)
    unit.folder.mkdir(parents=True)
    (unit.folder / "data").symlink_to(entry)
    argv = in_container(unit, tool, unit.environment)

    assert {"--cap-drop=ALL", "--security-opt=no-new-privileges"} <= set(argv)
    assert not {"--privileged", "--pid=host"} & set(argv)
    names = ("work", "checkpoint", "g1/own")
    writable = [f"{tmp_path}/{name}:{tmp_path}/{name}" for name in names]
    seen = [f"{tmp_path}/g1:{tmp_path}/g1:ro", f"{entry}:{entry}:ro"]
    package = Path(container.__file__).parents[1]
    assert set(values(argv, "--volume")) == {*writable, *seen, f"{package}:/opt/boa/boa_daemon:ro"}
    # Only where the settings let jobs run as root does a container keep what installing packages needs.
    added = {word for word in argv if word.startswith("--cap-add")}
    assert added == ({f"--cap-add={one}" for one in ROOTS} if os.getuid() == 0 else set())
    own_user = in_container(replace(unit, uid=70_000, gid=70_000), tool, unit.environment)
    if os.getuid() == 0:
        assert not [word for word in own_user if word.startswith("--cap-add")]
        assert values(own_user, "--user") == ["70000:70000"]


ROOTS = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID")
