"""World files: their contents and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.errors import InputError
from boa_daemon.sim.world_file import load_world, parse_boot
from boa_daemon.sim.world_settings import AWS_BOOTS, Boot, Tier, WorldSettings
from boa_daemon.testing import an_instance_type
from policies.model import InstanceType

ROOT = Path(__file__).resolve().parents[3]
KINDS = (
    an_instance_type(gpu_type="t4"),
    InstanceType(name="p4d.24xlarge", gpu_type="a100", gpus=8, usd_per_hour=20.0),
)


def world_of(tmp_path: Path, text: str) -> WorldSettings:
    """Return the world that a text describes."""
    (tmp_path / "world.yaml").write_text(text, encoding="utf-8")
    return load_world(tmp_path / "world.yaml", KINDS, ["bert"])


def test_the_example_world_file_is_read() -> None:
    """The file is `examples/world.yaml`, which the documentation shows."""
    world = load_world(ROOT / "examples" / "world.yaml", KINDS, ["bert"])

    assert world.zones == ("us-east-1a", "us-east-1b")
    assert world.markets == ("spot", "on-demand")
    assert world.boots == {"": Boot(median_seconds=180.0, p99_seconds=900.0)}
    assert world.checkpoints is not None
    assert world.spot is not None
    assert world.spot.stock.nodes == 24
    assert world.beliefs.sizes == {"": 1.5}
    assert world.topology == (
        Tier(name="spine", groups=2, gigabits_per_second=400.0),
        Tier(name="rack", groups=4, gigabits_per_second=100.0),
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zonez: [a]", "world.yaml:1: unknown key 'zonez'. Did you mean 'zones'"),
        ("spot: {prize_fraction: 0.3}", "Did you mean 'price_fraction' (of the on-demand price)"),
        ("spot: {price_fraction: 1.5}", "spot.price_fraction must be at most 1"),
        ("spot: {notice_seconds: '120'}", "must be a number; got the text '120'"),
        ("zones: [a, a]", "a zone is named twice"),
        ("stock: {p4d.24xlrge: {nodes: 3}}", "no instance type 'p4d.24xlrge'. Did you mean 'p4d.24xlarge'"),
        ("stock: {default: {nodes: -3}}", "nodes must be at least 0; got -3"),
        ("zones: [a]\nzone_stock: {b: {default: {nodes: 1}}}", "world.yaml:2: zone_stock: no zone 'b'"),
        ("zones: [a]\nzone_stock: {a: {x: {nodes: 1}}}", "zone_stock.a: no instance type 'x'"),
        ("quotas: {default: -1}", "quotas.default must be at least 0; got -1"),
        ("boot: slow", "boot is the text 'slow'. Write aws"),
        ("boot: {median_seconds: 200, p99_seconds: 100}", "p99_seconds 100 does not go with a median of 200"),
        ("boot: {t5: {median_seconds: 3}}", "boot: no instance type 't5'"),
        ("on_demand: false", "there is no spot. Add spot: {}"),
        ("faults: {lost_answer_fraction: 1.0}", "must be less than 1"),
        ("topology: [{name: rack, groups: 0, gigabits_per_second: 1}]", "groups must be at least 1; got 0"),
        ("checkpoints: {every_seconds: 0}", "must be more than zero"),
        ("beliefs: {sizes: {berd: 2.0}}", "beliefs.sizes: no class 'berd'. Did you mean 'bert'"),
        ("bursts: -1", "bursts must be at least 0; got -1"),
        ("[1, 2]", "a world file is a mapping"),
        ("stock: {default: {file: none.csv}}", "none.csv: cannot read it"),
    ],
)
def test_a_wrong_world_file_is_refused_with_a_clear_message(tmp_path: Path, text: str, says: str) -> None:
    """The message names the key and what to write instead."""
    with pytest.raises(InputError) as refused:
        world_of(tmp_path, text)
    assert says in str(refused.value)


def test_arrivals_may_come_in_bursts(tmp_path: Path) -> None:
    """The default has no bursts."""
    assert world_of(tmp_path, "bursts: 0.5") == WorldSettings(bursts=0.5) != WorldSettings()


def test_boot_aws_depends_on_the_instance_family(tmp_path: Path) -> None:
    """A machine of an unknown family boots as a G type."""
    boots = world_of(tmp_path, "boot: aws").boots

    assert boots == {"p4d.24xlarge": AWS_BOOTS["p"], "t4-x4": AWS_BOOTS["g"]}


def test_boots_may_be_given_for_all_types_or_by_type(tmp_path: Path) -> None:
    """Without a p99 the median is the p99."""
    assert world_of(tmp_path, "boot: {median_seconds: 60}").boots == {"": Boot.constant(60.0)}
    by_type = world_of(tmp_path, "boot: {default: {median_seconds: 60}, a100: {median_seconds: 90}}")
    assert by_type.boots == {"": Boot.constant(60.0), "a100": Boot.constant(90.0)}


def test_paths_are_read_from_files_beside_the_world_file(tmp_path: Path) -> None:
    """Prices are CSV and a spot availability trace is JSON; equal neighbours are merged."""
    (tmp_path / "prices.csv").write_text("at_seconds,price_fraction\n0,0.5\n60,0.25\n", encoding="utf-8")
    trace = '{"metadata": {"gap_seconds": 195}, "data": [4, 4, 0, 2]}'
    (tmp_path / "stock.json").write_text(trace, encoding="utf-8")
    world = world_of(tmp_path, "spot: {prices: prices.csv, stock: {file: stock.json}}")

    assert world.spot is not None
    assert world.spot.prices == ((0.0, 0.5), (60.0, 0.25))
    assert world.spot.stock.path == ((0.0, 4), (390.0, 0), (585.0, 2))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "p.csv",
            "at,price\n0,1\n",
            "p.csv:1: not a file of values over time. It begins with at_seconds,price_fraction",
        ),
        ("p.csv", "at_seconds,price_fraction\n0,x\n", "p.csv:2: two numbers expected"),
        ("p.csv", "at_seconds,price_fraction\n9,1\n3,1\n", "p.csv:3: at_seconds must rise"),
        ("p.csv", "at_seconds,price_fraction\n0,1.5\n", "price_fraction must be more than 0 and at most 1"),
        ("p.json", '{"data": [1]}', "not a spot trace"),
        ("p.json", '{"metadata": {"gap_seconds": 1}, "data": [0.5]}', "data must be whole numbers"),
    ],
)
def test_broken_paths_are_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    """The error names the fault, and the line if there is one."""
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        world_of(tmp_path, f"spot: {{prices: {name}}}")
    assert says in str(refused.value)


def test_parse_boot_accepts_aws_constant_and_lognormal() -> None:
    """Another word is refused with these three forms."""
    assert parse_boot("constant:60", KINDS) == {"": Boot.constant(60.0)}
    assert parse_boot("lognormal:180,900", KINDS) == {"": AWS_BOOTS["g"]}
    assert parse_boot("aws", KINDS).keys() == {"p4d.24xlarge", "t4-x4"}
    with pytest.raises(
        InputError, match=r"'normal:3' is not a boot time\. Write aws, constant:180 or lognormal"
    ):
        parse_boot("normal:3", KINDS)
