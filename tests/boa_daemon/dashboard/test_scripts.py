"""Functions of the page's scripts, run in a browser and compared with Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browsers import a_browser

from boa_daemon.dashboard.assets import SCRIPTS, words
from boa_daemon.dashboard.frontier import frontier_document
from boa_daemon.inputs.problem_file import load_problem
from boa_daemon.planning.curve import Curve
from policies.model import Problem
from policies.optimum.boa import solve

pytestmark = pytest.mark.browser
ROOT = Path(__file__).resolve().parents[3]
Evaluate = Callable[..., Any]


@pytest.fixture(scope="module")
def evaluate() -> Iterator[Evaluate]:
    """Yield a function that evaluates an expression with the functions of all scripts in scope."""
    folder = ROOT / "boa_daemon/data/page"
    # Without the last script, which starts to draw.
    text = "\n".join([words(), *((folder / f"{name}.js").read_text() for name in SCRIPTS[:-1])])
    with a_browser() as browser:
        page = browser.new_page()

        def found(expression: str, given: Any = None) -> Any:
            return page.evaluate(f'(given) => {{ "use strict"; {text}\nreturn {expression}; }}', given)

        yield found


@pytest.fixture(scope="module")
def problem() -> Problem:
    return load_problem(ROOT / "examples/two-gpu-types.yaml").problem


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("number(1234.5)", "1,235"), ("number(null)", "–"), ("number(0.5, 2)", "0.50"),
        ("usd(999.994)", "$999.99"), ("usd(1234.6)", "$1,235"), ("usd(undefined)", "–"),
        ("amount(12.34, 'gpus')", "12.3 GPUs"), ("amount(12.34, 'usd_per_hour')", "$12.34/h"),
        ("counted(1, 'node')", "1 node"), ("counted(2000, 'node')", "2,000 nodes"),
        ("span(0)", "0 s"), ("span(98)", "98 s"), ("span(120)", "2 min"), ("span(5940)", "1.7 h"),
        ("span(172800)", "2 days"), ("span(null)", "–"), ("short(25000)", "25k"), ("short(2.5)", "2.5"),
        ("ticksOf(0, 10, 5)", [0, 2, 4, 6, 8, 10]), ("ticksOf(-1, 1, 4)", [-1, -0.5, 0, 0.5, 1]),
        ("ticksOf(3, 3, 4)", [3]), ("path([[0, 1], [2.25, 3]])", "M0.0 1.0L2.3 3.0"),
        ("hoursAt([[1, 8], [3, 4], [3, 2]], 0)", 8), ("hoursAt([[1, 8], [3, 4]], 2)", 6),
        ("hoursAt([[1, 8], [3, 4]], 99)", 4),
        ("monthOf(1794571200)", [1793491200, 1796083200]), ("monthOf(1798761599)", [1796083200, 1798761600]),
        ("el('p', {id: 'a', hidden: false}, '<b>', null).outerHTML", '<p id="a">&lt;b&gt;</p>'),
    ],
)  # fmt: skip
def test_a_script_function_returns_its_value(evaluate: Evaluate, expression: str, value: Any) -> None:
    """Numbers, money and times are formatted, axes have ticks, and text does not become markup."""
    assert evaluate(expression) == value


def test_the_curve_equals_that_of_the_planner(evaluate: Evaluate, problem: Problem) -> None:
    """Points between the vertices are compared too."""
    curve = Curve.of(problem, "integer-mixed")
    points = evaluate("curvePoints(given)", frontier_document(problem))
    for spend, hours in points[:: max(1, len(points) // 20)]:
        assert hours == pytest.approx(curve.solution_at(spend).weighted_mean_jct_hours, rel=1e-6)


@pytest.mark.parametrize(
    ("price", "load", "minutes"), [(1.0, 1.0, 0), (1.6, 1.0, 0), (1.0, 0.5, 0), (0.7, 2.0, 10)]
)
def test_the_sliders_give_the_optimum_of_the_changed_problem(
    evaluate: Evaluate, problem: Problem, price: float, load: float, minutes: int
) -> None:
    """The sliders change prices, load and start times."""
    moved = replace(
        problem,
        gpu_types=tuple(
            replace(one, usd_per_gpu_hour=price * one.usd_per_gpu_hour) for one in problem.gpu_types
        ),
        classes=tuple(
            replace(
                one,
                arrivals_per_hour=load * one.arrivals_per_hour,
                startup_hours=one.startup_hours + minutes / 60.0,
            )
            for one in problem.classes
        ),
    )
    settings = {"price": price, "load": load, "minutes": minutes}
    document = frontier_document(problem)
    least = solve(moved, 1e9).cheapest_feasible_spend
    for budget in (1.001 * least, 1.2 * least, 2.0 * least):
        found = evaluate(
            "solve(given.document, given.budget, given.settings)",
            {"document": document, "budget": budget, "settings": settings},
        )
        exact = solve(moved, budget)
        assert found["isFeasible"]
        assert found["least"] == pytest.approx(least, rel=1e-6)
        assert found["hours"] == pytest.approx(exact.weighted_mean_jct_hours, rel=1e-6)
        assert sum(
            load * one["arrivals_per_hour"] * one["spend"] for one in found["classes"]
        ) == pytest.approx(exact.mean_spend, rel=1e-6)
    too_little = {"document": document, "budget": 0.9 * least, "settings": settings}
    assert not evaluate("solve(given.document, given.budget, given.settings).isFeasible", too_little)
