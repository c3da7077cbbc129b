"""Everything known at one instant, and everything wanted: the two ends of a tick.

*Planned* is what should be, *requested* is what the cloud said yes to, *observed* is what is here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, TypeAlias

from boa_daemon.tick.limits import Act, Caps, FixedCost, Held, Steady
from boa_daemon.tick.offers import Cooldown, Extras, Market, Offer
from boa_daemon.tick.rests import Refusal
from boa_daemon.tick.retries import ANY_RETRIES, Failure, GivenUp, Retries, Silence, TryAgain, Verdict
from boa_daemon.tick.team_money import TeamMoney
from policies.answer import NodePrices
from policies.fast_dataclasses import fast_init, replace
from policies.memo import LatestMemo
from policies.model import GpuSlot, InstanceType, Job, JobId, NodeId, Width
from policies.online.pacing import Pace

if TYPE_CHECKING:
    from policies.site import BuiltPolicy

NodePhase: TypeAlias = Literal["requested", "ready", "stopped", "terminating", "terminated"]
WaitReason: TypeAlias = Literal[
    "nodes-to-come",
    "gpus-to-fall-free",
    "node-limit",
    "out-of-stock",
    "fleet-full",
    "quota",
    "denied",
    "throttled",
    "bad-request",
    "no-price",
    "cap-day",
    "cap-month",
    "cap-hour",
    "cap-instances",
    "loop",
    "budget",
    "given-up",
    "resting",
    "not-before",
    "after",
    "user-day-cap",
    "team-day-cap",
    "team-month-cap",
    "team-share",
    "spot",
]
"""Why a job does not have its width yet; a closed list."""
_NOTHING: Mapping[str, Cooldown] = MappingProxyType({})

IDLE_HOLD_SECONDS = 60.0
"""A minute is what a node costs at the least; holding longer bought nothing on the shipped workload."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """An instance as the cloud lists it.

    `gpus` names the job on each GPU, None where it is free. `idle_since` is the instant when the node became
    ready or its last job left; None while a job is on it or before it is ready. `launched_by` is the id of
    the action that asked for it, so that an intent and its instance find each other after a crash.
    `ended_at` is set once it is terminated, and with it the bill is final. `prices` are the dollars per hour
    that its compute costs from an instant on, in order; where there are none, its type's price holds.
    `extras` are what it costs beside that per hour, by kind (disk, public address, requests). `ends_by` is
    when the cloud takes it back, once that was announced. One that is not `is_listed` was asked for, and no
    listing shows it yet: it cannot be given back. `tiers` are the parts of the network above it within its
    zone, the widest first, where they are known. One that is `stopped` costs its extras alone; it is a
    life of its instance, as the run before it was (`boa_daemon.tick.node_lives`).
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

    @property
    def usd_per_hour(self) -> float:
        """What it costs per hour now."""
        compute = self.prices[-1][1] if self.prices else self.instance_type.usd_per_hour
        return compute + self.extra_usd_per_hour if self.extras else compute

    @property
    def extra_usd_per_hour(self) -> float:
        """What it costs per hour beside its compute."""
        return sum(usd for _, usd in self.extras)

    @property
    def free_gpus(self) -> int:
        """GPUs that no job holds."""
        return self.gpus.count(None)

    @property
    def is_idle(self) -> bool:
        """Whether it is ready and no job holds a GPU of it."""
        return self.phase == "ready" and self.idle_since is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The date of a job: the instant, and for how long it would work until its end at each of its widths.

    The work left is not known for sure: `sizes` are factors on the hours, ascending, each with its
    probability. `startup_hours` are those that a start takes on a node that is ready.
    """

    at: float
    hours: tuple[tuple[Width, float], ...]
    sizes: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    startup_hours: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DateNote:
    """What a date asks for now: a width, on demand where it `is_firm`, for so many dollars on average.

    `kept` is the probability that it is met. Without a width it asks to hold nothing until spot comes, where
    it `waits`, and for nothing otherwise.
    """

    at: float
    kept: float
    usd: float
    width: Width | None = None
    is_firm: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """What holds for a job whatever the policy wants.

    `user` is who submitted it, `group` the group that it belongs to. It is not started before the instant
    `not_before` of its file. It failed `failures` times so far, the last time as the sentence `last_end`
    says; of one that waits `failed` are those failures, and `retries` how many its file allows. `refused`
    says since when nodes do not take it. `silences` are what the generation that runs does not do.
    `money_ends_at` is when it will have cost what its file allows, if it holds its GPUs until then,
    `hours_end_at` when it will have run for as long as that allows; None where its file sets no limit, or it
    waits and has not reached it. It is not started before the job that it `waits_for` has ended;
    `awaited_end` is how that one ended, where that is not as it needs. `ordered_gpus` is the width that its
    user ordered with `boa resize`; None: any that its file allows. `team` pays for it. Told to stop, it is
    given `grace_seconds`. `due` is its date, where its file has one.
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

    @property
    def verdict(self) -> Verdict | None:
        """What follows from its failures, of a job that waits; None where it has none."""
        return self.retries.judge(self.failed, evidence=self.last_end) if self.failed else None

    @property
    def rests_until(self) -> float | None:
        """Until when it rests after failures and refusals; None where it does not."""
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

    `slots` is empty while it waits. `generation` counts its starts: 0 means never started. A job that
    `is_stopping` still holds its slots and is left alone until it has let go. `lost_steps` were done and are
    in no checkpoint; the work in them is part of what remains. `terms` say who submitted it, and what keeps
    it from starting, or ends it, whatever the policy wants. One that `is_rigid` keeps what it holds: nothing
    says that it would keep its work on other GPUs.
    """

    job: Job
    slots: tuple[GpuSlot, ...] = ()
    generation: int = 0
    is_stopping: bool = False
    lost_steps: int = 0
    terms: JobTerms = NO_TERMS
    is_rigid: bool = False

    @property
    def is_running(self) -> bool:
        """Whether it holds GPUs."""
        return bool(self.slots)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserMoney:
    """What a user's jobs may cost per day (UTC), and what they have cost today."""

    cap_usd: float
    spent_usd: float

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left today."""
        return self.spent_usd >= self.cap_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedLink:
    """A link as the gate sees it: the jobs that ask there, in the order in which it would let them send.

    It keeps to that order where it `is_ordered`; `why` says why, or why not. `gain_fraction` is what ordering
    should save of the mean completion time, by what the jobs measured.
    """

    jobs: tuple[JobId, ...]
    is_ordered: bool
    why: str
    gain_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedJob:
    """A job as the gate sees it.

    `ranked_by_hours` is what it goes by: GPU-hours left over weight. `exposed_fraction` is the part of an
    iteration that waits for messages, as measured; `gain_fraction` is what ordering should save of the
    job's own completion time, below zero where the job makes way for others.
    """

    ranked_by_hours: float
    exposed_fraction: float | None = None
    gain_fraction: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GateView:
    """What the gate says of itself: every link and every job that it hears of."""

    links: Mapping[str, GatedLink]
    jobs: Mapping[JobId, GatedJob]


def _bound_jobs(jobs: Mapping[JobId, JobState]) -> dict[JobId, JobState]:
    """Return the jobs with terms, and those that are rigid."""
    return {name: job for name, job in jobs.items() if job.terms is not NO_TERMS or job.is_rigid}


_bound = LatestMemo(_bound_jobs)
"""Several stages of a tick look for them, among thousands of jobs that have none."""


def _with_gaps(state: ClusterState) -> dict[NodeId, NodeState]:
    """Return the nodes with a GPU that no job holds."""
    return {name: node for name, node in state.nodes.items() if None in node.gpus}


def _passing(state: ClusterState) -> list[NodeState]:
    """Return the nodes that are not ready to stay."""
    return [node for node in state.nodes.values() if node.phase != "ready" or node.ends_by is not None]


_gaps, _passes = LatestMemo(_with_gaps), LatestMemo(_passing)
"""Several stages of a tick look for them, among nodes that are full and stay."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """Everything that a tick may look at.

    `jobs` stand in order of arrival. `offers` is what the cloud rents; empty where it names no zones or
    prices. `cooldowns` are the scopes that were refused, and when to ask again.
    `nodes` are those that live or may live, by name. `settled_micro_dollars` is the sum of final bills,
    `settled_today_micro_dollars` and
    `settled_month_micro_dollars` the parts of it that fall into the day and the month (UTC) of `now`; they
    are known where there are caps. `acts` are the recent ones in order of time, known where the rules
    against flapping look at them. The budget accrues from `books_opened_at` on; None where no books were
    opened. `memory` is what the policy remembered last, and when. `users` are those with a cap of their own,
    `teams` the purses of teams.
    `gate` is what the gate says, where one runs that orders what jobs send. Of the running jobs that are
    `not_ready` the next nodes do not have what they need yet. Until `standing_charged_until` the bills hold
    what the site costs without nodes; 0 where they hold none of it.

    Jobs that are `unplanned` are of classes that the policy does not know, as no new one could be made. They
    keep the GPUs that they hold and start nowhere; their failures, limits and silences are judged like
    those of all others.
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

    @property
    def all_jobs(self) -> Mapping[JobId, JobState]:
        """The jobs, and those that are unplanned."""
        return {**self.jobs, **self.unplanned} if self.unplanned else self.jobs

    @property
    def judged_jobs(self) -> Mapping[JobId, JobState]:
        """Those of all jobs with terms, and those that are rigid."""
        return {**self.bound_jobs, **_bound_jobs(self.unplanned)} if self.unplanned else self.bound_jobs

    @property
    def bound_jobs(self) -> Mapping[JobId, JobState]:
        """The jobs of which more is said than a policy looks at: their terms, or that they are rigid."""
        return _bound(self.jobs)

    @property
    def nodes_with_gaps(self) -> Mapping[NodeId, NodeState]:
        """The nodes, in whatever phase, with a GPU that no job holds: all that are idle are among them."""
        return _gaps(self)

    @property
    def passing_nodes(self) -> Sequence[NodeState]:
        """The nodes that boot, are stopped, or whose end is announced or has begun."""
        return _passes(self)

    def with_gaps_or(self, names: AbstractSet[NodeId]) -> Mapping[NodeId, NodeState]:
        """Return nodes in their order, among them all with gaps and all that are named."""
        gaps = self.nodes_with_gaps
        return gaps if names <= gaps.keys() else self.nodes

    @property
    def usd_per_hour(self) -> float:
        """What the nodes cost per hour right now."""
        return sum(node.usd_per_hour for node in self.nodes.values())


