"""What the controller needs from the world: seven small protocols, and wider ones of a cloud and an engine.

The controller starts and stops jobs (`Engine`), and rents and gives back nodes (`Cloud`). What runs jobs for
real says much more (`Runner`): what a generation is doing, which checkpoint it left, what it printed. What
rents for months is looked after (`Provider`). Expected failures are values: a launch that the cloud cannot
serve returns `Refused`, and the next tick reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from boa_daemon.tick.actions import (
    Action,
    EndGeneration,
    GiveUpJob,
    LaunchNodes,
    StartJob,
    StopJob,
    TerminateNode,
)
from boa_daemon.tick.limits import Act
from boa_daemon.tick.offers import Cooldown, Extras, Offer, RefusalKind, scope_of_gang
from boa_daemon.tick.retries import FailureCause
from boa_daemon.tick.state import ClusterState, GateView, JobState, NodeState, Plan, UserMoney
from boa_daemon.tick.team_money import TeamMoney
from policies.errors import InvalidProblem
from policies.fast_dataclasses import fast_init
from policies.model import JobId, NodeId, check_positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The cloud said yes: the nodes are requested. Where they are fewer than asked for, `short` says why."""

    nodes: tuple[NodeId, ...]
    short: Refused | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """It was done, or is being done; observation will show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """It was not done, and nothing changed.

    `scopes` are what is out of reach (see `boa_daemon.tick.offers`), where it is more than what was asked
    for. `retry_after_seconds` is when to ask again; None leaves it to the cool-downs, which grow.
    """

    reason: str
    kind: RefusalKind = "busy"
    retry_after_seconds: float | None = None
    scopes: tuple[str, ...] = ()

    def scopes_of(self, launch: LaunchNodes) -> tuple[str, ...]:
        """Return what it closes: where nodes that must come together were not to be had, no smaller order."""
        scopes = self.scopes or (launch.offer_key,)
        if not (launch.is_gang and self.kind == "no-capacity"):
            return scopes
        own = launch.offer_key
        return tuple(scope_of_gang(own, launch.count) if scope == own else scope for scope in scopes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Nobody knows whether it was done: the answer was lost. The intent stays open and counts as spent."""

    reason: str


