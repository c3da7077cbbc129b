"""Keys are set in a settings file as a person would: in their section, with everything else as it was."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from boa_daemon.cli.common.toml_keys import toml_value, with_keys, write_keys
from boa_daemon.errors import InputError

FILE = """\
# Our site.
[budget]
usd_per_hour = 4.0   # dear

[cloud]
provider = "aws"
  region = "us-east-1"
# the end of cloud

[daemon]
tick_seconds = 30
"""


def test_an_old_value_is_replaced_where_it_stands() -> None:
    """Comments and order stay."""
    text = with_keys(FILE, {"cloud": {"region": "eu-west-1"}})
    assert text == FILE.replace('  region = "us-east-1"', 'region = "eu-west-1"')


def test_a_new_key_comes_last_in_its_section() -> None:
    """Not into the section after it."""
    text = with_keys(FILE, {"cloud": {"zone": "a"}})
    assert text == FILE.replace("# the end of cloud\n", '# the end of cloud\nzone = "a"\n')


def test_a_new_section_comes_last() -> None:
    """Of several keys in their order; an empty file gets it alone."""
    assert with_keys(FILE, {"gate": {"a": 1.5, "b": 2}}) == f"{FILE}\n[gate]\na = 1.5\nb = 2\n"
    assert with_keys("", {"cloud": {"a": "x"}}) == '[cloud]\na = "x"\n'


def test_a_key_of_another_section_or_of_a_longer_name_is_another_key() -> None:
    """`region` is not `regions`."""
    text = '[a]\nregions = ["x"]\n[b]\nregion = "y"\n'
    assert tomllib.loads(with_keys(text, {"a": {"region": "z"}})) == {
        "a": {"regions": ["x"], "region": "z"},
        "b": {"region": "y"},
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", '"x"'),
        ('say "so" \\', '"say \\"so\\" \\\\"'),
        (0.25, "0.25"),
        (30, "30"),
        (("a", "b"), '["a", "b"]'),
        ({"a": "b", "c": 1.5}, '{"a" = "b", "c" = 1.5}'),
    ],
)
def test_each_value_is_read_back(value: Any, text: str) -> None:
    """As TOML writes it."""
    assert toml_value(value) == text
    found = tomllib.loads(with_keys(FILE, {"new.part": {"key": value}}))["new"]["part"]["key"]
    assert found == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    "text",
    [
        'cloud = {region = "x"}\n',
        '[cloud]\nregion = """\nx"""\n',
        "[cloud]\nregion = [\n  1,\n]\n",
        "[cloud\n",
        'cloud.region = "x"\n[cloud]\n',
    ],
)
def test_a_file_that_cannot_be_changed_is_left_alone(tmp_path: Path, text: str) -> None:
    """The error says what to set by hand."""
    (tmp_path / "boa.toml").write_text(text)
    with pytest.raises(InputError, match=r'Set \[cloud\] region = "y"'):
        write_keys(tmp_path / "boa.toml", {"cloud": {"region": "y"}})
    assert (tmp_path / "boa.toml").read_text() == text
    assert not (tmp_path / "boa.toml.before").exists()


def test_the_file_before_is_kept(tmp_path: Path) -> None:
    """A new file has none before it."""
    path = tmp_path / "boa.toml"
    write_keys(path, {"cloud": {"region": "x"}})
    assert not (tmp_path / "boa.toml.before").exists()
    write_keys(path, {"cloud": {"region": "y"}})
    assert (tmp_path / "boa.toml.before").read_text() == '[cloud]\nregion = "x"\n'
    assert path.read_text() == '[cloud]\nregion = "y"\n'
