"""Market "planned": the plan chooses spot or on-demand for each job and learns interruption rates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aws_rigs import AwsRig, a_rig

from boa_daemon.daemon.planner.planned_markets import answer_as_planned, with_spot_machines
from boa_daemon.daemon.service.backtest import past_simulation
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.tick.facts.ports import Launched, Refused
from policies.model import InstanceType

TYPE, ZONE = "g5.xlarge", "us-east-1a"
SETTINGS: dict[str, dict[str, Any]] = {
    "budget": {"usd_per_hour": 0.8, "usd_per_day_cap": 200.0, "max_instances": 4},
    "cloud": {"provider": "aws", "market": "planned", "instance_types": [TYPE]},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


class Site:
    """A daemon on the fake AWS, with the clock of the rig."""

    def __init__(self, folder: Path, rig: AwsRig, settings: Mapping[str, Any]) -> None:
        self.folder, self.rig, self.settings = folder, rig, settings
        self.play = DaemonInAFolder(folder, rig.clock, settings, rented_from=rig.cloud)

    def restart(self) -> None:
        self.play.close()
        clock, cloud = self.rig.clock, self.rig.another()
        self.play = DaemonInAFolder(self.folder, clock, self.settings, rented_from=cloud)

    def until(self, is_so: Callable[[], bool], most: int = 120) -> None:
        for _ in range(most):
            self.play.daemon.tick()
            assert not self.play.daemon.standing.fault
            self.rig.pass_time(60.0)
            if is_so():
                return
        pytest.fail(f"never came: {self.play.daemon.standing.decision}")

    def submit(self, name: str, **changes: object) -> str:
        (job,) = self.play.service.submit([job_content(name, **changes)], user="ann")["jobs"]
        return str(job)

    def markets(self, job: str) -> set[str]:
        """Return the markets of the nodes of a job."""
        lives = {life.id: life.market for life in self.rig.fake.history()}
        return {lives[node] for node in self.play.service.job(job)["nodes"]}

    def types(self, job: str) -> list[str]:
        """Return the instance types of the nodes of a job, sorted."""
        lives = {life.id: life.instance_type for life in self.rig.fake.history()}
        return sorted(lives[node] for node in self.play.service.job(job)["nodes"])


@contextmanager
def a_site(
    folder: Path,
    *,
    market: str = "planned",
    types: tuple[str, ...] = (TYPE,),
    usd_per_hour: float = 0.8,
    **terms: Any,
) -> Iterator[Site]:
    known = Terms(**({"boot_seconds": 60.0, "shutdown_seconds": 30.0, "spot_fraction": 0.4} | terms))
    settings = SETTINGS | {
        "budget": SETTINGS["budget"] | {"usd_per_hour": usd_per_hour},
        "cloud": {"provider": "aws", "market": market, "instance_types": list(types)},
    }
    with a_rig("process", known, market=market, instance_types=types, zones=(ZONE,)) as rig:
        site = Site(folder, rig, settings)
        yield site
        site.play.close()


def test_elastic_jobs_run_on_spot_and_rigid_jobs_on_demand(tmp_path: Path) -> None:
    with a_site(tmp_path) as site:
        saves, keeps_nothing = site.submit("saves", hours=8.0), site.submit("rigid", hours=8.0, elastic=False)
        site.until(lambda: bool(site.markets(saves) and site.markets(keeps_nothing)))

        assert (site.markets(saves), site.markets(keeps_nothing)) == ({"spot"}, {"on-demand"})
        assert "Plans count on a spot g5.xlarge at 40%" in site.play.service.explain(saves)["text"]
        # Caps count a spot node at its on-demand price; the ledger has the real price.
        rules = site.play.daemon.planner.rules()
        assert rules.instance_types["a10g@spot"].usd_per_hour == rules.instance_types["a10g"].usd_per_hour
        prices = {row["market"]: row["usd_per_hour"] for row in site.play.service.instances()["instances"]}
        assert prices["spot"] < 0.5 * prices["on-demand"]


def test_a_job_without_spot_capacity_runs_on_demand_and_returns_to_spot(tmp_path: Path) -> None:
    with a_site(tmp_path, stock={(TYPE, ZONE, "spot"): 0}) as site:
        job = site.submit("saves", hours=12.0)
        began = site.rig.clock.now()
        site.until(lambda: bool(site.play.service.job(job)["nodes"]))
        assert site.markets(job) == {"on-demand"}
        assert site.rig.clock.now() - began < 300.0
        refused = f"the last launch of {TYPE}@spot/{ZONE}/spot was refused"
        assert any(note.startswith(refused) for note in site.play.service.status()["notes"])
        site.rig.fake.terms.stock.clear()
        site.until(lambda: site.markets(job) == {"spot"})


def test_interruption_rates_are_learned_and_survive_a_restart(tmp_path: Path) -> None:
    with a_site(tmp_path) as site:
        job = site.submit("saves", hours=12.0)
        site.until(lambda: site.markets(job) == {"spot"})
        believed = site.play.daemon.spot.terms(TYPE).per_node_hour
        for _ in range(3):
            [node] = site.play.service.job(job)["nodes"]
            site.rig.fake.end(node, "Server.SpotInstanceTermination")
            site.until(lambda: node not in (held := site.play.service.job(job)["nodes"]) and bool(held))  # noqa: B023
        found = site.play.daemon.spot.terms(TYPE)
        site.restart()
        site.until(lambda: bool(site.play.service.job(job)["nodes"]))

        assert found.per_node_hour > 1.5 * believed
        assert site.play.daemon.spot.terms(TYPE).per_node_hour == pytest.approx(found.per_node_hour, rel=0.3)
        assert site.markets(job) <= {"spot", "on-demand"}


def test_the_market_setting_can_change_while_a_job_runs_on_spot(tmp_path: Path) -> None:
    """The job finishes on the node that it already has."""
    with a_site(tmp_path) as site:
        job = site.submit("saves", hours=1.0)
        site.until(lambda: site.markets(job) == {"spot"})
        [node] = site.play.service.job(job)["nodes"]
        site.settings = site.settings | {"cloud": site.settings["cloud"] | {"market": "spot"}}
        site.restart()
        site.until(lambda: site.play.service.job(job)["status"] == "finished")

        assert [life.id for life in site.rig.fake.history()] == [node]


def test_a_job_with_a_tight_deadline_runs_on_demand(tmp_path: Path) -> None:
    with a_site(tmp_path) as site:
        tight = site.submit("tight", hours=6.0, deadline_hours=6.5)
        loose = site.submit("loose", hours=2.0, deadline_hours=40.0)
        site.until(lambda: bool(site.markets(tight) and site.markets(loose)))

        assert (site.markets(tight), site.markets(loose)) == ({"on-demand"}, {"spot"})


def test_a_replayed_history_has_both_markets(tmp_path: Path) -> None:
    with a_site(tmp_path) as site:
        job = site.submit("saves", hours=0.25)
        site.until(lambda: site.play.service.job(job)["status"] == "finished")
        settings = past_simulation(site.play.service.past(days=1.0))

        assert settings.instance_types["a10g@spot"].usd_per_hour == pytest.approx(
            0.4 * settings.instance_types["a10g"].usd_per_hour, rel=0.1
        )
        assert settings.world.spot is not None
        assert settings.world.on_demand


@pytest.mark.parametrize("gpus", [1, 2])
def test_a_job_without_capacity_gets_the_next_best_instance_type(tmp_path: Path, gpus: int) -> None:
    """When the cheaper type lacks nodes, the dearer one is used, until the cheaper has capacity again."""
    dearer = "g5.2xlarge"
    with a_site(
        tmp_path,
        market="on-demand",
        types=(TYPE, dearer),
        usd_per_hour=1.5 * gpus,  # With money to spare, a restart costs more than the cheaper type saves.
        stock={(TYPE, ZONE, "on-demand"): gpus - 1},
    ) as site:
        job, began = site.submit("wide", hours=20.0, min_gpus=gpus, max_gpus=gpus), site.rig.clock.now()
        site.until(lambda: bool(site.types(job)))
        waited = site.rig.clock.now() - began
        assert site.types(job) == [dearer] * gpus
        assert waited < 300.0
        site.rig.fake.terms.stock.clear()
        site.until(lambda: site.types(job) == [TYPE] * gpus)


def test_an_instance_type_beyond_the_quota_is_not_waited_for(tmp_path: Path) -> None:
    """With a quota of 4 vCPUs, the job runs on the smaller instance type."""
    with a_site(
        tmp_path,
        market="on-demand",
        types=("g5.2xlarge", TYPE),
        usd_per_hour=3.0,
        vcpu_quotas={"L-DB2E81BA": 4},
    ) as site:
        job = site.submit("any", hours=2.0)
        site.until(lambda: bool(site.types(job)))
        assert site.types(job) == [TYPE]


def test_refusals_are_translated_to_the_planned_market() -> None:
    machine = InstanceType(name="box", gpu_type="t4", gpus=1, usd_per_hour=1.0)
    names = [one.name for one in with_spot_machines({"t4": machine}).values()]

    def scopes(*asked: str) -> tuple[str, ...]:
        answer = answer_as_planned(Refused(reason="no", scopes=asked), names)
        assert isinstance(answer, Refused)
        return answer.scopes

    assert scopes("box/*/spot") == ("box@spot/*/spot",)
    assert scopes("box/*/on-demand") == ("box/*/on-demand",)
    assert scopes("box/a", "*/a", "other") == ("box/a", "box@spot/a", "*/a", "other")
    short = answer_as_planned(Launched(nodes=(), short=Refused(reason="", scopes=("box/a/spot",))), names)
    assert isinstance(short, Launched)
    assert short.short is not None
    assert short.short.scopes == ("box@spot/a/spot",)