Outcome: TypeAlias = Launched | Accepted | Refused | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLaunch:
    """A launch that is not settled: unanswered, or answered with nodes that no listing has shown yet.

    `nodes` are those that the answer named, None without an answer; `seen` are those that were listed.
    """

    action: LaunchNodes
    at: float
    nodes: tuple[NodeId, ...] | None = None
    seen: frozenset[NodeId] = frozenset()

    @property
    def unseen(self) -> tuple[NodeId, ...]:
        """The nodes that may exist and were not listed yet; made-up names where no answer named them."""
        if self.nodes is not None:
            return tuple(node for node in self.nodes if node not in self.seen)
        return tuple(f"{self.action.id}/{number}" for number in range(len(self.seen), self.action.count))


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The final bill of one node, or of an hour of what stands without one, in whole micro-dollars.

    `days` are its parts by the day since the epoch (UTC) that they fall into; they add up to the bill.
    """

    node: NodeId
    instance_type: str
    started_at: float
    ended_at: float
    micro_dollars: int
    days: tuple[tuple[int, int], ...] = ()


RunPhase: TypeAlias = Literal["starting", "running", "stopping", "stopped", "finished", "failed", "unknown"]
"""What a generation is doing. `stopped`, `finished` and `failed` are ends; at `unknown` nobody could look."""
ENDS: frozenset[RunPhase] = frozenset({"stopped", "finished", "failed"})
_NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checkpoint that is whole: which generation wrote it, after which step, its digest and its file.

    `path` is relative to the job's checkpoint folder.
    """

    generation: int
    step: int
    sha256: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What to run for a job.

    `run` is a shell command, started in `workdir` once on every node of the job. After a stop was ordered it
    has `stop_grace_seconds` to write its checkpoint. What it prints is kept up to `log_bytes`, the newest
    part. `result` names a file, relative to `workdir`, that must be there at the end; empty asks for none.
    With `gate` its DDP models ask the gate, where one runs, without a line in the script; `weight` is what
    the gate ranks by. One that `is_rigid` runs at one width, and its log says at each start how to
    change that. The newest `keep_checkpoints` are kept. `code` is the digest of
    its code, in whose copy `workdir` is then; `setup` runs before `run`, both in the container image `image`,
    with so many `cpus` and `memory_gb`, 0 being all. Files that match `artifacts` are kept at its end. `user`
    submitted it. `secrets` are references, by the names of their variables, `data` sources by name.
    """

    job: JobId
    name: str
    class_name: str
    run: str
    workdir: str = "."
    environment: Mapping[str, str] = field(default_factory=lambda: _NO_ENVIRONMENT)
    stop_grace_seconds: float = 60.0
    log_bytes: int = 64 * 2**20
    result: str = ""
    gate: bool = True
    weight: float = 1.0
    is_rigid: bool = False
    keep_checkpoints: int = 2
    code: str = ""
    setup: str = ""
    image: str = ""
    cpus: float = 0.0
    memory_gb: float = 0.0
    artifacts: tuple[str, ...] = ()
    user: str = ""
    secrets: Mapping[str, str] = field(default_factory=lambda: _NO_ENVIRONMENT)
    data: Mapping[str, str] = field(default_factory=lambda: _NO_ENVIRONMENT)

    def __post_init__(self) -> None:
        if not self.job or not self.run.strip():
            raise InvalidProblem(f"job {self.job or self.name!r} needs an id and a command to run")
        check_positive(f"stop_grace_seconds of {self.job}", self.stop_grace_seconds)
        check_positive(f"log_bytes of {self.job}", self.log_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePass:
    """What leads a generation of a job to the gate: an address, and the token for the file that it names."""

    address: str
    token: str


class JobGate(Protocol):
    """How an engine makes the gate known to its jobs."""

    def admit(self, job: JobId, generation: int, nodes: Collection[NodeId], *, token_file: str) -> GatePass:
        """Return the pass of a generation on these nodes, whose token the engine writes to the file.

        Raises:
            OSError: when the gate's secret cannot be read.
        """
        ...

    def hooked(self, environment: Mapping[str, str], *, library: str = "") -> dict[str, str]:
        """Return an environment in which DDP models ask the gate without a line in the script.

        `library` is the folder on the job's node that holds `boa_daemon`, where that is not this one's.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What is known of one generation of a job.

    `step` is the last step that it reported, counted over all generations; `samples` and `seconds` are what
    this generation worked through and how long that took, so their ratio is its speed. `gradient_noise` is
    its gradient noise scale, where it reports one, `save_seconds` how long its last save took.
    `quiet_seconds` is for how long none of its commands printed anything, None where nobody knows.
    `manifest` is the newest whole checkpoint of the job.
    `lost_steps`, at an end, are steps that were reported and are not in it. `evidence` is a sentence.
    A generation that `was_refused` never started: its nodes did not take it.
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
    quiet_seconds: float | None = None
    gpus: int = 0
    last_lines: tuple[str, ...] = ()

    @property
    def is_over(self) -> bool:
        """Whether the generation has ended and holds nothing any more."""
        return self.phase in ENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class LogChunk:
    """A piece of what a job printed, where the next piece begins, and how many bytes before it are gone.

    It is what was printed on the node with the number `node`, of `nodes` that the generation has.
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
        """Return every node that is ours, and each ended one at least once with its `ended_at`."""
        ...

    def offers(self) -> Sequence[Offer]:
        """Return what may be rented where at which price, as cached; empty where nothing is named."""
        ...

    def launch(self, action: LaunchNodes) -> Launched | Refused | Unknown:
        """Ask for nodes; the same action id asks for the same nodes."""
        ...

    def terminate(self, actions: Sequence[TerminateNode]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Give nodes back, and say of each what became of it; one that is gone already is accepted."""
        ...


WARNING_SECONDS = 120.0
"""Between the announcement that a node is taken back and its end, as EC2 has it for spot."""


