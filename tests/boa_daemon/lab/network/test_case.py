import json
from pathlib import Path
from typing import Any, get_args

import pytest

from boa_daemon.errors import InputError
from boa_daemon.lab.network.case import LinkPolicyName, read_case
from policies.links.ada_srsf import DEFAULT_LINK_POLICY, LINK_POLICIES


def a_case(**change: Any) -> dict[str, Any]:
    """Two servers of two GPUs and one job across them."""
    case: dict[str, Any] = {
        "servers": 2,
        "gpus_per_server": 2,
        "gpu_memory_bytes": 10,
        "shared_gpus": True,
        "link": {
            "latency_seconds": 0.000669,
            "seconds_per_byte": 8.56e-10,
            "contention_seconds_per_byte": 2.35e-10,
        },
        "placer": "lwf",
        "kappa": 1,
        "link_policy": "ada-srsf",
        "jobs": [a_job("0")],
        "placement": {"0": [[0, 0], [1, 0]]},
    }
    return {**case, **change}


def a_job(name: str, **change: Any) -> dict[str, Any]:
    job = {
        "id": name,
        "gpus": 2,
        "iterations": 1,
        "forward_seconds": 1.0,
        "backward_seconds": 1.0,
        "message_bytes": 4,
        "memory_bytes": 6,
        "arrived_at_seconds": 0.0,
    }
    return {**job, **change}


def written(folder: Path, case: dict[str, Any]) -> Path:
    path = folder / "case.json"
    path.write_text(json.dumps(case, indent=1))
    return path


def test_a_case_becomes_an_experiment(tmp_path: Path) -> None:
    experiment = read_case(written(tmp_path, a_case()))
    assert experiment.cluster.gpus == 4
    assert experiment.pinned == {0: (0, 2)}
    assert experiment.jobs[0].message_bytes == 4
    assert experiment.link_policy.max_at_once == 2


def test_optional_fields_of_a_case_have_defaults(tmp_path: Path) -> None:
    """Placement, placer, policy, memory and arrival are optional."""
    case = a_case(
        jobs=[{k: v for k, v in a_job("0").items() if k not in {"memory_bytes", "arrived_at_seconds"}}]
    )
    for key in ("placement", "placer", "kappa", "link_policy", "shared_gpus"):
        del case[key]
    experiment = read_case(written(tmp_path, case))
    assert experiment.placer == "lwf"
    assert experiment.kappa == 1
    assert experiment.cluster.shared_gpus
    assert experiment.link_policy.bucket_bytes == 25_000_000


def test_the_case_format_names_every_link_policy() -> None:
    assert set(get_args(LinkPolicyName)) == set(LINK_POLICIES)
    assert DEFAULT_LINK_POLICY in LINK_POLICIES


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"placement": {"0": [[0, 0], [2, 0]]}}, "names server 2; servers are 0 to 1"),
        ({"placement": {"0": [[0, 0], [-1, 0]]}}, "names server -1"),
        ({"placement": {"0": [[0, 0], [1, 2]]}}, "names GPU 2 of server 1; GPUs are 0 to 1"),
        ({"placement": {"0": [[0, 0]]}}, "lists 1 workers; the job has 2"),
        ({"placement": {"0": [[0, 0], [1]]}}, r"a pair \[server, gpu\]"),
        ({"placement": {"1": [[0, 0], [1, 0]]}}, "a job '1' that is not in jobs"),
        ({"placement": {"0": [[0, 0], [0, 0]]}}, "12 bytes on server 0, GPU 0; it has 10"),
        (
            {"shared_gpus": False, "placement": {"0": [[0, 0], [0, 0]]}},
            "two workers of job '0' on server 0, GPU 0, but GPUs are not shared",
        ),
        ({"jobs": [a_job("0"), a_job("0")]}, "two jobs have the id '0'"),
        ({"jobs": []}, "jobs must be a list of at least one item"),
        ({"jobs": [a_job("0", gpus=5)], "placement": {}}, "asks for 5 GPUs; the cluster has 4"),
        ({"jobs": [a_job("0", memory_bytes=11)]}, "needs 11 bytes on each GPU; a GPU has 10"),
        ({"jobs": [a_job("0", message_bytes=-4)]}, "message_bytes must be at least 0; got -4"),
        ({"jobs": [a_job("0", iterations=0)]}, "iterations must be at least 1; got 0"),
        ({"jobs": [a_job("0", iterations=1.5)]}, "iterations must be a whole number; got 1.5"),
        ({"jobs": [a_job("0", forward_seconds=float("nan"))]}, "forward_seconds must be"),
        ({"jobs": [a_job("0", arrived_at_seconds="soon")]}, "arrived_at_seconds must be a number"),
        ({"servers": 0}, "servers must be at least 1; got 0"),
        ({"servers": 10**6, "gpus_per_server": 10**6}, "1000000000000 GPUs are too many"),
        ({"gpu_memory_bytes": -1}, "gpu_memory_bytes must be more than zero"),
        ({"placr": "lwf"}, "unknown key 'placr'. Did you mean 'placer'"),
        (
            {"jobs": [a_job("0", message_byte=4)]},
            "unknown key 'message_byte' in .*Did you mean 'message_bytes'",
        ),
        ({"link_policy": "srsf"}, "link_policy must be one of"),
        ({"placer": "best"}, "placer must be one of"),
        ({"threshold": -1}, "threshold must be at least 0"),
        ({"bucket_bytes": 0}, "bucket_bytes must be more than zero"),
        ({"max_wait_seconds": -1}, "max_wait_seconds must be at least 0"),
    ],
)
def test_impossible_cases_are_refused(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    """The error is one line and names the file."""
    with pytest.raises(InputError, match=says) as caught:
        read_case(written(tmp_path, a_case(**change)))
    assert "case.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrong", [0, -1e-9, float("inf"), float("nan")])
def test_an_invalid_seconds_per_byte_is_refused(tmp_path: Path, wrong: float) -> None:
    case = a_case()
    case["link"]["seconds_per_byte"] = wrong
    with pytest.raises(InputError, match="seconds_per_byte must be"):
        read_case(written(tmp_path, case))


def test_two_jobs_pinned_to_one_gpu_must_fit_its_memory(tmp_path: Path) -> None:
    jobs = [a_job("0", gpus=1), a_job("1", gpus=1)]
    case = a_case(jobs=jobs, placement={"0": [[0, 0]], "1": [[0, 0]]})
    with pytest.raises(InputError, match="12 bytes on server 0, GPU 0"):
        read_case(written(tmp_path, case))
    small = [{**job, "memory_bytes": 5} for job in jobs]
    assert read_case(written(tmp_path, {**case, "jobs": small})).pinned == {0: (0,), 1: (0,)}
    with pytest.raises(InputError, match="jobs '0' and '1' on server 0, GPU 0"):
        read_case(written(tmp_path, {**case, "jobs": small, "shared_gpus": False}))


def test_broken_json_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "case.json"
    path.write_text('{"servers": 2,\n "gpus_per_server": }\n')
    with pytest.raises(InputError, match=r"case\.json:2: not valid JSON"):
        read_case(path)


def test_a_wrong_value_names_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, a_case(servers=-1))
    with pytest.raises(InputError, match=r"case\.json:2: servers"):
        read_case(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file"):
        read_case(tmp_path / "nothing.json")
