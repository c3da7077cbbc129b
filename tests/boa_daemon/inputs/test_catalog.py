"""The catalogue: its rows, a user's prices and discounts, and missing prices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import InputError, MissingPrice
from boa_daemon.inputs.catalog import Catalog, CatalogEntry

PRICES = """\
as_of = 2026-08-01
[prices]
"p4d.24xlarge" = 20.0
"p5e.48xlarge" = 60.0
[discounts]
p4d = 0.5
p4de = 0.3
"g6.xlarge" = 0.1
"g6" = 0.2
"*" = 0.05
[[types]]
instance_type = "rack-1"
gpus = 4
gpu_model = "NVIDIA A100"
usd_per_hour = 9.5
"""


def catalog_with(tmp_path: Path, text: str, suffix: str = "toml") -> Catalog:
    path = tmp_path / f"prices.{suffix}"
    path.write_text(text, encoding="utf-8")
    return Catalog.load(path)


def boa_catalog(*flags: str) -> str:
    result = CliRunner().invoke(app, ["catalog", *flags], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_every_catalogue_type_has_a_date_and_a_source() -> None:
    """The catalogue has 43 types; one has no price, and three are retired."""
    entries = Catalog.load().entries.values()

    assert len(entries) == 43
    assert all(entry.as_of and entry.source and entry.vcpu_quota_on_demand for entry in entries)
    assert all(entry.gpus in {1, 4, 8} and entry.vcpus >= 4 for entry in entries)
    assert [entry.name for entry in entries if entry.usd_per_hour is None] == ["p5e.48xlarge"]
    assert [entry.name for entry in entries if entry.is_retired] == [
        "p3.2xlarge",
        "p3.8xlarge",
        "p3.16xlarge",
    ]
    models = {"v100", "a100", "h100", "h200", "b200", "b300", "t4", "a10g", "l4", "l40s"}
    assert {entry.gpu_type for entry in entries} == models


def test_a_gpu_costs_its_share_of_the_instance() -> None:
    """p4d.24xlarge: 21.957642 USD/hour for 8 GPUs."""
    machine = Catalog.load().instance_type("p4d.24xlarge")

    assert (machine.gpu_type, machine.gpus, machine.link_gigabits_per_second) == ("a100", 8, 400.0)
    assert machine.usd_per_gpu_hour == 21.957642 / 8
    assert Catalog.load().entry("p4d.24xlarge").usd_per_gpu_hour == 21.957642 / 8


def test_using_a_type_without_a_price_is_an_error() -> None:
    """The error names the type and the line that adds a price."""
    with pytest.raises(MissingPrice, match=r"'p5e\.48xlarge' has no price.*\[prices\] \"p5e\.48xlarge\""):
        Catalog.load().instance_type("p5e.48xlarge")


def test_an_unknown_type_is_an_error_with_a_suggestion() -> None:
    """The suggestion is the closest name, or `boa catalog --all`."""
    with pytest.raises(InputError, match=r"'p4d\.24xlrge'. Did you mean 'p4d\.24xlarge'"):
        Catalog.load().price_of("p4d.24xlrge")
    with pytest.raises(InputError, match="boa catalog --all"):
        Catalog.load().entry("???")


def test_retired_types_are_usable_with_a_warning() -> None:
    """P3 types serve simulation; the warning gives the date and that they cannot be launched."""
    entry = Catalog.load().entry("p3.16xlarge")

    assert Catalog.load().price_of("p3.16xlarge") == 24.48
    assert entry.warning == (
        "p3.16xlarge is retired, last described 2026-03-08: it costs $24.48/hour as of 2026-07-20, "
        "serves simulation, and cannot be launched"
    )
    assert Catalog.load().entry("p4d.24xlarge").warning == ""


def test_the_default_instance_of_a_gpu_is_on_sale_and_has_the_most_gpus() -> None:
    """Types on sale precede retired ones, then more GPUs, then the lower price per GPU-hour."""
    catalog = Catalog.load()
    found = {
        gpu: catalog.default_instance_for(gpu) for gpu in ("v100", "a100", "h200", "a10g", "t4", "abacus")
    }

    assert {gpu: entry.name if entry else None for gpu, entry in found.items()} == {
        "v100": "p3dn.24xlarge",
        "a100": "p4d.24xlarge",
        "h200": "p5en.48xlarge",
        "a10g": "g5.48xlarge",
        "t4": "g4dn.metal",
        "abacus": None,
    }


def test_discounts_do_not_apply_to_a_users_price(tmp_path: Path) -> None:
    """The price's source is the user's file."""
    catalog = catalog_with(tmp_path, PRICES)

    assert catalog.price_of("p4d.24xlarge") == 20.0
    assert catalog.price_of("p5e.48xlarge") == 60.0
    assert catalog.entry("p4d.24xlarge").source.endswith("prices.toml")
    assert catalog.entry("p4d.24xlarge").as_of == "2026-08-01"


def test_only_the_most_specific_discount_applies(tmp_path: Path) -> None:
    """A type's discount precedes the family's, which precedes `*`; the source names the discount."""
    catalog, listed = catalog_with(tmp_path, PRICES), Catalog.load()

    for name, off in {"p4de.24xlarge": 0.3, "g6.xlarge": 0.1, "g6.2xlarge": 0.2, "g5.xlarge": 0.05}.items():
        assert catalog.price_of(name) == listed.price_of(name) * (1 - off)
    assert catalog.entry("p4de.24xlarge").source.startswith("list price less 30 %: AWS Price List")


def test_a_price_file_can_add_a_type(tmp_path: Path) -> None:
    """The new type has a family, a GPU type and a price."""
    entry = catalog_with(tmp_path, PRICES).entry("rack-1")

    assert (entry.family, entry.gpu_type, entry.gpus, entry.usd_per_gpu_hour) == (
        "rack-1",
        "a100",
        4,
        9.5 / 4,
    )
    assert entry.status == "current"


def test_the_last_price_file_takes_precedence(tmp_path: Path) -> None:
    """This holds for files of different formats."""
    first, second = tmp_path / "a.yaml", tmp_path / "b.csv"
    first.write_text("prices: {p4d.24xlarge: 20.0, p4de.24xlarge: 25.0}\n")
    second.write_text("instance_type,usd_per_hour,zones\np4d.24xlarge,19.5,use1-az1 use1-az4\n")

    catalog = Catalog.load(first, second)

    assert catalog.price_of("p4d.24xlarge") == 19.5
    assert catalog.price_of("p4de.24xlarge") == 25.0
    assert catalog.entry("p4d.24xlarge").zones == ("use1-az1", "use1-az4")
    assert Catalog.load().price_of("p4d.24xlarge") == 21.957642


@given(off=st.floats(0.0, 0.99))
def test_a_discount_for_all_types_lowers_every_list_price(
    off: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`*` adds no price to a type without one."""
    path = tmp_path_factory.mktemp("off") / "prices.yaml"
    path.write_text(f"discounts: {{'*': {off!r}}}\n")

    for before, after in zip(
        Catalog.load().entries.values(), Catalog.load(path).entries.values(), strict=True
    ):
        if before.usd_per_hour is None:
            assert after.usd_per_hour is None
        else:
            assert after.usd_per_hour == pytest.approx(before.usd_per_hour * (1.0 - off), rel=1e-12)


