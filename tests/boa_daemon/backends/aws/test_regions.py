"""Several regions as one cloud: one plan and one ledger; a region that is cut off stops no other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_rigs import SESSION, START, a_launch, ends
from pydantic import ValidationError

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.cloud import AwsCloud
from boa_daemon.backends.aws.prices.price_steps import ListPrice
from boa_daemon.backends.aws.prices.region_prices import catalog_of
from boa_daemon.backends.aws.regions import RegionalCloud
from boa_daemon.backends.settings import AwsSettings
from boa_daemon.daemon.settings.setting_layers import load_aws_settings, load_settings
from boa_daemon.errors import InputError
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content
from boa_daemon.testing.fake_cloud import FakeCloud
from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import mocked
from boa_daemon.tick.facts.ports import Launched, Refused, Unknown

HOME, FAR, TYPE = "us-east-1", "eu-west-1", "g5.xlarge"
THERE = f"{TYPE}~{FAR}"
SIDES = {
    "gp3_usd_per_gib_month": 0.088, "gp3_usd_per_mb_month": 0.044, "snapshot_usd_per_gb_month": 0.05,
    "address_usd_per_hour": 0.005, "nat_usd_per_hour": 0.048, "nat_usd_per_gb": 0.048,
    "s3_usd_per_gb_month": 0.023, "s3_usd_per_1000_writes": 0.005, "sqs_usd_per_million": 0.4,
    "as_of": "2026-11-01",
}  # fmt: skip


class Line:
    """The way to one region, which may be cut."""

    def __init__(self, calls: AwsCalls) -> None:
        self._call, self.is_cut, self.loses = calls.call, False, False
        self.denies: dict[str, tuple[str, str]] = {}
        """Codes and messages by the beginning of an operation."""
        calls.call = self.call  # type: ignore[method-assign]

    def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """Make a call, unless the line is cut."""
        if self.is_cut:
            raise CallFailed(operation, "ConnectionLost", "the line is cut")
        for begin, (code, said) in self.denies.items():
            if operation.startswith(begin):
                raise CallFailed(operation, code, said, http_status=401)
        found = self._call(operation, **arguments)
        if self.loses and operation == "ec2:RunInstances":
            self.is_cut = True
            raise CallFailed(operation, "Timeout", "the answer was lost")
        return found


@dataclass
class Two:
    """Two regions of the fake AWS, and the lines to them."""

    fake: FakeCloud
    clock: ManualClock
    cloud: RegionalCloud
    lines: dict[str, Line]
    said: list[str]

    def living(self, region: str) -> int:
        """Return how many instances run in a region."""
        return sum(life.region == region for life in self.fake.live())


@pytest.fixture
def two() -> Iterator[Callable[..., Two]]:
    """Return a function that makes two regions."""
    with ExitStack() as stack:

        def make(terms: Terms | None = None, **changes: Any) -> Two:
            clock = ManualClock(START)
            fake = stack.enter_context(
                mocked(FakeCloud(clock.now, terms or Terms(boot_seconds=60.0, shutdown_seconds=30.0)))
            )
            settings = AwsSettings.model_validate(
                {
                    "regions": (HOME, FAR), "instance_types": (TYPE,), "zones": ("us-east-1a",),
                    "by_region": {FAR: {"side_prices": SIDES}},
                }
                | changes
            )  # fmt: skip
            said: list[str] = []
            clouds, lines = {}, {}
            for region in settings.regions:
                own, ticking = settings.in_region(region), itertools.count()
                calls = AwsCalls(
                    own, session=SESSION, tries=1, monotonic=lambda ticking=ticking: float(next(ticking))
                )
                lines[region] = Line(calls)
                clouds[region] = AwsCloud(
                    own, catalog=catalog_of(own), clock=clock, calls=calls, ledger_id="test",
                    say=said.append, sleep=lambda seconds: None,
                )  # fmt: skip
            cloud = RegionalCloud(clouds, say=said.append)
            stack.callback(cloud.close)
            return Two(fake, clock, cloud, lines, said)

        yield make


def offer(two: Two, name: str) -> Any:
    """Return the first offer of a machine that is open."""
    return next(each for each in two.cloud.offers() if each.instance_type == name and each.nodes_left != 0)


def rented(two: Two, name: str, action: str) -> str:
    """Rent one node of a machine."""
    order = a_launch(None, name=action)
    kind = next(iter(two.cloud.clouds.values()))._kinds[TYPE]
    from dataclasses import replace

    outcome = two.cloud.launch(replace(order, instance_type=replace(kind, name=name), offer=offer(two, name)))
    assert isinstance(outcome, Launched), outcome
    return outcome.nodes[0]


def test_each_region_has_offers_of_its_own(two: Callable[..., Two]) -> None:
    """Machines of a further region have its name; the quotas are apart, and the zones tell the region."""
    made = two(Terms(vcpu_quotas={"L-DB2E81BA": 8}))
    offers = made.cloud.offers()

    assert {each.zone for each in offers if each.instance_type == TYPE} == {"us-east-1a"}
    assert {each.zone[:-1] for each in offers if each.instance_type == THERE} == {FAR}
    assert {each.pool for each in offers} == {HOME, FAR}
    assert made.cloud.list_prices().keys() == {TYPE, THERE}


def test_nodes_of_both_regions_are_one_list(two: Callable[..., Two]) -> None:
    """Each is rented, renewed and ended in its own region."""
    made = two()
    here, there = rented(made, TYPE, "t1-a"), rented(made, THERE, "t1-b")
    made.clock.instant += 90.0
    nodes = {node.id: node for node in made.cloud.nodes()}

    assert (made.living(HOME), made.living(FAR)) == (1, 1)
    assert {name: node.instance_type.name for name, node in nodes.items()} == {here: TYPE, there: THERE}
    made.cloud.renew([here, there])
    assert made.cloud.terminate(ends(here, there)).keys() == {here, there}
    made.clock.instant += 90.0
    made.cloud.nodes()
    assert made.fake.live() == []


def test_a_region_that_is_cut_off_stops_no_other(two: Callable[..., Two]) -> None:
    """Its nodes stay as last seen and cost money; it rents nothing; an order to end a node there is open."""
    made = two()
    there = rented(made, THERE, "t1-b")
    made.clock.instant += 90.0
    before = made.cloud.nodes()
    made.lines[FAR].is_cut = True
    made.clock.instant += 3600.0
    nodes = made.cloud.nodes()

    assert nodes == before
    assert nodes[0].ended_at is None
    assert all(each.nodes_left == 0 for each in made.cloud.offers() if each.instance_type == THERE)
    assert isinstance(made.cloud.terminate(ends(there))[there], Unknown)
    assert rented(made, TYPE, "t2-a")
    assert any("eu-west-1 does not answer" in note for note in made.cloud.notes())
    made.cloud.renew([there])
    assert made.cloud.sweep() == {}
    made.lines[FAR].is_cut = False
    assert {node.instance_type.name for node in made.cloud.nodes()} == {TYPE, THERE}
    assert "eu-west-1 answers again" in made.said
    assert not any("does not answer" in note for note in made.cloud.notes())


def test_no_list_at_all_is_no_empty_list(two: Callable[..., Two]) -> None:
    """If no region answers, the list fails."""
    made = two()
    for line in made.lines.values():
        line.is_cut = True
    with pytest.raises(CallFailed):
        made.cloud.nodes()


def test_a_refusal_closes_offers_of_its_region_alone(two: Callable[..., Two]) -> None:
    """A denial or a throttled account in one region says nothing of the other."""
    made = two()
    target = offer(made, THERE)
    made.fake.faults.plan("RunInstances", "error:RequestLimitExceeded")
    from dataclasses import replace

    kind = replace(made.cloud.clouds[HOME]._kinds[TYPE], name=THERE)
    outcome = made.cloud.launch(replace(a_launch(None, name="t1-x"), instance_type=kind, offer=target))

    assert isinstance(outcome, Refused)
    assert outcome.scopes == (THERE,)


def test_checkpoints_that_cross_regions_are_in_prices_caps_and_ledger(two: Callable[..., Two]) -> None:
    """Home is billed for what is read, at 0.02 USD per GB; the other region for what is saved."""
    sides = SIDES | {"transfer_usd_per_gb": 0.05}
    made = two(by_region={FAR: {"side_prices": sides}})
    before = {each.key: each for each in made.cloud.offers()}
    made.cloud.expect_checkpoints(10.0, every_hours=0.5)
    after = {each.key: each for each in made.cloud.offers()}
    there = rented(made, THERE, "t1-b")
    made.clock.instant += 90.0
    (node,) = made.cloud.nodes()

    usd = 10.0 * (0.02 + 0.05 / 0.5)
    for key, each in after.items():
        more = usd if each.instance_type == THERE else 0.0
        assert each.usd_per_hour == pytest.approx((before[key].usd_per_hour or 0.0) + more)
    assert node.id == there
    assert dict(node.extras)["transfer"] == pytest.approx(usd)
    assert any("10 GB, $1.20 per node and hour" in note for note in made.cloud.notes())
    assert made.cloud.transfers()[THERE].usd_per_gb == 0.02
    assert TYPE not in made.cloud.transfers()


def test_a_region_whose_transfer_price_is_unknown_counts_the_most(two: Callable[..., Two]) -> None:
    """Another region's price is never taken for it."""
    made = two()
    before = offer(made, THERE).usd_per_hour
    made.cloud.expect_checkpoints(1.0, every_hours=1.0)

    assert offer(made, THERE).usd_per_hour == pytest.approx(before + 0.02 + 0.15)


