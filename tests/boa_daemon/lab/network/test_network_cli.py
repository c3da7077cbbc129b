import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from boa_daemon.cli import app
from boa_daemon.errors import InputError
from boa_daemon.lab.network import compiled
from policies.links.contention import ETHERNET_10G

ROOT = Path(__file__).resolve().parents[4]
CASE = ROOT / "examples" / "network-case.json"


def boa_network(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["network", *map(str, words)])


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Sixty timings of the paper's link with 3 % noise."""
    rng = np.random.default_rng(1)
    path = tmp_path / "samples.csv"
    rows = ["messages_at_once,message_bytes,seconds"]
    for k in (1, 2, 3, 4):
        for size in (1e6, 1e7, 1e8):
            for _ in range(5):
                seconds = ETHERNET_10G.seconds(size, messages_at_once=k) * (1 + 0.03 * rng.standard_normal())
                rows.append(f"{k},{size:.0f},{seconds:.9f}")
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize("flag", [["--json"], ["-o", "json"]])
def test_json_output_is_one_document(flag: list[str]) -> None:
    result = boa_network("simulate", CASE, *flag)
    answer = json.loads(result.stdout)
    assert result.exit_code == 0
    assert set(answer) == {
        "jobs",
        "mean_jct_seconds",
        "median_jct_seconds",
        "p95_jct_seconds",
        "gpu_utilisation_fraction",
        "makespan_seconds",
        "events",
    }
    assert set(answer["jobs"][0]) == {"id", "finished_at_seconds", "jct_seconds"}
    assert answer["mean_jct_seconds"] == pytest.approx(
        np.mean([job["jct_seconds"] for job in answer["jobs"]])
    )


def test_strict_is_a_flag_and_a_key_of_the_case(tmp_path: Path) -> None:
    """Both give the same answer, another than without; policies other than SRSF(n) refuse it."""
    case = json.loads(CASE.read_text()) | {"link_policy": "srsf-1"}
    (tmp_path / "case.json").write_text(json.dumps(case))
    (tmp_path / "strict.json").write_text(json.dumps(case | {"strict": True}))

    plain = boa_network("simulate", tmp_path / "case.json", "--json")
    flag = boa_network("simulate", tmp_path / "case.json", "--strict", "--json")
    key = boa_network("simulate", tmp_path / "strict.json", "--json")
    refused = boa_network("simulate", CASE, "--strict")

    assert plain.exit_code == flag.exit_code == key.exit_code == 0
    assert flag.stdout == key.stdout
    assert isinstance(refused.exception, InputError)
    assert "'ada-srsf-buckets' has no strict reading" in str(refused.exception)


def test_the_table_shows_the_mean_jct() -> None:
    result = boa_network("simulate", CASE)
    assert result.exit_code == 0
    assert "mean JCT" in result.stdout


def test_csv_has_a_row_per_job() -> None:
    result = boa_network("simulate", CASE, "-o", "csv")
    assert result.stdout.splitlines()[0] == "id,finished_at_seconds,jct_seconds"


def test_bad_input_is_an_input_error(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text("{}")
    assert isinstance(boa_network("simulate", path, "--json").exception, InputError)


def test_the_compiled_engine_without_numba_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The default engine then runs in plain Python."""
    monkeypatch.setattr("boa_daemon.lab.network.simulate.compiled_run", lambda: None)
    monkeypatch.setattr("boa_daemon.lab.network.simulate.COMPILE_ABOVE_EVENTS", 0)
    assert "pip install 'numba" in str(boa_network("simulate", CASE, "--engine", "compiled").exception)
    assert boa_network("simulate", CASE, "--json").exit_code == 0


def test_numba_that_cannot_be_imported_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(compiled.importlib, "import_module", refuse)
    assert compiled.compiled_run.__wrapped__() is None


def test_fit_recovers_the_links_constants(samples: Path) -> None:
    answer: dict[str, Any] = json.loads(boa_network("fit", samples, "--json").stdout)
    assert answer["link"]["seconds_per_byte"] == pytest.approx(8.56e-10, rel=0.03)
    low, high = answer["intervals"]["contention_seconds_per_byte"]
    assert low <= 2.35e-10 <= high
    assert answer["adadual_threshold"] == pytest.approx(0.3923, abs=0.02)
    assert answer["samples"] == 60


def test_fit_prints_a_table_and_csv(samples: Path) -> None:
    assert "AdaDUAL threshold" in boa_network("fit", samples).stdout
    assert boa_network("fit", samples, "-o", "csv").stdout.startswith("constant,value,low,high")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "messages_at_once,message_bytes,seconds\n1,1000,0.1\n1,1000,0.1\n2,1000,0.2\n3,1000,0.3\n",
            "two sizes",
        ),
        ("messages_at_once,message_bytes,seconds\n1,1000,-0.1\n", "seconds must be more than zero"),
        ("k,message_bytes,seconds\n1,1000,0.1\n", "unknown column 'k'"),
        ("messages_at_once,message_bytes,seconds\n", "no samples found"),
        ("messages_at_once,message_bytes,seconds\n1.5,1000,0.1\n", "must be a whole number"),
    ],
)
def test_unusable_samples_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "samples.csv"
    path.write_text(text)
    error = boa_network("fit", path).exception
    assert isinstance(error, InputError)
    assert says in str(error)
    assert "samples.csv" in str(error)
