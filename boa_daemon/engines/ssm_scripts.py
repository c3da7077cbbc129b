"""The shell scripts that the `ssm` engine sends to nodes, and the errands that units run there.

They need bash, systemd, Python 3.9 and the AWS command line, which AWS's images include. Nothing listens on a
node, and no SSH keys are needed: SSM delivers the scripts, and all results come back through S3 and SQS. SSM
runs them with `sh`, which is dash on Ubuntu; errands are run by bash.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

from boa_daemon.engines.layout import UnitScripts
from boa_daemon.job.container import LIMITED, limit_properties
from boa_daemon.job.run_options import run_options
from boa_daemon.job.seal import KEY_FILE
from boa_daemon.tick.facts.ports import GatePass

READY, STATUS, HEALTH = "boa-node-ready", "boa-unit-status ", "boa-node-health "
SCRATCH = "boa-node-scratch "
RESTART_SECONDS = 3.0
"""After so long systemd starts the guard of a unit again: rarely enough that it never gives that up."""


@cache
def bundle() -> tuple[str, bytes]:
    """Return (digest, archive) of the part of this package that nodes need: `boa_daemon.job` as `.tar.gz`.

    The same files give the same archive. The digest is the SHA-256 of the packed archive, so that it can be
    verified before it is unpacked.
    """
    content = io.BytesIO()
    package = Path(str(files("boa_daemon")))
    with tarfile.open(fileobj=content, mode="w") as archive:
        top = [package / "__init__.py", package / "version.py"]
        for file in [*top, *sorted((package / "job").rglob("*.py"))]:
            member = tarfile.TarInfo(str(file.relative_to(package.parent)))
            member.size = file.stat().st_size
            with file.open("rb") as source:
                archive.addfile(member, source)
    packed = gzip.compress(content.getvalue(), mtime=0)
    return hashlib.sha256(packed).hexdigest(), packed


def library(root: str) -> str:
    """Return the folder on a node that holds the bundle."""
    return f"{root}/lib/{bundle()[0][:16]}"


def prepare_script(root: str, source: str, *, gpus: int = 0, efa: int = 0) -> str:
    """Return the script that prepares a node: it unpacks the bundle, sets up the disks, and checks the GPUs.

    `source` is the bundle's s3:// address. The folder is renamed last, so that it exists only when complete.
    """
    folder, (digest, _) = quote(library(root)), bundle()
    return f"""set -eu
umask 022
if [ ! -d {folder} ]; then
  command -v systemd-run >/dev/null
  part={folder}.$$
  trap 'rm -rf "$part"' EXIT
  mkdir -p "$part/library"
  aws s3 cp {quote(source)} "$part/packed" --only-show-errors
  echo "{digest}  $part/packed" | sha256sum --check --quiet
  tar -xzf "$part/packed" -C "$part/library"
  mv -T "$part/library" {folder} || [ -d {folder} ]
fi
PYTHONPATH={folder} python3 -c 'import boa_daemon.job.keeper'
printf '%s' {quote(SCRATCH)}
PYTHONPATH={folder} python3 -m boa_daemon.job.scratch {quote(root)}/jobs
printf '%s' {quote(HEALTH)}
PYTHONPATH={folder} python3 -m boa_daemon.job.health --gpus {gpus} --efa {efa}
echo {READY}
"""


def start_script(root: str, unit: Mapping[str, Any], *, gate: GatePass | None = None, key: str = "") -> str:
    """Return the script that starts a unit under systemd, unless it has been started already.

    systemd has no time limit for a stop: the keeper kills the command after the grace period, and the upload
    of the last checkpoint has its own limits, which depend on its size. It ends no process of a unit but the
    main one, the guard, and starts another if that is killed: keeper and command go on meanwhile. What
    outlives the command is for the keeper to end, by the command's control group. A process that the kernel
    ends for memory is no reason for systemd to stop the others; systemd before 243 has no say in it.
    """
    folder, name = str(unit["folder"]), str(unit["name"])
    limits = limit_properties(run_options(unit))
    within = "".join(f"  -p {one} \\\n" for one in limits)
    told = f"--setenv={LIMITED}=1 " if limits else ""
    keeper = "python3 -m boa_daemon.job.keeper"
    # Closed from the start: the keeper opens it to the job's group when it hands it over.
    job = quote(str(Path(str(unit["checkpoint_dir"])).parent))
    files = _key_file(Path(folder).parent, key) + _gate_files(Path(folder).parent, gate)
    return f"""set -eu
umask 022
[ -d {job} ] || mkdir -p -m 700 {job}
mkdir -p {quote(folder)} {quote(str(unit["checkpoint_dir"]))}
{_workdir_script(unit)}{files}if [ ! -e {quote(folder)}/unit.json ]; then
  cat > {quote(folder)}/unit.part <<'UNIT'
{json.dumps(unit)}
UNIT
  mv {quote(folder)}/unit.part {quote(folder)}/unit.json
