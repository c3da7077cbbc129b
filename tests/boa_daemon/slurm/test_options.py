"""Options of sbatch: those on how a job is queued are kept, others refused."""

from __future__ import annotations

import pytest

from boa_daemon.slurm.options import kept_options


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([], []),
        (["--qos=high", "--account", "ml"], ["--qos=high", "--account=ml"]),
        (["-p", "gpu", "-Aml", "-t", "1-0"], ["--partition=gpu", "--account=ml", "--time=1-0"]),
        (["--contiguous"], ["--contiguous"]),
        (["-p=gpu", "-q", "hi"], ["--partition=gpu", "--qos=hi"]),
        (["--constraint=a&b c"], ["--constraint=a&b c"]),
    ],
)
def test_options_are_kept_in_one_form(given: list[str], kept: list[str]) -> None:
    """Long and short, with the value beside or behind."""
    assert kept_options(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        ["--uid=0"], ["--gid", "0"], ["--wrap=id"], ["--comment=boa:x"], ["--nodelist=n1"], ["-w", "n1"],
        ["--output=/etc/passwd"], ["--export=ALL"], ["--chdir=/"], ["--array=0-9"], ["--parsable"], ["-D/"],
        ["--qos"], ["--qos", "--account=x"], ["high"], ["--qos=a\nb"], ["--exclusive"], [""],
    ],
)  # fmt: skip
def test_other_options_are_refused(given: list[str]) -> None:
    """Who the job is, what it runs, where it writes, and how BOA finds it again."""
    with pytest.raises(ValueError, match="slurm_options"):
        kept_options(given)


@pytest.mark.parametrize(
    "given", [["--priority=9"], ["--nice=-1"], ["--nice", " -1"], ["--nice=- 1"], ["--nice=x"]]
)
def test_who_is_no_operator_raises_no_priority(given: list[str]) -> None:
    """Slurm would take these from root, who submits for the user."""
    kept_options(given)
    with pytest.raises(ValueError, match="for operators of Slurm"):
        kept_options(given, as_operator=False)
    assert kept_options(["--nice=5", "--qos=a"], as_operator=False) == ["--nice=5", "--qos=a"]
