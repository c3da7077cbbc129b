"""`aws/image_builder/script.py`: what prepares a disk, in a shell, and what it says it holds."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.backends.aws.image_builder.script import DONE, check, image_contents, prepare_script
from boa_daemon.errors import InputError
from boa_daemon.job.container import TOOLS


def script(**parts: Any) -> str:
    """Return the script of build b7."""
    return prepare_script("b7", **({"pip": (), "containers": (), "script": ""} | parts))


@pytest.mark.parametrize(
    "word",
    [
        "torch",
        "torch==2.9.0",
        "jax[cuda12]>=0.6",
        "a.b_c-d~=1.0",
        "x<2",
        "torch==2.9.0+cu130",
        "ray[client,train]",
    ],
)
def test_a_requirement_of_pip_is_taken(word: str) -> None:
    """With a version and extras."""
    check(pip=[word], containers=["org/image:tag", "docker://ghcr.io/org/image:1.0"])


@pytest.mark.parametrize(
    "word",
    [
        "",
        "-r",
        "--index-url=x",
        "a b",
        "torch; rm",
        "$(x)",
        "torch\n",
        "git+https://x",
        "torch==",
        "torch==1\n",
    ],
)
def test_what_pip_would_take_for_an_option_or_the_shell_for_a_command_is_refused(word: str) -> None:
    """Before anything is rented."""
    with pytest.raises(InputError, match="is not a requirement of pip"):
        check(pip=["torch", word], containers=[])


@pytest.mark.parametrize(
    "word", ["", "/srv/x.sif", "org/image tag", "org/image:tag\n", "$(x)", "-x", "Org/image"]
)
def test_a_container_is_an_image_of_a_registry(word: str) -> None:
    """A file of this machine is not on the node."""
    with pytest.raises(InputError, match="is not an image of a registry"):
        check(pip=[], containers=[word])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the node's home with registry credentials, and with tools that note what they are told."""
    (tmp_path / "home" / ".docker").mkdir(parents=True)
    (tmp_path / "home" / ".docker" / "config.json").write_text("secret")
    (tmp_path / "bin").mkdir()
    for tool in ("python3", TOOLS[0], "cloud-init", "nvidia-smi", "sync"):
        says = "echo 570.1" if tool == "nvidia-smi" else f'printf "%s\\n" "{tool} $*" >> {tmp_path}/told'
        (tmp_path / "bin" / tool).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / "bin" / tool).chmod(0o755)
    return tmp_path


def run(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script on the node."""
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": f"{folder}/home"}
    return subprocess.run(
        ["/bin/bash", "-c", text.replace("/var/lib/boa-image", f"{folder}/state")],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_build_is_done_once_however_often_it_is_sent(folder: Path) -> None:
    """Its contents are told each time; credentials of registries are not left on the disk."""
    text = script(pip=["torch==2.9.0"], containers=["docker://org/image:1"], script="echo 'own; \"'")
    for _ in range(2):
        ended = run(text, folder)
        assert (ended.returncode, ended.stderr) == (0, "")
        wanted = "driver 570.1; pip torch==2.9.0; images docker://org/image:1; own steps"
        assert image_contents(ended.stdout) == wanted
    told = (folder / "told").read_text().splitlines()
    assert [line for line in told if line != "sync "] == [
        "cloud-init status --wait",
        "python3 -m pip install --no-cache-dir torch==2.9.0",
        f"{TOOLS[0]} pull org/image:1",
    ]
    assert not (folder / "home" / ".docker" / "config.json").exists()


def test_a_step_that_fails_leaves_nothing_that_counts_as_done(folder: Path) -> None:
    """The next time it runs again; a broken script of a person breaks only itself."""
    for own in ("false", "if", "echo 'open"):
        ended = run(script(script=own), folder)
        assert ended.returncode != 0
        assert image_contents(ended.stdout) is None
    assert image_contents(run(script(), folder).stdout) == "driver 570.1"


@pytest.mark.parametrize(
    ("output", "contents"),
    [
        ("", None),
        ("noise\n", None),
        (f"{DONE} \n", "nothing beside the base"),
        (f"noise\n{DONE} pip a; \n", "pip a"),
        (f"{DONE} old; \n{DONE} new; \n", "new"),
        (f"{DONE} pip jax[cuda12]; é; \n", "pip jax-cuda12-; -"),
        (f"{DONE} {'x' * 300}", "x" * 250),
    ],
)
def test_contents_fit_into_a_tag(output: str, contents: str | None) -> None:
    """The last line counts; other characters become dashes."""
    assert image_contents(output) == contents
