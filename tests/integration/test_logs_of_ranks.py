"""`boa logs` of each rank, each node and all nodes, with a real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_site import Site, wait_for
from engine_bench import TORCHRUN
from verbs import exit_code

SCRIPT = """
import os, sys
rank = os.environ["RANK"]
for number in range(3):
    print(f"line {number} of {rank}", flush=True)
print(f"complaint of {rank}", file=sys.stderr, flush=True)
"""
JOB = "name: ranks\nclass: default\nrun: {run} print_ranks.py\nmin_gpus: 2\nmax_gpus: 2\n"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A running daemon."""
    found = Site(tmp_path)
    found.up()
    yield found
    if found.process is not None:
        found.process.kill()
        found.process.wait()


@pytest.mark.exhaustive  # Starts a daemon and torchrun; test_torchrun_nodes covers the logs of nodes as well.
def test_boa_logs_shows_one_rank_one_node_or_all_nodes(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks write at the same time; each line is whole, has its rank, and is kept."""
    monkeypatch.chdir(site.folder)

    def boa(*words: str) -> str:
        assert exit_code(monkeypatch, *words, "--socket", str(site.socket)) == 0
        return capsys.readouterr().out

    (site.folder / "print_ranks.py").write_text(SCRIPT)
    (site.folder / "job.yaml").write_text(JOB.format(run=TORCHRUN))
    said = boa("submit", "job.yaml")
    assert "this job runs at one width" in said, "the script neither reports nor saves"
    (job,) = [row["id"] for row in site.get("/jobs")["jobs"]]
    wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "finished", site)

    one = boa("logs", job, "--rank", "1").splitlines()
    assert [line for line in one if line.startswith("line")] == [f"line {number} of 1" for number in range(3)]
    assert "complaint of 1" in one
    assert not [line for line in one if line.endswith("of 0")]
    # Nodes of this cloud have one GPU, so each rank is on its own node.
    assert "[rank 1] line 2 of 1" in boa("logs", job, "--node", "1")
    assert "boa: this job runs at one width" in boa("logs", job)
    everything = boa("logs", job, "--all")
    for rank in (0, 1):
        assert f"node {rank}: [rank {rank}] line 2 of {rank}" in everything
        assert f"node {rank}: [rank {rank}] complaint of {rank}" in everything
