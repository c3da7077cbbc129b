"""Studies: their files, errors, statistics, pages, and resumption after a kill."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from boa_daemon.cli import app
from boa_daemon.errors import PARTLY_DONE, BoaError, InputError
from boa_daemon.lab.compare.comparison_plots import draw_ratios
from boa_daemon.lab.compare.comparison_summary import Ratio
from boa_daemon.lab.compare.study import (
    CaseRow,
    PairedRatios,
    by_trace,
    regrets,
    rivalry,
    robustness,
    run_study,
)
from boa_daemon.lab.compare.study_file import Study, load_study
from boa_daemon.lab.compare.study_page import StudyReport, page_text, write_report
from boa_daemon.lab.compare.study_worlds import WORLDS
from boa_daemon.lab.traces.importers import import_source
from boa_daemon.sim.wiring import simulate
from boa_daemon.tasks.tasks import Tasks

ROOT = Path(__file__).resolve().parents[4]
SHOCKWAVE, GAVEL = (ROOT / "benchmarks" / "data" / name for name in ("shockwave", "gavel"))
CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 1.0}}
classes:
- name: vision
  phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.0}}}]
"""
STUDY = """
title: Tiny
budgets: [20/h]
policies: [equal-width]
worlds: [calm, failures]
seeds: 2
traces:
- {name: own, trace: trace.csv, classes: classes.yaml}
"""


