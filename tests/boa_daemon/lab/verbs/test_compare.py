"""`boa compare`: JSON, tables, CSV, pictures, the report, and wrong flags."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from boa_daemon.cli import app, main
from boa_daemon.errors import InputError
from boa_daemon.lab.compare import tune
from boa_daemon.sim.wiring import PreparedRun, SimulationSettings
from policies.errors import InfeasibleBudget, UnknownPolicy

CLASSES = """
gpu_types: {gpu: {usd_per_gpu_hour: 1.0}}
classes:
- name: vision
  phases: [{size_gpu_hours: 1.0, speedup: {table: {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.0}}}]
"""
RIVALS = ["--policy", "equal-width", "--policy", "static-equal", "--on", "local:1"]


@pytest.fixture
def case(tmp_path: Path) -> list[str]:
    """Write a trace of twelve jobs and a class file, and return the flags that name them."""
    rows = "".join(f"j{n},{n * 600},vision\n" for n in range(12))
    (tmp_path / "trace.csv").write_text("job_id,arrived_at_seconds,class_name\n" + rows)
    (tmp_path / "classes.yaml").write_text(CLASSES)
    return ["--trace", str(tmp_path / "trace.csv"), "--classes", str(tmp_path / "classes.yaml")]


def boa(*arguments: str) -> Result:
    """Run the command line; an error stays an exception."""
    return CliRunner().invoke(app, ["compare", *arguments])


def test_json_output_is_one_document(case: list[str]) -> None:
    """It has a row for each budget, policy and seed, a summary and the floor."""
    result = boa(*case, *RIVALS, "--budget", "20/h", "--budget", "12/h", "--seeds", "2", "--json")

    document = json.loads(result.stdout)
    assert len(document["rows"]) == 2 * 3 * 2
    assert {row["policy"] for row in document["rows"]} == {"boa-paced", "equal-width", "static-equal"}
    assert [line["ratio"]["mean"] for line in document["summary"] if line["policy"] == "boa-paced"] == [
        1.0,
        1.0,
    ]
    assert len(document["floor"]["spend_usd_per_hour"]) == len(
        document["floor"]["lower_bound_mean_jct_hours"]
    )


def test_the_reference_is_the_daemons_policy_and_learns_unless_it_is_told(case: list[str]) -> None:
    """The fixed plan is a rival like any other."""
    learnt, told = (
        json.loads(
            boa(*case, "--policy", "boa", "--budget", "20/h", "--on", "local:1", "--json", *more).stdout
        )
        for more in ([], ["--told"])
    )
    assert (learnt["reference"], learnt["learns"], told["learns"]) == ("boa-paced", True, False)
    assert {row["policy"] for row in told["rows"]} == {"boa-paced", "boa"}
    assert [line["ratio"]["mean"] for line in told["summary"] if line["policy"] == "boa-paced"] == [1.0]


def test_compare_prints_tables_or_csv(case: list[str]) -> None:
    """The output has a table per budget, the lower bound and the workload; CSV has one line per row."""
    table = boa(*case, *RIVALS, "--budget", "20/h").stdout
    header, *rows = boa(*case, *RIVALS, "--budget", "20/h", "-o", "csv").stdout.splitlines()

    assert "Budget $20.00/h" in table
    assert "No policy can beat" in table
    assert "12 jobs arrive" in table
    assert len(rows) == 3
    assert rows[1].split(",")[header.split(",").index("knob")].startswith("gpus_per_job=")


def test_budgets_in_gpus_are_compared_in_gpus(case: list[str]) -> None:
    """gpus:20 is a budget of 20 GPUs."""
    document = json.loads(boa(*case, *RIVALS, "--budget", "gpus:20", "--json").stdout)

    assert document["budget_unit"] == "gpus"
    assert document["rows"][0]["budget"] == 20.0


class Links(HTMLParser):
    """Collects the resources that a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record the tag, and every attribute that points outside the page."""
        self.tags.add(tag)
        for name, value in attrs:
            if name in {"src", "href", "xlink:href", "data", "action"} and not (value or "").startswith("#"):
                self.loads.append(f"{tag} {name}={value}")


def test_the_report_is_one_file_that_loads_no_others(case: list[str], tmp_path: Path) -> None:
    """Pictures are embedded, every policy is in the table, and a second run writes the same file."""
    page = tmp_path / "report.html"
    arguments = [*case, *RIVALS, "--budget", "20/h", "--out", str(tmp_path / "kept")]
    assert boa(*arguments, "--report", str(page)).exit_code == 0
    text = page.read_text()
    links = Links()
    links.feed(text)

    assert links.loads == []
    assert not links.tags & {"script", "link", "img", "iframe", "object", "embed"}
    assert not re.search(r"@import|url\((?!#)", text)
    assert text.count("<svg") == 3
    assert all(f">{name}</td>" in text for name in ("boa-paced", "equal-width", "static-equal"))
    boa(*arguments, "--report", str(page))
    assert page.read_text() == text


def test_the_plot_is_written_as_svg_or_png(case: list[str], tmp_path: Path) -> None:
    """The suffix of the file decides."""
    picture = tmp_path / "money.svg"
    assert boa(*case, *RIVALS, "--budget", "20/h", "--seeds", "2", "--plot", str(picture)).exit_code == 0

    assert picture.read_text().count("<svg") == 1
    assert boa(*case, *RIVALS, "--budget", "20/h", "--plot", str(tmp_path / "money.png")).exit_code == 0
    assert (tmp_path / "money.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "kind", "says"),
    [
        (["--budget", "20"], InputError, "does not say for how long"),
        (["--budget", "20/h", "--budget", "gpus:8"], InputError, "one unit"),
        (["--budget", "20/h", "--budget", "20/h"], InputError, "twice"),
        (["--budget", "20/h", "--budget", "1/h"], InfeasibleBudget, "too small"),
        (["--budget", "20/h", "--policy", "efficency"], UnknownPolicy, "Did you mean 'efficiency'"),
        (["--budget", "20/h", "--plot", "x.txt"], InputError, "is no picture"),
        (["--budget", "20/h", "--report", "x.pdf"], InputError, "is no page"),
        (["--budget", "20/h", "--report", "no/such/folder/x.html"], InputError, "does not exist"),
    ],
)
def test_wrong_flags_are_refused_before_any_run(
    case: list[str],
    flags: list[str],
    kind: type[Exception],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each error says what is wrong."""
    monkeypatch.setattr("boa_daemon.sim.world.SimulatedWorld.run", lambda *_: pytest.fail("a run began"))
    result = boa(*case, *flags)

    assert isinstance(result.exception, kind)
    assert says in str(result.exception)


