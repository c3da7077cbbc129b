"""What stands around a job's command: its code, its setup, and the end of its container."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from shlex import quote

from boa_daemon.engines.layout import Layout, UnitScripts
from boa_daemon.job.container import end_script
from boa_daemon.tick.ports import JobSpec


def workdir_of(spec: JobSpec, layout: Layout) -> str:
    """Return where the command starts: in the job's copy of its code, if it has one."""
    return str(layout.work(spec.job) / spec.workdir) if spec.code else spec.workdir


def code_script(spec: JobSpec, layout: Layout, *, code_at: str) -> str:
    """Return the script that has a job's code in its folder on a node."""
    words = (code_at, spec.code, str(layout.code), str(layout.work(spec.job)))
    return f'"$BOA_PYTHON" -m boa_daemon.job.code {" ".join(map(quote, words))}'


def with_inputs(
    spec: JobSpec, layout: Layout, errands: UnitScripts, folder: Path, *, code_at: str
) -> UnitScripts:
    """Return the errands of the unit of a folder, with its code and its data brought first."""
    scripts = [code_script(spec, layout, code_at=code_at)] if spec.code else []
    if spec.data:
        scripts.append(f'exec "$BOA_PYTHON" -m boa_daemon.job.data {quote(str(folder))}')
    return replace(errands, bring=" && ".join(scripts))


def ended_container(name: str, spec: JobSpec, after: str) -> str:
    """Return the last errand of a unit, with the end of its container first."""
    if not spec.image:
        return after
    return f"{end_script(name)}; {after}" if after else end_script(name)


def with_setup(spec: JobSpec, folder: Path) -> str:
    """Return the command with what is set up before it.

    On a node that happens once for the same code and the same words, as `folder` remembers; in a container,
    which begins anew each time, at each start. What the job's nodes share is set up by one of them while the
    others wait.
    """
    if not spec.setup:
        return spec.run
    setup = f"( set -e\n{spec.setup}\n)"
    if spec.image:
        return f"{setup} || exit\n{spec.run}"
    digest = hashlib.sha256(f"{spec.code}\0{spec.setup}".encode()).hexdigest()[:16]
    marker, lock = quote(str(folder / f"setup.{digest}")), quote(str(folder / "setup.lock"))
    return f"""if [ ! -e {marker} ]; then
mkdir -p {quote(str(folder))}
exec 9>{lock}
flock 9
if [ ! -e {marker} ]; then
{setup} 9>&- || exit
touch {marker}
fi
exec 9>&-
fi
{spec.run}"""
