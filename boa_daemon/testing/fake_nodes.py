"""Working fake nodes: each instance of the fake cloud has an SSM agent that runs commands here, in a folder.

The agent of a running instance comes online after a moment, if the instance has a profile and its network
reaches SSM: an instance with several interfaces gets no public address, so it needs a subnet that is not a
default one. Commands are the scripts of the `ssm` engine with two replacements: the nodes' folder becomes one
in the sandbox, and private addresses become this machine's own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing.fake_answers import Answer, Call, iso, json_answer, json_error
from boa_daemon.testing.fake_sessions import FakeSessions
from boa_daemon.testing.fake_ssm import FakeSsm, NoSuchInstance
from boa_daemon.testing.fake_terms import Lifetime

NODE_FOLDER = "/var/lib/boa"
_ADDRESS = re.compile(r"\b(?:10|172)\.\d{1,3}\.\d{1,3}\.\d{1,3}\b")
MOST_INSTANCES = 50


class FakeNodes:
    """The SSM agents of all nodes; `environment` is set on every node: AWS's endpoint and credentials."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str], agent_seconds: float = 2.0) -> None:
        self.ssm = FakeSsm(
            folder, environment=environment, rewrite=self._rewrite, gpus_of=self._gpus_of,
            disks_of=self._disks_of,
        )  # fmt: skip
        self.sessions = FakeSessions(self.ssm.environment_of, self._rewrite)
        self.agent_seconds = agent_seconds
        self._folder = folder
        self._gpus: dict[str, int] = {}
        self._types: dict[str, str] = {}
        self._catalog = Catalog.load()

    def close(self) -> None:
        """End all processes of all nodes."""
        self.sessions.close()
        self.ssm.close()

    def end(self, node: str) -> None:
        """Remove a node and end all its processes."""
        if node not in self.ssm.gone:
            self.ssm.end(node)

    def answer(
        self,
        call: Call,
        lives: Mapping[str, Lifetime],
        gpus_of: Callable[[str], int],
        now: float,
        boot: float,
    ) -> Answer | None:
        """Answer a call to SSM; return None for a call that is not about nodes."""
        online = {
            name: life
            for name, life in lives.items()
            if life.is_running
            and life.region == call.region
            and now - life.launched_at >= boot + self.agent_seconds
            and life.profile
            and life.is_reachable
        }
        self._gpus.update({name: gpus_of(life.instance_type) for name, life in online.items()})
        self._types.update({name: life.instance_type for name, life in online.items()})
        document = call.document
        if call.operation == "DescribeInstanceInformation":
            rows = [
                {"InstanceId": name, "PingStatus": "Online", "LastPingDateTime": now, "PlatformType": "Linux"}
                for name in online
            ]
            return json_answer({"InstanceInformationList": rows})
        if call.operation == "SendCommand":
            return self._send(document, online)
        if call.operation == "GetCommandInvocation":
            return self._result(document, lives)
        if call.operation == "StartSession":
            if document["Target"] not in online:
                return json_error("TargetNotConnected", f"{document['Target']} is not connected.")
            opened, refused = self.sessions.start(document)
            code, _, said = refused.partition(": ")
            return json_error(code, said) if refused else json_answer(opened)
        if call.operation == "TerminateSession":
            self.sessions.end(document["SessionId"])
            return json_answer({"SessionId": document["SessionId"]})
        return None

    def _send(self, document: Mapping[str, Any], online: Mapping[str, Lifetime]) -> Answer:
        """Run a command on all of its instances, or on none if one is not online."""
        wanted = document["InstanceIds"]
        if len(wanted) > MOST_INSTANCES:
            said = f"1 validation error detected: 'instanceIds' must have at most {MOST_INSTANCES} members"
            return json_error("ValidationException", said)
        missing = [name for name in wanted if name not in online]
        if missing:
            return json_error("InvalidInstanceId", f"Instances {missing} not in a valid state for account")
        command = self.ssm.send_command(**document)["Command"]["CommandId"]
        now = iso(0.0)
        return json_answer({"Command": {"CommandId": command, "Status": "Pending", "Comment": now}})

    def _result(self, document: Mapping[str, Any], lives: Mapping[str, Lifetime]) -> Answer:
        """Return the result of a command on an instance."""
        node, command = document["InstanceId"], document["CommandId"]
        life = lives.get(node)
        if life is None:
            return json_error("InvocationDoesNotExist", f"no command {command} on {node}")
        if life.ended_at is not None:
            return json_answer({"CommandId": command, "InstanceId": node, "Status": "Undeliverable"})
        try:
            found = self.ssm.get_command_invocation(**document)
        except (NoSuchInstance, KeyError):
            return json_error("InvocationDoesNotExist", f"no command {command} on {node}")
        return json_answer({"CommandId": command, "InstanceId": node, **found})

    def _rewrite(self, node: str, script: str) -> str:
        """Return a script that can run here: in the sandbox, with this machine as every node."""
        return _ADDRESS.sub("127.0.0.1", script.replace(NODE_FOLDER, str(self._folder / node / "boa")))

    def _gpus_of(self, node: str) -> int:
        """Return how many GPUs `nvidia-smi` shows on a node."""
        return self._gpus.get(node, 0)

    def _disks_of(self, node: str) -> int:
        """Return how many disks of its own a node's type has."""
        entry = self._catalog.entries.get(self._types.get(node, ""))
        return 0 if entry is None else entry.instance_store_disks
