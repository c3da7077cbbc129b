"""Files of prices and commitments: what becomes cheaper waits for consent, at a reload and at a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from boa_daemon.daemon.settings.config import Settings
from boa_daemon.daemon.settings.cost_copies import CostFiles
from boa_daemon.daemon.settings.cost_files import read_cost_files
from boa_daemon.daemon.settings.settings_reload import LooserLimits, SettingsReader
from boa_daemon.errors import InputError

SETTINGS = """\
[cloud]
provider = "aws"
instance_types = ["g5.xlarge", "p5.48xlarge"]
prices = "prices.toml"
commitments = "ours.toml"
blocks = "blocks.toml"
[workload]
classes = "classes.yaml"
[daemon]
state_dir = "state"
"""
PRICES = """\
as_of = 2026-11-01
region = "us-east-1"
[prices]
"g5.xlarge" = 1.5
"p5.48xlarge" = 98.0
"g6.xlarge" = 0.9
"""
COMMITMENTS = """\
[[commitments]]
name = "ours"
kind = "compute"
discounts = {g5 = 0.2}
usd_per_hour = 12.0
ends = 2999-03-01
[[commitments]]
name = "old"
kind = "compute"
discounts = {g5 = 0.2}
usd_per_hour = 3.0
begins = 2024-03-01
ends = 2025-03-01
"""
BLOCKS = """\
[[blocks]]
name = "december"
instance_type = "p5.48xlarge"
instances = 2
begins = 2998-12-01T11:30:00Z
ends = 2998-12-03T11:30:00Z
usd = 4200.0
"""
CLASSES = """\
gpu_types:
  a10g: {usd_per_gpu_hour: 1.4, instance_type: g5.xlarge}
  h100: {instance_types: [p5.48xlarge]}
classes:
  - name: bert
    phases:
      - size_gpu_hours: 2
        speedup: {a10g: {amdahl: {parallel_fraction: 0.95, max_gpus: 8}}}
