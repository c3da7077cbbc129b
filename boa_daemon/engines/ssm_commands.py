"""SSM Run Command: runs scripts on nodes, reads their results, and prepares nodes."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Protocol

from boa_daemon.engines.backoff import Backoff
from boa_daemon.engines.ssm_scripts import HEALTH, READY, SCRATCH, prepare_script
from boa_daemon.errors import NOT_SENT
from boa_daemon.inputs.message_validation import DROPPED_MESSAGES
from boa_daemon.job.secrets import aws_variables
from boa_daemon.tick.facts.node_lives import instance_of
from boa_daemon.tick.facts.ports import Accepted, Refused, Unknown
from policies.model import NodeId

_LOG = logging.getLogger("boa.engines.ssm")


class SsmClient(Protocol):
    """The part of boto3's SSM client that is used."""

    def send_command(self, **request: Any) -> Mapping[str, Any]:
        """Run a document on instances."""
        ...

    def get_command_invocation(self, **request: Any) -> Mapping[str, Any]:
        """Return the state and the output of a command on one instance."""
        ...


MOST_INSTANCES = 50
"""Limit of SSM for one SendCommand, from the service model of the API."""
MOST_COMMENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt(Refused):
    """SSM may have accepted a command, but its answer was lost; so the script may run."""


def is_certain(error: Exception) -> bool:
    """Return whether a failed call has certainly had no effect: SSM refused it, or it was never sent."""
    said = f"{type(error).__name__}: {error}"
    response = getattr(error, "response", None) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    never_sent = any(word in said for word in ("ParamValidation", "Credential", NOT_SENT))
    return 400 <= status < 500 or never_sent or is_about_the_node(said)


FAULT_SECONDS = 180.0
"""How long a failed request counts as the state of SSM; silent units are asked every 20 s."""


class SsmCommands:
    """Sends scripts and reads their results; returns errors of SSM as values."""

    def __init__(self, ssm: SsmClient, *, region: str = "") -> None:
        self._ssm = ssm
        self._region = region
        self._failed: tuple[float, str] = (float("-inf"), "")

    @property
    def fault(self) -> str:
        """Why SSM did not take or answer the last request, for another reason than its node; else empty.

        Without another request nothing is known after `FAULT_SECONDS`: most units report by themselves.
        """
        at, said = self._failed
        return said if time.monotonic() - at <= FAULT_SECONDS else ""

    def at_home(self, script: str) -> str:
        """Return a script whose AWS calls go to the home region, on a node of any: the bucket is there."""
        words = (f"export {name}={quote(each)}\n" for name, each in aws_variables(self._region).items())
        return f"{''.join(words)}{script}"

    def send_each(self, nodes: Sequence[NodeId], script: str, comment: str) -> str | Refused:
        """Run a script on any number of nodes; return the first refusal, or an empty text.

        SSM refuses a command if one of its instances is gone, so the nodes are then tried one by one.
        """
        refused = None
        for begin in range(0, len(nodes), MOST_INSTANCES):
            batch = nodes[begin : begin + MOST_INSTANCES]
            answer = self.send(batch, script, comment)
            if isinstance(answer, Refused) and len(batch) > 1:
                answers = [self.send([node], script, comment) for node in batch]
                answer = next((each for each in answers if isinstance(each, Refused)), answers[-1])
            if isinstance(answer, Refused):
                refused = refused or answer
        return refused or ""

    def send(self, nodes: Sequence[NodeId], script: str, comment: str) -> str | Refused:
        """Run a script on at most 50 nodes; return the command's id."""
        try:
            answer = self._ssm.send_command(
                InstanceIds=[instance_of(node) for node in nodes],
                DocumentName="AWS-RunShellScript",
                Comment=f"boa: {comment}"[:MOST_COMMENT],
                TimeoutSeconds=60,
                Parameters={"commands": [script]},
            )
        except Exception as error:
            self._note(error)
            if is_certain(error):
                return Refused(reason=f"SSM did not take the command: {error}")
            return InDoubt(reason=f"it is unknown whether SSM took the command: {error}")
        self._failed = (float("-inf"), "")
        try:
            return str(answer["Command"]["CommandId"])
        except (KeyError, TypeError):
            DROPPED_MESSAGES.note("SSM", "an answer without a command")
            return Refused(reason="SSM did not name the command")

    def result(self, command: str, node: NodeId) -> tuple[str, str]:
        """Return (status, output) of a command on a node; `Pending` if SSM does not know the command yet.

        `Undeliverable` means that SSM cannot reach the node. `Unasked` means that SSM could not be asked,
        which says nothing about the node.
        """
        try:
            answer = self._ssm.get_command_invocation(CommandId=command, InstanceId=instance_of(node))
        except Exception as error:
            self._note(error)
            return _status_of(error), str(error)
        self._failed = (float("-inf"), "")
        if not isinstance(answer, Mapping) or not isinstance(answer.get("Status"), str):
            DROPPED_MESSAGES.note("SSM", "an answer without a status")
            return "Unasked", ""
        output = f"{answer.get('StandardOutputContent', '')}{answer.get('StandardErrorContent', '')}"
        return answer["Status"], output

    def _note(self, error: Exception) -> None:
        """Note a failure that is about SSM itself, the rights to it or the way to it."""
        is_own = _status_of(error) == "Unasked" and getattr(error, "code", "") != NOT_SENT
        said = f"no command reaches a node through SSM: {error}" if is_own else ""
        self._failed = (time.monotonic(), said)


def _status_of(error: Exception) -> str:
    """Return the status for a failed question: `Undeliverable` only if SSM says it cannot reach the node."""
    said = f"{type(error).__name__}: {error}"
    if "InvocationDoesNotExist" in said:
        return "Pending"
    return "Undeliverable" if is_about_the_node(said) else "Unasked"


