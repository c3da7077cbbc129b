"""The ports of the controller: what it needs from the world, as small protocols.

The controller starts and stops jobs (`Engine`), and rents and gives back nodes (`Cloud`). A real engine
reports more (`Runner`): what a generation is doing, which checkpoint it left, what it printed. A real cloud
also needs upkeep for months (`Provider`). Expected failures are values: a launch that the cloud cannot serve
returns `Refused`, and the next tick reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

from boa_daemon.tick.facts.actions import (
    Action,
    EndGeneration,
    GiveUpJob,
    LaunchNodes,
    StartJob,
    StopJob,
    TerminateNode,
)
from boa_daemon.tick.facts.limits import Act
from boa_daemon.tick.facts.offers import Cooldown, Extras, Offer, RefusalKind, scope_of_gang
from boa_daemon.tick.facts.plan import Plan
from boa_daemon.tick.facts.retries import FailureCause
from boa_daemon.tick.facts.state import (
    Claim,
    ClusterState,
    GateView,
    JobState,
    NodeState,
    Transfer,
    UserMoney,
)
from boa_daemon.tick.facts.team_money import TeamMoney
from policies.fast_dataclasses import fast_init
from policies.model import GpuSlot, JobId, NodeId

if TYPE_CHECKING:
    from boa_daemon.tick.facts.job_spec import JobSpec
    from boa_daemon.tick.facts.job_spec import JobSpec as _JobSpec


def __getattr__(name: str) -> Any:
    """Return `JobSpec` to those who look for it here, as engines of other projects do.

    It is not imported above: it brings what a job imports, which a simulation does not need.
    """
    if name == "JobSpec":
        from boa_daemon.tick.facts import job_spec  # noqa: PLC0415

        return job_spec.JobSpec
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The cloud accepted a launch; the nodes are requested. `short` says why they are fewer than asked."""

    nodes: tuple[NodeId, ...]
    short: Refused | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The action was done, or is being done; observation will show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The action was not done, and nothing changed.

    `scopes` are what is unavailable (see `boa_daemon.tick.facts.offers`), if that is more than what was asked
    for. `retry_after_seconds` is when to ask again; None leaves it to the cool-downs, which grow.
    """

    reason: str
    kind: RefusalKind = "busy"
    retry_after_seconds: float | None = None
    scopes: tuple[str, ...] = ()

    def scopes_of(self, launch: LaunchNodes) -> tuple[str, ...]:
        """Return the scopes that the refusal closes; a gang without capacity closes no smaller order."""
        scopes = self.scopes or (launch.offer_key,)
        if not (launch.is_gang and self.kind == "no-capacity"):
            return scopes
        own = launch.offer_key
        return tuple(scope_of_gang(own, launch.count) if scope == own else scope for scope in scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The answer was lost, so the action may have been done. The intent stays open and counts as spent."""

    reason: str


Outcome: TypeAlias = Launched | Accepted | Refused | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLaunch:
    """A launch that is not settled: unanswered, or answered with nodes that no listing has shown yet.

    `nodes` are those named in the answer, None without an answer; `seen` are those that were listed.
    """

    action: LaunchNodes
    at: float
    nodes: tuple[NodeId, ...] | None = None
    seen: frozenset[NodeId] = frozenset()

    @property
    def unseen(self) -> tuple[NodeId, ...]:
        """The nodes that may exist and were not listed yet; with invented names if no answer named them."""
        if self.nodes is not None:
            return tuple(node for node in self.nodes if node not in self.seen)
        return tuple(f"{self.action.id}/{number}" for number in range(len(self.seen), self.action.count))


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The final bill of a node, or of an hour of costs without a node, in whole micro-dollars.

    `days` are (day since the epoch in UTC, part of the bill); the parts add up to the bill.
    """

    node: NodeId
    instance_type: str
    started_at: float
    ended_at: float
    micro_dollars: int
    days: tuple[tuple[int, int], ...] = ()


RunPhase: TypeAlias = Literal["starting", "running", "stopping", "stopped", "finished", "failed", "unknown"]
"""What a generation is doing. `stopped`, `finished` and `failed` are ends; `unknown`: not readable."""
ENDS: frozenset[RunPhase] = frozenset({"stopped", "finished", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A complete checkpoint: the generation that wrote it, its step, its digest and its file.

    `path` is relative to the job's checkpoint folder.
    """

    generation: int
    step: int
    sha256: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePass:
    """How a generation of a job reaches the gate: an address, and the token for the token file."""

    address: str
    token: str


