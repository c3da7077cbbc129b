"""Fake nodes: the engine's preparation script really runs, on the disks of the instance type."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from boa_daemon.engines.ssm_scripts import HEALTH, READY, SCRATCH, bundle, prepare_script
from boa_daemon.inputs.catalog import Catalog
from boa_daemon.testing.fake_answers import Answer, Call
from boa_daemon.testing.fake_nodes import FakeNodes
from boa_daemon.testing.fake_terms import Lifetime


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Serve the bundle as an object of a bucket; yield the endpoint and the object's address."""
    folder = tmp_path / "s3"
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "bundle").write_bytes(bundle()[1])
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", "s3://b/bundle"
        server.shutdown()


@pytest.mark.parametrize(
    ("instance_type", "said"),
    [
        ("g5.48xlarge", "jobs are on 2 disks of the instance, 1800 GB, mounted at "),
        ("p3.2xlarge", "jobs are on the root volume: the instance has no disks of its own"),
    ],
)
def test_the_preparation_script_uses_the_disks_of_the_instance_type(
    tmp_path: Path, bucket: tuple[str, str], instance_type: str, said: str
) -> None:
    """The script of the engine runs twice, and the second run keeps what the first one made."""
    endpoint, source = bucket
    nodes = FakeNodes(tmp_path / "nodes", environment={"AWS_ENDPOINT_URL": endpoint})
    lives = {
        "i-1": Lifetime("i-1", "us-east-1", instance_type, "a", "on-demand", {}, 0.0, profile="boa-node")
    }
    catalog = Catalog.load()

    def ask(operation: str, **document: Any) -> dict[str, Any]:
        call = Call("ssm", operation, "us-east-1", {}, document)
        answer = nodes.answer(call, lives, lambda name: catalog.entry(name).gpus, 1000.0, 0.0)
        assert isinstance(answer, Answer)
        return dict(json.loads(answer.body))

    def prepared() -> str:
        gpus = catalog.entry(instance_type).gpus
        sent = ask(
            "SendCommand", InstanceIds=["i-1"], DocumentName="AWS-RunShellScript", Comment="prepare",
            Parameters={"commands": [prepare_script("/var/lib/boa", source, gpus=gpus)]},
        )  # fmt: skip
        until = time.monotonic() + 60.0
        while True:
            found = ask("GetCommandInvocation", InstanceId="i-1", CommandId=sent["Command"]["CommandId"])
            if found["Status"] != "InProgress" or time.monotonic() > until:
                return str(found["StandardOutputContent"])
            time.sleep(0.05)

    try:
        first = prepared()
        (tmp_path / "nodes" / "i-1" / "boa" / "jobs" / "a").mkdir()
        second = prepared()
    finally:
        nodes.close()

    for output in (first, second):
        assert HEALTH in output
        assert READY in output
    assert json.loads(first.partition(SCRATCH)[2].splitlines()[0])["said"].startswith(said)
    is_on_store = (tmp_path / "nodes" / "i-1" / "instance-store" / "boa-jobs" / "a").is_dir()
    assert is_on_store == bool(catalog.entry(instance_type).instance_store_disks)