SETTINGS = {
    "budget": {"usd_per_hour": 9.0, "usd_per_day_cap": 300.0, "max_instances": 6},
    "cloud": {"provider": "aws", "regions": [HOME, FAR], "instance_types": [TYPE]},
    "daemon": {"tick_seconds": 30.0, "idle_hold_seconds": 60.0},
}


def test_two_regions_one_of_them_cut_off_in_mid_run(two: Callable[..., Two], tmp_path: Path) -> None:
    """No job is lost, no node leaks, and the caps hold: what may run counts as spent until it is known."""
    terms = Terms(boot_seconds=60.0, shutdown_seconds=30.0, stock={(TYPE, "us-east-1a", "on-demand"): 1})
    made = two(terms)
    play = DaemonInAFolder(tmp_path, made.clock, SETTINGS, rented_from=made.cloud)

    def ticks(count: int) -> None:
        for _ in range(count):
            play.daemon.tick()
            assert not play.daemon.standing.fault, play.daemon.standing.fault
            made.clock.instant += 30.0

    jobs = play.service.submit([job_content(f"j{i}", hours=1.0) for i in range(3)], user="ann")["jobs"]
    ticks(20)
    # Home has stock for one node alone: the others run in the further region.
    assert (made.living(HOME), made.living(FAR)) == (1, 2)
    made.lines[FAR].is_cut = True
    ticks(40)
    during = [play.service.job(job)["status"] for job in jobs]
    counted = play.service.status()["nodes"]
    made.lines[FAR].is_cut = False
    for _ in range(200):
        if not made.fake.live():
            break
        ticks(1)
    ticks(3)
    statuses = [play.service.job(job)["status"] for job in jobs]
    charged = play.daemon.storage.store.settled_micro_dollars() / 1e6  # type: ignore[union-attr]
    play.close()

    assert during == ["running"] * 3
    assert counted == 3
    assert statuses == ["finished"] * 3
    assert made.fake.live() == []
    hours = sum((life.ended_at or 0.0) - life.launched_at for life in made.fake.history()) / 3600.0
    assert charged >= hours * 1.006


