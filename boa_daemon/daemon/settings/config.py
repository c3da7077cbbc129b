"""The settings of the daemon, section by section; `setting_layers.py` reads them.

Each key's description gives its meaning and unit; `docs/reference/settings.md` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, create_model, model_validator
from pydantic_core import PydanticCustomError

from boa_daemon.backends.settings import NODES_LEFT, AwsSettings, with_home_region
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import Event
from boa_daemon.inputs.schema import (
    Fraction,
    Free,
    Limit,
    Name,
    NoLimit,
    NotNegative,
    Positive,
    Private,
    ReadBy,
    Strict,
    checked,
)
from boa_daemon.learning.beliefs import HALF_LIFE_HOURS, PRIOR_JOBS
from policies.online.pacing import MONTH_HOURS, PERIOD, TOLERANCE, Period
from policies.registry import DEFAULT_KAPPA, DEFAULT_POLICY

CAP_DAYS = 2.0
"""Default daily cap, in mean days of the budget, when the budget is monthly and no cap is set."""


Cap: TypeAlias = Annotated[Positive | None, Limit("up")]
"""Dollars that are never exceeded; None is no cap."""
Cost: TypeAlias = Annotated[NotNegative, Limit("down")]
"""A cost that counts against the caps: a lower figure lets more be spent."""
_OTHER_COSTS = Limit("other", "other costs would count against the caps")
_TOLD = Limit("fewer", "who is left out is told no more")
_TOLD_ELSEWHERE = Limit("replaced", "who was told is told no more")


class BudgetSettings(Strict):
    """Money and machines."""

    usd_per_hour: Free[Positive] = Field(
        default=10.0, description="dollars per hour, the long-run average aimed at"
    )
    usd_per_month: Free[Positive | None] = Field(
        default=None, description="dollars per calendar month (UTC), in place of usd_per_hour"
    )
    usd_per_day_cap: Cap = Field(
        default=300.0,
        description="dollars per day (UTC), never exceeded; set it above 24 h of the budget. With "
        "usd_per_month, two mean days of the budget if unset",
    )
    usd_per_month_cap: Cap = Field(
        default=None, description="dollars per calendar month (UTC), never exceeded"
    )
    usd_per_hour_ceiling: Cap = Field(
        default=None, description="dollars per hour of all nodes at any instant, never exceeded"
    )
    standing_usd_per_hour: Cost = Field(
        default=0.0,
        description="dollars per hour that the site costs without a node, such as a NAT gateway; charged "
        "hourly",
    )
    max_instances: Annotated[int | None, Limit("up")] = Field(
        default=16, ge=1, le=100_000, description="instances at once"
    )
    share_half_life_hours: Free[Positive] = Field(
        default=24.0, description="hours after which money that a team was lent, or left unspent, counts half"
    )
    period: Free[Period] = Field(
        default=PERIOD,
        description="month, quarter or year (calendar, UTC): its money is spent in it, within the tolerance",
    )
    tolerance: Free[Fraction] = Field(
        default=TOLERANCE,
        description="fraction of the period's money by which its spend may be off; less is more even and "
        "costs waiting",
    )
    window_hours: Free[Positive | None] = Field(
        default=None,
        description="hours over which spending meets the budget on average, in place of a period",
    )

    @model_validator(mode="before")
    @classmethod
    def _is_one_budget(cls, value: object) -> object:
        """Refuse two budgets; derive a daily cap from a monthly budget when none is set."""
        if not isinstance(value, Mapping) or value.get("usd_per_month") is None:
            return value
        if value.get("usd_per_hour") is not None:
            said = "has both usd_per_hour and usd_per_month"
            raise PydanticCustomError(
                "one_too_many", "two budgets", {"said": said, "hint": "Give one of them"}
            )
        month = value["usd_per_month"]
        if "usd_per_day_cap" in value or isinstance(month, bool) or not isinstance(month, int | float):
            return value
        return {**value, "usd_per_day_cap": CAP_DAYS * 24.0 * month / MONTH_HOURS}

    @property
    def mean_usd_per_hour(self) -> float:
        """The budget in dollars per hour; a monthly budget is divided by the hours of a mean month."""
        return self.usd_per_hour if self.usd_per_month is None else self.usd_per_month / MONTH_HOURS


class PartitionSettings(Strict):
    """A partition of Slurm whose nodes may be used."""

    gpu: Free[Name] = Field(description="kind of the GPUs, as class files name it, such as a100")
    gpus: Free[int] = Field(ge=1, le=1024, description="GPUs of a node")
    usd_per_hour: Cost = Field(
        default=0.0, description="dollars per hour of a node; 0 for nodes that cost nothing more"
    )
    nodes: Annotated[int | None, Limit("up")] = Field(
        default=None, ge=0, description="nodes at once; all that are free if unset"
    )


class _CloudSettings(Strict):
    """Where machines come from."""

    @model_validator(mode="before")
    @classmethod
    def _home_is_first(cls, value: object) -> object:
        return _with_partitions(with_home_region(value))

    provider: Annotated[Name, Limit("replaced", NODES_LEFT)] = Field(
        default="simulated", description="aws, simulated, local or slurm"
    )
    region: Annotated[str, Limit("other", NODES_LEFT)] = Field(
        default="us-east-1", description="region of the cloud"
    )
    instance_types: Free[list[Name]] = Field(
        default_factory=lambda: ["g5.xlarge"],
        min_length=1,
        description="types that may be rented; several may carry the same GPU",
    )
    market: Free[Literal["on-demand", "spot", "spot-then-on-demand", "planned"]] = Field(
        default="on-demand",
        description="on-demand, spot, spot-then-on-demand, or planned: by class and phase, as the plan says",
    )
    commitments: Annotated[str | None, _OTHER_COSTS] = Field(
        default=None,
        description="file of commitments that are paid in any case, in the format of boa plan --commitments",
    )
    blocks: Annotated[str | None, _OTHER_COSTS] = Field(
        default=None,
        description="file of purchased Capacity Blocks with their fees, in the format of boa plan --blocks",
    )
    gpu_places: Free[dict[Name, int]] = Field(
        default_factory=dict,
        description="by instance type, how many jobs may share each GPU, for classes that permit it; one "
        "job per GPU if unset",
    )
    boot_seconds: Free[Annotated[NotNegative, ReadBy(("simulated", "local", "slurm"))]] = Field(
        default=5.0, description="seconds that a node of a cloud other than AWS boots"
    )
    warm_pool_nodes: Free[Annotated[int, ReadBy(("aws", "simulated"))]] = Field(
        default=0,
        ge=0,
        description="idle nodes kept stopped, at the cost of their disks, so that the next starts sooner",
    )
    start_seconds: Free[Annotated[NotNegative | None, ReadBy(("aws", "simulated"))]] = Field(
        default=None,
        description="seconds from the start of a stopped node to ready; if unset as measured, before that "
        "a third of a boot",
    )
    stock: Free[Annotated[int | None, ReadBy(("simulated", "local"))]] = Field(
        default=None, ge=0, description="nodes that the simulated or the local cloud has; local: 4 if unset"
    )
    partitions: Annotated[dict[Name, PartitionSettings], ReadBy(("slurm",))] = Field(
        default_factory=dict,
        description="partitions of Slurm, each an instance type of its name (slurm)",
    )


def _with_partitions(value: object) -> object:
    """Let the partitions be the instance types, where a section names no others."""
    if not isinstance(value, Mapping) or "instance_types" in value:
        return value
    partitions = value.get("partitions")
    return (
        {**value, "instance_types": list(partitions)}
        if isinstance(partitions, Mapping) and partitions
        else value
    )


def _unset(name: str) -> tuple[Any, Any]:
    """Return a field of AWS for the section: with its type, and None while it is not given."""
    field = AwsSettings.model_fields[name]
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    said = f"{(field.description or name).rstrip('.')} (aws)"
    marks: list[object] = [mark for mark in field.metadata if isinstance(mark, Limit | NoLimit)]
    if name != "tags":
        # Cost reports read the tags of the house on any cloud.
        marks.append(ReadBy(("aws",)))
    return (Annotated[kind | None, *marks] if marks else kind | None, Field(default=None, description=said))


AWS_ONLY = tuple(name for name in AwsSettings.model_fields if name not in _CloudSettings.model_fields)
"""Keys of [cloud] that only AWS has."""
if TYPE_CHECKING:
    CloudSettings = _CloudSettings
else:
    CloudSettings = create_model(
        "CloudSettings", __base__=_CloudSettings, **{name: _unset(name) for name in AWS_ONLY}
    )


def aws_settings(cloud: _CloudSettings) -> AwsSettings:
    """Return the settings of the AWS backend.

    Raises:
        InputError: when AWS has no such region.
    """
    from boa_daemon.backends.aws.client.calls import check_region  # noqa: PLC0415 - slow to import, for AWS alone

    check_region(cloud.region)
    given = {
        name: value for name in AwsSettings.model_fields if (value := getattr(cloud, name, None)) is not None
    }
    return checked(AwsSettings, given, document=Document(name="the settings", content=given), at=("cloud",))


class EngineSettings(Strict):
    """What runs jobs on machines."""

    name: Free[Name] = Field(default="local", description="local, ssm, ray or slurm")
    shared_account: Annotated[bool, Limit("true")] = Field(
        default=False,
        description="let others submit jobs that run as the daemon's own user (local, ray): every "
        "submitter then has the daemon's rights",
    )
    own_user: Annotated[bool, Limit("false")] = Field(
        default=True,
        description="run each job as its own user if the daemon can (ssm; local: as the submitter's "
        "account if the daemon is root); false: as root on nodes, as the daemon's user here",
    )
    secrets_file: Annotated[str, Limit("other", "jobs could name other secrets")] = Field(
        default="",
        description="file of NAME=VALUE lines, mode 0600: secrets that jobs name as env:NAME (not ssm)",
    )
    secrets: Annotated[list[Name], Limit("more")] = Field(
        default_factory=list,
        description="references, ssm:/PATH or secretsmanager:ARN, that jobs may name; * matches any part "
        "(ssm)",
    )
    data: Annotated[list[Name], Limit("more")] = Field(
        default_factory=list,
        description="s3://BUCKET/PREFIX/* that jobs may name as data, with the nodes' or the daemon's rights",
    )
    queue_url: Free[str] = Field(default="", description="SQS queue that nodes report to (ssm)")
    uri: Free[str] = Field(default="", description="s3://bucket/prefix of code, logs and checkpoints (ssm)")
    shared_dir: Free[str] = Field(
        default="", description="folder that the daemon and all nodes share (ray, slurm)"
    )
    slurm_options: Free[list[Name]] = Field(
        default_factory=list,
        description="options of sbatch for all jobs, such as --account=ml, then those of a job file (slurm)",
    )
    slurm_ssh: Free[str] = Field(
        default="",
        description="login node on which Slurm's commands run, over SSH; this machine if unset (slurm)",
    )
    ray_address: Free[str] = Field(default="auto", description="head of the Ray cluster (ray)")


class WorkloadSettings(Strict):
    """What runs."""

    classes: Annotated[str | None, Limit("replaced", "its prices count against the caps")] = Field(
        default=None, description="class file: the classes of a problem file"
    )
    policy: Free[str] = Field(default=DEFAULT_POLICY, description="a policy of boa simulate")
    placer: Free[str] = Field(default="lwf", description="a placer of boa simulate")
    kappa: Free[float] = Field(
        default=DEFAULT_KAPPA,
        ge=1,
        description="largest job, in GPUs, that lwf may spread over leftover GPUs of several nodes",
    )
    explore_fraction: Free[Fraction] = Field(
        default=0.02,
        description="fraction of a class's, and of one job's, GPU time that trials of other widths may waste",
    )


class LearningSettings(Strict):
    """What is learned from jobs, apart from their speed."""

    rates: Free[bool] = Field(default=True, description="plan by the measured arrival rates")
    sizes: Free[bool] = Field(default=True, description="plan by the measured sizes of jobs")
    prior_jobs: Free[Positive] = Field(
        default=PRIOR_JOBS,
        description="number of observed jobs that a rate or size in the class file counts as",
    )
    half_life_hours: Free[Positive] = Field(
        default=HALF_LIFE_HOURS, description="hours after which a measurement counts half"
    )
    save_minutes: Free[Positive] = Field(
        default=30.0, description="minutes of work between two saves of a job that plans on spot assume"
    )
    save_seconds: Free[NotNegative] = Field(
        default=60.0, description="seconds that a save takes, as plans on spot assume"
    )
    prior_class: Free[Name | None] = Field(
        default=None,
        description="class that a class without an entry in the class file starts as; its jobs are "
        "refused if unset",
    )


class DaemonSettings(Strict):
    """The program itself."""

    tick_seconds: Free[Positive] = Field(
        default=30.0, description="seconds between ticks; caps allow for ticks that come four times as late"
    )
    checkpoint_seconds: Free[NotNegative] = Field(
        default=90.0, description="seconds that jobs get to stop before a hard cap ends their nodes"
    )
    state_dir: Free[str | None] = Field(
        default=None, description="folder of the database; STATE_DIRECTORY if unset"
    )
    socket: Free[str | None] = Field(
        default=None, description="path of the socket that the command line talks to"
    )
    database: Free[Annotated[str | None, Private()]] = Field(
        default=None, description="URL; a SQLite file in state_dir if unset"
    )
    observe: Annotated[bool, Limit("true", "nobody would keep the caps")] = Field(
        default=False, description="decide and record, and touch nothing"
    )
    idle_hold_seconds: Free[NotNegative] = Field(
        default=300.0, description="seconds that an idle node is kept, at most"
    )
    stall_seconds: Free[Positive] = Field(
        default=600.0,
        description="seconds without a step after which a job counts as stalled, at least; see engines",
    )
    keep_days: Free[float | None] = Field(
        default=None,
        ge=32,
        description="days after which a job that is over is deleted, with its folder here; kept if unset",
    )
    backup_seconds: Free[Positive] = Field(default=3600.0, description="seconds between backups")
    accept_changes: Free[str | None] = Field(
        default=None,
        description="code of changes that loosen limits, as the daemon prints it when it refuses them: they "
        "are applied; see boa config apply",
    )


class SteadySettings(Strict):
    """Limits on how often jobs move, against flapping."""

    minimum_hold_seconds: Annotated[NotNegative, Limit("down", "jobs could move more often")] = Field(
        default=300.0, description="seconds before a job may move"
    )
    moves_per_hour_of_a_job: Annotated[int, Limit("up")] = Field(
        default=4, ge=1, description="moves and stops per hour and job"
    )
    moves_per_hour: Annotated[int, Limit("up")] = Field(
        default=200, ge=1, description="moves and stops per hour of all jobs"
    )
    loop_times: Annotated[int, Limit("up")] = Field(
        default=8,
        ge=2,
        description="fruitless starts or launches within an hour before they pause",
    )


class AlertSettings(Strict):
    """Who receives alerts, and when."""

    apprise: Annotated[list[Name], Private(), _TOLD] = Field(
        default_factory=list, description="URLs of apprise (mail, chat and others; needs the extra apprise)"
    )
    month_report: Annotated[bool, Limit("false", "nobody would be sent it")] = Field(
        default=True,
        description="send last month's figures on the first day of a month, and write them as a page to "
        "`reports` in the state folder",
    )
    long_wait_hours: Free[Positive] = Field(
        default=6.0, description="hours without GPUs after which a job's user may be notified that it waits"
    )

    at_fractions: Annotated[list[Fraction], Limit("fewer", "nobody would be told at that fraction")] = Field(
        default_factory=lambda: [0.5, 0.8, 1.0], description="fractions of a cap that are worth a message"
    )
    webhook: Annotated[str | None, Private(), _TOLD_ELSEWHERE] = Field(
        default=None, description="URL that takes Slack-compatible JSON"
    )
    sns_topic: Annotated[str | None, _TOLD_ELSEWHERE] = Field(default=None, description="ARN of an SNS topic")
    command: Annotated[str | None, Private(), _TOLD_ELSEWHERE] = Field(
        default=None, description="command, run without a shell; the sentence is in BOA_ALERT"
    )
    notifiers: Annotated[dict[Name, str], Private(), _TOLD] = Field(
        default_factory=dict, description="addresses by the name of the notifier plug-in that sends to them"
    )


class ApiSettings(Strict):
    """Who may use the API."""

    listen: Annotated[str | None, Limit("other", "others could reach the daemon")] = Field(
        default=None, description="host:port for HTTP over TCP; off if unset"
    )
    tokens: Annotated[str | None, Limit("other", "other people could be let in")] = Field(
        default=None, description="file of 'TOKEN USER' lines, mode 0600, for TCP"
    )
    tls_cert: Free[str | None] = Field(
        default=None, description="certificate chain (PEM) for TCP; needed where listen is not this machine"
    )
    tls_key: Free[str | None] = Field(default=None, description="private key (PEM) of tls_cert, mode 0600")
    admins: Annotated[list[Name], Limit("more")] = Field(
        default_factory=list, description="users who may cancel the jobs of others"
    )
    readers: Annotated[list[Name], Limit("more")] = Field(
        default_factory=list, description="users who may read the files and logs of the jobs of others"
    )
    hosts: Annotated[list[str], Limit("more")] = Field(
        default_factory=list, description="names by which a browser may reach the page over TCP"
    )
    page_orders: Annotated[bool, Limit("true")] = Field(
        default=False,
        description="let the page cancel, resize, hold and weigh jobs and lower caps, with the rights of who "
        "is signed in; otherwise the page only reads",
    )
    proxies: Annotated[list[str], Limit("more")] = Field(
        default_factory=list,
        description="addresses, and users of this machine at the unix socket, of proxies that sign people in "
        "and name them in proxy_user_header; from anybody else that header says nothing",
    )
    proxy_user_header: Annotated[str, Limit("other")] = Field(
        default="X-Forwarded-User",
        pattern=r"^[A-Za-z0-9-]{1,64}$",
        description="header in which such a proxy names the user; it must remove the header from requests",
    )
    proxy_user_domain: Annotated[str | None, Limit("other")] = Field(
        default=None,
        pattern=r"^[A-Za-z0-9.-]{1,253}$",
        description="the only domain of the users that a proxy names as NAME@DOMAIN; they are called NAME "
        "here, as on this machine; if unset, a name is taken as it is",
    )


class GateSection(Strict):
    """Who sends first on shared network cards; read when the daemon starts."""

    enabled: Free[bool] = Field(
        default=True, description="run the gate where two jobs can share a link, and let jobs find it"
    )
    listen: Free[str | None] = Field(
        default=None,
        description="host:port that nodes reach; if unset a unix socket, and for the ssm and ray engines "
        "port 7411 of this machine's private address as well",
    )
    uplinks: Free[dict[Name, list[str]]] = Field(
        default_factory=dict,
        description="links that several nodes share, each with patterns of the nodes behind it; "
        '["*"] is the link between all nodes',
    )
    policy: Free[Literal["srsf-1", "srsf-2", "ada-srsf", "ada-srsf-buckets"]] = Field(
        default="ada-srsf-buckets", description="who goes first: a policy of boa gate"
    )
    gigabits: Free[Positive] = Field(
        default=10.0, description="Gbit/s of a network card, until it is measured"
    )
    always_on: Free[bool] = Field(default=False, description="order messages even when it cannot help")


class UserSettings(Strict):
    """What one user may do."""

    max_jobs: Annotated[int | None, Limit("up")] = Field(
        default=None, ge=0, description="jobs that wait or run at once"
    )
    usd_per_day_cap: Cap = Field(
        default=None, description="dollars per day (UTC) after which no job of the user is taken or started"
    )
    notify: Annotated[list[Event], _TOLD] = Field(
        default_factory=list,
        description="events of their jobs that the user is notified of, unless the job's file says "
        "otherwise: start, end, failure, move, waiting",
    )
    webhook: Annotated[str | None, Private(), _TOLD_ELSEWHERE] = Field(
        default=None, description="URL that takes Slack-compatible JSON"
    )
    apprise: Annotated[list[Name], Private(), _TOLD] = Field(
        default_factory=list, description="URLs of apprise (mail, chat and others; needs the extra apprise)"
    )


class TeamSettings(Strict):
    """A team's members, caps and share of the budget."""

    members: Annotated[list[Name], Limit("fewer")] = Field(
        default_factory=list, description="users whose jobs the team may pay for"
    )
    usd_per_day_cap: Cap = Field(default=None, description="dollars per day (UTC) that its jobs never exceed")
    usd_per_month_cap: Cap = Field(
        default=None, description="dollars per month (UTC) that its jobs never exceed"
    )
    share: Annotated[Positive | None, Limit("replaced", "money would pass from teams to others")] = Field(
        default=None,
        description="its part of the budget, relative to the other teams' shares; what it leaves is lent "
        "to them",
    )
    webhook: Annotated[str | None, Private(), _TOLD_ELSEWHERE] = Field(
        default=None,
        description="URL that takes Slack-compatible JSON, for alerts about its caps; the channels of its "
        "members if unset",
    )
    apprise: Annotated[list[Name], Private(), _TOLD] = Field(
        default_factory=list, description="URLs of apprise for alerts about its caps"
    )
    tags: Free[dict[Name, Name]] = Field(
        default_factory=dict,
        description="tags of its jobs in boa cost --by tag:KEY; they come before those of the nodes. AWS "
        "does not get them, as teams share nodes",
    )


