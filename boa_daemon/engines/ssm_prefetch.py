"""Prefetches a job's code and image to new nodes before the job is told to stop on its old ones.

A script fetches code and image, starts nothing of the job, and leaves no state behind. A node that does not
answer does not delay the move, because the start fetches what is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote

from boa_daemon.engines.command_scripts import code_script
from boa_daemon.engines.layout import Layout
from boa_daemon.engines.ssm_commands import SsmCommands
from boa_daemon.engines.ssm_scripts import library
from boa_daemon.job.container import pull_script
from boa_daemon.tick.facts.job_spec import JobSpec
from boa_daemon.tick.facts.ports import Refused
from policies.model import JobId, NodeId

_GOES_ON = ("Pending", "InProgress", "Delayed", "Unasked")


def prefetch_script(spec: JobSpec, layout: Layout, root: str, *, code_at: str) -> str:
    """Return the script that fetches a job's code and image to a node; empty if it has neither."""
    scripts = [code_script(spec, layout, code_at=code_at)] if spec.code else []
    if spec.image:
        scripts.append(pull_script(spec.image))
    if not scripts:
        return ""
    return f"umask 022\nexport BOA_PYTHON=python3 PYTHONPATH={quote(library(root))}\n{' && '.join(scripts)}\n"


@dataclass(slots=True)
class SsmPrefetch:
    """Runs the prefetch script once per generation on each node, and tracks which scripts still run."""

    commands: SsmCommands
    _sent: dict[JobId, tuple[int, dict[NodeId, str]]] = field(default_factory=dict)

    def is_done(self, job: JobId, generation: int, scripts: Mapping[NodeId, str]) -> bool:
        """Start scripts on nodes that have not got one yet; return whether none still runs."""
        number, sent = self._sent.get(job, (0, {}))
        if number != generation:
            sent = {}
            self._sent[job] = (generation, sent)
        for node, script in scripts.items():
            if node not in sent:
                at_home = self.commands.at_home(script)
                answer = self.commands.send([node], at_home, "bring what a job needs")
                sent[node] = "" if isinstance(answer, Refused) else answer
            elif sent[node] and self.commands.result(sent[node], node)[0] not in _GOES_ON:
                sent[node] = ""
        return not any(sent[node] for node in scripts)

    def forget(self, job: JobId) -> None:
        """Forget a job."""
        self._sent.pop(job, None)
