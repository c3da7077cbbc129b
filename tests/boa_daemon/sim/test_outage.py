"""A cloud without stock for some hours, and a budget unspent for some hours."""

from __future__ import annotations

from dataclasses import replace

from load_scenarios import Scenario, settings_of

from boa_daemon.sim.wiring import prepare


def test_no_node_is_launched_during_an_outage_and_all_jobs_finish() -> None:
    """The outage lasts from hour 1 to hour 2."""
    scenario = Scenario(name="outage", outage_hours=((1.0, 2.0),))
    run = prepare(replace(settings_of(scenario, hours=3.0), policy="boa-paced"))
    launched: set[float] = set()

    result = run.finish(
        lambda decision: launched.update(node.launched_at for node in decision.state.nodes.values())
    )

    assert not [at for at in launched if 3600.0 <= at < 7200.0]
    assert [at for at in launched if at >= 7200.0]
    assert result.finished == result.jobs


def test_money_unspent_for_longer_than_the_window_is_forgone() -> None:
    """With a window of one hour and hours without jobs, the accounting period starts again hours later."""
    scenario = Scenario(name="night", load=((0.0, 1.0), (1.0, 0.0), (5.0, 1.0)))
    settings = settings_of(scenario, hours=6.0)
    run = prepare(replace(settings, policy="boa-paced"))
    assert run.policy.pace is not None
    short = replace(run.policy.pace, window_hours=1.0)
    rules = replace(run.controller.rules, pace=short)
    run = replace(run, controller=replace(run.controller, rules=rules))
    run.finish()

    opened = run.controller.ports.store.books_opened_at(0.0) - run.world.started_at
    assert 2.0 * 3600.0 <= opened <= 5.0 * 3600.0