FIRST_HOURS: dict[str, tuple[dict[str, tuple[str, str]], str]] = {
    "not opted in": (
        {"": ("AuthFailure", "AWS was not able to validate the provided access credentials")},
        "A region that the account has not enabled refuses them, too",
    ),
    "not opted in, as other services say it": (
        {"": ("UnrecognizedClientException", "The security token included in the request is invalid")},
        "A region that the account has not enabled refuses them, too",
    ),
    "not signed up": ({"": ("OptInRequired", "You are not subscribed to this service")}, "Enable the region"),
    "denied by the organisation": (
        {
            "ec2:": (
                "UnauthorizedOperation",
                "not authorized to perform: ec2:DescribeInstances with an explicit deny in a service control "
                "policy",
            )
        },
        "ask the organisation's administrator",
    ),
    "no answer": ({"": ("ConnectionLost", "Could not connect to the endpoint URL")}, "does not answer"),
    "no price list": (
        {"pricing:": ("AccessDeniedException", "not authorized to perform: pricing:GetProducts")},
        "its price in eu-west-1 is not known",
    ),
}
"""What a further region answers in the first hour, and what people are told."""


@pytest.mark.parametrize("name", list(FIRST_HOURS))
def test_the_first_hour_with_a_further_region_that_has_a_fault(
    two: Callable[..., Two], tmp_path: Path, name: str
) -> None:
    """Jobs run and end at home as if it were the only region; the note names the region and what cures it."""
    denies, says = FIRST_HOURS[name]
    made = two()
    made.lines[FAR].denies = denies
    play = DaemonInAFolder(tmp_path, made.clock, SETTINGS, rented_from=made.cloud)
    jobs = play.service.submit([job_content(f"j{i}", hours=0.3) for i in range(2)], user="ann")["jobs"]
    for tick in range(90):
        if tick % 4 == 0:
            made.cloud.refresh()
        play.daemon.tick()
        assert not play.daemon.standing.fault, play.daemon.standing.fault
        if tick % 10 == 0:
            play.daemon.look_at_nets()
        made.clock.instant += 30.0
    status, alerts = play.service.status(), play.service.alerts()["alerts"]
    told = [*status["notes"], *(each["sentence"] for each in alerts), *made.said]
    statuses = [play.service.job(job)["status"] for job in jobs]
    play.close()
    assert statuses == ["finished"] * 2
    assert made.living(HOME) == 0
    assert not [life for life in made.fake.history() if life.region == FAR]
    assert [said for said in told if FAR in said and says in said], told