class Provider(Cloud, Protocol):
    """A cloud as the daemon uses it, for months and over restarts; one that has nothing to tell inherits."""

    boot_seconds: float | None = None
    """Seconds from launch to ready that plans assume; None where the settings say them at any time."""
    rents_spot: bool = True
    """Whether it has a spot market; one that has none rents everything at one price."""
    is_this_machine: bool = False
    """Whether its nodes have the cores and the memory of this machine, whatever types they stand for."""
    root_volume_gib: float | None = None
    """GiB of a node's root volume where the settings name none; None where it has none that is rented."""

    def remember(self, nodes: Iterable[NodeState]) -> None:
        """Learn of nodes that lived when an earlier process last looked, so that none vanishes unbilled."""
        return

    def listen(self, wake: Callable[[], None]) -> None:
        """Hear what the cloud announces from now on; `wake` asks for a tick."""
        return

    def elsewhere(self) -> str:
        """Return why what is rented is another daemon's, as last seen; empty where it is ours to manage."""
        return ""

    def renew(self, nodes: Collection[NodeId]) -> None:
        """Let nodes live on; what is not named ends with its lease. Called with what a tick wants."""
        return

    def sweep(self) -> Mapping[str, str]:
        """Find what is ours and nobody wants, end it, and return a sentence on each by its id.

        Raises:
            BoaError: when the cloud cannot be asked.
        """
        return {}

    def refresh(self) -> None:
        """Ask for facts that are getting old; called from a thread of its own, as a tick never waits."""
        return

    def standing(self) -> Extras:
        """Return the dollars per hour, at the most, that are billed without any node, by kind."""
        return ()

    def ages(self) -> Mapping[str, float | None]:
        """Return how old each fact is, in seconds; None for what is not known."""
        return {}

    def rehearse_end(self, node: NodeId) -> float | None:
        """Announce that a node is taken back, as the cloud announces it, and return when; None: it cannot."""
        return None

    def close(self) -> None:
        """Stop listening and let go of files; nodes stay as they are."""
        return


class JobSource(Protocol):
    """Knows the jobs."""

    def jobs(self) -> Mapping[JobId, JobState]:
        """Return the jobs that are present and not finished, in order of arrival."""
        ...

    def users(self) -> Mapping[str, UserMoney]:
        """Return what users with a cap of their own have spent today (UTC)."""
        ...

    def teams(self) -> Mapping[str, TeamMoney]:
        """Return the purses of teams."""
        ...


class Engine(Protocol):
    """Runs jobs on nodes."""

    def start(self, action: StartJob) -> Accepted | Refused:
        """Start one generation of a job; a generation that runs already is accepted."""
        ...

    def stop(self, action: StopJob) -> Accepted | Refused:
        """Checkpoint and stop a job; one that does not run is accepted."""
        ...


@runtime_checkable
class ReadinessChecker(Protocol):
    """An engine that can have a job's next start made ready before its stop."""

    def is_ready_for(self, action: StartJob) -> bool:
        """Return whether a job that runs may be stopped for this start; asked again until it may."""
        ...


@runtime_checkable
class JobEnder(Protocol):
    """An engine whose jobs hang and fail: what its facts lead the tick to order."""

    def end(self, action: EndGeneration) -> Accepted | Refused:
        """End a generation at once, without a checkpoint; one that is not there is accepted."""
        ...

    def give_up(self, action: GiveUpJob) -> Accepted | Refused:
        """Write down that a waiting job is not started again; one that is over is accepted."""
        ...


class LinkGate(Protocol):
    """The links that jobs share, where somebody puts their messages in order."""

    def look(self) -> GateView | None:
        """Return what a gate does on them now; None where none runs."""
        ...

    def follow(self, state: ClusterState, plan: Plan) -> None:
        """Take in what was decided: what is left of each job, and who goes first."""
        ...


