"""The verbs of the daemon's HTTP API: each is declared here once, as a typed method.

The client has these methods: `verb` gives each its body, which sends the arguments (`client.py`). The daemon
makes its routes of the same declarations (`contract_routes.py`) and answers with the method of its service
that has the verb's name. The reference is written from the signatures and docstrings. A further verb is a
method below, and the service's method of the same name.

Nothing here is slow to import: the client starts with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_type_hints
from urllib.parse import quote

from boa_daemon.api.answers import (
    AlertsAnswer,
    ArtifactsAnswer,
    By,
    CancelAnswer,
    ChangesAnswer,
    ClassesAnswer,
    CostAnswer,
    DecisionKind,
    DecisionsAnswer,
    DownAnswer,
    ExplainAnswer,
    GroupAnswer,
    HoldAnswer,
    InstancesAnswer,
    InterruptAnswer,
    JobsAnswer,
    LogAnswer,
    PastAnswer,
    PlanAnswer,
    ResizeAnswer,
    SlurmAnswer,
    StatusAnswer,
    WholeJobAnswer,
)

Role: TypeAlias = Literal["anyone", "reader", "owner", "admin", "slurm"]
"""Who may call a verb, by whom the service decides: it is told which texts a `reader` may read, and for an
`owner` who calls. What is for an `admin`, or for `slurm` (its user), is refused to others beforehand."""
Rules: TypeAlias = Mapping[str, Mapping[str, Any]]

LARGEST_NUMBER = 2**53
_Declared = TypeVar("_Declared", bound=Callable[..., Any])
_NO_RULES: Rules = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One request: its method and path, who may call it, and how its parameters are checked.

    `rules` are by parameter: what pydantic's `Field` checks, and as `default` what it means that a request
    does not have it (`...`: it must) where that differs from the client's default. `answers` is the service's
    method. In the API's description the body of a POST is called `body` and the verb `operation`; `said` is
    what it does, by default the first sentences of the docstring, which is the client's. A verb `at_once`
    needs no thread; the answer of one that `is_large` is not validated.
    """

    name: str
    method: Literal["GET", "POST"]
    path: str
    role: Role
    rules: Rules
    body: str
    answers: str
    operation: str
    said: str
    at_once: bool
    is_large: bool
    declared: Callable[..., Any] = field(repr=False)

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The parameters of a request, with the types of the declaration."""
        types = get_type_hints(self.declared)
        found = list(inspect.signature(self.declared).parameters.values())[1:]
        return [each.replace(annotation=types[each.name]) for each in found]

    @property
    def description(self) -> str:
        """What the verb does, for the API's description."""
        return self.said or (inspect.getdoc(self.declared) or "").partition("\n\n")[0]

    def path_with(self, values: Mapping[str, Any]) -> str:
        """Return the path for some arguments."""
        return self.path.format_map({name: quoted(str(value)) for name, value in values.items()})

    def is_in_path(self, parameter: str) -> bool:
        """Return whether a parameter is a part of the path."""
        return f"{{{parameter}}}" in self.path


def verb(
    request: str,
    *,
    role: Role = "anyone",
    rules: Rules = _NO_RULES,
    body: str = "",
    answers: str = "",
    operation: str = "",
    said: str = "",
    at_once: bool = False,
    is_large: bool = False,
) -> Callable[[_Declared], _Declared]:
    """Declare a method as a verb: ``GET /jobs/{name}``, below ``/v1``; the fields are those of `Verb`."""
    method, _, path = request.partition(" ")

    def declare(declared: _Declared) -> _Declared:
        name = declared.__name__
        known = Verb(
            name=name,
            method=cast(Literal["GET", "POST"], method),
            path=path,
            role=role,
            rules=rules,
            body=body,
            answers=answers or name,
            operation=operation or name,
            said=said,
            at_once=at_once,
            is_large=is_large,
            declared=declared,
        )

        @wraps(declared)
        def send(self: Verbs, *given: Any, **named: Any) -> dict[str, Any]:
            call = inspect.signature(declared).bind(self, *given, **named)
            call.apply_defaults()
            values = dict(list(call.arguments.items())[1:])
            rest = {key: value for key, value in values.items() if not known.is_in_path(key)}
            where = known.path_with(values)
            return self.get(where, **rest) if method == "GET" else self.post(where, rest or None)

        send.verb = known  # type: ignore[attr-defined]
        return cast(_Declared, send)

    return declare


def quoted(name: str) -> str:
    """Return an id as part of a path; the daemon refuses invalid ids."""
    return quote(name or " ", safe="").replace("%2F", "%252F")


