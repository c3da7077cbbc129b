"""The input and output of a tick: all that is known at one instant (`ClusterState`), and the wanted `Plan`.

*Planned* is what should be, *requested* is what the cloud accepted, *observed* is what exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from boa_daemon.tick.facts.limits import Act, Caps, FixedCost, Steady
from boa_daemon.tick.facts.offers import Cooldown, Extras, Market, Offer
from boa_daemon.tick.facts.rests import Refusal
from boa_daemon.tick.facts.retries import ANY_RETRIES, Failure, Retries, Silence, TryAgain, Verdict
from boa_daemon.tick.facts.team_money import TeamMoney
from boa_daemon.units import SECONDS_PER_HOUR
from policies.fast_dataclasses import fast_init, replace
from policies.memo import LatestMemo
from policies.model import GpuSlot, InstanceType, Job, JobId, NodeId, Width
from policies.online.pacing import Pace

if TYPE_CHECKING:
    from policies.site import BuiltPolicy

NodePhase: TypeAlias = Literal["requested", "ready", "stopped", "terminating", "terminated"]
_NOTHING: Mapping[str, Cooldown] = MappingProxyType({})

IDLE_HOLD_SECONDS = 60.0
"""A node costs at least a minute; a longer hold gained nothing on the shipped workload."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """An instance as the cloud lists it.

    `gpus` names the job on each GPU, None where it is free. `idle_since` is the instant when the node became
    ready or its last job left; None before it is ready and while a job is on it. `launched_by` is the id of
    the launch action: it matches an intent with its instance after a crash. A node that is not `is_listed`
    was requested, but no listing shows it yet, so it cannot be terminated. `ends_by` is the announced instant
    when the cloud takes the node back. A stop or a restart begins a new life of the instance
    (`boa_daemon.tick.node_lives`).

    `prices` are pairs (instant, USD/hour of compute from then on), in order; if empty, the price of the
    instance type holds. `list_prices` are what the cloud charges where commitments cover a part, in the same
    form; empty without commitments. `extras` are further costs in USD/hour by kind (disk, public address,
    requests); a `stopped` node costs only these. `ended_at` is set once the node is terminated and its bill
    is final. `tiers` are the network tiers above the node within its zone, widest first, if known. `tags` are
    (key, value) of the house's own tags on the instance, for cost reports.
    """

    id: NodeId
    instance_type: InstanceType
    phase: NodePhase
    launched_at: float
    gpus: tuple[JobId | None, ...]
    launched_by: str = ""
    idle_since: float | None = None
    ended_at: float | None = None
    zone: str = ""
    market: Market = "on-demand"
    prices: tuple[tuple[float, float], ...] = ()
    ends_by: float | None = None
    is_listed: bool = True
    extras: Extras = ()
    tiers: tuple[str, ...] = ()
    tags: tuple[tuple[str, str], ...] = ()
    list_prices: tuple[tuple[float, float], ...] = ()

    @property
    def usd_per_hour(self) -> float:
        """The current cost per hour, compute and extras."""
        compute = self.prices[-1][1] if self.prices else self.instance_type.usd_per_hour
        return compute + self.extra_usd_per_hour if self.extras else compute

    @property
    def extra_usd_per_hour(self) -> float:
        """The cost per hour beside compute."""
        return sum(usd for _, usd in self.extras)

    @property
    def free_gpus(self) -> int:
        """GPUs that no job holds."""
        return self.gpus.count(None)

    @property
    def is_idle(self) -> bool:
        """Whether the node is ready and no job holds a GPU on it."""
        return self.phase == "ready" and self.idle_since is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The date of a job, and how many hours it would work until its end at each width.

    The remaining work is uncertain: `sizes` are (factor on the hours, probability), in ascending order.
    `startup_hours` is the time of a start on a ready node.
    """

    at: float
    hours: tuple[tuple[Width, float], ...]
    sizes: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    startup_hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DateNote:
    """What a job's date asks for now: a `width`, on demand if `is_firm`, at `usd` dollars on average.

    `kept` is the probability that the date is met. If `width` is None, a job that `waits` should hold nothing
    until spot is available; otherwise the date asks for nothing.
    """

    at: float
    kept: float
    usd: float
    width: Width | None = None
    is_firm: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """What it takes to bring a checkpoint to a machine from `source`, where checkpoints are kept."""

    usd_per_gb: float
    gb_per_second: float
    source: str

    def hours(self, gigabytes: float) -> float:
        """Return how long a start waits for so many GB."""
        return gigabytes / self.gb_per_second / SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """What applies to a job whatever the policy wants.

    `user` submitted the job, `team` pays for it, and it belongs to `group`. It does not start before the
    instant `not_before` of its file, nor before the job `waits_for` has ended; `awaited_end` says how that
    job ended, if not as required. `ordered_gpus` is the width ordered with `boa resize`; None: any width that
    its file allows. `due` is the date in its file, if any. A stop gives the job `grace_seconds`.

    It failed `failures` times so far; `last_end` is a sentence on the last time. For a waiting job `failed`
    lists these failures; `retries` is how many its file allows. `refused` says since when nodes have refused
    the job. `silences` are what its running generation fails to do.

    `money_ends_at` and `hours_end_at` are when the job reaches the cost and the run time that its file allows
    if it keeps its GPUs; None without a limit, or while it waits below the limit. `checkpoint_gb` is the
    size of its last checkpoint in GB (1e9 bytes), if measured. `held_by` is the user who ordered that it
    waits until it is released; empty for none.
    """

    user: str = ""
    group: str = ""
    not_before: float | None = None
    failures: int = 0
    last_end: str = ""
    failed: tuple[Failure, ...] = ()
    retries: Retries = ANY_RETRIES
    refused: Refusal | None = None
    silences: tuple[Silence, ...] = ()
    money_ends_at: float | None = None
    hours_end_at: float | None = None
    waits_for: JobId | None = None
    awaited_end: str = ""
    ordered_gpus: int | None = None
    team: str = ""
    grace_seconds: float = 0.0
    due: Due | None = None
    checkpoint_gb: float | None = None
    held_by: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """The consequence of a waiting job's failures; None without failures."""
        return self.retries.judge(self.failed, evidence=self.last_end) if self.failed else None

    @property
    def rests_until(self) -> float | None:
        """The end of the rest after failures and refusals; None without any."""
        if not self.failed and self.refused is None:
            return None
        verdict = self.verdict
        after_failure = verdict.not_before if isinstance(verdict, TryAgain) else 0.0
        return max(after_failure, 0.0 if self.refused is None else self.refused.until)


