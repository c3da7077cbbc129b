"""Scripts around a job's command: fetch its code and data, run its setup, and end its container."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from shlex import quote

from boa_daemon.engines.layout import Layout, UnitScripts
from boa_daemon.job.container import end_script
from boa_daemon.tick.facts.job_spec import JobSpec


def workdir_of(spec: JobSpec, layout: Layout) -> str:
    """Return the folder in which the command starts: below the job's copy of its code, if it has code."""
    return str(layout.work(spec.job) / spec.workdir) if spec.code else spec.workdir


def code_script(spec: JobSpec, layout: Layout, *, code_at: str) -> str:
    """Return the script that brings a job's code to its folder on a node."""
    words = (code_at, spec.code, str(layout.code), str(layout.work(spec.job)))
    return f'"$BOA_PYTHON" -m boa_daemon.job.code {" ".join(map(quote, words))}'


def with_inputs(
    spec: JobSpec, layout: Layout, errands: UnitScripts, folder: Path, *, code_at: str
) -> UnitScripts:
    """Return a unit's errands with a `bring` errand for its code and its data; `folder` is the unit's."""
    scripts = [code_script(spec, layout, code_at=code_at)] if spec.code else []
    if spec.data:
        scripts.append(f'exec "$BOA_PYTHON" -m boa_daemon.job.data {quote(str(folder))}')
    return replace(errands, bring=" && ".join(scripts))


def ended_container(name: str, spec: JobSpec, after: str) -> str:
    """Return the last errand of a unit, which ends its container first."""
    if not spec.image:
        return after
    return f"{end_script(name)}; {after}" if after else end_script(name)


def with_setup(spec: JobSpec, folder: Path) -> str:
    """Return the command, preceded by the job's setup script.

    On a node, the setup runs once for the same code and the same script; a marker in `folder` records this.
    In a container, which starts fresh each time, it runs at each start. If nodes share `folder`, one of them
    runs the setup while the others wait.
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