"""
FILES = {"prices.toml": PRICES, "ours.toml": COMMITMENTS, "blocks.toml": BLOCKS, "classes.yaml": CLASSES}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with settings and their files, applied by a daemon that has stopped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    Path("boa.toml").write_text(SETTINGS)
    for name, text in FILES.items():
        Path(name).write_text(text)
    read = SettingsReader(None, {})
    read()
    read.confirm()
    return tmp_path


def file_of(settings: Settings, name: str) -> str:
    """Return the file that settings name in place of one of `FILES`."""
    named = {
        "prices.toml": getattr(settings.cloud, "prices"),  # noqa: B009 - a key that only AWS has
        "ours.toml": settings.cloud.commitments,
        "blocks.toml": settings.cloud.blocks,
        "classes.yaml": settings.workload.classes,
    }
    return str(named[name])


def edit(name: str, old: str, new: str) -> Callable[[], object]:
    assert old in FILES[name]
    return lambda: Path(name).write_text(FILES[name].replace(old, new))


LOOSER: dict[str, tuple[str, Callable[[], object], str]] = {
    "a lower price": ("prices.toml", edit("prices.toml", "1.5", "0.5"), "prices, g5.xlarge: 1.5 -> 0.5"),
    "a discount": (
        "prices.toml",
        edit("prices.toml", '"g5.xlarge" = 1.5\n', "[discounts]\ng5 = 0.9\n[prices]\n"),
        "prices",
    ),
    "a price taken out": ("prices.toml", edit("prices.toml", '"p5.48xlarge" = 98.0\n', ""), "not set"),
    "a price file cut short": ("prices.toml", lambda: Path("prices.toml").write_text(PRICES[:70]), "prices"),
    "an empty price file": ("prices.toml", lambda: Path("prices.toml").write_text(""), "prices"),
    "a price file that is gone": ("prices.toml", lambda: Path("prices.toml").unlink(), "prices.toml"),
    "a price in euros": ("prices.toml", edit("prices.toml", "[prices]", 'currency = "EUR"\n[prices]'), "EUR"),
    "a price as text": ("prices.toml", edit("prices.toml", "98.0", '"98,0"'), "98,0"),
    "a price of zero": ("prices.toml", edit("prices.toml", "98.0", "0"), "prices.toml"),
    "half a number": ("prices.toml", edit("prices.toml", "98.0", "9"), "98.0 -> 9.0"),
    "a commitment to a lower level": ("ours.toml", edit("ours.toml", "12.0", "2.0"), "ours"),
    "a larger discount": ("ours.toml", edit("ours.toml", "{g5 = 0.2}", "{g5 = 0.99}"), "0.99"),
    "a commitment more": (
        "ours.toml",
        lambda: Path("ours.toml").write_text(
            COMMITMENTS
            + COMMITMENTS[: COMMITMENTS.index('[[commitments]]\nname = "old')].replace("ours", "free")
        ),
        "commitments, free",
    ),
    "a commitment that ends later": ("ours.toml", edit("ours.toml", "2025-03-01", "2998-03-01"), "old"),
    "no commitments": ("ours.toml", lambda: Path("ours.toml").write_text(""), "ours"),
    "a cheaper block": ("blocks.toml", edit("blocks.toml", "4200", "42"), "4200.0"),
    "a larger block": ("blocks.toml", edit("blocks.toml", "= 2\n", "= 64\n"), "december"),
    "a block that is gone": ("blocks.toml", lambda: Path("blocks.toml").unlink(), "blocks.toml"),
    "a cheaper class file": ("classes.yaml", edit("classes.yaml", "1.4", "0.4"), "classes, g5.xlarge"),
    "a class file cut short": (
        "classes.yaml",
        lambda: Path("classes.yaml").write_text(CLASSES[:60]),
        "classes.yaml",
    ),
    "zeros, as after a crash": (
        "classes.yaml",
        lambda: Path("classes.yaml").write_bytes(b"\0" * 99),
        "classes.yaml",
    ),
}


@pytest.mark.parametrize("how", LOOSER)
def test_what_files_make_cheaper_while_the_daemon_is_stopped_waits_for_consent(how: str) -> None:
    """The texts that were applied last hold at the start, and the note says what the files say otherwise."""
    name, change, said = LOOSER[how]
    change()
    read = SettingsReader(None, {})
    kept = read()
    read.confirm()
    assert Path(file_of(kept, name)).read_text() == FILES[name]
    assert "the settings that the last daemon applied stay in force" in read.note
    assert said in read.note
    again = SettingsReader(None, {})
    assert Path(file_of(again(), name)).read_text() == FILES[name], "a second restart forgets nothing"
    if "boa config apply --yes" in read.note:
        assert file_of(read(consent=read.pending().code), name) == str(Path(name).absolute())


@pytest.mark.parametrize("how", LOOSER)
def test_what_files_make_cheaper_is_refused_at_a_reload(how: str) -> None:
    """A running daemon keeps what it has until somebody consents."""
    read = SettingsReader(None, {})
    read()
    read.confirm()
    LOOSER[how][1]()
    with pytest.raises(InputError):
        read()


TIGHTER: dict[str, Callable[[], object]] = {
    "a higher price": edit("prices.toml", "1.5", "2.5"),
    "a lower price of a machine that is not rented": edit("prices.toml", "0.9", "0.1"),
    "a comment": edit("prices.toml", "[prices]", "# from the console\n[prices]"),
    "another day": edit("prices.toml", "2026-11-01", "2026-11-02"),
    "another order": edit("prices.toml", '"g6.xlarge" = 0.9\n', ""),
    "CRLF": lambda: Path("prices.toml").write_bytes(PRICES.replace("\n", "\r\n").encode()),
    "a commitment that is over": lambda: Path("ours.toml").write_text(
        COMMITMENTS[: COMMITMENTS.index('[[commitments]]\nname = "old')]
    ),
    "a dearer class file": edit("classes.yaml", "1.4", "2"),
    "another class": edit("classes.yaml", "bert", "resnet"),
    "touched": lambda: Path("classes.yaml").touch(),
}


@pytest.mark.parametrize("how", TIGHTER)
def test_what_files_say_without_making_anything_cheaper_is_taken(how: str) -> None:
    """At a reload and at a restart."""
    running = SettingsReader(None, {})
    running()
    running.confirm()
    TIGHTER[how]()
    restarted = SettingsReader(None, {})
    restarted()
    running()
    assert restarted.note == "" == running.note


def test_a_consent_is_to_the_files_as_they_are() -> None:
    """The code of a lower price is none to a still lower one; a key of the settings file consents, too."""
    edit("prices.toml", "1.5", "0.5")()
    code = SettingsReader(None, {}).pending().code
    edit("prices.toml", "1.5", "0.4")()
    Path("boa.toml").write_text(SETTINGS + f'accept_changes = "{code}"\n')
    refused = SettingsReader(None, {})
    assert Path(file_of(refused(), "prices.toml")).read_text() == PRICES
    edit("prices.toml", "1.5", "0.5")()
    taken = SettingsReader(None, {})
    assert file_of(taken(), "prices.toml") == str(Path("prices.toml").absolute())
    assert taken.note == ""


def test_the_next_daemon_takes_what_was_accepted_while_none_ran() -> None:
    """`boa config apply --yes` without a daemon."""
    edit("prices.toml", "1.5", "0.5")()
    SettingsReader(None, {}).accept()
    read = SettingsReader(None, {})
    read()
    assert read.note == ""
    copies = list(Path("state/cost_files").iterdir())
    assert len(copies) == len(FILES), "the former copy is deleted"


def test_what_an_earlier_version_applied_is_compared_with_nothing() -> None:
    """Its file does not say what the named files said."""
    applied = Path("state/applied_settings.json")
    text = applied.read_text()
    assert '"costs"' in text
    document = json.loads(text)
    del document["costs"], document["cost_files"]
    applied.write_text(json.dumps(document))
    edit("prices.toml", "1.5", "0.5")()
    read = SettingsReader(None, {})
    read()
    assert read.note == ""


def test_settings_that_name_no_file_cost_nothing_to_compare() -> None:
    """Nothing is read, and nothing is copied."""
    assert read_cost_files(Settings()) == CostFiles()


def test_a_price_of_a_further_region_is_one_of_that_region(tmp_path: Path) -> None:
    """`[cloud.by_region.NAME] prices` is found beside the settings file, from any folder, and compared."""
    text = SETTINGS.replace(
        "[workload]",
        'regions = ["us-east-1", "us-west-2"]\n[cloud.by_region.us-west-2]\nprices = "west.toml"\n[workload]',
    )
    Path("boa.toml").write_text(text)
    west = PRICES.replace("us-east-1", "us-west-2")
    Path("west.toml").write_text(west)
    SettingsReader(None, {}).accept()
    Path("west.toml").write_text(west.replace("98.0", "9.0"))
    read = SettingsReader(None, {})
    read()
    read.confirm()
    assert "by_region.us-west-2] prices, p5.48xlarge: 98.0 -> 9.0" in read.note
    with pytest.raises(LooserLimits):
        read()


def applied(prices: str, classes: str) -> SettingsReader:
    """Return the reader of a daemon that applied other texts."""
    Path("prices.toml").write_text(prices)
    Path("classes.yaml").write_text(classes)
    SettingsReader(None, {}).accept()
    read = SettingsReader(None, {})
    read()
    read.confirm()
    assert read.note == ""
    return read


def test_a_class_file_that_stays_is_no_change_when_the_list_price_moves() -> None:
    """Its price was that of the list by chance, and below the shipped one; the list rises."""
    read = applied(PRICES.replace("1.5", "0.9"), CLASSES.replace("1.4", "0.9"))
    Path("prices.toml").write_text(PRICES)
    read()
    assert read.note == ""


def test_a_class_file_that_undercuts_the_price_file_waits_for_consent() -> None:
    """What counted before was the price file's, and not the lower one of the shipped list."""
    own = "{usd_per_gpu_hour: 1.4, instance_type: g5.xlarge}"
    read = applied(PRICES, CLASSES.replace(own, "{instance_types: [g5.xlarge]}"))
    Path("classes.yaml").write_text(CLASSES)
    with pytest.raises(LooserLimits, match=r"classes, g5\.xlarge"):
        read()