def written(folder: Path) -> Path:
    """Write a trace of twelve jobs, their class, and a study."""
    rows = "".join(f"j{n},{n * 600},vision\n" for n in range(12))
    (folder / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + rows)
    (folder / "classes.yaml").write_text(CLASSES)
    (folder / "study.yaml").write_text(STUDY)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a study."""
    return written(tmp_path)


def study_of(folder: Path, text: str) -> Study:
    """Write and read a study."""
    (folder / "study.yaml").write_text(text)
    return load_study(folder / "study.yaml")


def test_a_study_has_a_case_for_each_trace_budget_world_and_draw(folder: Path) -> None:
    """Seeds of a trace file reorder its jobs; seeds of a fitted load are draws."""
    text = STUDY.replace("[20/h]", "[20/h, x2]") + (
        "- {name: like, like: trace.csv, classes: classes.yaml, hours: 3, load: 2.0}\n"
    )
    study = study_of(folder, text)

    assert len(study.cases) == 2 * 2 * (1 + 2)
    assert study.cells == 2 * 2 * (2 * 2 + 2 * 2)
    own, *_, like = study.cases
    assert (own.trace, own.world, own.comparison.seeds) == ("own", "calm", 2)
    assert (like.trace, like.draw, like.world, like.comparison.seeds) == ("like", 1, "failures", 1)
    (budget,) = like.comparison.budgets
    jobs = like.comparison.shared.trace
    assert budget.amount == pytest.approx(2.0 * len(jobs.jobs) / jobs.window_hours)


def test_the_example_study_is_read() -> None:
    """The file is `examples/study.yaml`."""
    study = load_study(ROOT / "examples" / "study.yaml")

    assert {case.world for case in study.cases} <= set(WORLDS)
    assert study.cells == 2 * 3 * 2 * 6 * 4


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("seeds: 2", "sedes: 2", "study.yaml:6: unknown key 'sedes'. Did you mean 'seeds'"),
        ("seeds: 2", "seeds: 0", "study.yaml:6: seeds must be at least 1; got 0"),
        ("[20/h]", "[20]", "study.yaml:3: budgets[0] must be text; got 20"),
        ("[20/h]", "['20']", "study.yaml:3: budgets: "),
        ("[20/h]", "[xx]", "budgets: 'xx' is no budget. Write 60/h, 900/day, gpus:48, or x1.5"),
        ("[20/h]", "[x-1]", "budgets: 'x-1' is no budget"),
        ("[20/h]", "[20/h, 20/h]", "study.yaml:3: budgets names 20/h twice. Remove one"),
        ("equal-width", "equal-wdith", "study.yaml:4: "),
        ("[calm", "[calmm", "yaml:5: worlds: there is no world 'calmm'. Did you mean 'calm'?"),
        ("failures]", "zzz]", "Known: bursts, calm, droughts"),
        ("failures]", "no.yaml]", "no.yaml: there is no such file"),
        (
            "trace: trace.csv,",
            "",
            "yaml:8: traces['own'] takes either trace or like, or a source. Write trace: FILE",
        ),
        (
            "classes.yaml}",
            "classes.yaml, hours: 3}",
            "traces['own'].hours is for like. Write like: trace.csv",
        ),
        ("trace: trace.csv", "trace: no.csv", "no.csv: cannot read the trace"),
        (", classes: classes.yaml", "", "traces['own'].classes is missing. A source brings its own classes"),
        ("own, trace: trace.csv", "own, source: {format: sia, path: .}", "classes is not for a source"),
        ("classes.yaml}", "classes.yaml, budgets: [zz]}", "study.yaml:8: budgets: --budget 'zz' has no unit"),
        (
            "classes.yaml}",
            "classes.yaml, worlds: [zz]}",
            "study.yaml:8: worlds: there is no world 'zz'. Known: bursts, calm",
        ),
        (
            "classes.yaml}",
            "classes.yaml, policies: [srtp]}",
            "study.yaml:8: no policy 'srtp'. Did you mean 'srpt'",
        ),
        (
            "trace: trace.csv, classes: classes.yaml}",
            f"source: {{format: shockwave, path: {SHOCKWAVE}, profiles: {GAVEL}, gpu_types: [v10]}}}}",
            "study.yaml:8: source.gpu_types: the jobs of",
        ),
        (STUDY, "- 3\n", "a study file is a mapping; got a list"),
    ],
)
def test_a_wrong_study_file_is_refused_with_its_line_and_a_suggestion(
    folder: Path, old: str, new: str, says: str
) -> None:
    """The message is one sentence."""
    with pytest.raises(InputError) as refused:
        study_of(folder, STUDY.replace(old, new))

    assert says in str(refused.value)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Study, list[CaseRow]]:
    """Run the tiny study in this process."""
    study = study_of(written(tmp_path_factory.mktemp("study")), STUDY)
    seen: list[CaseRow] = []
    found = run_study(study, Tasks(), on_found=seen.append)
    assert len(seen) == len(found) == study.cells == 8
    return study, found


def test_ratios_regret_and_robustness_are_paired(done: tuple[Study, list[CaseRow]]) -> None:
    """Each value is divided by its partner on the same jobs; the mean is geometric."""
    study, found = done
    rows = {(one.case.world, one.cell.policy, one.cell.seed): one.row for one in found if one.row}
    hours = {key: row.mean_jct_hours for key, row in rows.items()}

    rival = next(one for one in rivalry(study, found) if one.world == "failures")
    equal = [rows["failures", "equal-width", seed].equal_spend_mean_jct_hours for seed in (0, 1)]
    waits = [one or hours["failures", "equal-width", seed] for seed, one in enumerate(equal)]
    by_hand = [wait / hours["failures", "boa", seed] for seed, wait in enumerate(waits)]
    assert rival.waiting.mean == pytest.approx(math.sqrt(by_hand[0] * by_hand[1]))
    assert (rival.pairs, rival.unpaid) == (2, equal.count(None))
    home = next(one for one in robustness(study, found) if one.policy == "boa")
    moved = [hours["failures", "boa", seed] / hours["calm", "boa", seed] for seed in (0, 1)]
    assert home.world == "failures"
    assert home.waiting.mean == pytest.approx(math.sqrt(moved[0] * moved[1]))
    assert len(regrets(study, found)) == 4
    assert all(one.waiting.mean >= 1.0 for one in regrets(study, found))


def test_an_unfinished_study_has_a_report(done: tuple[Study, list[CaseRow]]) -> None:
    """The report has only the tables of finished cells."""
    study, found = done

    assert StudyReport.of(study, []).tables() == {}
    some = [set(StudyReport.of(study, found[:n]).tables()) for n in (1, 2, 8)]
    assert some[0] == {"summary", "traces", "regret", "hours", "worlds"}
    assert some[1] - some[0] == {"ratios", "best"}
    assert some[2] - some[1] == {"robustness"}
    assert "1 of 8 cells" in StudyReport.of(study, found[:1]).sentences()[0]


def test_a_trace_may_have_settings_of_its_own(folder: Path) -> None:
    """Other traces keep the values of the study. A public trace is imported."""
    pollux = ROOT / "tests" / "data" / "pollux"
    text = STUDY + (
        "- {name: capped, trace: trace.csv, classes: classes.yaml, budgets: [x4], worlds: [bursts], "
        "boot_seconds: 0, max_nodes: 3, policies: [], seeds: 5, learns: true, groups: [few, alone]}\n"
        f"- {{name: public, source: {{format: pollux, path: {pollux}, workload: workloads/workload-1.csv, "
        "apps: [bert]}, worlds: [calm]}\n"
    )
    study = study_of(folder, text)

    own, _, capped, public = study.cases
    assert (study.budgets, capped.budget, capped.world) == (["20/h", "x4"], "x4", "bursts")
    shared = capped.comparison.shared
    assert (shared.boot_seconds, shared.max_nodes, shared.world.bursts) == (0.0, 3, 1.0)
    assert (capped.comparison.rivals, capped.comparison.seeds, shared.learns) == ((), 5, True)
    mine = own.comparison.shared
    assert (mine.boot_seconds, mine.max_nodes, mine.learns) == (180.0, None, False)
    assert (own.comparison.rivals, own.comparison.seeds) == (("equal-width",), 2)
    assert (study.groups, study.seeds) == (["few", "alone"], {2, 5})
    assert study.of_group("alone").cases == (capped,)
    assert study.of_group("alone").rivals == []
    assert {job.class_name for job in public.comparison.shared.trace.jobs} == {"bert"}
    assert own.comparison.shared.trace == capped.comparison.shared.trace


def test_a_source_can_be_cut_to_some_gpu_types_and_is_imported_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs, sizes and the remaining speeds are those of the source; both traces share one import."""
    calls = []

    def counted(*words: Any) -> Any:
        calls.append(words)
        return import_source(*words)

    monkeypatch.setattr("boa_daemon.lab.compare.study_file.import_source", counted)
    source = f"source: {{format: gavel, path: {GAVEL}, workload: physical_cluster/max_min_fairness.trace"
    both, one = f"{source}, gpu_types: [v100, p100]}}", f"{source}, gpu_types: [v100]}}"
    study = study_of(
        folder,
        f"budgets: [x2]\ntraces:\n- {{name: both, {both}}}\n- {{name: capped, max_nodes: 9, {both}}}\n"
        f"- {{name: one, {one}}}\n",
    )

    shared = [case.comparison.shared for case in study.cases]
    assert len(calls) == 2
    assert shared[0].trace is shared[1].trace
    assert [{kind.name for kind in each.problem.gpu_types} for each in shared] == [
        {"v100", "p100"},
        {"v100", "p100"},
        {"v100"},
    ]
    assert [job.scale for job in shared[0].trace.jobs] == [job.scale for job in shared[2].trace.jobs]
    wide, narrow = (each.problem.classes[0].phases[0] for each in (shared[0], shared[2]))
    assert wide.size_gpu_hours == narrow.size_gpu_hours
    assert wide.speedups["v100"] == narrow.speedups["v100"]