fi
if [ -e {quote(folder)}/keeper.json ] || systemctl is-active --quiet {quote(name)}; then exit 0; fi
set -- $(systemctl --version)
oom=; [ "${{2%%[!0-9]*}}" -lt 243 ] || oom='-p OOMPolicy=continue'
systemd-run --unit={quote(name)} --collect -p KillMode=process -p Restart=on-failure \\
  -p RestartSec={RESTART_SECONDS:g} -p Delegate=yes $oom \\
  -p TimeoutStopSec=infinity -p LimitMEMLOCK=infinity \\
{within}  {told}--setenv=PYTHONPATH={quote(library(root))} {keeper} --foreground {quote(folder)}
"""


_MAKE_AS_USER = (
    "import os, sys; gid, uid, folder = sys.argv[1:]; os.setgroups([]); os.setgid(int(gid)); "
    "os.setuid(int(uid)); os.makedirs(folder, exist_ok=True)"
)


def _workdir_script(unit: Mapping[str, Any]) -> str:
    """Return the lines that make a unit's working folder unless it is there.

    With code there is nothing to make: the folder comes with it. Root makes a folder for the job's user only
    in the job's own folder, which belongs to root. Elsewhere the user makes it: root would follow the links
    of other users, and could be made to give away a folder of the system.
    """
    work, uid, gid = str(unit["workdir"]), unit.get("uid"), unit.get("gid")
    if unit.get("mounts"):
        return ""
    make = f"mkdir -p {quote(work)}"
    if uid is not None and Path(work).parent == Path(str(unit["checkpoint_dir"])).parent:
        make += f" && chown {uid}:{gid} {quote(work)}"
    elif uid is not None:
        make = f"python3 -c {quote(_MAKE_AS_USER)} {gid} {uid} {quote(work)} || true"
    return f"if [ ! -d {quote(work)} ]; then {make}; fi\n"


def _key_file(generation: Path, key: str) -> str:
    """Return the line that writes the key of a generation's seal, readable only by the keepers."""
    file = quote(str(generation / KEY_FILE))
    return f"(umask 077; printf '%s\\n' {quote(key)} > {file})\n" if key else ""


def _gate_files(generation: Path, gate: GatePass | None) -> str:
    """Return the lines that write the gate's address and token; only the owner can read the token."""
    if gate is None:
        return ""
    address = json.dumps({"address": gate.address})
    return (
        f"(umask 077; printf '%s\\n' {quote(gate.token)} > {quote(str(generation / 'gate.token'))})\n"
        f"printf '%s\\n' {quote(address)} > {quote(str(generation / 'gate.json'))}\n"
    )


def stop_script(name_pattern: str) -> str:
    """Return the script that asks units for a checkpoint and a stop, without waiting for them.

    Not by `systemctl stop`, which would call the restart of a killed guard off.
    """
    return f"systemctl kill --kill-who=main --signal=SIGTERM {quote(name_pattern)}\n"


def kill_script(name_pattern: str) -> str:
    """Return the script that ends units at once, also those that somebody has suspended.

    Where a unit's guard is dead, all of it is killed. (`--kill-whom` is unknown before systemd 252.)
    """
    name = quote(name_pattern)
    main, every = (f"systemctl kill --kill-who={whom} --signal" for whom in ("main", "all"))
    return f"{main}=SIGUSR1 {name} || {every}=SIGKILL {name}\n{main}=SIGCONT {name} || true\n"


def status_script(root: str, folder: str, *, key: str = "") -> str:
    """Return the script that prints a unit's status.

    It first stores the key by which the daemon knows the generation: two daemons may have told the node to
    start it, and their orders may have come in another order than they were given.
    """
    generation = Path(folder).parent
    # Root writes only into a folder of its own: elsewhere a job could place a link.
    store = (
        f"if [ -O {quote(str(generation))} ]; then {_key_file(generation, key).strip()}; fi\n" if key else ""
    )
    return f"""set -eu
{store}printf '%s' {quote(STATUS)}
PYTHONPATH={quote(library(root))} python3 -m boa_daemon.job.keeper --status {quote(folder)}
"""


def unit_scripts_for(
    *,
    queue_url: str,
    uri: str,
    generation: int,
    stands: Mapping[str, Any] | None,
    unit_folder: str,
    checkpoints: str,
    artifacts: str = "",
) -> UnitScripts:
    """Return a unit's errands: checkpoints and logs go to S3 below `uri`, statuses to SQS.

    Each generation writes below its own prefix. On all its nodes it begins with the checkpoint `stands`,
    which the daemon names (None: without one); older files on a node do not count.
    """
    tell = f'aws sqs send-message --queue-url {quote(queue_url)} --message-body "$BOA_STATUS"'
    logs = (
        f"aws s3 sync {quote(unit_folder)} {quote(f'{uri}/g{generation}/{Path(unit_folder).name}')} "
        "--exclude '*' --include 'out-*.log'"
    )
    move = "python3 -m boa_daemon.job.transfer"
    keep = f"{move} keep {quote(unit_folder)} {quote(checkpoints)} {quote(f'{uri}/g{generation}/checkpoint')}"
    before = f"{move} forget {quote(checkpoints)}"
    if stands is not None:
        source = quote(f"{uri}/g{stands['generation']}/checkpoint")
        before = f"{move} fetch {quote(checkpoints)} {source} {stands['step']} {quote(str(stands['sha256']))}"
    left = f"[ ! -d {quote(artifacts)} ] || aws s3 sync {quote(artifacts)} {quote(f'{uri}/artifacts')}; "
    # The status is sent last, so that the files that it mentions are in S3 by then.
    look = f"python3 -m boa_daemon.job.health --watch {quote(f'{unit_folder}/health.json')}"
    after = f"{left if artifacts else ''}{logs}; {tell}"
    return UnitScripts(before=before, beat=f"{logs}; {tell}", after=after, keep=keep, look=look)
