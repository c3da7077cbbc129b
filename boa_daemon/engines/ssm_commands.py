"""SSM Run Command: a script on nodes, what became of it, and the script that prepares a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from boa_daemon.engines.ssm_scripts import READY, prepare_script
from boa_daemon.inputs.messages import REFUSED
from boa_daemon.tick.ports import Accepted, Refused, Unknown
from policies.model import NodeId


class SsmClient(Protocol):
    """What is used of boto3's SSM client."""

    def send_command(self, **request: Any) -> Mapping[str, Any]:
        """Run a document on instances."""
        ...

    def get_command_invocation(self, **request: Any) -> Mapping[str, Any]:
        """Return what became of a command on one instance."""
        ...


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

    def send(self, nodes: Sequence[NodeId], script: str, comment: str) -> str | Refused:
        """Run a script on nodes; return the command's id."""
        if not nodes:
            return ""
        try:
            answer = self._ssm.send_command(
                InstanceIds=list(nodes),
                DocumentName="AWS-RunShellScript",
                Comment=f"boa: {comment}",
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
            REFUSED.note("SSM", "an answer without a command")
            return Refused(reason="SSM did not name the command")

    def result(self, command: str, node: NodeId) -> tuple[str, str]:
        """Return (status, output) of a command on a node; `Pending` where SSM does not know it yet.

        `Undeliverable` is SSM's word that the node cannot be reached, `Unasked` that SSM could not be asked:
        that says nothing about the node.
        """
        try:
            answer = self._ssm.get_command_invocation(CommandId=command, InstanceId=node)
        except Exception as error:
            return _status_of(error), str(error)
        if not isinstance(answer, Mapping) or not isinstance(answer.get("Status"), str):
            REFUSED.note("SSM", "an answer without a status")
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


class Preparer:
    """Brings the bundle to nodes, and knows which have it."""

    def __init__(self, commands: SsmCommands) -> None:
        self._commands = commands
        self._preparing: dict[NodeId, str] = {}
        self._prepared: set[NodeId] = set()

    def prepare(self, node: NodeId, root: str) -> Accepted | Unknown:
        """Return whether a node is ready, and bring the bundle to its root folder if it is new."""
        if node in self._prepared:
            return Accepted()
        command = self._preparing.get(node)
        if command is None:
            answer = self._commands.send([node], prepare_script(root), "prepare a node")
            if isinstance(answer, Refused):
                return Unknown(reason=f"SSM does not reach {node} yet: {answer.reason}")
            self._preparing[node] = answer
            return Unknown(reason=f"{node} is being prepared")
        status, output = self._commands.result(command, node)
        if status == "Success" and READY in output:
            self._prepared.add(node)
            return Accepted()
        if status in ("Pending", "InProgress", "Delayed", "Unasked"):
            return Unknown(reason=f"{node} is being prepared")
        del self._preparing[node]  # It is tried anew at the next look.
        return Unknown(reason=f"preparing {node} ended as {status}: {output[-200:]}")