class SlurmPartition(Strict):
    """A partition of Slurm whose nodes BOA provides."""

    instance_type: Free[Name] = Field(description="machine of its nodes, one of [cloud] instance_types")


class SlurmSettings(Strict):
    """Slurm as a customer: its power saving asks BOA for nodes."""

    partitions: dict[Name, SlurmPartition] = Field(
        default_factory=dict, description="partitions whose nodes BOA provides; none: Slurm is not asked"
    )
    teams: Annotated[dict[Name, Name], Limit("fewer")] = Field(
        default_factory=dict, description="teams that pay, by the account of Slurm's job"
    )
    user: Free[Name] = Field(default="slurm", description="user of nodes that no job of Slurm waits for")
    run: Free[str] = Field(
        default="", description="command that a node runs in place of slurmd -D -b -N $BOA_SLURM_NODE"
    )
    conf: Free[str] = Field(default="", description="path of slurm.conf; as Slurm finds it if unset")
    patience_seconds: Free[Positive] = Field(
        default=240.0,
        description="seconds that a node may wait for stock or budget before it goes back to Slurm; "
        "less than ResumeTimeout",
    )


class Settings(Strict):
    """All sections of boa.toml."""

    budget: BudgetSettings = Field(default_factory=BudgetSettings, description="money and machines")
    cloud: CloudSettings = Field(default_factory=CloudSettings, description="where machines come from")
    engine: EngineSettings = Field(default_factory=EngineSettings, description="what runs jobs")
    workload: WorkloadSettings = Field(default_factory=WorkloadSettings, description="what runs")
    learning: LearningSettings = Field(
        default_factory=LearningSettings, description="what is learned from jobs"
    )
    daemon: DaemonSettings = Field(default_factory=DaemonSettings, description="the program itself")
    steady: SteadySettings = Field(default_factory=SteadySettings, description="limits against flapping")
    alerts: AlertSettings = Field(default_factory=AlertSettings, description="who receives alerts")
    api: ApiSettings = Field(default_factory=ApiSettings, description="who may ask")
    gate: GateSection = Field(default_factory=GateSection, description="who sends first on shared cards")
    users: dict[Name, UserSettings] = Field(default_factory=dict, description="what one user may do")
    teams: dict[Name, TeamSettings] = Field(
        default_factory=dict, description="teams, their members and their money"
    )
    secrets: dict[Name, list[Name]] = Field(
        default_factory=dict,
        description="who may name a secret in a job: users and team:NAME, by reference; * matches any "
        "part, and the longest matching pattern decides. Anybody may name a reference that no "
        "pattern matches",
    )
    slurm: SlurmSettings = Field(default_factory=SlurmSettings, description="Slurm as a customer")
    plugins: dict[Name, dict[Name, Any]] = Field(
        default_factory=dict, description="settings of plug-ins, by the plug-in's name"
    )
