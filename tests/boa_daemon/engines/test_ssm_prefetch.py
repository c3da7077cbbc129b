"""Code and images are copied to a job's next nodes before the job is told to stop."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from engine_bench import Bench, script, until
from engine_worlds import ssm_world

from boa_daemon.engines.layout import Layout
from boa_daemon.engines.ssm_commands import SsmCommands
from boa_daemon.engines.ssm_prefetch import SsmPrefetch, prefetch_script
from boa_daemon.inputs.code_archive import pack
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted, JobSpec


@pytest.mark.exhaustive
def test_code_is_copied_to_the_next_node_while_the_job_runs(tmp_path: Path) -> None:
    """Nothing of the job's command runs on the next node."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print('hello')\n")
    packed = pack(tmp_path / "project")
    with ssm_world(tmp_path / "root") as make:
        engine: Any = make()
        bench = Bench(engine=engine, workdir=tmp_path)
        until(lambda: set(engine.prepare([a_node(name) for name in bench.nodes]).values()) == {Accepted()})
        engine.take_code(packed.digest, packed.archive)
        wait = script("import time\nprint('ready', flush=True)\ntime.sleep(100)")
        bench.admit(wait, code=packed.digest, workdir=".")
        bench.start(1)
        bench.wait(lambda report: report.phase == "running")
        there = tmp_path / "root" / "nodes" / "n2" / "boa" / "jobs"
        order = bench.order(2, nodes=2, generation=2)
        assert not engine.ahead(order)
        until(lambda: engine.ahead(order))
        assert (Layout(root=there).work(bench.job) / "train.py").exists()
        assert not list(there.glob("*/g*"))
        assert bench.report().phase == "running"
        sent = [comment for comment, _ in engine.fake.sent if "bring" in comment]
        assert sent == ["boa: bring what a job needs"]
        assert engine.ahead(bench.order(1, generation=2))
        engine.kill(bench.job, 1)
        bench.wait_end()


class Ssm:
    """Fake SSM with a settable command status."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.status = "InProgress"
        self.refuses = False

    def send_command(self, **request: Any) -> Mapping[str, Any]:
        if self.refuses:
            raise RuntimeError("InvalidInstanceId")
        self.sent += request["InstanceIds"]
        return {"Command": {"CommandId": f"c{len(self.sent)}"}}

    def get_command_invocation(self, **_request: Any) -> Mapping[str, Any]:
        return {"Status": self.status, "StandardOutputContent": ""}


@pytest.mark.parametrize("end", ["Success", "Failed", "TimedOut"])
def test_a_move_waits_only_while_a_node_is_being_prepared(end: str) -> None:
    """Each node gets one command per generation; its end or its refusal lets the move go on."""
    ssm = Ssm()
    bringing = SsmPrefetch(SsmCommands(ssm))
    assert not bringing.is_done("a", 2, {"n1": "x"})
    assert not bringing.is_done("a", 2, {"n1": "x", "n2": "x"})
    ssm.status = end
    assert bringing.is_done("a", 2, {"n1": "x", "n2": "x"})
    assert ssm.sent == ["n1", "n2"]
    assert not bringing.is_done("a", 3, {"n1": "x"})
    ssm.refuses = True
    assert bringing.is_done("b", 1, {"n3": "x"})
    bringing.forget("a")
    assert bringing.is_done("a", 3, {"n1": "x"})


def test_a_jobs_code_and_image_are_prefetched() -> None:
    """The script is empty for a job with neither."""
    layout = Layout(root=Path("/var/lib/boa/jobs"))

    def brought(**changes: Any) -> str:
        spec = JobSpec(job="a", name="a", class_name="c", run="true", **changes)
        return prefetch_script(spec, layout, "/var/lib/boa", code_at="s3://b/code.tar.gz")

    assert brought() == ""
    assert "boa_daemon.job.container 'a b'" in brought(image="a b")
    both = brought(image="pytorch", code="d" * 64)
    assert both.index("boa_daemon.job.code s3://b/code.tar.gz") < both.index(
        "boa_daemon.job.container pytorch"
    )