class Verbs:
    """The verbs, sent with `get` and `post`."""

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """Return the document at a path of the HTTP API, given without `/v1`; the path may have a query."""
        raise NotImplementedError

    def post(self, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a POST to a path of the HTTP API, given without `/v1`, and return its answer."""
        raise NotImplementedError

    @verb(
        "GET /jobs",
        role="reader",
        said="List jobs, newest first; `next` of a page is the `before` of the next page.",
        is_large=True,
        rules={
            "user": {"pattern": r"^[A-Za-z0-9_.@-]{1,64}$"},
            "group": {"pattern": r"^[A-Za-z0-9-]{1,80}$"},
            "team": {"max_length": 200},
            "before": {"ge": 1, "le": LARGEST_NUMBER},
            "ended": {"default": True},
            "limit": {"ge": 1, "le": 20_000},
        },
    )
    def jobs(
        self,
        *,
        user: str | None = None,
        group: str | None = None,
        team: str | None = None,
        before: int | None = None,
        ended: bool = False,
        limit: int = 1000,
    ) -> JobsAnswer:
        """List jobs, newest first; by default only those that are not over.

        Args:
            user: only those of this user.
            group: only those of this group.
            team: only those that this team pays for.
            before: `next` of the previous page.
            ended: also those that are over.
            limit: largest number of jobs, at most 20,000.

        Raises:
            RefusedByDaemon: with status 404 when there is no such group, and when there is no such team.
        """
        raise NotImplementedError

    @verb("GET /groups/{name}", operation="group_of_jobs")
    def group(self, name: str) -> GroupAnswer:
        """Return the number of a group's jobs by status, and their total cost.

        Raises:
            RefusedByDaemon: with status 404 when there is no such group.
        """
        raise NotImplementedError

    @verb("POST /groups/{name}/cancel", role="owner")
    def cancel_group(self, name: str) -> CancelAnswer:
        """Cancel every job of a group; running jobs may write their checkpoints first.

        Raises:
            RefusedByDaemon: when there is no such group, or it is not yours.
        """
        raise NotImplementedError

    @verb("GET /jobs/{name}", role="reader")
    def job(self, name: str) -> WholeJobAnswer:
        """Return one job with its file.

        Raises:
            RefusedByDaemon: with status 404 when there is no such job.
        """
        raise NotImplementedError

    @verb("GET /jobs/{name}/explain", role="reader")
    def explain(self, name: str) -> ExplainAnswer:
        """Explain why a job has its width and its nodes, or why it waits.

        Raises:
            RefusedByDaemon: with status 404 when there is no such job.
        """
        raise NotImplementedError

    @verb(
        "GET /jobs/{name}/logs",
        role="reader",
        rules={
            "since": {"ge": 0, "le": LARGEST_NUMBER},
            "generation": {"ge": 1, "le": 2**31 - 1},
            "node": {"ge": 0, "le": 10_000},
        },
    )
    def logs(
        self, name: str, *, since: int = 0, generation: int | None = None, node: int | None = None
    ) -> LogAnswer:
        """Return a piece of a job's output, from a byte on.

        Args:
            name: id of the job.
            since: the first byte; `next_offset` of the previous piece.
            generation: number of the start, from 1; the newest by default.
            node: number of the job's node, from 0; by default that of the process that reports.

        Raises:
            RefusedByDaemon: when there is no such job, start or node, or you may not read it.
        """
        raise NotImplementedError

    @verb("GET /jobs/{name}/artifacts", role="reader")
    def artifacts(self, name: str) -> ArtifactsAnswer:
        """List a job's output files, as the `artifacts` of its file select them.

        Raises:
            RefusedByDaemon: when there is no such job, or you may not read it.
        """
        raise NotImplementedError

    @verb("POST /jobs/{name}/cancel", role="owner")
    def cancel(self, name: str) -> CancelAnswer:
        """Cancel a job; a running job may write its checkpoint first.

        Raises:
            RefusedByDaemon: when there is no such job, or it is not yours.
        """
        raise NotImplementedError

    @verb(
        "POST /jobs/{name}/resize",
        role="owner",
        body="Resize",
        said="Set the number of GPUs of a job; null means within the limits of its file.",
        rules={"gpus": {"ge": 1, "le": 100_000}},
    )
    def resize(self, name: str, gpus: int | None) -> ResizeAnswer:
        """Set the number of GPUs of a job; None means within the limits of its file.

        Raises:
            RefusedByDaemon: when there is no such job, it is not yours, its class has no such width, or it
                would start over.
        """
        raise NotImplementedError

    @verb("POST /jobs/{name}/hold", role="owner", body="Hold")
    def hold(self, name: str, is_held: bool) -> HoldAnswer:
        """Make a job wait until it is released, or release it; a running job saves and stops first.

        Raises:
            RefusedByDaemon: when there is no such job, it is not yours, an administrator holds it, or it runs
                and would lose its work.
        """
        raise NotImplementedError

    @verb("POST /jobs/{name}/interrupt", role="owner")
    def interrupt(self, name: str) -> InterruptAnswer:
        """Rehearse a spot interruption of one of a job's nodes.

        Raises:
            RefusedByDaemon: when there is no such job, it is not yours, it shares the node with jobs of
                others, or with status 409 when it is on no node.
        """
        raise NotImplementedError

    @verb("GET /status", at_once=True, is_large=True)
    def status(self) -> StatusAnswer:
        """Return the daemon's status; it answers at once, even during a tick."""
        raise NotImplementedError

    @verb(
        "GET /decisions",
        rules={
            "limit": {"ge": 1, "le": 1000},
            "job": {"max_length": 200},
            "user": {"max_length": 64},
            "node": {"max_length": 200},
        },
    )
    def decisions(
        self,
        *,
        limit: int = 20,
        acting: bool = False,
        job: str = "",
        user: str = "",
        node: str = "",
        kind: DecisionKind = "",
    ) -> DecisionsAnswer:
        """List decisions, newest first; `acting` only those with actions.

        `job`, `user`, `node` and `kind` (of an action or order, or ``held``) leave only decisions and orders
        about these; empty ones leave all.

        Raises:
            RefusedByDaemon: when there is no such kind.
        """
        raise NotImplementedError

    @verb("GET /decisions/{tick}", rules={"tick": {"ge": 0, "le": LARGEST_NUMBER}})
    def decision(self, tick: int) -> dict[str, Any]:
        """Return the record of a decision, which `boa_daemon` can replay.

        Raises:
            RefusedByDaemon: when there is no record of such a tick.
        """
        raise NotImplementedError

    @verb(
        "GET /instances",
        is_large=True,
        rules={"limit": {"ge": 1, "le": 20_000}, "after": {"max_length": 200}},
    )
    def instances(self, *, ended: bool = False, limit: int | None = None, after: str = "") -> InstancesAnswer:
        """List nodes; with `ended` also those that ended within a day.

        Args:
            ended: also those that ended within a day.
            limit: largest number of nodes; all by default.
            after: `next` of the previous page.
        """
        raise NotImplementedError

    @verb("GET /cost", rules={"by": {"form": "cost-by"}, "since": {"ge": 0, "le": 1e11}})
    def cost(self, *, by: By = "job", since: float | None = None) -> CostAnswer:
        """Return costs since an instant, by default since the month (UTC) began."""
        raise NotImplementedError

    @verb("GET /classes")
    def classes(self) -> ClassesAnswer:
        """Return the estimates for each class."""
        raise NotImplementedError

    @verb("GET /past", rules={"days": {"gt": 0.0, "le": 366.0}})
    def past(self, *, days: float = 30.0) -> PastAnswer:
        """Return the jobs of the last days that are over, for `boa whatif --history`."""
        raise NotImplementedError

    @verb("GET /plan")
    def plan(self) -> PlanAnswer:
        """Return what the next tick would do, without doing it.

        Raises:
            RefusedByDaemon: with status 503 before the first tick.
        """
        raise NotImplementedError

    @verb("GET /alerts")
    def alerts(self) -> AlertsAnswer:
        """List alerts, newest first."""
        raise NotImplementedError

    @verb("GET /settings/changes", role="admin")
    def setting_changes(self) -> ChangesAnswer:
        """Return what the settings files would change of the settings in force; for administrators.

        Raises:
            RefusedByDaemon: with status 403 for everybody else.
        """
        raise NotImplementedError

    @verb(
        "POST /settings/apply",
        role="admin",
        body="Consent",
        rules={"code": {"pattern": r"^[0-9a-f]{0,64}$"}},
    )
    def apply_settings(self, code: str = "") -> ChangesAnswer:
        """Read the settings files again and use them; for administrators.

        `code` is that of changes that may loosen limits; empty consents to none.

        Raises:
            RefusedByDaemon: with status 403 for everybody else.
        """
        raise NotImplementedError

    @verb("POST /down", role="admin", body="Down", rules={"is_down": {"default": ...}})
    def down(self, *, is_down: bool = True) -> DownAnswer:
        """Release all nodes, or resume work; for administrators.

        Raises:
            RefusedByDaemon: with status 403 for everybody else.
        """
        raise NotImplementedError

    @verb(
        "POST /slurm/resume",
        role="slurm",
        body="SlurmOrder",
        answers="slurm.resume",
        rules={"nodes": {"min_length": 1, "max_length": 1_000_000}},
    )
    def slurm_resume(self, nodes: str) -> SlurmAnswer:
        """Ask for nodes of Slurm, a host list such as `c[1-3]`, as its ResumeProgram does.

        Raises:
            RefusedByDaemon: with status 403 for everybody but administrators.
        """
        raise NotImplementedError

    @verb(
        "POST /slurm/suspend",
        role="slurm",
        body="SlurmOrder",
        answers="slurm.suspend",
        rules={"nodes": {"min_length": 1, "max_length": 1_000_000}},
    )
    def slurm_suspend(self, nodes: str) -> SlurmAnswer:
        """Give nodes of Slurm back, a host list such as `c[1-3]`, as its SuspendProgram does.

        Raises:
            RefusedByDaemon: with status 403 for everybody but administrators.
        """
        raise NotImplementedError


VERBS: Mapping[str, Verb] = MappingProxyType(
    {name: member.verb for name, member in vars(Verbs).items() if hasattr(member, "verb")}
)
"""Every verb by its name, in the order of the routes."""