class Runner(Engine, Protocol):
    """An engine that really runs jobs, generation by generation.

    A stop is asynchronous: it is accepted at once, `poll` then shows `stopping`, and later `stopped` with the
    manifest, or with lost steps where none came in time. Nothing here waits for a job.
    """

    def prepare(self, nodes: Sequence[NodeState]) -> Mapping[NodeId, Accepted | Refused | Unknown]:
        """Make nodes ready to run jobs, and say of each whether it is; to be called until it is."""
        ...

    def admit(self, spec: JobSpec) -> Accepted | Refused:
        """Learn what to run for a job; refused where it could not work. A later spec replaces it."""
        ...

    def kill(self, job: JobId, generation: int) -> Accepted | Refused:
        """End a generation at once, without a checkpoint; one that is not there is accepted."""
        ...

    def poll(self) -> Mapping[JobId, RunReport]:
        """Return the newest generation of every job that was started and not forgotten."""
        ...

    def logs(
        self, job: JobId, *, since: int = 0, generation: int | None = None, node: int | None = None
    ) -> LogChunk:
        """Return what a generation printed on a node from a byte on; empty when that is all.

        By default the newest generation, and the node of the process that reports.
        """
        ...

    def reattach(self) -> Mapping[JobId, RunReport]:
        """Find what earlier processes of ours started, take it over, and return it as `poll` does."""
        ...

    def forget(self, job: JobId) -> None:
        """Leave a job out of `poll` from now on; its logs and checkpoints stay. Running jobs stay known."""
        ...


@runtime_checkable
class EarlyStarter(Protocol):
    """An engine that makes a generation ready on its nodes while the one before still runs."""

    def ahead(self, action: StartJob) -> bool:
        """Have a coming generation wait for its turn; return whether waiting on makes it no readier.

        It is asked again until that is so. What waits holds no GPU and writes nothing; what is not asked for
        any more ends by itself.
        """
        ...


@runtime_checkable
class InterruptionSource(Protocol):
    """A runner that hears from the cloud which nodes it takes back."""

    def interruptions(self) -> Mapping[NodeId, float]:
        """Return the nodes that the cloud takes back, and when, as far as its warnings have come."""
        ...


@runtime_checkable
class CodeStager(Protocol):
    """A runner that brings the code of jobs to their nodes, packed, by the digest of its content."""

    def has_code(self, digest: str) -> bool:
        """Return whether an archive is there."""
        ...

    def take_code(self, digest: str, archive: bytes) -> None:
        """Keep an archive for the jobs that name its digest.

        Raises:
            OSError: when it cannot be kept.
        """
        ...


@runtime_checkable
class CodePruner(Protocol):
    """A runner that keeps archives of code, and can let go of them."""

    def drop_code(self, keep: Collection[str], *, before: float) -> int:
        """Remove the archives that came before an instant and are none of `keep`; return how many."""
        ...


@runtime_checkable
class DataStager(Protocol):
    """A runner that brings data of s3:// to the nodes of jobs."""

    def lacks_data(self, source: str) -> str:
        """Return why a source cannot be brought; empty where it can."""
        ...


@runtime_checkable
class JobFolderStore(Protocol):
    """A runner whose folders of jobs outlive the daemon's database."""

    def job_folders(self) -> Collection[str]:
        """Return the names of all folders there; each of a job ends with the job's number."""
        ...


@runtime_checkable
class ArtifactStore(Protocol):
    """A runner that keeps files which jobs leave at their end."""

    def artifacts(self, job: JobId) -> Mapping[str, int]:
        """Return the names of a job's files, with their sizes in bytes."""
        ...

    def artifact(self, job: JobId, name: str) -> Iterator[bytes]:
        """Yield one of a job's files in pieces."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WayIn:
    """Where a unit of a job runs: on this machine, or on a node that SSM reaches, with a shell's command."""

    kind: Literal["here", "ssm"]
    node: NodeId
    folder: str
    shell: tuple[str, ...] = ()
    region: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaidInside:
    """How a command beside a job ended: its exit code, or why there is none, and what it printed last."""

    code: int | None
    why: str = ""
    output: str = ""
    dropped_bytes: int = 0


class JobAccessPort(Protocol):
    """Commands and shells beside those of jobs, as the job's user and with what it sees."""

    def way(self, job: JobId, node: int) -> WayIn | Refused:
        """Return where the unit of a job's newest generation on its node of that number runs."""
        ...

    def begin(self, job: JobId, node: int, command: str, *, seconds: float) -> str | Refused:
        """Start a command that is ended after so long; return the word by which its end is asked for."""
        ...

    def end(self, word: str) -> SaidInside | Refused | None:
        """Return how a command ended, None while it runs; an end is told once."""
        ...

    def open(
        self, job: JobId, node: int, terminal: str, *, term: str, may_use: Callable[[int], bool]
    ) -> Accepted | Refused:
        """Open a shell on a terminal of this machine, if its owner may use it."""
        ...


