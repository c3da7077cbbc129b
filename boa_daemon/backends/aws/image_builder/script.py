"""The script that prepares a node before its disk becomes an image, sent through SSM.

The script may be sent any number of times: one copy runs at a time, and each build completes it once. It
deletes registry credentials from the disk.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from boa_daemon.errors import InputError
from boa_daemon.job.container import TOOLS
from boa_daemon.job.run_options import IMAGE_FORM

DONE = "BOA_IMAGE_HOLDS"
_FOLDER = "/var/lib/boa-image"
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?([<>=!~]=?[A-Za-z0-9.*+!_-]+)?")
_SCRIPT = """#!/bin/bash
set -eu -o pipefail
mkdir -p @FOLDER@
exec 9> @FOLDER@/lock
flock 9
done=@FOLDER@/@BUILD@
if [ -e "$done" ]; then cat "$done"; exit 0; fi
if command -v cloud-init > /dev/null; then cloud-init status --wait > /dev/null || true; fi
export PIP_BREAK_SYSTEM_PACKAGES=1 DEBIAN_FRONTEND=noninteractive
holds=
if command -v nvidia-smi > /dev/null; then
    holds="driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1); "
fi
@STEPS@
rm -f "${HOME:-/root}/.docker/config.json" "${HOME:-/root}/.config/containers/auth.json"
echo "@DONE@ $holds" > "$done.new"
sync
mv "$done.new" "$done"
sync
cat "$done"
"""
_CONTAINER = """tool=
for each in @TOOLS@; do if command -v "$each" > /dev/null; then tool="$each"; break; fi; done
if [ -z "$tool" ]; then echo "nothing here runs images: @TOOLS@" >&2; exit 3; fi
"""


def check(*, pip: Sequence[str], containers: Sequence[str]) -> None:
    """Refuse a pip requirement or a container image that is malformed, before anything is rented.

    Raises:
        InputError: for the first malformed one.
    """
    for each in pip:
        if not _REQUIREMENT.fullmatch(each):
            raise InputError(
                f"--pip {each!r} is not a requirement of pip", hint="For example torch, or torch==2.9.0"
            )
    for each in containers:
        if not re.fullmatch(IMAGE_FORM, each) or each.startswith("/"):
            raise InputError(
                f"--container {each!r} is not an image of a registry", hint="For example org/image:tag"
            )


def prepare_script(build: str, *, pip: Sequence[str], containers: Sequence[str], script: str) -> str:
    """Return the script of a build. Its last line of output begins with `DONE` and lists the contents."""
    steps = []
    if pip:
        steps.append(f"python3 -m pip install --no-cache-dir {shlex.join(pip)}")
        steps.append(f"holds+={shlex.quote('pip ' + ' '.join(pip) + '; ')}")
    if containers:
        steps.append(_CONTAINER.replace("@TOOLS@", " ".join(TOOLS[:2])).rstrip())
        plain = (image.removeprefix("docker://") for image in containers)
        steps += [f'"$tool" pull {shlex.quote(image)}' for image in plain]
        steps.append(f"holds+={shlex.quote('images ' + ' '.join(containers) + '; ')}")
    if script:
        # A shell of its own: an unclosed quote or block in the user's script does not break ours.
        steps.append(f"/bin/bash -eu -c {shlex.quote(script)}")
        steps.append("holds+='own steps; '")
    return (
        _SCRIPT.replace("@STEPS@", "\n".join(steps))
        .replace("@FOLDER@", _FOLDER)
        .replace("@BUILD@", build)
        .replace("@DONE@", DONE)
    )


def image_contents(output: str) -> str | None:
    """Return the contents of a prepared disk, from the script's output; None if the script did not finish.

    Tags allow letters, digits, spaces and a few signs: every other character becomes a dash.
    """
    lines = [line for line in output.splitlines() if line.startswith(DONE)]
    if not lines:
        return None
    said = re.sub(r"[^A-Za-z0-9 _.:/=+@;,-]", "-", lines[-1].removeprefix(DONE)).strip().rstrip(";")
    return said[:250] or "nothing beside the base"
