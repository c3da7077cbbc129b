"""`boa demo`: its default budget, its conclusions and its view."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from boa_daemon.cli.common.live_view import ROWS, clock_text, view
from boa_daemon.cli.plan.demo import LOAD_FACTOR, Rival, conclusions, default_budget, shipped_settings
from boa_daemon.sim.wiring import simulate
from boa_daemon.testing import a_class, a_job, a_node, a_state, some_slots
from policies.model import Budget
from policies.registry import PolicyOptions


def test_the_default_budget_is_a_multiple_of_the_load() -> None:
    """The load is work per hour on single GPUs; the budget is rounded up to whole dollars."""
    problem = shipped_settings().problem
    load = sum(c.arrivals_per_hour * c.size_gpu_hours for c in problem.classes) * problem.price_of("t4")

    assert LOAD_FACTOR * load <= default_budget(problem).amount < LOAD_FACTOR * load + 1.0


@pytest.mark.parametrize(
    ("factor", "says"), [(2.0, "2.00 times as long"), (0.5, "BOA is slower here, by 100%")]
)
def test_the_conclusion_names_the_faster_policy(factor: float, says: str) -> None:
    """The sentence compares the measured mean completion times."""
    settings = replace(shipped_settings("60/h"), policy="equal-width", options=PolicyOptions(gpus_per_job=2))
    boa = simulate(settings)
    rival = Rival(name="static-equal, 9 nodes", result=boa, equal_money_jct_hours=boa.mean_jct_hours * factor)

    assert says in conclusions(settings, boa, [rival])[1]


def test_the_view_shows_nodes_as_blocks_and_jobs_with_progress() -> None:
    """A node has a block per GPU, filled if the GPU is in use; a long list ends in a count."""
    nodes = [a_node("n1"), a_node("n2", phase="requested"), *(a_node(f"m{n}") for n in range(ROWS))]
    jobs = [a_job("train", phase=1), *(a_job(f"w{n}") for n in range(ROWS))]
    state = a_state(*jobs, nodes=nodes, held={"train": some_slots("n1", 0, 1)}, now=7260.0)
    console = Console(file=io.StringIO(), width=160, force_terminal=False)

    classes = {"c": a_class(sizes=[1.0, 1.0])}
    console.print(view(state, classes, started_at=0.0, budget=Budget(amount=10.0), finished=3))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("02:01", "■ ■ □ □", "booting", "2 used", "idle", "train", "2 x gpu", "waits", "and 1 more"):
        assert part in text
    assert "and 2 more" in text


def test_clock_text_is_hours_and_minutes() -> None:
    """More than a day is still shown in hours."""
    assert clock_text(26 * 3600.0 + 5 * 60.0) == "26:05"