@pytest.mark.parametrize(
    ("suffix", "text", "line", "words"),
    [
        ("toml", '[prices]\n"p4d.24xlrge" = 2.0\n', 2, "Did you mean 'p4d.24xlarge'"),
        ("toml", '[prices]\n"p4d.24xlarge" = 0\n', 2, "must be more than zero; got 0"),
        ("toml", '[prices]\n"p4d.24xlarge" = "20"\n', 2, "must be a number; got the text '20'"),
        ("toml", "[discounts]\np4d = 30\n", 2, "discounts.p4d must be less than 1; got 30"),
        ("toml", "[discounts]\np4d = -0.1\n", 2, "must be at least 0"),
        ("toml", "[discounts]\np44 = 0.1\n", 2, "unknown instance type or family 'p44'"),
        ("toml", "[price]\na = 1\n", 1, "unknown key 'price'. Did you mean 'prices'"),
        ("toml", '[[types]]\ninstance_type = "rack"\n', 1, "'rack' needs gpus and gpu_model"),
        ("toml", '[[types]]\ninstance_type = "rack"\ngpus = 0\n', 3, "gpus must be at least 1; got 0"),
        (
            "toml",
            '[[types]]\ninstance_type = "g5.xlarge"\nstatus = "old"\n',
            3,
            "one of 'current', 'previous gen",
        ),
        ("csv", "instance_type,usd_per_day\np4d.24xlarge,3\n", 1, "Did you mean 'usd_per_hour'"),
        ("csv", "instance_type,usd_per_hour\np4d.24xlarge,x\n", 2, "must be a number; got the text 'x'"),
        ("csv", "instance_type,usd_per_hour\np4d.24xlarge,3\nrack,3\n", 3, "'rack' needs gpus and gpu_model"),
        ("yaml", "- 3\n", 1, "the file must be a mapping; got a list"),
    ],
)
def test_an_error_in_a_price_file_gives_its_line(
    suffix: str, text: str, line: int, words: str, tmp_path: Path
) -> None:
    """Prices must be positive, discounts fractions, and names known."""
    with pytest.raises(InputError) as caught:
        catalog_with(tmp_path, text, suffix)

    assert words in str(caught.value)
    assert caught.value.line == line