def test_a_hard_cap_holds_while_a_region_is_cut_off(two: Callable[..., Two], tmp_path: Path) -> None:
    """Nodes that nobody can end are counted until the region answers, and the cap holds."""
    cap = 6.0
    terms = Terms(boot_seconds=60.0, shutdown_seconds=30.0, stock={(TYPE, "us-east-1a", "on-demand"): 1})
    made = two(terms)
    settings = SETTINGS | {
        "budget": {"usd_per_hour": 9.0, "usd_per_day_cap": cap, "max_instances": 6},
    }
    play = DaemonInAFolder(tmp_path, made.clock, settings, rented_from=made.cloud)
    play.service.submit([job_content(f"j{i}", hours=40.0) for i in range(4)], user="ann")
    most = 0

    def hours_and_charged() -> tuple[float, float]:
        hours = sum((life.ended_at or 0.0) - life.launched_at for life in made.fake.history()) / 3600.0
        return hours, play.daemon.storage.store.settled_micro_dollars() / 1e6  # type: ignore[union-attr]

    for tick in range(400):
        if tick > 80 and not made.fake.live():
            hours, charged = hours_and_charged()
            if charged >= hours * 1.006:
                break
        play.daemon.tick()
        if tick == 40:
            assert made.living(FAR)
            made.lines[FAR].is_cut = True
            before = made.living(FAR)
        if tick > 40:
            most = max(most, made.living(FAR))
        if tick == 80:
            made.lines[FAR].is_cut = False
        made.clock.instant += 30.0
    hours, charged = hours_and_charged()
    play.close()

    assert most <= before
    assert made.fake.live() == []
    assert hours * 1.006 <= charged <= cap


def test_a_launch_whose_region_vanished_counts_as_spent(two: Callable[..., Two], tmp_path: Path) -> None:
    """The answer is lost and then the region: the node is neither given up nor rented twice."""
    terms = Terms(boot_seconds=60.0, shutdown_seconds=30.0, stock={(TYPE, "us-east-1a", "on-demand"): 0})
    made = two(terms)
    play = DaemonInAFolder(tmp_path, made.clock, SETTINGS, rented_from=made.cloud)

    def ticks(count: int) -> None:
        for _ in range(count):
            play.daemon.tick()
            made.clock.instant += 30.0

    play.service.submit([job_content("j", hours=0.3)], user="ann")
    made.lines[FAR].loses = True
    ticks(30)
    counted = play.service.status()["nodes"]
    open_launches = len(play.daemon.storage.store.unsettled())  # type: ignore[union-attr]
    made.lines[FAR].loses = made.lines[FAR].is_cut = False
    ticks(100)
    play.close()

    assert counted == 1
    assert open_launches == 1
    assert len(made.fake.history()) == 1
    assert made.fake.live() == []


@pytest.mark.parametrize(
    ("cloud", "said"),
    [
        ({"regions": (HOME, HOME)}, "twice"),
        ({"regions": (HOME,), "region": FAR}, "not among regions"),
        ({"regions": (HOME, FAR), "by_region": {"sa-east-1": {}}}, "not a further region"),
        ({"regions": (HOME, FAR), "by_region": {FAR: {"cluster": "x"}}}, "unknown key"),
    ],
)
def test_regions_that_do_not_fit_are_refused(cloud: dict[str, Any], said: str) -> None:
    """The settings of a further region are those that name things in it."""
    with pytest.raises(ValidationError, match=said):
        AwsSettings.model_validate(cloud)