def test_a_region_in_which_nothing_is_rented_costs_nothing() -> None:
    """Its price file is not asked for before it is in the list of regions, and not missed after it was."""
    west = '[cloud.by_region.us-west-2]\nprices = "west.toml"\n[workload]'
    Path("boa.toml").write_text(SETTINGS.replace("[workload]", west))
    SettingsReader(None, {}).accept()
    read = SettingsReader(None, {})
    read()
    assert read.note == ""
    Path("west.toml").write_text(PRICES.replace("us-east-1", "us-west-2"))
    both = f'regions = ["us-east-1", "us-west-2"]\n{west}'
    Path("boa.toml").write_text(SETTINGS.replace("[workload]", both))
    SettingsReader(None, {}).accept()
    Path("boa.toml").write_text(SETTINGS.replace("[workload]", both.replace(', "us-west-2"', "")))
    changes = SettingsReader(None, {}).pending().changes
    assert not [change.sentence for change in changes if "prices" in change.name]


def test_an_earlier_version_looked_for_prices_of_regions_in_the_working_folder() -> None:
    """Its word for the same file is no change, and the file is read."""
    both = """regions = ["us-east-1", "us-west-2"]
[cloud.by_region.us-west-2]
prices = "west.toml"
[workload]"""
    Path("boa.toml").write_text(SETTINGS.replace("[workload]", both))
    Path("west.toml").write_text(PRICES.replace("us-east-1", "us-west-2"))
    SettingsReader(None, {}).accept()
    applied = Path("state/applied_settings.json")
    document = json.loads(applied.read_text())
    del document["costs"], document["cost_files"]
    applied.write_text(
        json.dumps(document).replace(json.dumps(str(Path("west.toml").absolute())), '"west.toml"')
    )
    read = SettingsReader(None, {})
    read()
    assert read.note == ""