def test_an_entry_needs_no_price() -> None:
    """Without a price there is no price per GPU-hour, and the warning says so."""
    entry = CatalogEntry(
        name="x.1", family="x", gpu_model="NVIDIA A100 80GB", gpus=1, usd_per_hour=None, status="retired"
    )

    assert entry.usd_per_gpu_hour is None
    assert entry.gpu_type == "a100-80gb"
    assert entry.warning == "x.1 is retired: it has no price, serves simulation, and cannot be launched"


def test_the_catalog_command_prints_json_and_csv() -> None:
    """JSON shows a missing price as null."""
    rows = json.loads(boa_catalog("--gpu-type", "h200", "--json"))["instance_types"]

    assert [row["instance_type"] for row in rows] == ["p5e.48xlarge", "p5en.48xlarge"]
    assert [row["usd_per_hour"] for row in rows] == [None, 63.296]
    assert boa_catalog("--family", "p5e", "-o", "csv").splitlines()[1].startswith("p5e.48xlarge,p5e,h200,8,")


def test_the_catalog_command_hides_retired_types_without_all(tmp_path: Path) -> None:
    """The table gives their number; `--all` shows them, and `--prices` changes the prices."""
    prices = tmp_path / "prices.toml"
    prices.write_text("[discounts]\np3 = 0.5\n")

    assert "3 retired types are not shown" in boa_catalog("--family", "p3")
    assert "p3.16xlarge" not in boa_catalog("--gpu-type", "v100")
    assert "12.24" in boa_catalog("--family", "p3", "--all", "--prices", str(prices))
    assert "no price" in boa_catalog("--family", "p5e")


def test_the_reference_page_shows_the_catalog_commands_output(tmp_path: Path) -> None:
    """The price file and the warning in docs/reference/catalogue.md are real too."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "catalogue.md").read_text(encoding="utf-8")
    recorded = page.split("$ boa catalog --gpu-type v100 --all\n")[1].split("```")[0]
    printed = boa_catalog("--gpu-type", "v100", "--all")

    assert [line.split() for line in printed.splitlines()] == [line.split() for line in recorded.splitlines()]
    assert catalog_with(tmp_path, page.split("```toml\n")[1].split("```")[0]).price_of("rack-1") == 9.5
    assert Catalog.load().entry("p3.16xlarge").warning in page


def test_the_catalog_command_refuses_unknown_filters() -> None:
    """A filter that no type can match is a typo."""
    with pytest.raises(InputError, match=r"unknown family 'p4'\. Did you mean"):
        boa_catalog("--family", "p4")
    with pytest.raises(InputError, match=r"unknown GPU type 'h20'\. Did you mean 'h200'"):
        boa_catalog("--gpu-type", "h20")
