"""Types of the daemon's answers: the documents of the HTTP API, which `boa ... -o json` prints.

Instants are seconds since the Unix epoch, durations are seconds, money is dollars. `as_of` is the instant of
the tick that an answer rests on. Keys may be added; no key changes its meaning.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

_Class = TypedDict("_Class", {"class": str})


class SubmittedAnswer(TypedDict):
    """Ids of the accepted jobs, in the order of the submission, and of the groups among them.

    `dates` says for each job with a date whether it can be met: a `verdict` (sure, likely, infeasible), the
    `probability` and the dollars; when it cannot, also the `earliest` and the `cheapest` date that can.
    """

    as_of: float
    jobs: list[str]
    groups: list[str]
    dates: dict[str, dict[str, Any]]


class JobAnswer(_Class):
    """One job.

    `group`, `index` and `matrix` are its place and values in a group. `status` is queued,
    running, cancelling, finished, failed or cancelled. `gpus`, `gpu_type` and `nodes` are what it holds now.
    `generation` counts its starts, `step` is the last step that it reported, `lost_steps` are done steps
    in no checkpoint. `cause` is a sentence on how it last ended, `waits_for` a reason code, and
    `place_in_queue` its place among the jobs that wait for GPUs, from 1, `starts_at` when it should start, or
    may at the earliest if it is in no queue.
    `ran_seconds` is how long it held GPUs over all starts, `lost_gpu_hours` the part that was lost. `usd` is
    the cost of its GPUs. `last_lines` is its last output, empty for callers who may not read it.
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
    place_in_queue: int | None
    starts_at: float | None
    cause: str


class WholeJobAnswer(JobAnswer):
    """One job with the content of its file, defaults included."""

    as_of: float
    file: dict[str, Any]


class JobsAnswer(TypedDict):
    """Jobs, newest first; `next` is the `before` of the next page, None on the last page."""

    as_of: float
    jobs: list[JobAnswer]
    next: int | None


class _Explained(TypedDict):
    as_of: float
    job: str
    text: str
    reason: str


class ExplainAnswer(_Explained, total=False):
    """Why a job has its GPUs or waits: a `text`, a `reason` code, and figures for a planned job."""

    choice: dict[str, Any] | None
    finish: dict[str, float | None] | None
    measured: list[str]
    held: list[dict[str, Any]]


class LogAnswer(TypedDict):
    """A piece of a job's output on one node.

    `next_offset` is the byte to continue from, `dropped_bytes` the number of lost bytes before the text,
    `nodes` the number of nodes of the generation, `status` that of the job.
    """

    job: str
    text: str
    next_offset: int
    dropped_bytes: int
    node: int
    nodes: int
    status: str


class GroupAnswer(TypedDict):
    """A group of `jobs` jobs: `counts` by status, and their total cost and limit in dollars."""

    as_of: float
    group: str
    name: str
    user: str
    jobs: int
    counts: dict[str, int]
    max_usd: float | None
    usd: float


class ArtifactAnswer(TypedDict):
    """One output file of a job."""

    name: str
    bytes: int


class ArtifactsAnswer(TypedDict):
    """The output files of a job."""

    as_of: float
    job: str
    files: list[ArtifactAnswer]


class ExecAnswer(TypedDict):
    """How a command beside a job ended; `exit_code` is None if there is none, and `why` says why."""

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
    """The result of a cancel: `changed` is false when everything was over already.

    For a group, `jobs` is the number of jobs that were not over.
    """

    jobs: int


class ResizeAnswer(_Cancelled):
    """The result of an order for a width: `changed` is false when the job is over, or has that order."""

    gpus: int | None


class HoldAnswer(_Cancelled):
    """The result of a hold or a release: `changed` is false when the job is over, or was so already."""

    is_held: bool


class InterruptAnswer(TypedDict):
    """The node whose interruption is rehearsed, and the instant at which it ends."""

    as_of: float
    job: str
    node: str
    ends_by: float


class _Standing(TypedDict):
    as_of: float
    now: float
    fault: str
    is_observing: bool
    is_down: bool
    leader: dict[str, Any] | None
    notes: list[str]
    setting_warnings: list[str]
    best_effort: dict[str, Any] | None
    tick_seconds: float
    budget_usd_per_hour: float
    beside_usd_per_hour: float
    reattached: dict[str, int]
    idle_reserved_usd_per_hour: float
    fact_ages_seconds: dict[str, float | None]
    boots: dict[str, dict[str, float]]
    refused_messages: dict[str, int]
    gate: dict[str, Any] | None
    why_no_gate: str