def test_ctrl_c_keeps_finished_runs_and_exits_with_130(
    case: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says how many runs were kept."""
    real = tune.prepare

    def interrupt(settings: SimulationSettings) -> PreparedRun:
        if settings.policy != "boa-paced":
            raise KeyboardInterrupt
        return real(settings)

    monkeypatch.setattr(tune, "prepare", interrupt)
    kept = tmp_path / "kept"
    monkeypatch.setattr(
        "sys.argv", ["boa", "compare", *case, *RIVALS, "--budget", "20/h", "--out", str(kept)]
    )
    with pytest.raises(SystemExit) as left:
        main()

    assert left.value.code == 130
    runs = len(list(kept.glob("*/*.json")))
    assert runs == 1
    captured = capsys.readouterr()
    assert f"1 of 3 cells are done, {runs} runs kept in" in " ".join(captured.err.split())
    assert captured.out == ""


def test_max_nodes_takes_a_list_or_repeated_flags(case: list[str]) -> None:
    """Each cap gets its rows; the table shows the 95th percentile."""
    sweep = boa(*case, *RIVALS, "--budget", "99/h", "--max-nodes", "1,2", "--json")
    again = boa(*case, *RIVALS, "--budget", "99/h", "--max-nodes", "1", "--max-nodes", "2", "--json")
    table = boa(*case, *RIVALS, "--budget", "99/h", "--max-nodes", "1").stdout

    rows = json.loads(sweep.stdout)["rows"]
    assert rows == json.loads(again.stdout)["rows"]
    assert sorted({row["max_nodes"] for row in rows}) == [1, 2]
    assert "at most 1 node" in table
    assert "p95" in table


@pytest.mark.parametrize("cap", ["0", "x", "8,,12", "-3"])
def test_a_cap_is_a_positive_whole_number(case: list[str], cap: str) -> None:
    """Another value is refused with an example."""
    refusal = boa(*case, *RIVALS, "--budget", "20/h", f"--max-nodes={cap}").exception

    assert isinstance(refusal, InputError)
    assert "positive whole numbers" in str(refusal)
    assert "8,12,16" in str(refusal.hint)