DISK_USD_PER_HOUR = 0.0219
"""What 200 GiB of gp3 cost in us-east-1, where nothing else is known of a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmPool:
    """Stopped instances that may be kept: how many at the most, and seconds from a start to ready.

    `disk_usd_per_hour` is what one costs where its node does not say.
    """

    nodes: int
    start_seconds: float = 60.0
    disk_usd_per_hour: float = DISK_USD_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the site allows and pays for: one instance type per GPU type, a cap, and how long idle nodes stay.

    `instance_types` are by GPU type; `max_nodes` is how many nodes may be held. A node that falls idle is
    kept `idle_hold_seconds`, because renting anew would cost a boot; a policy that prices the hold itself
    keeps it no longer than `longest_hold_seconds`, where that is given. With `orders_links` messages go in
    the order of the plan on every link that jobs share: so it is in the simulator. With a `pace`, money that
    was not spent for a whole window is forgone. With `round_seconds` the policy is asked again that long
    after it last changed its mind, even if nothing happens. `caps` are never exceeded; `steady` keeps jobs
    from moving about. A `warm_pool` keeps idle nodes stopped; without one, all end.
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

    def under(self, built: BuiltPolicy) -> Rules:
        """Return the rules with what a policy brings along: its pace, its rounds, its hold of idle nodes."""
        hold, longest = built.idle_hold_seconds, self.longest_hold_seconds
        if hold is None:
            hold = self.idle_hold_seconds
        elif longest is not None:
            hold = min(hold, longest)
        return replace(self, pace=built.pace, round_seconds=built.round_seconds, idle_hold_seconds=hold)

    @property
    def fixed(self) -> tuple[FixedCost, ...]:
        """What is paid whether used or not."""
        return () if self.caps is None else self.caps.fixed

    @property
    def by_name(self) -> Mapping[str, InstanceType]:
        """The instance types by their own names."""
        return {kind.name: kind for kind in self.instance_types.values()}


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What should be.

    `widths` is what each job should hold once the nodes are there; an absent job waits. `slots` is what can
    be done now: a job that is absent from `slots` keeps what it holds. `stops` are jobs that should hold
    nothing. `reasons` are the policy's words on the widths. `wake_at` is when to decide again even if nothing
    happens. `head_starts` are the widths that are planned for jobs that start narrower for now.
    `launches` counts new nodes by the name of their type, which `instance_types` explains; `gangs`
    are the sizes of those groups among them that are of use only together. `releases` names nodes that
    nothing needs. `waiting` says for each job that cannot have its width yet what it waits for.
    `link_order` names, for each link on which the messages of several jobs are put in order, those jobs, best
    first; a link where nobody does that is not in it. `memory` is what the policy remembers. `held` is what
    it was not allowed, and why; `forced` are nodes to give back with jobs on them, because a cap would be
    broken otherwise. `stretched` says what is planned for jobs that hold more, on GPUs that nobody else
    needs. `node_prices` is what widths and nodes are worth to the policy, where it knows: for whoever asks
    what else there was. Nodes of `releases` that are `stopping` are kept stopped. `dates` says what the dates
    of jobs ask for. `given_up` says why waiting jobs are not started again, `ends` why generations that hang
    are ended at once.
    """

    widths: Mapping[JobId, Width]
    slots: Mapping[JobId, tuple[GpuSlot, ...]]
    stops: tuple[JobId, ...] = ()
    launches: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    releases: tuple[NodeId, ...] = ()
    gangs: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    instance_types: Mapping[str, InstanceType] = field(default_factory=lambda: MappingProxyType({}))
    waiting: Mapping[JobId, WaitReason] = field(default_factory=lambda: MappingProxyType({}))
    reasons: Mapping[JobId, str] = field(default_factory=lambda: MappingProxyType({}))
    wake_at: float | None = None
    link_order: Mapping[NodeId, tuple[JobId, ...]] = field(default_factory=lambda: MappingProxyType({}))
    memory: tuple[float, ...] | None = None
    head_starts: Mapping[JobId, Width] = field(default_factory=lambda: MappingProxyType({}))
    held: tuple[Held, ...] = ()
    forced: tuple[NodeId, ...] = ()
    stretched: Mapping[JobId, Width] = field(default_factory=lambda: MappingProxyType({}))
    node_prices: NodePrices | None = None
    stopping: tuple[NodeId, ...] = ()
    dates: Mapping[JobId, DateNote] = field(default_factory=lambda: MappingProxyType({}))
    given_up: Mapping[JobId, GivenUp] = field(default_factory=lambda: MappingProxyType({}))
    ends: Mapping[JobId, str] = field(default_factory=lambda: MappingProxyType({}))

    def looked_at_by(self, *instants: float | None) -> Plan:
        """Return the plan with a wake-up at the earliest of its own and these instants."""
        wake_at = self.wake_at
        for at in instants:
            if at is not None and (wake_at is None or at < wake_at):
                wake_at = at
        return self if wake_at == self.wake_at else replace(self, wake_at=wake_at)
