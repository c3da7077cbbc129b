"""SSM Run Command: a script on nodes, what became of it, and the script that prepares a node."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from boa_daemon.engines.backoff import Backoff
from boa_daemon.engines.ssm_scripts import HEALTH, READY, SCRATCH, prepare_script
from boa_daemon.inputs.message_validation import DROPPED_MESSAGES
from boa_daemon.tick.node_lives import instance_of
from boa_daemon.tick.ports import Accepted, Refused, Unknown
from policies.model import NodeId

_LOG = logging.getLogger("boa.engines.ssm")


class SsmClient(Protocol):
    """What is used of boto3's SSM client."""

    def send_command(self, **request: Any) -> Mapping[str, Any]:
        """Run a document on instances."""
        ...

    def get_command_invocation(self, **request: Any) -> Mapping[str, Any]:
        """Return what became of a command on one instance."""
        ...


MOST_INSTANCES = 50
"""SSM takes so many in one SendCommand; the service model of the API says it."""
MOST_COMMENT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InDoubt(Refused):
    """SSM may have taken a command: its answer was lost, so the script may run."""


def is_certain(error: Exception) -> bool:
    """Whether a failed call is SSM's own no, or never left this machine; else it may have been obeyed."""
    said = f"{type(error).__name__}: {error}"
    response = getattr(error, "response", None) or {}
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    never_sent = "ParamValidation" in said or "Credential" in said
    return 400 <= status < 500 or never_sent or is_about_the_node(said)


class SsmCommands:
    """Sends scripts, and reads their answers; an error of SSM is a value."""

    def __init__(self, ssm: SsmClient) -> None:
        self._ssm = ssm

    def send_each(self, nodes: Sequence[NodeId], script: str, comment: str) -> str | Refused:
        """Run a script on any number of nodes; return the first refusal, or nothing.

        SSM refuses a whole command for one instance that is gone, so those of a refused one are asked singly.
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
        """Run a script on at most fifty nodes; return the command's id."""
        try:
            answer = self._ssm.send_command(
                InstanceIds=[instance_of(node) for node in nodes],
                DocumentName="AWS-RunShellScript",
                Comment=f"boa: {comment}"[:MOST_COMMENT],
                TimeoutSeconds=60,
                Parameters={"commands": [script]},
            )
        except Exception as error:
            if is_certain(error):
                return Refused(reason=f"SSM did not take the command: {error}")
            return InDoubt(reason=f"nobody knows whether SSM took the command: {error}")
        try:
            return str(answer["Command"]["CommandId"])
        except (KeyError, TypeError):
            DROPPED_MESSAGES.note("SSM", "an answer without a command")
            return Refused(reason="SSM did not name the command")

    def result(self, command: str, node: NodeId) -> tuple[str, str]:
        """Return (status, output) of a command on a node; `Pending` where SSM does not know it yet.

        `Undeliverable` is SSM's word that the node cannot be reached, `Unasked` that SSM could not be asked:
        that says nothing about the node.
        """
        try:
            answer = self._ssm.get_command_invocation(CommandId=command, InstanceId=instance_of(node))
        except Exception as error:
            return _status_of(error), str(error)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("Status"), str):
            DROPPED_MESSAGES.note("SSM", "an answer without a status")
            return "Unasked", ""
        output = f"{answer.get('StandardOutputContent', '')}{answer.get('StandardErrorContent', '')}"
        return answer["Status"], output


def _status_of(error: Exception) -> str:
    """Return what a failed question says: only SSM's own word that it does not reach the node is about it."""
    said = f"{type(error).__name__}: {error}"
    if "InvocationDoesNotExist" in said:
        return "Pending"
    return "Undeliverable" if is_about_the_node(said) else "Unasked"


def is_about_the_node(said: str) -> bool:
    """Whether a failure is SSM's word that it does not know or reach a node, and no failure of our own."""
    return "InvalidInstanceId" in said or "InvalidInstanceInformationFilterValue" in said


def _why_not_reached(said: str) -> str:
    """Return what keeps SSM from a node, with what it may be where SSM says no more than that it is so."""
    if not is_about_the_node(said):
        return said
    return (
        "its agent is not online (it still boots, or its image has no agent, it has no instance profile, or "
        f"its subnet no way out: `boa doctor` looks). {said}"
    )


def _disks(output: str) -> str:
    """Return what a node said of the disks that its jobs are on."""
    try:
        return str(json.loads(output.partition(SCRATCH)[2].splitlines()[0])["said"])
    except (ValueError, KeyError, IndexError, TypeError):
        return "where its jobs are was not said"


MOST_UNFIT = 3
"""Looks in a row that find a node unfit, after which it is of no use: a driver that still loads passes."""
BUNDLE_SECONDS = 86_400.0
"""So long the bundle is taken to be in the bucket: a lifecycle rule counts whole days."""


class Preparer:
    """Brings the bundle to nodes and has their GPUs looked at; knows which are ready, and why not.

    A node that SSM does not reach, or whose script fails, is asked again ever more seldom. `bring` puts the
    bundle where nodes read it and returns its address: anew each day, and after a script has failed, since
    what lies in a bucket may be removed there.
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
        """Whether a node has said that it is ready; nobody is asked."""
        return node in self._prepared

    def prepare(
        self, node: NodeId, root: str, *, gpus: int = 0, efa: int = 0, unchecked: str = ""
    ) -> Accepted | Refused | Unknown:
        """Return whether a node is ready, and have it made ready if it is new; refused: it is of no use.

        What could not be looked at, by the node or, as `unchecked`, beforehand, is said in the log.
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
            answer = self._commands.send([node], script, "prepare a node")
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
        """Return where nodes find the bundle, and have it there."""
        now = self._now()
        if not self._source or not 0.0 <= now - self._brought_at < BUNDLE_SECONDS:
            self._source, self._brought_at = self._bring(), now
        return self._source

    def _prepares(self, node: NodeId) -> Unknown:
        """Return that a script runs there; what came of the last one stays said until this one has ended."""
        _, faults = self._unfit.get(node, (0, ""))
        last = self._patience.last(node) or (f"{node} is looked at again: {faults}" if faults else "")
        return Unknown(reason=last or f"{node} is being prepared")

    def _later(self, node: NodeId, why: str) -> Unknown:
        """Return why a node cannot be prepared now; it is tried anew after a while."""
        self._patience.refused(node, why, now=self._now())
        return Unknown(reason=why)

    def _judge(self, node: NodeId, output: str, unchecked: str) -> Accepted | Refused | Unknown:
        """Return what follows from the look at a node's GPUs."""
        notes: list[str] = []
        try:
            found = json.loads(output.partition(HEALTH)[2].splitlines()[0])
            notes = [_disks(output), *map(str, found.get("notes", ()))]
            faults = "; ".join(map(str, found["faults"]))
        except (ValueError, KeyError, IndexError, TypeError):
            faults = "the look at its GPUs said nothing that can be read"
        if not faults:
            self._prepared.add(node)
            self._unfit.pop(node, None)
            self._patience.forget(node)
            said = "; ".join([*notes, *([unchecked] if unchecked else ())])
            _LOG.info("%s is fit for work, as far as was looked: %s", node, said, extra={"node": node})
            return Accepted()
        self._patience.forget(node)
        looks = self._unfit.get(node, (0, ""))[0] + 1
        self._unfit[node] = (looks, faults)
        if looks >= MOST_UNFIT:
            return Refused(reason=f"{node} is not fit for work: {faults}", kind="bad-request")
        return Unknown(reason=f"{node} is looked at again: {faults}")
