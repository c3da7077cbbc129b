"""docs/reference/cli.md names exactly the verbs and flags of the program, json-answers.md the keys."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import typer.main

from boa_daemon.cli import app, main
from policies.registry import DEFAULT_POLICY

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
ANSWERS_PAGE = (ROOT / "docs" / "reference" / "json-answers.md").read_text(encoding="utf-8")
SHARED = {"--output", "--json", "--help"}
COMMON = {"--config", "--socket", "--region", "--cluster"}
"""Flags of many verbs, told once; a section names them where they mean something else."""
DEMO = ["--trace", "boa_daemon/data/demo/trace.csv", "--classes", "boa_daemon/data/demo/classes.yaml"]
LISTED = ["calendar", "examples/jobs.csv", "--classes", "boa_daemon/data/demo/classes.yaml"]
TWO = "examples/two-gpu-types.yaml"
OFFERS = "examples/commitments.toml"

# Commands whose answers together hold all keys of a section's tables.
ANSWERS: dict[str, list[list[str]]] = {
    "solve": [["solve", TWO], ["solve", "examples/problem.yaml"], ["solve", TWO, "--budget", "1/h"]],
    "frontier": [["frontier", TWO, "--budgets", "25,30"]],
    "plan": [
        ["plan", "--classes", TWO],
        ["plan", "--classes", "examples/several-machines.yaml", "--world", "examples/spot.yaml"],
    ],
    "commit": [
        ["commit", "--offers", OFFERS, "--classes", TWO, "--budget", "27/h"],
        ["commit", "--offers", OFFERS, *DEMO, "--budget", "30/h"],
    ],
    "simulate": [["simulate", *DEMO, "--budget", "30/h", "--warm-pool", "2"]],
    "compare": [
        [
            *("compare", "--trace", "{tmp}/first.csv", *DEMO[2:], "--budget", "60/h", "--on", "local:1"),
            # A width rule and a fixed fleet, so that the answer splits a gain into parts.
            *("--policy", "equal-width", "--policy", "static-equal"),
        ]
    ],
    "trace import": [
        [
            *("trace", "import", "tests/data/pollux", "--from", "pollux", "--out", "{tmp}"),
            *("--workload", "workloads/workload-1.csv", "--apps", "bert"),
        ]
    ],
    "trace fit": [["trace", "fit", "boa_daemon/data/demo/trace.csv", "--out", "{tmp}/drawn.csv"]],
}


def section(verb: str, page: str = PAGE) -> str:
    """Return a page's section about a verb."""
    return page.split(f"\n## boa {verb}\n")[1].split("\n## ", maxsplit=1)[0]


def keys_of(verb: str, heading: str = "key") -> set[str]:
    """Return the keys of a verb's answer, from the tables whose header begins with this heading."""
    return documented(section(verb, ANSWERS_PAGE), heading)


def verbs() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name, as typer has it."""
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        if getattr(command, "invoke_without_command", False):
            yield name, command
        if hasattr(command, "commands"):
            for inner, leaf in command.commands.items():
                yield f"{name} {inner}", leaf
        else:
            yield name, command


VERBS = dict(verbs())


def answer(arguments: list[str]) -> Any:
    """Return the JSON document of a command run in the checkout; infeasible ones answer too."""
    screen = io.StringIO()
    before, sys.argv = sys.argv, ["boa", *arguments, "--json"]
    try:
        with redirect_stdout(screen):
            main()
    except SystemExit:
        pass
    finally:
        sys.argv = before
    return json.loads(screen.getvalue())


def paths(value: Any, stems: set[str], at: str = "") -> Iterator[str]:
    """Yield each leaf as documented, ``classes[].name``; a path in `stems` is not looked into."""
    if at in stems or not isinstance(value, dict | list):
        yield at
    elif isinstance(value, list):
        for item in value:
            yield from paths(item, stems, f"{at}[]")
    else:
        for key, item in value.items():
            yield from paths(item, stems, f"{at}.{key}" if at else key)


def documented(text: str, heading: str = "key") -> set[str]:
    """Return the keys of a section's tables whose header begins with this heading."""
    found: set[str] = set()
    for table in re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n?)+)", text, re.MULTILINE):
        found |= set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))
    return found


