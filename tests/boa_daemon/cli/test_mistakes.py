"""What a new user types wrong is answered by what is wrong and what to type."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from verbs import exit_code

from boa_daemon.cli.output import was_printed

TWO = Path(__file__).resolve().parents[3] / "examples/two-gpu-types.yaml"
CLASS = "- {{name: v, arrivals_per_hour: 2, phases: [{{size_gpu_hours: 1, speedup: {}}}]}}\n"
BROKEN = {
    "tab.yaml": "budget: {gpus: 6}\nclasses:\n-\tname: v\n",
    "tabbed.yaml": "budget: {gpus: 6}\nclasses:\n- name: v\n\tarrivals_per_hour: 2\n  phases: []\n",
    "bare.yaml": "budget: {gpus: 6}\nclasses:\n" + CLASS.format("{1: 1.0, 2: 1.8}"),
    "typed.yaml": "budget: {usd_per_hour: 6}\ngpu_types: {a10g: {usd_per_gpu_hour: 1.4}}\nclasses:\n"
    + CLASS.format("{a10g: {1: 1.0, 2: 1.8, 4: 3.0, 8: 5.0}}"),
    "unbudgeted.yaml": "gpu_types: {a10g: {usd_per_gpu_hour: 1.4}}\nclasses:\n"
    + CLASS.format("{a10g: {table: {1: 1.0}}}"),
    "region.toml": '[cloud]\nprovider = "aws"\nregion = "us-esat-1"\n[daemon]\nstate_dir = "s"\n',
    "provider.toml": '[cloud]\nprovider = "asw"\n[daemon]\nstate_dir = "s"\n',
    "engine.toml": '[engine]\nname = "slurm"\n[daemon]\nstate_dir = "s"\n',
}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "--classes", str(TWO), "--budget", "40000"), "Type 40000/h, 40000/day or 40000/month"),
        (("solve", "typed.yaml", "--budget", "40000"), "Write {table"),
        (("solve", "unbudgeted.yaml", "--budget", "40000"), "does not say for how long"),
        (("solve", "tab.yaml"), "tab.yaml:3: not valid YAML: this line is indented by a TAB"),
        (("solve", "tabbed.yaml"), "tabbed.yaml:4: not valid YAML: this line is indented by a TAB"),
        (("solve", "bare.yaml"), "Write {table: {1: 1.0, 2: 1.8}}"),
        (("solve", "typed.yaml"), "Write {table: {1: 1.0, 2: 1.8, 4: 3.0, ...}}"),
        (("daemon", "--config", "region.toml"), "'us-esat-1' is not known. Near it: "),
        (("daemon", "--config", "provider.toml"), "'asw' is not known. Did you mean 'aws'?"),
        (("daemon", "--config", "engine.toml"), "'slurm' is not known. Known: local, ray, ssm"),
        (("slove", str(TWO)), "Did you mean 'solve'?"),
        (("grafana",), "boa grafana --print > boa.json"),
        (("init", "--gpus", "g5.xlagre", "--folder", "x"), "Did you mean 'g5.xlarge'?"),
    ],
)
def test_a_mistake_is_named_with_what_to_type(
    words: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Exit code 2, no traceback, the file and the line where there is one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    for name, text in BROKEN.items():
        Path(name).write_text(text)
    if words[0] == "daemon":
        # A process of its own: it holds a lock and a database when it finds out.
        command = [sys.executable, "-m", "boa_daemon", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        said = done.stderr
    else:
        assert exit_code(monkeypatch, *words) == 2
        said = capsys.readouterr().err
    said = " ".join(said.replace("│", " ").split())
    assert says in said
    assert "Traceback" not in said


def test_the_fake_cloud_says_which_extra_it_needs(tmp_path: Path) -> None:
    """Without moto, in one sentence."""
    (tmp_path / "moto").mkdir()
    (tmp_path / "moto" / "__init__.py").write_text("raise ImportError('No module named moto')\n")
    path = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r})"
    said = f"{path}; runpy.run_module('boa_daemon.testing.fronts', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].endswith('pip install "boa-daemon[fake-cloud]"')
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "name", "code"),
    [
        (("solve", "none.yaml"), "InputError", 2),
        (("solve",), "UsageError", 2),
        (("solve", str(TWO), "--bogus"), "UsageError", 2),
        (("slove", str(TWO)), "UsageError", 2),
        (("status", "--socket", "none.sock"), "DaemonUnreachable", 5),
    ],
)
def test_under_json_an_error_is_json(
    words: tuple[str, ...],
    name: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One document on standard output with the kind, the sentence and the exit code."""
    for flag in (("--json",), ("-o", "json")):
        assert exit_code(monkeypatch, *words, *flag) == code
        document = json.loads(capsys.readouterr().out)
        assert (document["error"], document["exit_code"]) == (name, code)
        assert document["message"]


def test_an_answer_that_is_infeasible_stays_the_one_document(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`boa plan` answers what the least is, and no second document follows."""
    assert exit_code(monkeypatch, "plan", "--classes", str(TWO), "--budget", "1/h", "--json") == 3
    assert json.loads(capsys.readouterr().out)["status"] == "infeasible"
    assert was_printed()