class JobGate(Protocol):
    """Give the jobs of an engine access to the gate."""

    def admit(self, job: JobId, generation: int, nodes: Collection[NodeId], *, token_file: str) -> GatePass:
        """Return the pass of a generation on these nodes; the engine writes its token to `token_file`.

        Raises:
            OSError: when the gate's secret cannot be read.
        """
        ...

    def hooked(self, environment: Mapping[str, str], *, library: str = "") -> dict[str, str]:
        """Return an environment in which DDP models ask the gate without a change to the script.

        `library` is the folder with `boa_daemon` on the job's node, if it differs from the one here.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What is known of one generation of a job.

    `step` is the last step reported, counted over all generations; `samples` and `seconds` are what this
    generation processed and how long that took, so their ratio is its speed. `gradient_noise` is its gradient
    noise scale, if reported; `save_seconds` is the duration of its last save, `checkpoint_bytes` the size
    of what it saved, `gap_seconds` the longest time between two of its steps, `gpu_use` the fraction of the
    last moment in which the reporting node's GPUs worked, if its driver tells. `quiet_seconds` is the time
    since any of its commands printed anything, None if unknown. `manifest` is the job's newest complete
    checkpoint. `lost_steps`, after an end, are reported steps that the checkpoint lacks. `evidence` is a
    sentence. A generation that `was_refused` never started, because its nodes refused it.
    """

    job: JobId
    generation: int
    phase: RunPhase
    step: int | None = None
    samples: float | None = None
    seconds: float | None = None
    loss: float | None = None
    reported_at: float | None = None
    exit_code: int | None = None
    evidence: str = ""
    manifest: Manifest | None = None
    lost_steps: int = 0
    was_refused: bool = False
    cause: FailureCause | None = None
    gradient_noise: float | None = None
    save_seconds: float | None = None
    checkpoint_bytes: int | None = None
    gap_seconds: float | None = None
    gpu_use: float | None = None
    quiet_seconds: float | None = None
    gpus: int = 0
    last_lines: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the generation has ended and holds nothing any more."""
        return self.phase in ENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A part of a generation's output on one node, the next offset, and the bytes lost before it.

    `node` is the number of the node, of the `nodes` that the generation has.
    """

    text: str
    next_offset: int
    dropped_bytes: int = 0
    node: int = 0
    nodes: int = 1


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> float:
        """Return the instant: seconds since the Unix epoch."""
        ...


class Cloud(Protocol):
    """Rents nodes."""

    def nodes(self) -> Sequence[NodeState]:
        """Return every node of ours, and each ended node at least once with its `ended_at`."""
        ...

    def offers(self) -> Sequence[Offer]:
        """Return the cached offers: types, zones, markets and prices; empty if the cloud names none."""
        ...

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Request nodes; the same action id requests the same nodes."""
        ...

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Give nodes back, and return the outcome for each; a node that is gone already is accepted."""
        ...


@runtime_checkable
class NetSource(Protocol):
    """An engine with safety nets of its own."""

    def nets(self) -> Mapping[str, Callable[[], str]]:
        """Return each safety net by name, with what says why it is lost, if it is."""
        ...


@runtime_checkable
class LaunchFailureSource(Protocol):
    """A cloud whose accepted launches may still fail before a node runs."""

    def failed_launches(self) -> Sequence[tuple[str, Refused]]:
        """Return the offers whose launched nodes never ran, since the last call, as refusals."""
        ...


