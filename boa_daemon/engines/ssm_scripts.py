"""The shell scripts that the `ssm` engine sends to nodes, and the errands that units run there.

They need bash, systemd, Python 3.9 and the AWS command line, which AWS's own images have. Nothing listens on
a node and no key is spread: SSM brings the scripts, and everything comes back through S3 and SQS.
"""

from __future__ import annotations

import base64
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

from boa_daemon.engines.units import Errands

READY, STATUS, HEALTH = "boa-node-ready", "boa-unit-status ", "boa-node-health "
SYSTEMD_MARGIN_SECONDS = 30
"""systemd ends a unit this much after its keeper should have."""


@cache
def bundle() -> tuple[str, str]:
    """Return (digest, base64) of what a node needs of this package: `boa_daemon.job`."""
    buffer = io.BytesIO()
    package = Path(str(files("boa_daemon")))
    with tarfile.open(fileobj=buffer, mode="w:xz") as archive:
        for file in [package / "__init__.py", *sorted((package / "job").glob("*.py"))]:
            member = tarfile.TarInfo(str(file.relative_to(package.parent)))
            content = file.read_bytes()
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    packed = buffer.getvalue()
    return hashlib.sha256(packed).hexdigest()[:16], base64.b64encode(packed).decode()


def library(root: str) -> str:
    """Return the folder on a node that holds the bundle."""
    return f"{root}/lib/{bundle()[0]}"


def prepare_script(root: str, *, gpus: int = 0, efa: int = 0) -> str:
    """Return the script that makes a node ready: it unpacks the bundle, once, and looks at the GPUs."""
    folder, (_, packed) = library(root), bundle()
    return f"""set -eu
if [ ! -e {quote(folder)}/ready ]; then
  mkdir -p {quote(folder)}
  base64 -d <<'BUNDLE' | tar -xJ -C {quote(folder)}
{packed}
BUNDLE
  command -v systemd-run >/dev/null
  command -v aws >/dev/null
  touch {quote(folder)}/ready
fi
PYTHONPATH={quote(folder)} python3 -c 'import boa_daemon.job.keeper'
printf '%s' {quote(HEALTH)}
PYTHONPATH={quote(folder)} python3 -m boa_daemon.job.health --gpus {gpus} --efa {efa}
echo {READY}
"""


def start_script(root: str, unit: Mapping[str, Any], *, grace_seconds: float) -> str:
    """Return the script that starts a unit under systemd; one that is there already is left alone."""
    folder, name = str(unit["folder"]), str(unit["name"])
    keeper = "python3 -m boa_daemon.job.keeper"
    return f"""set -eu
mkdir -p {quote(folder)} {quote(str(unit["checkpoint_dir"]))} {quote(str(unit["workdir"]))}
if [ ! -e {quote(folder)}/unit.json ]; then
  cat > {quote(folder)}/unit.part <<'UNIT'
{json.dumps(unit)}
UNIT
  mv {quote(folder)}/unit.part {quote(folder)}/unit.json
fi
if [ -e {quote(folder)}/keeper.json ] || systemctl is-active --quiet {quote(name)}; then exit 0; fi
systemd-run --unit={quote(name)} --collect -p KillMode=mixed \\
  -p TimeoutStopSec={grace_seconds + SYSTEMD_MARGIN_SECONDS:.0f} \\
  -p 'ExecStopPost={keeper} --settle {quote(folder)}' \\
  --setenv=PYTHONPATH={quote(library(root))} {keeper} --foreground {quote(folder)}
"""


def stop_script(name_pattern: str) -> str:
    """Return the script that asks units for a checkpoint and an end; it waits for nothing."""
    return f"systemctl stop --no-block {quote(name_pattern)}\n"


def kill_script(name_pattern: str) -> str:
    """Return the script that ends units at once."""
    return f"systemctl kill --kill-whom=main --signal=SIGUSR1 {quote(name_pattern)}\n"


def status_script(root: str, folder: str) -> str:
    """Return the script that says what a unit is doing."""
    return f"""set -eu
printf '%s' {quote(STATUS)}
PYTHONPATH={quote(library(root))} python3 -m boa_daemon.job.keeper --status {quote(folder)}
"""


def errands_for(
    *, queue_url: str, uri: str, generation: int, resumes_from: int | None, unit_folder: str, checkpoints: str
) -> Errands:
    """Return a unit's errands: checkpoints and logs go to S3 below `uri`, word of them to SQS.

    Each generation writes below its own prefix and reads from the one that the daemon names, so that a late
    one can overwrite nothing.
    """
    tell = f'aws sqs send-message --queue-url {quote(queue_url)} --message-body "$BOA_STATUS"'
    logs = (
        f"aws s3 sync {quote(unit_folder)} {quote(f'{uri}/g{generation}/{Path(unit_folder).name}')} "
        "--exclude '*' --include 'out-*.log'"
    )
    keep = f"aws s3 sync {quote(checkpoints)} {quote(f'{uri}/g{generation}/checkpoint')} --exclude '.*'"
    stands = quote(f"{uri}/g{resumes_from}/checkpoint")
    fetch = "" if resumes_from is None else f"aws s3 sync {stands} {quote(checkpoints)} --exclude generation"
    # Word goes last: what it says is there can then be fetched.
    upload = f"{keep if unit_folder.endswith('/n0') else 'true'}; {logs}; {tell}"
    return Errands(before=fetch, beat=upload, after=upload)
