"""The dashboard and the alert rules use valid PromQL and only metrics and labels that the daemon exports."""

from __future__ import annotations

import json
from pathlib import Path

import promql_parser
import pytest
import yaml
from page_site import a_day
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.daemon.watch.grafana import dashboard, rules


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Return the label names of every exported metric, by the metric's name."""
    play = a_day(tmp_path_factory.mktemp("day"), hours=1.0, now=1_800_000_000.0)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(play.daemon.metrics.text().decode()):
        names = {family.name, *(f"{family.name}{end}" for end in ("_total",) if family.type == "counter")}
        for name in names:
            found.setdefault(name, set())
        for one in family.samples:
            found.setdefault(one.name, set()).update(one.labels)
    play.close()
    return found


def selectors(node: object) -> list[promql_parser.VectorSelector]:
    """Return every selector in a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        return [node]
    found = []
    for name in ("expr", "lhs", "rhs", "vector_selector", "vs", "param"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, str):
            found += selectors(child)
    for child in getattr(node, "args", None) or []:
        found += selectors(child)
    return found


def expressions() -> list[str]:
    """Return every expression of the dashboard and the rules."""
    shown = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return [*shown, *(rule["expr"] for group in rules()["groups"] for rule in group["rules"])]


@pytest.mark.parametrize("expression", expressions())
def test_an_expression_uses_only_existing_metrics_and_labels(
    expression: str, known: dict[str, set[str]]
) -> None:
    """The PromQL parser accepts the expression, and each metric and label in it is exported."""
    found = selectors(promql_parser.parse(expression))
    assert found, "no selector was found"
    for selector in found:
        assert selector.name in known, selector.name
        labels = {matcher.name for matcher in selector.matchers.matchers}
        assert not known[selector.name] or labels <= known[selector.name]


def test_only_the_listed_metrics_are_on_no_panel(known: dict[str, set[str]]) -> None:
    """Metrics without a panel are a decision: exactly these."""
    text = " ".join(expressions())
    bases = {
        name.removesuffix("_total").removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        for name in known
    }
    unseen = {name for name in bases if name not in text and not name.endswith("_created")}
    assert unseen == {
        "boa_actions",
        "boa_fleet_dollars_per_hour",
        "boa_held",
        "boa_least_budget_dollars_per_hour",
        "boa_market_spend_dollars",
        "boa_nodes",
        "boa_queue_growth_per_hour",
        "boa_refused_messages",
        "boa_team_spend_dollars",
        "boa_ticks",
    }


def test_panels_have_different_places_within_24_columns() -> None:
    """No two panels have the same position, and no panel is wider than the grid."""
    panels = dashboard()["panels"]
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels]
    assert len(set(places)) == len(panels)
    assert all(one["gridPos"]["x"] + one["gridPos"]["w"] <= 24 for one in panels)


def test_the_commands_print_the_dashboard_and_the_rules(tmp_path: Path) -> None:
    """`boa grafana` prints JSON and `boa alerts` prints YAML, without asking a daemon."""
    printed = CliRunner().invoke(app, ["grafana", "--print"])
    assert json.loads(printed.stdout) == dashboard()
    printed = CliRunner().invoke(app, ["alerts", "--prometheus"])
    assert yaml.safe_load(printed.stdout) == rules()
    for rule in rules()["groups"][0]["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
