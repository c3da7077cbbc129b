"""Delete jobs that are over for longer than the settings keep them: folders first, then rows.

With this order an interrupted run is repeated completely. Each batch is one short transaction, so a tick
never waits longer than that to write.
"""

from __future__ import annotations

import logging

from boa_daemon.store.retention import code_in_use, drop_intents, drop_jobs, jobs_over_before
from boa_daemon.store.storage import Storage
from boa_daemon.tick.facts.limits import DAY_SECONDS
from boa_daemon.tick.facts.ports import CodePruner, JobFileCleaner, Runner

_LOG = logging.getLogger("boa.daemon")
BATCH, MOST_BATCHES = 500, 200
"""Jobs per transaction, and transactions per run: at most 100,000 jobs an hour."""
CODE_SECONDS = DAY_SECONDS
"""Age from which unused code is deleted; younger code may precede the job that names it."""
INTENT_DAYS = 90.0
"""Days to keep intents with a known outcome, the same as decisions."""


def prune(storage: Storage, runner: Runner, *, keep_days: float | None, now: float) -> int:
    """Delete old code, intents and jobs; return the number of jobs deleted."""
    database, gone = storage.store.database, 0
    _drop_code(storage, runner, now)
    drop_intents(database, now - INTENT_DAYS * DAY_SECONDS, keep=_launches_in_use(storage))
    if keep_days is None:
        return 0
    for _ in range(MOST_BATCHES):
        names = jobs_over_before(storage.queue, now - keep_days * DAY_SECONDS, limit=BATCH)
        if not names:
            break
        if isinstance(runner, JobFileCleaner):
            for name in names:
                runner.discard(name)
        drop_jobs(database, names)
        gone += len(names)
    if gone:
        _LOG.info("%d jobs that were over for %g days were dropped", gone, keep_days)
    return gone


def _drop_code(storage: Storage, runner: Runner, now: float) -> None:
    """Delete packed code that no stored job names."""
    if not isinstance(runner, CodePruner):
        return
    try:
        gone = runner.drop_code(code_in_use(storage.store.database), before=now - CODE_SECONDS)
    except Exception as error:
        # A bucket that refuses must not block the deletion of jobs and intents.
        _LOG.warning("packed code could not be dropped: %s", error)
        return
    if gone:
        _LOG.info("%d archives of code that no job refers to were dropped", gone)


def _launches_in_use(storage: Storage) -> set[str]:
    """Return the intents that launched live nodes."""
    return {record.node.launched_by for record in list(storage.queue.instances.values())}
