"""Why jobs of Slurm wait for nodes, in their AdminComment beside what the site has written there.

``squeue -O admin_comment`` shows it until a job has its nodes. A site or its plug-ins may use the field, too,
so only our part is ever replaced: it begins with `boa: `, behind ` | ` where something stands before it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

from boa_daemon.slurm.commands import LATER, LONGEST_COMMENT, Slurm, SlurmJob, SlurmRefused

_LOG = logging.getLogger("boa.slurm")
MOST_COMMENTS = 50
"""Jobs of Slurm that are told why they wait, in one comparison: each is a command."""
MARK, BAR = "boa: ", " | "
_AT_BAR = r"\s*\|\s*"


class WaitComments:
    """Keeps our parts of the comments of one Slurm's jobs; those of an earlier daemon are found again."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._reasons: dict[str, str] = {}
        self._wanted: dict[str, str] = {}
        self._shown: dict[str, tuple[str, bool]] = {}
        self._is_known = False

    def show(
        self,
        why: Mapping[str, str],
        *,
        also: Mapping[str, str] = MappingProxyType({}),
        joined: AbstractSet[str] = frozenset(),
    ) -> None:
        """Say why the jobs wait that have been given the nodes in `why`; `joined` are nodes that run.

        `also` are sentences on jobs, by their numbers; they stay while the job runs.

        Raises:
            SlurmSilent: when Slurm does not answer.
            SlurmRefused: when it does not list its jobs.
        """
        if self._is_known and not (why or also or self._wanted or self._reasons):
            return
        jobs = {job.id: job for job in self._slurm.jobs()}
        if not self._is_known:
            self._find(jobs)
        for job in jobs.values():
            if job.is_live and (found := next((why[host] for host in job.hosts if host in why), "")):
                self._reasons[job.id] = found
            elif job.is_live and (job.state != "CONFIGURING" or joined >= set(job.hosts)):
                self._reasons.pop(job.id, None)
            if job.id in also or job.id in self._reasons or job.id in self._wanted:
                found = "; ".join(part for part in (self._reasons.get(job.id), also.get(job.id)) if part)
                self._wanted[job.id] = MARK + re.sub(_AT_BAR, "; ", found) if found else ""
        self._reasons = {number: text for number, text in self._reasons.items() if number in jobs}
        self._wanted = {number: text for number, text in self._wanted.items() if number in jobs}
        # Slurm forgets the comment of a job that it requeues, so one is shown anew when the job waits again.
        wanted = {number: (text, jobs[number].waits) for number, text in self._wanted.items()}
        self._shown = {number: shown for number, shown in self._shown.items() if number in wanted}
        new = [number for number, state in wanted.items() if self._shown.get(number, ("", False)) != state]
        if new:
            self._tell({number: wanted[number] for number in new[:MOST_COMMENTS]})
            # Slurm writes the comment of an array's waiting tasks on those that run, too: look for it there.
            self._is_known = not any(jobs[number].is_task for number in new[:MOST_COMMENTS])

    def _find(self, jobs: Mapping[str, SlurmJob]) -> None:
        """Find what an earlier daemon has said of jobs that are not over, so that it is cleared in time."""
        for number, text in self._slurm.admin_comments().items():
            ours = [part for part in re.split(_AT_BAR, text) if part.startswith(MARK)]
            if ours and number in jobs:
                self._reasons[number] = ours[-1].removeprefix(MARK)
                self._wanted[number] = ours[-1]
                self._shown[number] = (ours[-1], jobs[number].waits)
        self._is_known = True

    def _tell(self, new: Mapping[str, tuple[str, bool]]) -> None:
        """Write our part of the comments of some jobs."""
        present = self._slurm.admin_comments(list(new))
        for number, (text, waits) in new.items():
            before = present.get(number, "")
            try:
                if len(before) < LONGEST_COMMENT:
                    after = merged(before, text, shown=self._shown.get(number, ("", False))[0])
                    if after != before:
                        self._slurm.comment(number, after)
            except SlurmRefused as error:
                if LATER in str(error):
                    continue
                _LOG.warning("job %s of Slurm is not told why it waits: %s", number, error)
            self._shown[number] = (text, waits)


def merged(before: str, ours: str, *, shown: str = "") -> str:
    """Return a comment with our part replaced by `ours`, or taken out; `shown` is what we last wrote."""
    rest = before
    if shown:
        # Somebody may have added to what we wrote, without a bar.
        rest = _without(rest, re.escape(shown)).replace(shown, "")
    rest = _without(rest, f"{MARK}[^|]*").strip()
    return BAR.join(text for text in (rest, ours) if text)


def _without(comment: str, part: str) -> str:
    """Return a comment without the parts between bars that match, each with one of its bars."""
    return re.sub(rf"^(?:{part}(?:{_AT_BAR}|$))+|{_AT_BAR}{part}(?={_AT_BAR}|$)", "", comment)
