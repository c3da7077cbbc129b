"""The report of a failed job names the unit that failed first."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from boa_daemon.engines.run_reports import Generation, report_of

RUN = Generation(job="a", number=1, gpus=4)
ABORT = {"code": -6, "at": 10.0}
ENDED_BY_US = {"code": -9, "killed": True, "at": 9.0}
"""Its node's clock is a second behind."""
ENDED_KINDLY = {"code": 1, "killed": True, "at": 11.0}
LOST_ITS_PEER = {"code": 1, "at": 12.0, "failure": ("DistNetworkError", "connection closed by peer", 10.2)}
WAITED_FOR_IT = {"code": 1, "at": 9.5, "failure": ("PeerLost", "the first rank is gone", 9.4)}
NO_MEMORY = {"code": 1, "at": 13.0, "failure": ("OutOfMemoryError", "CUDA out of memory", 10.1)}


def a_unit(rank: int, *, code: int, at: float, killed: bool = False, failure: Any = None) -> dict[str, Any]:
    """Return the status of a unit that has ended."""
    end = {"code": code, "stop_asked": False, "killed": killed, "out_of_memory": False, "ended_at": at}
    kind, said, raised = failure or ("", "", 0.0)
    return {
        "job": "a", "generation": 1, "rank": rank, "is_kept": False, "was_kept": True, "progress": None,
        "exit": {**end, "is_done": False, "lacks_result": False, "lingering": 0},
        "manifest": None, "wrong_manifest": "", "last_lines": [f"of exit {code}"],
        "failure": {"kinds": [kind], "errno": None, "said": said, "at": raised} if failure else None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "code", "cause", "said"),
    [
        ([ABORT, ENDED_BY_US], -6, "signal", "ended with signal 6: of exit -6"),
        ([ABORT, ENDED_BY_US, ENDED_KINDLY], -6, "signal", "ended with signal 6: of exit -6"),
        ([NO_MEMORY, LOST_ITS_PEER], 1, "out-of-memory", "ended with exit code 1: CUDA out of memory"),
        ([NO_MEMORY, WAITED_FOR_IT, ENDED_BY_US], 1, "out-of-memory", "CUDA out of memory"),
        ([ENDED_BY_US], -9, "signal", "ended with signal 9"),
    ],
)
def test_the_unit_that_failed_first_gives_the_cause_at_any_rank(
    ends: list[dict[str, Any]], code: int, cause: str, said: str
) -> None:
    """A unit that was ended by the daemon or lost its peer is not the cause."""
    for order in permutations(ends):
        report = report_of(RUN, [a_unit(rank, **end) for rank, end in enumerate(order)])
        assert (report.phase, report.exit_code, report.cause) == ("failed", code, cause)
        assert said in report.evidence


def test_without_end_times_the_lowest_rank_gives_the_cause() -> None:
    """Nodes of earlier versions report no time of the end."""
    units = [a_unit(rank, code=code, at=0.0) for rank, code in enumerate((3, 4))]
    for unit in units:
        del unit["exit"]["ended_at"]
    assert report_of(RUN, units).exit_code == 3


def test_a_generation_whose_folder_is_gone_is_not_known() -> None:
    """As on a disk that is not mounted: the report says so, and the reports of other jobs are not lost."""
    report = report_of(RUN, [])
    assert (report.phase, report.evidence) == ("unknown", "the folder of its processes is gone")