def test_a_line_by_trace_has_the_best_rival_the_gain_and_the_uses_of_gpu_hours(folder: Path) -> None:
    """They are computed here by hand from the rows; rivals' regret does not count boots."""
    text = STUDY.replace("[calm, failures]", "[calm]").replace("[equal-width]", "[equal-width, static-fifo]")
    study = study_of(folder, text + "bound_with_boots: true\n")
    found = run_study(study, Tasks(), on_found=lambda one: None)
    (line,) = by_trace(study, found)
    rows = {(one.cell.policy, one.cell.seed): one.row for one in found if one.row is not None}
    mine = [rows["boa", seed] for seed in (0, 1)]

    def over_ours(policy: str) -> float:
        paid = [rows[policy, seed] for seed in (0, 1)]
        hours = [row.equal_spend_mean_jct_hours or row.mean_jct_hours for row in paid]
        return math.sqrt(hours[0] / mine[0].mean_jct_hours * hours[1] / mine[1].mean_jct_hours)

    ratios = {policy: over_ours(policy) for policy in ("equal-width", "static-fifo")}
    assert line.best is not None
    assert line.best.policy == min(ratios, key=lambda policy: ratios[policy])
    assert line.best.waiting.mean == pytest.approx(min(ratios.values()))
    assert line.gain is not None
    assert (line.gain.fleet, line.gain.rule) == ("static-fifo", "equal-width")
    assert line.gain.total.mean == pytest.approx(ratios["static-fifo"])
    assert line.gain.elasticity.mean * line.gain.optimisation.mean == pytest.approx(line.gain.total.mean)
    assert sum(line.parts.values()) == pytest.approx(1.0)
    bounds = [row.lower_bound_with_boots_mean_jct_hours for row in mine]
    with_boots = [row.mean_jct_hours / bound for row, bound in zip(mine, bounds, strict=True) if bound]
    assert line.regret_with_boots is not None
    assert line.regret_with_boots.mean == pytest.approx(math.sqrt(with_boots[0] * with_boots[1]))
    assert 1.0 <= line.regret_with_boots.mean <= line.regret.mean
    assert line.p95_jct_hours == pytest.approx((mine[0].p95_jct_hours + mine[1].p95_jct_hours) / 2.0)

    summary = {row[0]: row for row in StudyReport.of(study, found).tables()["summary"].rows}
    assert summary["the best rival"][1:4] == ("1", f"{min(ratios.values()):.2f}", "own")
    assert summary["boa over the bound with boots"][2] == f"{line.regret_with_boots.mean:.2f}"