def test_settings_of_a_region_are_read_for_commands(tmp_path: Path) -> None:
    """`--region` of the list has its own subnets and none of the home region's."""
    path = tmp_path / "boa.toml"
    path.write_text(
        f'[cloud]\nprovider = "aws"\nregions = ["{HOME}", "{FAR}"]\nsubnets = ["subnet-1"]\nvolume_gib = 99\n'
        f'[cloud.by_region.{FAR}]\nsubnets = ["subnet-2"]\n'
    )

    assert load_aws_settings(path).subnets == ("subnet-1",)
    there = load_aws_settings(path, region=FAR)
    assert (there.region, there.subnets, there.volume_gib) == (FAR, ("subnet-2",), 99)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f'zones = "{FAR}a"', "zones must be a list; got the text"),
        ("prices = 3", "prices must be text; got 3"),
        ("efa = true", "efa holds for all regions: set it under .cloud."),
        ('subnts = ["subnet-2"]', "Did you mean 'subnets'"),
        ('images = {g5 = ""}', "images"),
        ("pool_end_role = 'boa'", "pool_end_role"),
        (
            "[cloud.by_region.eu-west-1.side_prices]\nnat_usd_per_hour = true",
            "gp3_usd_per_gib_month is missing",
        ),
    ],
)
def test_settings_of_a_further_region_are_checked_where_they_are_read(
    tmp_path: Path, line: str, said: str
) -> None:
    """They were taken as they are, and wrong ones met the daemon as it opened the region."""
    file = tmp_path / "boa.toml"
    file.write_text(
        f'[cloud]\nprovider = "aws"\nregions = ["{HOME}", "{FAR}"]\n[cloud.by_region.{FAR}]\n{line}\n'
    )
    with pytest.raises(InputError, match=said) as refusal:
        load_settings(file, environment={})
    assert str(refusal.value).startswith(f"{file}:") or "boa.toml:" in str(refusal.value)


def test_a_further_region_shows_what_it_sets(tmp_path: Path) -> None:
    """Not every default beside it."""
    file = tmp_path / "boa.toml"
    file.write_text(
        f'[cloud]\nprovider = "aws"\nregions = ["{HOME}", "{FAR}"]\n'
        f'[cloud.by_region.{FAR}]\nsubnets = ["subnet-2"]\n'
    )
    shown = load_settings(file, environment={}).settings.model_dump(mode="json")["cloud"]["by_region"]
    assert shown == {FAR: {"subnets": ["subnet-2"]}}


def test_a_price_that_comes_late_corrects_the_nodes_of_its_region_alone(two: Callable[..., Two]) -> None:
    """Each region has steps of its own, which the next process goes on with; names stay those of the plan."""
    both = two()
    found = {name: rented(both, name, f"t1-{number}") for number, name in enumerate((TYPE, THERE))}
    both.cloud.nodes()
    both.clock.instant += 600.0
    both.cloud.terminate(ends(*found.values()))
    both.clock.instant += 60.0
    ended = [node for node in both.cloud.nodes() if node.ended_at is not None]
    assert {node.instance_type.name for node in ended} == {TYPE, THERE}
    version = both.cloud.price_version()
    far = both.cloud.clouds[FAR]
    far.market._steps.note(TYPE, ListPrice(usd_per_hour=9.0, since=START + 300.0, is_live=True), now=0.0)

    assert both.cloud.price_version() > version
    (amended,) = both.cloud.amended(ended)
    assert (amended.id, amended.instance_type.name) == (found[THERE], THERE)
    assert amended.prices[-1] == (START + 300.0, 9.0)
    other = two()
    other.cloud.restore_prices(both.cloud.price_documents())
    steps = {region: cloud.market._steps.of(TYPE) for region, cloud in other.cloud.clouds.items()}
    assert [step.usd_per_hour for step in steps[FAR]][-1] == 9.0
    assert 9.0 not in [step.usd_per_hour for step in steps[HOME]]
    assert dict(both.cloud.lately_priced()) == {}
    both.cloud.bills_are_right(found.values())
