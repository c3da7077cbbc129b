"""What a daemon answers, as types: the documents of the HTTP API, which `boa ... -o json` prints.

Instants are seconds since the Unix epoch, durations seconds, money dollars. `as_of` is the instant of the
last look of the daemon that an answer rests on. Keys may be added; none changes its meaning.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

_Class = TypedDict("_Class", {"class": str})


class SubmittedAnswer(TypedDict):
    """Ids of the jobs that were taken, in the order of the submission, and of the groups among them.

    `dates` says for jobs whose file names one whether it can be met: a `verdict` (sure, likely, infeasible),
    the `probability`, the dollars, and where it cannot the `earliest` and the `cheapest` that can.
    """

    as_of: float
    jobs: list[str]
    groups: list[str]
    dates: dict[str, dict[str, Any]]


class JobAnswer(_Class):
    """One job.

    `group`, `index` and `matrix` say which job of which group it is, with which values. `status` is queued,
    running, cancelling, finished, failed or cancelled. `gpus`, `gpu_type` and `nodes` are what it holds now.
    `generation` counts its starts, `step` is the last step that it reported, `lost_steps` were done and are
    in no checkpoint. `cause` is a sentence on how it ended last, `waits_for` a reason code. `ran_seconds` is
    how long it held GPUs over all starts, `lost_gpu_hours` how much of that was lost. `usd` is what its GPUs
    have cost. `last_lines` is what it printed last, empty for who may not read it.
    """

    id: str
    name: str
    group: str | None
    index: int | None
    matrix: dict[str, Any]
    user: str
    team: str | None
    status: str
    gpus: int
    gpu_type: str | None
    nodes: list[str]
    generation: int
    step: int | None
    lost_steps: int
    failures: int
    exit_code: int | None
    last_lines: list[str]
    stalled_since: float | None
    not_before: float | None
    arrived_at: float
    started_at: float | None
    first_started_at: float | None
    ran_seconds: float
    ended_at: float | None
    is_rigid: bool
    lost_gpu_hours: float
    usd: float
    waits_for: str | None
    cause: str


class WholeJobAnswer(JobAnswer):
    """One job with the content of its file, defaults filled in."""

    as_of: float
    file: dict[str, Any]


class JobsAnswer(TypedDict):
    """Jobs, the newest first; `next` is `before` of the page that follows, None where there is none."""

    as_of: float
    jobs: list[JobAnswer]
    next: int | None


class _Explained(TypedDict):
    as_of: float
    job: str
    text: str
    reason: str


class ExplainAnswer(_Explained, total=False):
    """Why a job has what it has: a `text`, a `reason` code, and figures for a job that is planned."""

    choice: dict[str, Any] | None
    finish: dict[str, float] | None
    measured: list[str]
    held: list[dict[str, Any]]


class LogAnswer(TypedDict):
    """A piece of what a job printed on one node.

    `next_offset` is the byte to go on from, `dropped_bytes` how many before the text are gone, `nodes` how
    many nodes the generation has, `status` that of the job.
    """

    job: str
    text: str
    next_offset: int
    dropped_bytes: int
    node: int
    nodes: int
    status: str


class GroupAnswer(TypedDict):
    """A group of so many `jobs`: `counts` by status, what they cost together and may cost, in dollars."""

    as_of: float
    group: str
    name: str
    user: str
    jobs: int
    counts: dict[str, int]
    max_usd: float | None
    usd: float


class ArtifactAnswer(TypedDict):
    """One file that a job has left."""

    name: str
    bytes: int


class ArtifactsAnswer(TypedDict):
    """The files that a job has left."""

    as_of: float
    job: str
    files: list[ArtifactAnswer]


class ExecAnswer(TypedDict):
    """How a command beside a job ended; `exit_code` is None where it has none, and `why` says why."""

    job: str
    is_over: bool
    exit_code: int | None
    why: str
    output: str
    dropped_bytes: int


class _Cancelled(TypedDict):
    as_of: float
    job: str
    status: str
    changed: bool


class CancelAnswer(_Cancelled, total=False):
    """What became of an order to cancel: `changed` is false where all was over already.

    Of a group, `jobs` is how many were not.
    """

    jobs: int


class _Standing(TypedDict):
    as_of: float
    now: float
    fault: str
    is_observing: bool
    is_down: bool
    leader: dict[str, Any] | None
    notes: list[str]
    best_effort: dict[str, Any] | None
    tick_seconds: float
    budget_usd_per_hour: float
    reattached: dict[str, int]
    fact_ages_seconds: dict[str, float | None]
    boots: dict[str, dict[str, float]]
    refused_messages: dict[str, int]
    gate: dict[str, Any] | None
    why_no_gate: str


class StatusAnswer(_Standing, total=False):
    """How the daemon is. From `tick` on: what its last look saw, left out before the first one.

    `fault` is empty where all is well. `usd_per_hour` is what all nodes cost now, `stopped_nodes` are those
    of the warm pool. `books` has for `day` and `month` what was spent, the cap and the forecast, in dollars.
    `finishes` has for jobs when they end and what they cost until then, each as what is expected and what
    nine of ten cases lie between; `dates` for those with a date the probability that it is met.
    """

    tick: int
    usd_per_hour: float
    nodes: int
    stopped_nodes: int
    max_instances: int | None
    gpus: int
    gpus_used: int
    running: int
    waiting: int
    books: dict[str, dict[str, float | None]]
    pacing: dict[str, Any] | None
    held: list[str]
    finishes: dict[str, dict[str, float]]
    dates: dict[str, dict[str, Any]]
    queued_since_then: int


class ActionAnswer(TypedDict):
    """One thing that a tick would do."""

    kind: str
    target: str
    reason: str


class PlanAnswer(TypedDict):
    """What a tick would do now; nothing is done. `waiting` maps ids of jobs to reason codes."""

    as_of: float
    actions: list[ActionAnswer]
    waiting: dict[str, str]
    held: list[str]
    usd_per_hour: float


class CostRow(TypedDict):
    """What one job, class, user, team, day or kind cost; which figures there are depends on which."""

    name: str
    usd: float
    boot_usd: NotRequired[float]
    gpu_hours: NotRequired[float | None]
    kinds: NotRequired[dict[str, float]]


class CostAnswer(TypedDict):
    """Who spent what since an instant; `books` as in `StatusAnswer`."""

    as_of: float
    since: float
    by: str
    rows: list[CostRow]
    usd: float
    books: dict[str, dict[str, float | None]] | None


class InstanceAnswer(TypedDict):
    """One node; `usd` is its cost so far, `kinds` the parts, `tiers` what is above it, widest first."""

    id: str
    instance_type: str
    phase: str
    zone: str
    market: str
    gpus: int
    jobs: list[str]
    launched_at: float
    ended_at: float | None
    usd_per_hour: float
    usd: float
    kinds: dict[str, float]
    launched_by: str
    idle_since: float | None
    tiers: list[str]
    note: str


class InstancesAnswer(TypedDict):
    """Nodes."""

    as_of: float
    instances: list[InstanceAnswer]


class DownAnswer(TypedDict):
    """Whether everything is let go."""

    as_of: float
    is_down: bool


By = Literal["job", "class", "user", "day", "kind", "team"]