def test_a_block_can_be_that_of_a_group(folder: Path) -> None:
    """Rows, policies and the number of cells are those of the group alone."""
    text = STUDY.replace("[calm, failures]", "[calm]").replace("seeds: 2", "seeds: 1")
    study = study_of(
        folder,
        text + "- {name: few, trace: trace.csv, classes: classes.yaml, policies: [], groups: [alone]}\n",
    )
    found = run_study(study, Tasks(), on_found=lambda one: None)
    page = folder / "page.md"
    blocks = [f"<!-- boa study: {name} -->\nold\n<!-- end -->\n" for name in ("traces", "traces of alone")]
    page.write_text("".join([*blocks, "<!-- boa study: notes of alone -->\n<!-- end -->\n"]))
    write_report(page, StudyReport.of(study, found))
    every, alone, notes = page.read_text().split("<!-- end -->\n")[:3]

    assert "old" not in page.read_text()
    assert [row.split(" | ")[0] for row in every.splitlines() if row.startswith("| ")][2:] == [
        "| own",
        "| few",
    ]
    assert [row.split(" | ")[0] for row in alone.splitlines() if row.startswith("| ")][2:] == ["| few"]
    assert "equal-width" in every
    assert "equal-width" not in alone
    assert "- 1 of 1 cells: 1 trace, 1 budget, 1 world, 1 seed." in notes

    # A group that is run by itself fills in its own blocks, and leaves the others alone.
    one_group = folder / "one-group.md"
    one_group.write_text("".join([*blocks, "<!-- boa study: notes of alone -->\n<!-- end -->\n"]))
    of_alone = study.of_group("alone")
    write_report(
        one_group, StudyReport.of(of_alone, run_study(of_alone, Tasks(), on_found=lambda one: None)), "alone"
    )
    assert one_group.read_text().split("<!-- end -->\n") == [
        blocks[0].removesuffix("<!-- end -->\n"),
        alone,
        notes,
        "",
    ]
    with pytest.raises(InputError, match="no block of the group 'many'"):
        page_text(one_group, of_alone, "many")