@runtime_checkable
class PriceSource(Protocol):
    """A cloud whose prices may become known late, even after a node's end, and are kept over restarts."""

    def price_version(self) -> int:
        """Return a number that grows when nodes that have ended may cost otherwise than their bills say."""
        ...

    def lately_priced(self) -> Mapping[NodeId, float]:
        """Return when the ended nodes ended whose prices were not known then and are known now."""
        ...

    def amended(self, nodes: Sequence[NodeState]) -> Sequence[NodeState]:
        """Return those of the nodes, which have ended, that cost otherwise by what is known now."""
        ...

    def bills_are_right(self, nodes: Iterable[NodeId]) -> None:
        """Note that the bills of these nodes are final by what is known now."""
        ...

    def price_documents(self) -> Mapping[str, str]:
        """Return what the next process must know of prices, as texts by key."""
        ...

    def restore_prices(self, documents: Mapping[str, str]) -> None:
        """Take over what an earlier process knew; unknown or unreadable texts change nothing."""
        ...


WARNING_SECONDS = 120.0
"""Time between the announcement of a spot interruption and the end of the node, on EC2."""


class Provider(Cloud, Protocol):
    """A cloud as the daemon uses it for months and over restarts; the defaults do nothing."""

    boot_seconds: float | None = None
    """Seconds from launch to ready that plans assume; None: the settings say, and may change it."""
    rents_spot: bool = True
    """Whether the cloud has a spot market; without one it rents everything at one price."""
    is_this_machine: bool = False
    """Whether nodes have the cores and memory of this machine, whatever their instance types say."""
    root_volume_gib: float | None = None
    """GiB of a node's root volume if the settings name none; None: the cloud rents no root volume."""

    def remember(self, nodes: Iterable[NodeState]) -> None:
        """Learn of nodes that lived when an earlier process last looked, so that none vanishes unbilled."""
        return

    def listen(self, wake: Callable[[], None]) -> None:
        """Listen to the cloud's announcements from now on; `wake` asks for a tick."""
        return

    def elsewhere(self) -> str:
        """Return why the rented nodes are another daemon's, as last seen; empty if they are ours."""
        return ""

    def renew(self, nodes: Collection[NodeId]) -> None:
        """Renew the leases of the nodes that a tick wants; other nodes end with their lease."""
        return

    def sweep(self) -> Mapping[str, str]:
        """End our resources that nothing needs any more, and return a sentence on each by its id.

        Raises:
            BoaError: when the cloud cannot be asked.
        """
        return {}

    def refresh(self) -> None:
        """Refresh facts that are getting old; runs in its own thread, because a tick never waits."""
        return

    def standing(self) -> Extras:
        """Return the most that is billed per hour without any node, in USD by kind."""
        return ()

    def hides(self, action: LaunchNodes) -> bool:
        """Return whether a launch may have made nodes that the cloud cannot list now: it counts as spent."""
        return False

    def notes(self) -> Sequence[str]:
        """Return sentences for the daemon's administrator on what costs money or cannot be rented now."""
        return ()

    def idle_usd_per_hour(self) -> float:
        """Return what capacity that is paid for and not used costs per hour."""
        return 0.0

    def transfers(self) -> Mapping[str, Transfer]:
        """Return what it takes to bring a checkpoint to a machine that is far from it, by machine."""
        return {}

    def expect_checkpoints(self, gigabytes: float, *, every_hours: float) -> None:
        """Learn how large checkpoints are and how often they are saved, for prices of far machines."""
        return

    def list_prices(self) -> Mapping[str, float]:
        """Return the cloud's own prices on demand in USD per hour, by type, as far as it knows them."""
        return {}

    def ages(self) -> Mapping[str, float | None]:
        """Return the age of each fact in seconds; None for an unknown fact."""
        return {}

    def nets(self) -> Mapping[str, Callable[[], str]]:
        """Return each safety net and fact from outside by name, with what says why it is lost, if it is.

        The names are labels of a metric: the same ones at each call.
        """
        return {}

    def faults(self) -> Mapping[str, str]:
        """Return the facts that cannot be had and the safety nets that are lost, each with the reason."""
        return {name: said for name, why in self.nets().items() if (said := why())}

    def news(self) -> Sequence[tuple[str, str]]:
        """Return what happened to nodes since the last call, for alerts: a key and a sentence of each."""
        return ()

    def ask_anew(self) -> None:
        """Ask for every fact from outside again: somebody says that they have changed."""
        return

    def rehearse_end(self, node: NodeId) -> float | None:
        """Announce a node's interruption as the cloud would; return when it ends, None if unsupported."""
        return None

    def close(self) -> None:
        """Stop listening and close files; nodes stay as they are."""
        return