def is_about_the_node(said: str) -> bool:
    """Return whether an error means that SSM does not know or reach a node; other errors are our own."""
    return "InvalidInstanceId" in said or "InvalidInstanceInformationFilterValue" in said


def _why_not_reached(said: str) -> str:
    """Return an error of SSM; if it only says that a node cannot be reached, add the possible causes."""
    if not is_about_the_node(said):
        return said
    return (
        "its agent is not online (it still boots, its image has no agent, it has no instance profile, or its "
        f"subnet has no route out; run `boa doctor`). {said}"
    )


def _disks(output: str) -> str:
    """Return a node's sentence about the disks of its jobs."""
    try:
        return str(json.loads(output.partition(SCRATCH)[2].splitlines()[0])["said"])
    except (ValueError, KeyError, IndexError, TypeError):
        return "the disks of its jobs are not known"


MOST_UNFIT = 3
"""Failed health checks in a row after which a node is refused; a driver may fail while it still loads."""
BUNDLE_SECONDS = 86_400.0
"""How long the bundle is assumed to stay in the bucket; a lifecycle rule removes it after whole days."""


class Preparer:
    """Prepares nodes: brings the bundle, checks their GPUs, and tracks which nodes are ready, and why not.

    A node that SSM does not reach, or whose script fails, is tried again with growing pauses. `bring` uploads
    the bundle to the bucket and returns its address. It is called again each day, and after a script has
    failed, because the bundle may have been removed from the bucket.
    """

    def __init__(
        self, commands: SsmCommands, bring: Callable[[], str], now: Callable[[], float] = time.time
    ) -> None:
        self._commands, self._bring, self._now, self._patience = commands, bring, now, Backoff()
        self._source, self._brought_at = "", 0.0
        self._preparing: dict[NodeId, str] = {}
        self._prepared: set[NodeId] = set()
        self._unfit: dict[NodeId, tuple[int, str]] = {}

    def is_ready(self, node: NodeId) -> bool:
        """Return whether a node has reported that it is ready, without asking it."""
        return node in self._prepared

    def prepare(
        self, node: NodeId, root: str, *, gpus: int = 0, efa: int = 0, unchecked: str = ""
    ) -> Accepted | Refused | Unknown:
        """Return whether a node is ready; prepare it if it is new. A refused node is unfit for work.

        Checks that could not be made are logged; `unchecked` names one that is left out beforehand.
        """
        if node in self._prepared:
            return Accepted()
        looks, faults = self._unfit.get(node, (0, ""))
        if looks >= MOST_UNFIT:
            return Refused(reason=f"{node} is not fit for work: {faults}", kind="bad-request")
        command = self._preparing.get(node)
        if command is None:
            if why := self._patience.why_not_yet(node, now=self._now()):
                return Unknown(reason=why)
            try:
                source = self._bundle()
            except Exception as error:
                return self._later(node, f"what {node} needs could not be put into the bucket: {error}")
            script = prepare_script(root, source, gpus=gpus, efa=efa)
            answer = self._commands.send([node], self._commands.at_home(script), "prepare a node")
            if isinstance(answer, Refused):
                return self._later(node, f"SSM does not reach {node} yet: {_why_not_reached(answer.reason)}")
            self._preparing[node] = answer
            return self._prepares(node)
        status, output = self._commands.result(command, node)
        if status in ("Pending", "InProgress", "Delayed", "Unasked"):
            return self._prepares(node)
        del self._preparing[node]
        if status == "Success" and READY in output:
            return self._judge(node, output, unchecked)
        self._source = ""
        return self._later(node, f"preparing {node} ended as {status}: {output[-200:].strip()}")

    def _bundle(self) -> str:
        now = self._now()
        if not self._source or not 0.0 <= now - self._brought_at < BUNDLE_SECONDS:
            self._source, self._brought_at = self._bring(), now
        return self._source

    def _prepares(self, node: NodeId) -> Unknown:
        """Return that a script runs on the node, or the last failure, which stays until the script ends."""
        _, faults = self._unfit.get(node, (0, ""))
        last = self._patience.last(node) or (f"{node} is checked again: {faults}" if faults else "")
        return Unknown(reason=last or f"{node} is being prepared")

    def _later(self, node: NodeId, why: str) -> Unknown:
        """Record why a node cannot be prepared now, for a retry after a pause; return the reason."""
        self._patience.refused(node, why, now=self._now())
        return Unknown(reason=why)

    def _judge(self, node: NodeId, output: str, unchecked: str) -> Accepted | Refused | Unknown:
        notes: list[str] = []
        try:
            found = json.loads(output.partition(HEALTH)[2].splitlines()[0])
            notes = [_disks(output), *map(str, found.get("notes", ()))]
            faults = "; ".join(map(str, found["faults"]))
        except (ValueError, KeyError, IndexError, TypeError):
            faults = "the result of its health check cannot be read"
        if not faults:
            self._prepared.add(node)
            self._unfit.pop(node, None)
            self._patience.forget(node)
            said = "; ".join([*notes, *([unchecked] if unchecked else ())])
            _LOG.info("%s has passed the health check: %s", node, said, extra={"node": node})
            return Accepted()
        self._patience.forget(node)
        looks = self._unfit.get(node, (0, ""))[0] + 1
        self._unfit[node] = (looks, faults)
        if looks >= MOST_UNFIT:
            return Refused(reason=f"{node} is not fit for work: {faults}", kind="bad-request")
        return Unknown(reason=f"{node} is checked again: {faults}")