@pytest.mark.parametrize(("most", "scale"), [(3.0, "linear"), (30.0, "log")])
def test_one_slow_rival_does_not_press_the_others_together(most: float, scale: str) -> None:
    """Beyond four times the least ratio the figure has a logarithmic scale, with plain numbers."""
    lines = [
        PairedRatios(
            policy=f"p{number}", world="calm", budget="x2", pairs=1, longer=1,
            waiting=Ratio(mean=mean, low=None, high=None),
        )
        for number, mean in enumerate((0.9, 1.2, most))
    ]  # fmt: skip
    (axes,) = draw_ratios(lines, "boa").axes

    assert axes.get_xscale() == scale
    if scale == "log":
        assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "5", "10", "20"]


def test_a_run_below_its_bound_is_reported(done: tuple[Study, list[CaseRow]]) -> None:
    """No policy can do that, so the run or the bound is wrong."""
    study, found = done
    one = found[0]
    assert one.row is not None
    wrong = replace(one, row=replace(one.row, mean_jct_hours=0.9 * one.row.lower_bound_mean_jct_hours))

    assert not any("Below its bound" in words for words in StudyReport.of(study, found).sentences())
    (words,) = [w for w in StudyReport.of(study, [wrong, *found[1:]]).sentences() if "Below its bound" in w]
    assert words.endswith("boa on own, calm, 20/h, seed 0.")


def test_the_report_compares_a_drawn_load_with_its_trace(folder: Path) -> None:
    """Here each job follows another after 20 s, which the fitted load does not reproduce."""
    rows = "".join(f"j{n}-{k},{n * 600 + k},vision\n" for n in range(60) for k in (0, 20))
    (folder / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + rows)
    study = study_of(folder, STUDY.replace("trace: trace.csv", "like: trace.csv"))
    report = StudyReport.of(study, [])

    (load,) = report.to_document()["loads"]
    assert (load["trace"], load["is_like"]) == ("own", False)
    assert "own: Drawn load is NOT like the trace" in report.loads()[0]
    assert "gaps: within 60 s 0.5042 where draws have" in report.loads()[0]