class JobSource(Protocol):
    """Knows the jobs."""

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs that are present and not finished, in order of arrival."""
        ...

    def users(self) -> Mapping[str, UserMoney]:
        """Return the spending today (UTC) of users with their own cap."""
        ...

    def teams(self) -> Mapping[str, TeamMoney]:
        """Return the purses of teams."""
        ...

    def claims(self) -> Mapping[JobId, Claim]:
        """Return what jobs claim that were told to move, or lost their nodes, and have not started again."""
        ...


class Engine(Protocol):
    """Runs jobs on nodes."""

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start one generation of a job; accepted if that generation runs already."""
        ...

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Checkpoint and stop a job; accepted if the job does not run."""
        ...


@runtime_checkable
class ReadinessChecker(Protocol):
    """An engine that can prepare a job's next start before its stop."""

    def is_ready_for(self, action: StartJob) -> bool:
        """Return whether a running job may be stopped for this start; asked again until it may."""
        ...


@runtime_checkable
class JobEnder(Protocol):
    """An engine whose jobs can hang and fail, and that carries out the tick's orders on them."""

    def end(self, action: EndGeneration) -> Accepted | Refused:
        """End a generation at once, without a checkpoint; accepted if it does not exist."""
        ...

    def give_up(self, action: GiveUpJob) -> Accepted | Refused:
        """Record that a waiting job is not started again; accepted if the job is over."""
        ...


class LinkGate(Protocol):
    """The gate that orders messages on the links that jobs share."""

    def look(self) -> GateView | None:
        """Return what the gate does now; None if no gate runs."""
        ...

    def follow(self, state: ClusterState, plan: Plan) -> None:
        """Take over a decision: the remaining work of each job, and the order of sending."""
        ...