@runtime_checkable
class AccessibleRunner(Protocol):
    """A runner that lets people into the jobs that it runs."""

    inside: JobAccessPort


@runtime_checkable
class NodeFaultDetector(Protocol):
    """A runner whose units look at their nodes while jobs run."""

    def unfit(self) -> Mapping[NodeId, str]:
        """Return the nodes whose hardware has faults, and which."""
        ...


@runtime_checkable
class PersistableRunner(Protocol):
    """A runner that lets its memory be kept for it: then nothing of it lies beside the database."""

    def remember_in(
        self, read: Callable[[], Mapping[str, str]], write: Callable[[Mapping[str, str]], None]
    ) -> None:
        """Keep what is known of each job as a text by its id: `read` returns all, `write` replaces all."""
        ...


@runtime_checkable
class JobFileCleaner(Protocol):
    """A runner that keeps files of jobs that are over, and can let go of them."""

    def discard(self, job: JobId) -> None:
        """Remove what is kept of a job that was forgotten; nothing where it was not."""
        ...


class Store(Protocol):
    """Remembers: intents before the act, outcomes after it, charges and decisions."""

    def next_tick(self) -> int:
        """Return the number of the tick that begins: one more than any before."""
        ...

    def record_intent(self, action: Action, *, at: float) -> None:
        """Write down an action before it is tried."""
        ...

    def record_outcome(self, action: Action, outcome: Outcome, *, at: float) -> None:
        """Write down what became of an action."""
        ...

    def record_intents(self, actions: Sequence[Action], *, at: float) -> None:
        """Write down several actions at once before they are tried; a start takes its GPUs with it."""
        ...

    def record_outcomes(self, outcomes: Sequence[tuple[Action, Outcome]], *, at: float) -> None:
        """Write down at once what became of several actions."""
        ...

    def unsettled(self) -> Sequence[OpenLaunch]:
        """Return launches that have no outcome, or whose nodes were not all seen yet."""
        ...

    def record_seen(self, launched_by: str, nodes: Collection[NodeId]) -> None:
        """Write down that nodes of a launch are in the cloud's list; all of them settle it."""
        ...

    def give_up(self, launched_by: str, reason: str, *, at: float) -> None:
        """Settle a launch with the nodes that were seen: the others are not coming."""
        ...

    def cooldowns(self, now: float) -> Mapping[str, Cooldown]:
        """Return the scopes that were refused and are not to be asked again yet."""
        ...

    def record_charge(self, charge: Charge) -> None:
        """Append a final bill; a second one for the same node is ignored."""
        ...

    def reopen_charges(self, nodes: Collection[NodeId]) -> None:
        """Take final bills back: the cloud lists these nodes as living. Nothing where there are none."""
        ...

    def settled_micro_dollars(self) -> int:
        """Return the sum of all final bills."""
        ...

    def settled_since(self, at: float) -> int:
        """Return the parts of final bills that fall into the day (UTC) of an instant and later ones."""
        ...

    def standing_charged_until(self) -> float:
        """Return until when what the site costs without nodes is charged; 0 where it is not yet."""
        ...

    def acts_since(self, at: float) -> Sequence[Act]:
        """Return what was ordered from an instant on, in order of time; refused launches are left out."""
        ...

    def books_opened_at(self, now: float) -> float:
        """Return the instant from which the budget accrues; the first call sets it to `now`."""
        ...

    def reopen_books(self, at: float) -> None:
        """Let the budget accrue from a later instant: what was not spent before is forgone."""
        ...

    def record_memory(self, memory: tuple[float, ...], *, at: float) -> None:
        """Write down what the policy learnt about its beliefs."""
        ...

    def memory(self) -> tuple[tuple[float, ...], float] | None:
        """Return what was learnt last, and when; None before the first time."""
        ...

    def record_decision(self, state: ClusterState, actions: Sequence[Action], plan: Plan) -> None:
        """Write down what a tick saw and what it decided."""
        ...


class Telemetry(Protocol):
    """Sends sentences for people and numbers for machines."""

    def say(self, sentence: str, **numbers: float | str) -> None:
        """Publish one sentence with the numbers in it."""
        ...