@pytest.mark.exhaustive
def test_the_table_by_trace_has_jct_spend_regret_and_ratios(folder: Path) -> None:
    """The same figures are in the blocks of a Markdown page."""
    (folder / "study.yaml").write_text(
        STUDY.replace("[calm, failures]", "[calm]")
        + "- {name: capped, trace: trace.csv, classes: classes.yaml, max_nodes: 8}\n"
    )
    page = folder / "page.md"
    words = [str(folder / "study.yaml"), "--on", "local:1", "--out", str(folder / "kept")]
    assert boa(*words, "--report", str(page)).exit_code == 0
    document = json.loads(boa(*words, "--json").stdout)

    own, capped = document["traces"]
    rows = [row for row in document["rows"] if row["trace"] == "own"]
    mine = [row for row in rows if row["policy"] == "boa"]
    assert (own["trace"], own["budget"], capped["trace"]) == ("own", "20/h", "capped")
    assert own["mean_jct_hours"] == pytest.approx(sum(row["mean_jct_hours"] for row in mine) / 2.0)
    assert own["spend_over_budget"] == pytest.approx(sum(row["mean_usd_per_hour"] for row in mine) / 40.0)
    assert own["regret"]["mean"] == pytest.approx(math.sqrt(mine[0]["regret"] * mine[1]["regret"]))
    waits = [row["equal_spend_mean_jct_hours"] or row["mean_jct_hours"] for row in rows if row not in mine]
    by_hand = [wait / row["mean_jct_hours"] for wait, row in zip(waits, mine, strict=True)]
    (ratio,) = own["ratios"]
    assert ratio["waiting"]["mean"] == pytest.approx(math.sqrt(by_hand[0] * by_hand[1]))
    assert ratio["longer"] == sum(one > 1.0 for one in by_hand)
    text = page.read_text()
    assert text.startswith("# Tiny\n\n<!-- boa study: summary -->\n\nFrom trace to trace in calm: ")
    assert "<!-- boa study: traces -->\n\nTrace by trace in calm: boa, and rivals over it" in text
    assert f"| {own['regret']['mean']:.2f} | {ratio['waiting']['mean']:.2f}" in text
    assert "loads" not in text

    # Text outside of a block stays, and the old contents of the block go.
    page.write_text("Before.\n<!-- boa study: ratios -->\nold\n<!-- end -->\nAfter.\n")
    assert boa(*words, "--report", str(page)).exit_code == 0
    text = page.read_text()
    assert text.startswith(
        "Before.\n<!-- boa study: ratios -->\n\nWaiting over boa's, for the same money:\n\n| world |"
    )
    assert text.endswith("<!-- end -->\nAfter.\n")
    assert "old" not in text
    for wrong, says in (
        ("<!-- boa study: ratoi -->\n<!-- end -->\n", "no block 'ratoi'. Did you mean 'ratios'"),
        ("<!-- boa study: best of few -->\n<!-- end -->\n", "the study has no group of traces 'few'"),
        ("words", "the page has no block for a study"),
    ):
        page.write_text(wrong)
        assert says in str(boa(*words, "--report", str(page)).exception)
        assert page.read_text() == wrong


def boa(*arguments: str) -> Any:
    """Run `boa study`."""
    return CliRunner().invoke(app, ["study", *arguments])


def test_boa_study_prints_tables_csv_json_and_a_page(folder: Path) -> None:
    """Failed cells are reported and give exit code 4."""
    study = [str(folder / "study.yaml"), "--on", "local:1", "--out", str(folder / "kept")]
    page = folder / "report.html"
    (folder / "study.yaml").write_text(
        STUDY.replace("[20/h]", "[20/h, 0.01/h]").replace("seeds: 2", "seeds: 1")
    )
    table = boa(*study, "--report", str(page))
    assert table.exit_code == PARTLY_DONE, table.output
    document = json.loads(boa(*study, "--json").stdout)
    rows = list(csv.DictReader(io.StringIO(boa(*study, "-o", "csv").stdout)))

    assert "Waiting over boa's, for the same money" in " ".join(table.stdout.split())
    assert "Waiting and spend over those in calm" in " ".join(table.stdout.split())
    assert "Failed: boa on own, calm, 0.01/h, seed 0" in " ".join(table.stdout.split())
    assert {line["policy"] for line in document["ratios"]} == {"equal-width"}
    assert (document["cells"], document["failed"], len(document["rows"])) == (8, 2, 6)
    assert len(rows) == 6
    assert float(rows[0]["mean_jct_hours"]) == document["rows"][0]["mean_jct_hours"]
    text = page.read_text()
    assert ">traces and budgets<" in text
    assert text.count("<table>") == 8
    assert "Run with code " in text
    assert text.count("<svg") == 1
    (folder / "study.yaml").write_text(STUDY.replace("[20/h]", "[0.01/h]"))
    assert isinstance(boa(*study).exception, BoaError)


