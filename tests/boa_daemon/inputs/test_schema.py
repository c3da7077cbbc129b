"""A number is not changed on the way in, nor in a hint: what was typed is quoted, with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from boa_daemon.daemon.settings.setting_layers import load_settings
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import read_document
from boa_daemon.inputs.groups import members
from boa_daemon.inputs.job_file import check_job
from boa_daemon.inputs.schema import number_hint

JOB = "name: j\nclass: c\nrun: python train.py\n"
HINTS = {
    "max_usd: 12,50": "Write 12.50,",
    "max_usd: 1,250": "write 1250 or 1.250,",
    "max_usd: 1,250,000": "Write 1250000,",
    "max_usd: 1.250,50": "Write 1250.50,",
    "max_usd: 1 250": "Write 1250,",
    "max_usd: 1'250": "Write 1250,",
    "max_usd: 1_250": "Write 1250,",
    "max_usd: $12,50": "Write 12.50,",
    'max_usd: "008"': "Write 8,",
    "environment: {PYTHON_VERSION: 3.10}": 'quotes around it: "3.10"',
    "environment: {RUN: 1e3}": 'quotes around it: "1e3"',
    "environment: {ZIP: 01234}": 'quotes around it: "01234"',
    "environment: {NUMBER: 08}": 'quotes around it: "08"',
    "environment: {PHONE: +4930}": 'quotes around it: "+4930"',
    "environment: {HALF: .5}": 'quotes around it: ".5"',
    "environment: {DOT: 5.}": 'quotes around it: "5."',
    "environment: {BIG: 12345678901234567890123}": '"12345678901234567890123"',
    "environment: {FLAG: True}": 'quotes around it: "True"',
    "environment: {EMPTY: null}": '"null"',
    "environment: {TILDE: ~}": '"~"',
    "name2: 1": "unknown key",
    "max_gpus: 1.5e0": "got 1.5e0",
    "max_gpus: 2.50": "got 2.50",
    "max_gpus: 0x10": "Write 16,",
    "max_gpus: 0o17": "Write 15,",
    "max_hours: 90m": "Write a number without a unit, as 'max_hours' counts it",
    "max_hours: 5h": "Write 5,",
    "memory_gb: 500MB": "Write a number without a unit",
    "memory_gb: 16GB": "Write 16,",
    "weight: 50%": "Write 0.5: it is a fraction",
}
UNCHANGED = {
    "COUNTRY: no": "no",
    "SWITCH: on": "on",
    "DAY: 2024-01-01": "2024-01-01",
    "TIME: 1:30": "1:30",
    "HEX: 0x1F": "0x1F",
    "OCTAL: 0o17": "0o17",
    "GROUPED: 1_000": "1_000",
    "VERSION: 3.10.2": "3.10.2",
}


def job(tmp_path: Path, line: str) -> dict[str, object]:
    """Return the content of a job file whose fourth line is given."""
    file = tmp_path / "job.yaml"
    file.write_text(f"{JOB}{line}\n")
    return dict(check_job(read_document(file)))


@pytest.mark.parametrize("line", HINTS)
def test_a_hint_quotes_what_was_typed(tmp_path: Path, line: str) -> None:
    """Commas, underscores, zeros, exponents, other bases and units, in a job file."""
    with pytest.raises(InputError) as refused:
        job(tmp_path, line)
    assert refused.value.line == 4
    assert HINTS[line] in str(refused.value)


@pytest.mark.parametrize("line", UNCHANGED)
def test_text_without_quotes_reaches_the_job_unchanged(tmp_path: Path, line: str) -> None:
    """Norway, dates, times, and numbers of other notations."""
    name, value = line.split(": ")
    assert (
        job(tmp_path, f"environment: {{{line}}}")["environment"] == {name: value} == {name: UNCHANGED[line]}
    )


def test_a_value_of_a_matrix_reaches_the_job_as_typed(tmp_path: Path) -> None:
    """3.10 is not 3.1; a number that reads back as it was typed stays a number."""
    content = job(tmp_path, "matrix: {PYTHON: [3.10, 3.9], STEPS: [1e3, 007], DEEP: [true]}")
    found = [one["environment"] for one in members(content)]
    assert [(row["PYTHON"], row["STEPS"], row["DEEP"]) for row in found] == [
        ("3.10", "1e3", "true"),
        ("3.10", "007", "true"),
        ("3.9", "1e3", "true"),
        ("3.9", "007", "true"),
    ]
    assert content["matrix"] == {"PYTHON": ["3.10", 3.9], "STEPS": ["1e3", "007"], "DEEP": [True]}


SETTINGS = {
    "usd_per_hour = 12,50": "Write usd_per_hour = 12.50",
    "usd_per_hour = 1,250": "Write usd_per_hour = 1250, or 1.250 if the comma is decimal",
    "usd_per_hour = 08": "Write usd_per_hour = 8",
    "usd_per_hour = .5": "Write usd_per_hour = 0.5",
    "usd_per_hour = 5.": "Write usd_per_hour = 5.0",
    "usd_per_hour = null": "leave the key out",
    'usd_per_hour = "1.250,50"': "Write 1250.50,",
    "max_instances = 1e1": "got 1e1. Write 10",
    "max_instances = 4.0": "got 4.0. Write 4",
}


@pytest.mark.parametrize("line", SETTINGS)
def test_a_hint_about_a_setting_quotes_what_was_typed(tmp_path: Path, line: str) -> None:
    """TOML has its own rules for numbers, and the hint follows them."""
    file = tmp_path / "boa.toml"
    file.write_text(f"[budget]\n{line}\n")
    with pytest.raises(InputError) as refused:
        load_settings(file, environment={})
    assert refused.value.line == 2
    assert SETTINGS[line] in str(refused.value)


@pytest.mark.parametrize("text", ["", "twelve", "1,25.5", "1,2,3", "1:30", "12,", "--5"])
def test_what_is_no_number_gets_no_hint(text: str) -> None:
    """A hint with a wrong number is worse than none."""
    assert number_hint(text, key="max_usd") == ""