class StatusAnswer(_Standing, total=False):
    """The daemon's status. Keys from `tick` on describe the last tick, and are missing before the first.

    `fault` is empty when all is well. `usd_per_hour` is the present cost of all nodes, `beside_usd_per_hour`
    what the site costs without a node; `stopped_nodes` counts those of the warm pool. `books` has the
    spending, the cap and the forecast for `day` and `month`, in dollars, and `purses` those of teams, users,
    jobs and commitments. `idle_reserved_usd_per_hour` is what paid reservations cost while nothing runs on
    them. `finishes` has the expected end and cost of jobs with their 90 % intervals, of at most 500 jobs;
    `ends` has those of all together; `dates` has the probability that a job's date is met.
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
    purses: list[dict[str, Any]]
    held: list[str]
    finishes: dict[str, dict[str, float | None]]
    ends: dict[str, float | None]
    dates: dict[str, dict[str, Any]]
    queued_since_then: int


class ActionAnswer(TypedDict):
    """One action that a tick would take."""

    kind: str
    target: str
    reason: str


class PlanAnswer(TypedDict):
    """What a tick would do now, without doing it; `waiting` maps job ids to reason codes."""

    as_of: float
    actions: list[ActionAnswer]
    waiting: dict[str, str]
    held: list[str]
    usd_per_hour: float


class CostRow(TypedDict):
    """The cost of one row of a grouping (`By`), which decides the keys that exist."""

    name: str
    usd: float
    boot_usd: NotRequired[float]
    gpu_hours: NotRequired[float | None]
    kinds: NotRequired[dict[str, float]]


class CostAnswer(TypedDict):
    """Costs since an instant; `books` as in `StatusAnswer`."""

    as_of: float
    since: float
    by: str
    rows: list[CostRow]
    usd: float
    books: dict[str, dict[str, float | None]] | None


class InstanceAnswer(TypedDict):
    """One node; `usd` is its cost so far, `kinds` its parts, `tiers` its network tiers, widest first."""

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
    """Nodes by id; `next` is the `after` of the next page, if a limit was asked for."""

    as_of: float
    instances: list[InstanceAnswer]
    next: str | None


DecisionKind = Literal[
    "",
    "launch",
    "start",
    "stop",
    "end",
    "terminate",
    "give-up",
    "held",
    "cancel",
    "hold",
    "release",
    "resize",
    "weigh",
    "cap",
]
"""A kind of action of a tick, what a tick held back, or an order; empty for all."""


class DecisionsAnswer(TypedDict):
    """Decisions, newest first, without their states, and the newest orders of people.

    Of a tick with very many actions some are in the answer, those that were asked for first; `action_counts`
    has all of them by kind. So it is with what was held back: `held_counts` has all by code, and a job or
    node is found by the tick that began to hold it back.
    """

    as_of: float
    decisions: list[dict[str, Any]]
    orders: list[dict[str, Any]]


class ClassesAnswer(TypedDict):
    """Each class as stated and as estimated, the machines of the plan, and the cost of shared links."""

    as_of: float
    machines: list[dict[str, Any]]
    classes: list[dict[str, Any]]
    kappa: dict[str, Any] | None


class PastAnswer(TypedDict):
    """The jobs of the last `days` that are over, and the policy that they ran under.

    `left_out` counts the others by reason, `usd` is the cost of both and of idle nodes, without the
    `commitments`. Their instants are seconds since the first of these days, as those of the jobs are.
    """

    as_of: float
    days: float
    jobs: list[list[Any]]
    left_out: dict[str, int]
    usd: float
    policy: dict[str, Any]
    market: str
    spot_price_fraction: float | None
    commitments: list[dict[str, Any]]


class AlertsAnswer(TypedDict):
    """The newest alerts: key, instant and sentence."""

    as_of: float
    alerts: list[dict[str, Any]]


class _Changes(TypedDict):
    note: str
    changes: list[dict[str, Any]]
    needs_consent: bool
    code: str
    files: list[str]
    warnings: list[str]


class ChangesAnswer(_Changes, total=False):
    """What the settings files change; `after_restart` names what the daemon reads at its next start only."""

    is_applied: bool
    after_restart: list[str]


class _Ordered(TypedDict):
    as_of: float
    jobs: list[str]


class SlurmAnswer(_Ordered, total=False):
    """The jobs that nodes of Slurm are or were; how many were there already or never, and refusals."""

    known: int
    refused: dict[str, str]
    unknown: int


class DownAnswer(TypedDict):
    """Whether all nodes are being released."""

    as_of: float
    is_down: bool


By = str
"""job, class, user, team, market, region, machine, day, kind, or tag: and the key of a tag."""