def test_the_page_names_exactly_the_verbs_of_the_program() -> None:
    """The page's table lists the verbs of `boa --help`, and each verb has a section."""
    root: Any = typer.main.get_command(app)
    table = PAGE.split("\n## ")[0]

    assert set(re.findall(r"^\| \[`([a-z-]+)`\]", table, re.MULTILINE)) == set(root.commands)
    assert set(re.findall(r"^## boa (.+)$", PAGE, re.MULTILINE)) == set(VERBS)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_the_page_names_exactly_the_flags_of_a_verb(verb: str) -> None:
    """The table of the section lists the flags of the program and no other; the common ones may lack."""
    real = {
        flag
        for parameter in VERBS[verb].params
        # A hidden flag is a name of before.
        if not getattr(parameter, "hidden", False)
        for flag in (*parameter.opts, *parameter.secondary_opts)
        if flag.startswith("--")
    }
    table = "\n".join(re.findall(r"^\| (`--.*?) \|", section(verb), re.MULTILINE))

    named = set(re.findall(r"`(--[\w-]+)`", table))
    assert real - SHARED - COMMON <= named <= real - SHARED


def test_the_common_flags_are_told_once() -> None:
    """In the table above the verbs."""
    table = PAGE.partition("## Common flags and exit codes")[2].partition("## ")[0]
    assert {flag for flag in COMMON | SHARED if f"`{flag}`" in table} == COMMON | SHARED - {"--help"}


@pytest.mark.parametrize(
    "verb",
    [
        pytest.param(verb, marks=pytest.mark.exhaustive if verb == "compare" else ())
        for verb in sorted(ANSWERS)
    ],
)
def test_the_page_names_exactly_the_keys_of_real_answers(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The section's table lists the keys of the verb's answers and no other."""
    monkeypatch.chdir(ROOT)
    (tmp_path / "first.csv").write_text("".join(Path(DEMO[1]).read_text().splitlines(keepends=True)[:26]))
    stems = keys_of(verb)
    found = {
        path
        for arguments in ANSWERS[verb]
        for path in paths(answer([word.format(tmp=tmp_path) for word in arguments]), stems)
    }
    if verb == "plan":
        found -= set(keys_of("solve"))
        found -= {path for path in found if path.startswith("floor_weighted")}
    if verb == "frontier":
        found = {"points[]" if path.startswith("points[]") else path for path in found}

    assert found == {stem for stem in stems if not (verb == "trace import" and stem == "notes[]")}


def test_the_page_names_the_keys_of_an_answer_for_a_job_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a list the answer has other keys; an infeasible budget is included."""
    monkeypatch.chdir(ROOT)
    stems = keys_of("calendar", "key of a list")
    found = set(paths(answer([*LISTED, "--min-budget"]), stems))
    found |= set(paths(answer([*LISTED, "--budget", "1"]), stems))

    assert found == stems - {"least_hours"}


@pytest.mark.parametrize(
    "arguments", [["plan", "--classes", TWO, "--budget", "27/h"], ["simulate", *DEMO, "--budget", "40/h"]]
)
def test_the_page_names_the_keys_of_commitments(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of `plan` and `simulate` have the same keys about commitments."""
    monkeypatch.chdir(ROOT)
    paid = answer([*arguments, "--commitments", OFFERS])["commitments"]

    assert {f"commitments.{key}" for key in paid} == keys_of("plan", "key of commitments")


def test_the_page_names_the_keys_of_a_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is for a monthly budget and a quota; it misses a deadline, so every key is there."""
    monkeypatch.chdir(ROOT)
    stems = keys_of("calendar", "key of a calendar")

    assert set(paths(answer([*LISTED, "--budget", "5/month", "--quota", "t4=1"]), stems)) == stems


@pytest.mark.exhaustive
def test_the_demo_answers_with_runs_of_boa_and_its_rivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs have the keys of `boa simulate`, a name and the JCT at equal money; BOA comes first."""
    monkeypatch.chdir(ROOT)
    document = answer(["demo"])

    names = [run["name"] for run in document["runs"]]
    assert names[0] == "boa"
    assert {name.split(",")[0] for name in names[1:]} == {"static-equal", "equal-width", "efficiency"}
    assert all(run["finished"] == run["jobs"] for run in document["runs"])
    mine, *rivals = document["runs"]
    assert mine["policy"] == DEFAULT_POLICY
    # The README has the means over five orders of the jobs; one order is within their spread.
    ratios = {run["policy"]: run["equal_money_jct_hours"] / mine["mean_jct_hours"] for run in rivals}
    assert ratios["equal-width"] == pytest.approx(1.21, abs=0.05)
    assert ratios["efficiency"] == pytest.approx(1.26, abs=0.05)
    assert mine["mean_jct_hours"] * 60.0 == pytest.approx(22.7, abs=1.0)

    assert {f"{key}[]" for key in document} == keys_of("demo")
    promises = {key for key in keys_of("simulate") if key.startswith("promises[]")}
    assert len(promises) == 3
    of_pool = {key for key in keys_of("simulate") if key.startswith("warm_pool.")}
    keys = keys_of("simulate") - promises - of_pool
    found = set().union(*(paths(run, keys | promises) for run in document["runs"]))
    assert found - promises == keys | {"name", "equal_money_jct_hours"}