def rows_of(page: str, block: str) -> list[dict[str, str]]:
    """Return the table of a block of a Markdown page, a row by column; repeated columns keep the first."""
    text = page.split(f"<!-- boa study: {block} -->")[1].split("<!-- end -->", maxsplit=1)[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    columns = lines[0]
    return [dict(zip(reversed(columns), reversed(line), strict=True)) for line in lines[2:]]


def test_the_results_page_has_the_cells_of_its_study_and_the_readme_quotes_it() -> None:
    """No row of the file is missing on the page, and the README has the figures of the 85 short jobs."""
    study = load_study(ROOT / "benchmarks" / "results.yaml")
    page = (ROOT / "docs" / "explanation" / "results.md").read_text(encoding="utf-8")
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())

    # The page is of its last whole run; a study that has grown since has more cells.
    done = re.search(r"- (\d+) of (\d+) cells: ", page)
    assert done is not None
    assert done[1] == done[2]
    assert int(done[1]) <= study.cells
    for block in (
        "summary of every",
        "traces of short jobs",
        "traces of workloads",
        "traces of other traces",
        "traces of weeks",
    ):
        assert f"<!-- boa study: {block} -->" in page
    for group, block in (("every", "hours"), ("at a cap", "best"), ("statements", "worlds")):
        shown = {row["trace"] for row in rows_of(page, f"{block} of {group}")}
        assert shown == set(study.of_group(group).traces)
    (ours,) = rows_of(page, "traces of headline")
    ratios = {row["policy"]: row["ratio"] for row in rows_of(page, "ratios of headline")}
    assert f"Jobs take {ours['waits']} on average" in readme
    for words, policy in (
        ("a tuned parallel efficiency {} times", "efficiency"),
        ("a Pollux-style autoscaler {},", "pollux-autoscale"),
        ("Pollux on its best fixed fleet {}.", "pollux"),
        ("A plan tuned in hindsight takes {}.", "boa"),
    ):
        assert words.format(ratios[policy].split()[0]) in readme
    mean, low, high = ratios["equal-width"].replace(",", "").replace("[", "").replace("]", "").split()[:3]
    assert f"one width for all {mean} ({low} to {high})" in readme


@pytest.mark.exhaustive
def test_a_run_gives_the_mean_jct_of_the_results_page() -> None:
    """The jobs are those of the README, under the daemon's policy, in all their orders."""
    study = load_study(ROOT / "benchmarks" / "results.yaml")
    page = (ROOT / "docs" / "explanation" / "results.md").read_text(encoding="utf-8")
    (ours,) = rows_of(page, "traces of headline")
    (case,) = [case for case in study.cases if case.trace == "85 short jobs"]
    runs = [simulate(case.comparison.settings(cell)) for cell in case.comparison.references()]
    mean = sum(run.mean_jct_hours for run in runs) / len(runs)

    assert float(ours["waits"].removesuffix(" min")) == pytest.approx(60.0 * mean, rel=0.05)


def test_boa_schema_prints_the_schema_of_a_study() -> None:
    """Every property has a description for editors."""
    schema = json.loads(CliRunner().invoke(app, ["schema", "study"]).stdout)

    assert set(schema["required"]) == {"traces", "budgets"}
    assert all("description" in one for one in schema["properties"].values())


@pytest.mark.exhaustive  # Two hundred runs, by two processes and again by one.
def test_a_killed_study_resumes_and_gives_the_same_answer(folder: Path) -> None:
    """The answer is that of a study in one process without a kill."""
    text = STUDY.replace("seeds: 2", "seeds: 4").replace("[equal", "[efficiency, static-fifo, equal")
    (folder / "study.yaml").write_text(text)
    command = [sys.executable, "-m", "boa_daemon", "study", str(folder / "study.yaml"), "--json"]
    kept = folder / "kept"
    first = subprocess.Popen(
        [*command, "--on", "local:2", "--out", str(kept)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while len(list(kept.glob("*/*.json"))) < 60:
        assert first.poll() is None
        time.sleep(0.02)
    first.kill()
    first.wait()

    two = subprocess.check_output([*command, "--on", "local:2", "--out", str(kept)])
    one = subprocess.check_output([*command, "--on", "local:1", "--out", str(folder / "alone")])
    assert two == one
    assert len(list(kept.glob("*/*.json"))) >= 200