NO_TERMS = JobTerms()


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """A job that is present: what a policy may know, and what it holds.

    `slots` is empty while the job waits. `generation` counts its starts: 0 means never started. A job that
    `is_stopping` still holds its slots and is left alone until it has released them. `lost_steps` were done
    but are in no checkpoint; their work counts as remaining. `terms` apply whatever the policy wants. An
    `is_rigid` job keeps the GPUs that it holds: nothing shows that it would keep its work on other GPUs.
    `began_at` is when its present generation began, `before` the width of the one before, where known.
    """

    job: Job
    slots: tuple[GpuSlot, ...] = ()
    generation: int = 0
    is_stopping: bool = False
    lost_steps: int = 0
    terms: JobTerms = NO_TERMS
    is_rigid: bool = False
    began_at: float | None = None
    before: Width | None = None

    @property
    def is_running(self) -> bool:
        """Whether the job holds GPUs."""
        return bool(self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a job was told to move to, from the order to stop until it starts (see `claims.py`).

    `slots` is empty if the job lost its GPUs without an order, as by an interruption; `width` is then the
    width that it held.
    """

    width: Width
    slots: tuple[GpuSlot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMoney:
    """A user's cap in USD per day (UTC), and what the user's jobs have cost today."""

    cap_usd: float
    spent_usd: float

    @property
    def is_spent(self) -> bool:
        """Whether the cap is used up today."""
        return self.spent_usd >= self.cap_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedLink:
    """A link as the gate sees it: the jobs that ask there, in the gate's order of sending.

    The gate enforces the order if `is_ordered`; `why` gives the reason in either case. `gain_fraction` is the
    expected saving in mean completion time, from what the jobs measured.
    """

    jobs: tuple[JobId, ...]
    is_ordered: bool
    why: str
    gain_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedJob:
    """A job as the gate sees it.

    The gate ranks by `ranked_by_hours`: remaining GPU-hours over weight. `exposed_fraction` is the measured
    part of an iteration that waits for messages. `gain_fraction` is the expected saving in the job's own
    completion time; it is negative if the job yields to others.
    """

    ranked_by_hours: float
    exposed_fraction: float | None = None
    gain_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """The gate's report: every link and every job that it knows."""

    links: Mapping[str, GatedLink]
    jobs: Mapping[JobId, GatedJob]


def _bound_jobs(jobs: Mapping[JobId, JobState]) -> dict[JobId, JobState]:
    return {name: job for name, job in jobs.items() if job.terms is not NO_TERMS or job.is_rigid}


_bound = LatestMemo(_bound_jobs)
"""Cached because several stages of a tick need these few among thousands of jobs."""


def _with_gaps(state: ClusterState) -> dict[NodeId, NodeState]:
    return {name: node for name, node in state.nodes.items() if None in node.gpus}


def _passing(state: ClusterState) -> list[NodeState]:
    """Return the nodes that are not ready, or whose end is announced."""
    return [node for node in state.nodes.values() if node.phase != "ready" or node.ends_by is not None]


_gaps, _passes = LatestMemo(_with_gaps), LatestMemo(_passing)
"""Cached because several stages of a tick need these few among all nodes."""


_NO_CLAIMS: Mapping[JobId, Claim] = MappingProxyType({})


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Everything that a tick may look at.

    `nodes` are those that live or may live, by name. `offers` is what the cloud rents; empty if it names no
    zones or prices. `cooldowns` are the refused scopes, and when to ask again. `jobs` are in order of
    arrival. `not_ready` are running jobs whose next nodes lack something the job needs. `gate` is the gate's
    report, if a gate runs that orders messages. `memory` is what the policy remembered last, and when. `acts`
    are recent orders by time, known if rules against flapping need them.

    `settled_micro_dollars` is the sum of final bills; `settled_today_micro_dollars` and
    `settled_month_micro_dollars` are its parts in the current day and month (UTC), known if there are caps.
    Bills include the site's costs without nodes until `standing_charged_until`; 0: not at all. The budget
    accrues from `books_opened_at`; None: it does not. `users` are those with their own cap, `teams` are the
    teams' purses.

    The policy does not know the classes of `unplanned` jobs, because no new policy could be made. These jobs
    keep the GPUs that they hold and start nowhere. Their failures, limits and silences are judged as for all
    jobs.

    `claims` are those of jobs that were told to stop, or lost their nodes, and have not started again.
    """

    now: float
    tick: int
    nodes: Mapping[NodeId, NodeState]
    jobs: Mapping[JobId, JobState]
    offers: tuple[Offer, ...] = ()
    cooldowns: Mapping[str, Cooldown] = field(default_factory=lambda: _NOTHING)
    settled_micro_dollars: int = 0
    books_opened_at: float | None = None
    memory: tuple[tuple[float, ...], float] | None = None
    settled_today_micro_dollars: int = 0
    settled_month_micro_dollars: int = 0
    acts: tuple[Act, ...] = ()
    users: Mapping[str, UserMoney] = field(default_factory=lambda: MappingProxyType({}))
    teams: Mapping[str, TeamMoney] = field(default_factory=lambda: MappingProxyType({}))
    gate: GateView | None = None
    not_ready: frozenset[JobId] = frozenset()
    standing_charged_until: float = 0.0
    unplanned: Mapping[JobId, JobState] = field(default_factory=lambda: MappingProxyType({}))
    claims: Mapping[JobId, Claim] = field(default_factory=lambda: _NO_CLAIMS)

    @property
    def all_jobs(self) -> Mapping[JobId, JobState]:
        """All jobs, unplanned ones included."""
        return {**self.jobs, **self.unplanned} if self.unplanned else self.jobs

    @property
    def judged_jobs(self) -> Mapping[JobId, JobState]:
        """The jobs with terms and the rigid jobs, unplanned ones included."""
        return {**self.bound_jobs, **_bound_jobs(self.unplanned)} if self.unplanned else self.bound_jobs

    @property
    def bound_jobs(self) -> Mapping[JobId, JobState]:
        """The planned jobs with terms and the rigid ones."""
        return _bound(self.jobs)

    @property
    def nodes_with_gaps(self) -> Mapping[NodeId, NodeState]:
        """The nodes, in any phase, with a GPU that no job holds; this includes all idle nodes."""
        return _gaps(self)

    @property
    def passing_nodes(self) -> Sequence[NodeState]:
        """The nodes that boot, are stopped, or whose end is announced or has begun."""
        return _passes(self)

    @property
    def jobs_on_ending_nodes(self) -> frozenset[JobId]:
        """The jobs with GPUs on a node whose end is announced or has begun; they have to move."""
        ending = (n for n in self.passing_nodes if n.ends_by is not None or n.phase == "terminating")
        return frozenset(job for node in ending for job in node.gpus if job is not None)

    def with_gaps_or(self, names: AbstractSet[NodeId]) -> Mapping[NodeId, NodeState]:
        """Return nodes in their order that include all nodes with gaps and all named ones."""
        gaps = self.nodes_with_gaps
        return gaps if names <= gaps.keys() else self.nodes

    @property
    def usd_per_hour(self) -> float:
        """The current cost of all nodes per hour."""
        return sum(node.usd_per_hour for node in self.nodes.values())


DISK_USD_PER_HOUR = 0.0219
"""The price of 200 GiB of gp3 in us-east-1, assumed for a disk of unknown price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPool:
    """A limit on stopped instances: the most to keep, and the seconds from a start to ready.

    `disk_usd_per_hour` is the cost of a stopped instance whose node does not say.
    """

    nodes: int
    start_seconds: float = 60.0
    disk_usd_per_hour: float = DISK_USD_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the site allows and pays for: instance types, limits, and how long idle nodes stay.

    `instance_types` are by GPU type; `max_nodes` limits the nodes held. An idle node is kept for
    `idle_hold_seconds`, because renting anew costs a boot; a policy that prices the hold itself keeps the
    node no longer than `longest_hold_seconds`, if given. With `orders_links` messages follow the plan's order
    on every shared link, as in the simulator. With a `pace`, money left unspent for a whole window is
    forfeited. With `round_seconds` the policy is asked again that long after it last changed its mind, even
    if nothing happens. `caps` are never exceeded; `steady` limits how often jobs move. A `warm_pool` keeps
    idle nodes stopped; without one they all end. `transfers` are, by GPU type, those of machines that are far
    from the checkpoints.
    """

    instance_types: Mapping[str, InstanceType]
    idle_hold_seconds: float = IDLE_HOLD_SECONDS
    longest_hold_seconds: float | None = None
    max_nodes: int | None = None
    orders_links: bool = False
    pace: Pace | None = None
    caps: Caps | None = None
    steady: Steady | None = None
    round_seconds: float | None = None
    warm_pool: WarmPool | None = None
    transfers: Mapping[str, Transfer] = field(default_factory=dict)

    def under(self, built: BuiltPolicy) -> Rules:
        """Return the rules with a policy's own pace, rounds and idle hold."""
        hold, longest = built.idle_hold_seconds, self.longest_hold_seconds
        if hold is None:
            hold = self.idle_hold_seconds
        elif longest is not None:
            hold = min(hold, longest)
        return replace(self, pace=built.pace, round_seconds=built.round_seconds, idle_hold_seconds=hold)

    @property
    def fixed(self) -> tuple[FixedCost, ...]:
        """The costs that are paid whether used or not."""
        return () if self.caps is None else self.caps.fixed

    @property
    def by_name(self) -> Mapping[str, InstanceType]:
        """The instance types by their own names."""
        return {kind.name: kind for kind in self.instance_types.values()}