class Runner(Engine, Protocol):
    """An engine that really runs jobs, generation by generation.

    A stop is asynchronous: it is accepted at once; `poll` then shows `stopping`, and later `stopped` with the
    manifest, or with lost steps if no checkpoint came in time. No method waits for a job.
    """

    def prepare(self, nodes: Sequence[NodeState]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Prepare nodes to run jobs, and return for each whether it is ready; called until it is."""
        ...

    def admit(self, spec: JobSpec) -> Accepted | Refused:
        """Learn what to run for a job; refused if it could not work. A later spec replaces an earlier one."""
        ...

    def kill(self, job: JobId, generation: int) -> Accepted | Refused:
        """End a generation at once, without a checkpoint; accepted if it does not exist."""
        ...

    def poll(self) -> Mapping[JobId, RunReport]:
        """Return the newest generation of every job that was started and not forgotten."""
        ...

    def logs(
        self, job: JobId, *, since: int = 0, generation: int | None = None, node: int | None = None
    ) -> LogChunk:
        """Return the output of a generation on a node from an offset in bytes on; empty at the end.

        By default of the newest generation, and of the node whose process reports.
        """
        ...

    def reattach(self) -> Mapping[JobId, RunReport]:
        """Find and take over what our earlier processes started, and return it as `poll` does."""
        ...

    def forget(self, job: JobId) -> None:
        """Leave a job out of `poll` from now on; its logs and checkpoints stay. A running job stays known."""
        ...


@runtime_checkable
class EarlyStarter(Protocol):
    """An engine that prepares a generation on its nodes while the one before still runs."""

    def ahead(self, action: StartJob) -> bool:
        """Prepare a coming generation; return whether it is as ready as it can get.

        Called again until it is. A prepared generation holds no GPU and writes nothing; it ends by itself
        once it is no longer asked for.
        """
        ...


@runtime_checkable
class InterruptionSource(Protocol):
    """A runner that hears from the cloud which nodes are taken back."""

    def interruptions(self) -> Mapping[NodeId, float]:
        """Return the nodes that the cloud takes back and when, from the warnings received so far."""
        ...


@runtime_checkable
class CodeStager(Protocol):
    """A runner that brings archives of the jobs' code to their nodes, by the digest of the content."""

    def has_code(self, digest: str) -> bool:
        """Return whether the archive is stored."""
        ...

    def take_code(self, digest: str, archive: bytes) -> None:
        """Store an archive for the jobs that name its digest.

        Raises:
            OSError: when it cannot be stored.
        """
        ...


@runtime_checkable
class CodePruner(Protocol):
    """A runner that stores archives of code and can delete them."""

    def drop_code(self, keep: Collection[str], *, before: float) -> int:
        """Delete the archives stored before an instant, except those in `keep`; return how many."""
        ...


@runtime_checkable
class DataStager(Protocol):
    """A runner that brings data from s3:// to the nodes of jobs."""

    def lacks_data(self, source: str) -> str:
        """Return why a source cannot be brought; empty if it can."""
        ...


@runtime_checkable
class JobFolderStore(Protocol):
    """A runner whose job folders outlive the daemon's database."""

    def job_folders(self) -> Collection[str]:
        """Return the names of all job folders; each ends with the number of its job."""
        ...


@runtime_checkable
class ArtifactStore(Protocol):
    """A runner that keeps files that jobs leave at their end."""

    def artifacts(self, job: JobId) -> Mapping[str, int]:
        """Return the names of a job's files, with their sizes in bytes."""
        ...

    def artifact(self, job: JobId, name: str) -> Iterator[bytes]:
        """Yield one of a job's files in pieces."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WayIn:
    """Where a unit of a job runs: on this machine or on a node behind SSM, and its shell command."""

    kind: Literal["here", "ssm"]
    node: NodeId
    folder: str
    shell: tuple[str, ...] = ()
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidInside:
    """The end of a command beside a job: its exit code, or why there is none, and the last of its output."""

    code: int | None
    why: str = ""
    output: str = ""
    dropped_bytes: int = 0


class JobAccessPort(Protocol):
    """Run commands and shells beside a job, as the job's user and with the job's view of the machine."""

    def way(self, job: JobId, node: int) -> WayIn | Refused:
        """Return where the unit of a job's newest generation runs on the node of that number."""
        ...

    def begin(self, job: JobId, node: int, command: str, *, seconds: float) -> str | Refused:
        """Start a command that is ended after `seconds`; return the token to ask `end` with."""
        ...

    def end(self, word: str) -> SaidInside | Refused | None:
        """Return how a command ended, None while it runs; each end is returned once."""
        ...

    def open(
        self, job: JobId, node: int, terminal: str, *, term: str, may_use: Callable[[int], bool]
    ) -> Accepted | Refused:
        """Open a shell on a terminal of this machine, if the terminal's owner may use it."""
        ...


@runtime_checkable
class AccessibleRunner(Protocol):
    """A runner that gives people access to its running jobs."""

    inside: JobAccessPort


@runtime_checkable
class NodeFaultDetector(Protocol):
    """A runner whose units check their nodes while jobs run."""

    def unfit(self) -> Mapping[NodeId, str]:
        """Return the nodes with hardware faults, each with its faults."""
        ...


@runtime_checkable
class PersistableRunner(Protocol):
    """A runner whose memory the daemon can keep in its database, so that no other file holds it."""

    def remember_in(
        self, read: Callable[[], Mapping[str, str]], write: Callable[[Mapping[str, str]], None]
    ) -> None:
        """Keep the memory of each job as a text by its id: `read` returns all, `write` replaces all."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPapers:
    """What an engine's own files say about a running job: its specification, and on which GPUs since when."""

    spec: _JobSpec  # Python 3.15 looks the name up in this module, and `__getattr__` would import it.
    generation: int
    slots: tuple[GpuSlot, ...]
    started_at: float


@runtime_checkable
class PaperKeeper(Protocol):
    """A runner that can say on which GPUs a job runs, for a database that does not know the job."""

    def papers(self, job: JobId) -> JobPapers | None:
        """Return the papers of a job's newest generation; None if they do not say where it runs."""
        ...


@runtime_checkable
class JobFileCleaner(Protocol):
    """A runner that keeps files of jobs that are over and can delete them."""

    def discard(self, job: JobId) -> None:
        """Delete the files of a job that was forgotten; does nothing for any other job."""
        ...


class Store(Protocol):
    """Store intents before each act and outcomes after it, charges and decisions."""

    def next_tick(self) -> int:
        """Return the number of the tick that begins: one more than any before."""
        ...

    def record_intent(self, action: Action, *, at: float) -> None:
        """Record an action before it is tried."""
        ...

    def record_outcome(self, action: Action, outcome: Outcome, *, at: float) -> None:
        """Record the outcome of an action."""
        ...

    def record_intents(self, actions: Sequence[Action], *, at: float) -> None:
        """Record several actions at once before they are tried; a start takes its GPUs with it."""
        ...

    def record_outcomes(self, outcomes: Sequence[tuple[Action, Outcome]], *, at: float) -> None:
        """Record the outcomes of several actions at once."""
        ...

    def unsettled(self) -> Sequence[OpenLaunch]:
        """Return the launches without an outcome, and those whose nodes were not all listed yet."""
        ...

    def record_seen(self, launched_by: str, nodes: Collection[NodeId]) -> None:
        """Record that nodes of a launch were listed; the launch is settled once all of them were."""
        ...

    def close_offers(self, refused: Refused, *, at: float) -> None:
        """Start cool-downs for the scopes of a refusal that came after its launch was accepted."""
        ...

    def give_up(self, launched_by: str, reason: str, *, at: float) -> None:
        """Settle a launch with the nodes that were listed: the others are not coming."""
        ...

    def cooldowns(self, now: float) -> Mapping[str, Cooldown]:
        """Return the scopes that were refused and may not be asked for yet."""
        ...

    def record_charge(self, charge: Charge) -> None:
        """Append a final bill; a second one for the same node is ignored."""
        ...

    def reopen_charges(self, nodes: Collection[NodeId]) -> None:
        """Remove the final bills of these nodes, if any: the cloud lists the nodes as living."""
        ...

    def settled_micro_dollars(self) -> int:
        """Return the sum of all final bills."""
        ...

    def settled_since(self, at: float) -> int:
        """Return the parts of final bills that fall into the day (UTC) of an instant and later days."""
        ...

    def standing_charged_until(self) -> float:
        """Return until when the site's costs without nodes are charged; 0 if they are not yet."""
        ...

    def acts_since(self, at: float) -> Sequence[Act]:
        """Return the orders given from an instant on, in order of time, without refused launches."""
        ...

    def books_opened_at(self, now: float) -> float:
        """Return the instant from which the budget accrues; the first call sets it to `now`."""
        ...

    def reopen_books(self, at: float) -> None:
        """Let the budget accrue from a later instant: what was not spent before is forfeited."""
        ...

    def record_memory(self, memory: tuple[float, ...], *, at: float) -> None:
        """Record what the policy remembers."""
        ...

    def memory(self) -> tuple[tuple[float, ...], float] | None:
        """Return what the policy remembered last, and when; None before the first time."""
        ...

    def record_decision(self, state: ClusterState, actions: Sequence[Action], plan: Plan) -> None:
        """Record what a tick saw and what it decided."""
        ...


class Telemetry(Protocol):
    """Send sentences for people and numbers for machines."""

    def say(self, sentence: str, **numbers: float | str) -> None:
        """Publish one sentence with the numbers in it."""
        ...
