"""The paper's 64-GPU experiment over many paired workloads: the gains of placement and message order.

    python benchmarks/ada_srsf.py                 all parts, about ten minutes on one core
    python benchmarks/ada_srsf.py --part speeds   one part
    python benchmarks/ada_srsf.py --quick         all parts, few workloads, under half a minute
    python benchmarks/ada_srsf.py --plot          only the pictures, from the stored results

Every setting runs the same workloads, so ratios are paired by workload. Results go to
docs/explanation/data/ada-srsf.json, pictures to docs/images/.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.ada_srsf_bug import double_counting
from benchmarks.ada_srsf_plots import draw
from boa_daemon.lab.network.compiled import compiled_run
from boa_daemon.lab.network.model import Experiment, NetworkOutcome, PlacerName
from boa_daemon.lab.network.simulate import simulate
from policies.links.ada_srsf import LinkPolicy, default_bucket_bytes, link_policy
from policies.links.contention import Link

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from paper_jobs import PAPER_CLUSTER, paper_jobs

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "explanation" / "data" / "ada-srsf.json"

POLICIES = ("srsf-1", "srsf-2", "srsf-3", "ada-srsf", "ada-srsf-buckets", "srsf-preemptive")
FAMILY = ("ada-srsf", "ada-srsf-weighted", "ada-srsf-queue", "ada-srsf-buckets")
PLACERS: dict[str, tuple[PlacerName, float]] = {
    "RAND": ("random", 1),
    "FF": ("first-fit", 1),
    "LS": ("list-scheduling", 1),
    **{f"LWF-{kappa}": ("lwf", kappa) for kappa in (1, 2, 4, 8, 16, 32)},
}
SPEEDS = (1.0, 10.0, 25.0, 100.0)
QUANTILES = 101


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row of a table."""

    placer: str = "LWF-1"
    policy: str = "srsf-1"
    gigabits: float = 10.0
    shared: bool = True
    scale: float = 0.01
    threshold: float | None = None
    bucket_bytes: float = 25e6
    max_wait_seconds: float = math.inf
    has_bug: bool = False
    is_strict: bool = False
    contention_over_wire: float | None = None
    paper_form: bool = False


def settings_of(part: str) -> list[Setting]:
    """Return the settings of a part of the report."""
    every = (*POLICIES[:4], *FAMILY[1:], POLICIES[-1])
    if part == "placement":
        return [Setting(placer=placer, policy=policy) for placer in PLACERS for policy in POLICIES]
    if part == "policies":
        sweep = [Setting(policy="ada-srsf", threshold=t) for t in (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1e12)]
        buckets = [
            Setting(policy="ada-srsf-buckets", bucket_bytes=b) for b in (1e6, 5e6, 10e6, 50e6, 100e6, 200e6)
        ]
        patience = [
            Setting(policy=policy, max_wait_seconds=wait)
            for policy in ("srsf-1", "ada-srsf-buckets")
            for wait in (1.0, 5.0, 20.0)
        ]
        return [*(Setting(policy=policy) for policy in every), *sweep, *buckets, *patience]
    if part == "speeds":
        large = [Setting(policy="ada-srsf-buckets", gigabits=speed, bucket_bytes=100e6) for speed in SPEEDS]
        return [*(Setting(policy=policy, gigabits=speed) for speed in SPEEDS for policy in every), *large]
    if part == "exclusive":
        fast = [Setting(policy=policy, gigabits=speed, shared=False) for speed in SPEEDS for policy in every]
        placers = [Setting(placer=placer, policy="srsf-1", shared=False) for placer in ("RAND", "FF", "LS")]
        paper = [
            Setting(policy=policy, gigabits=speed, shared=False, paper_form=True)
            for speed in (10.0, 100.0)
            for policy in POLICIES
        ]
        large = [
            Setting(policy="ada-srsf-buckets", gigabits=speed, shared=False, bucket_bytes=100e6)
            for speed in SPEEDS
        ]
        return [*fast, *placers, *paper, *large]
    if part == "buckets":
        return [
            Setting(policy=policy, gigabits=speed, shared=shared, bucket_bytes=size)
            for shared in (True, False)
            for speed in (25.0, 100.0)
            for policy, size in (
                ("srsf-1", 25e6),
                ("ada-srsf-buckets", default_bucket_bytes(Link.of_gigabits(speed))),
            )
        ]
    if part == "full":
        return [Setting(policy=policy, scale=1.0) for policy in every] + [
            Setting(placer="FF", policy="srsf-1", scale=1.0)
        ]
    if part == "readings":
        # LWF-1 for the messages, and first fit for what placement is worth under Ada-SRSF.
        return [
            Setting(policy=policy, is_strict=strict, contention_over_wire=term, placer=placer)
            for term in (None, 1.0)
            for policy, strict, placer in (
                ("srsf-1", False, "LWF-1"),
                ("srsf-2", False, "LWF-1"),
                ("srsf-1", True, "LWF-1"),
                ("srsf-2", True, "LWF-1"),
                ("ada-srsf", False, "LWF-1"),
                ("ada-srsf", False, "FF"),
                ("ada-srsf-buckets", False, "LWF-1"),
            )
        ]
    if part == "bug":
        honest = [Setting(policy=policy) for policy in ("srsf-1", "srsf-2", "ada-srsf")]
        placers = [Setting(placer="FF", policy="ada-srsf")]
        return [
            *honest,
            *placers,
            Setting(policy="ada-srsf", has_bug=True),
            Setting(placer="FF", policy="ada-srsf", has_bug=True),
        ]
    raise ValueError(f"no part {part!r}")


PARTS = ("placement", "policies", "speeds", "exclusive", "buckets", "full", "bug", "readings")
WORKLOADS = {"full": 20}


def run_one(setting: Setting, seed: int) -> NetworkOutcome:
    """Return the outcome of one workload."""
    placer, kappa = PLACERS[setting.placer]
    link = Link.of_gigabits(setting.gigabits)
    if setting.contention_over_wire is not None:
        link = replace(link, contention_seconds_per_byte=setting.contention_over_wire * link.seconds_per_byte)
    policy: LinkPolicy = link_policy(
        setting.policy,
        link,
        is_strict=setting.is_strict,
        threshold=setting.threshold,
        bucket_bytes=setting.bucket_bytes,
        max_wait_seconds=setting.max_wait_seconds,
    )
    jobs = paper_jobs(seed, scale=setting.scale)
    if setting.paper_form:
        # A job that fills a GPU's memory has the GPU alone, but is placed by the rules for shared GPUs.
        jobs = tuple(replace(job, memory_bytes=PAPER_CLUSTER.gpu_memory_bytes) for job in jobs)
    experiment = Experiment(
        cluster=replace(PAPER_CLUSTER, shared_gpus=setting.shared or setting.paper_form),
        jobs=jobs,
        link_policy=policy,
        placer=placer,
        kappa=kappa,
        seed=seed,
    )
    if setting.has_bug:
        with double_counting():
            return simulate(experiment, engine="python")
    return simulate(experiment, engine="auto" if compiled_run() is None else "compiled")


def measure(setting: Setting, outcomes: list[NetworkOutcome]) -> dict[str, Any]:
    """Return the figures of one setting: means over workloads, in seconds of the full-size workload."""
    scale = setting.scale
    jct = np.array([outcome.jct for outcome in outcomes]) / scale
    return {
        "setting": {key: value for key, value in asdict(setting).items() if value not in (math.inf, None)},
        "mean_jct_seconds": float(jct.mean()),
        "median_jct_seconds": float(np.median(jct, axis=1).mean()),
        "p95_jct_seconds": float(np.percentile(jct, 95, axis=1).mean()),
        "worst_jct_seconds": float(jct.max(axis=1).mean()),
        "gpu_utilisation_fraction": float(np.mean([o.gpu_utilisation_fraction for o in outcomes])),
        "least_slack_seconds": float(min(o.least_slack_seconds for o in outcomes)),
        "events": int(sum(o.events for o in outcomes)),
        "workload_mean_jct_seconds": [round(float(value), 2) for value in jct.mean(axis=1)],
        "jct_quantiles_seconds": [round(float(q), 1) for q in np.quantile(jct, np.linspace(0, 1, QUANTILES))],
    }


def paired_ratio(rows: list[float], base: list[float]) -> dict[str, float]:
    """Return the mean over workloads of row / base, its 95 % interval and its range."""
    ratio = np.array(rows) / np.array(base)
    half = float(stats.t.ppf(0.975, len(ratio) - 1) * ratio.std(ddof=1) / math.sqrt(len(ratio)))
    mean = float(ratio.mean())
    return {
        "ratio": mean,
        "low": mean - half,
        "high": mean + half,
        "least": float(ratio.min()),
        "most": float(ratio.max()),
    }


def add_ratios(rows: list[dict[str, Any]]) -> None:
    """Set each row's ratios to the same setting with SRSF(1), with LWF-1, and not in paper form."""
    by_setting = {json.dumps(row["setting"], sort_keys=True): row for row in rows}
    plain = asdict(Setting())
    for row in rows:
        setting = row["setting"]
        for name, change in (
            ("to_srsf_1", {"policy": "srsf-1"}),
            ("to_lwf_1", {"placer": "LWF-1"}),
            ("to_production", {"paper_form": False}),
        ):
            reference = {**setting, **change}
            if name == "to_srsf_1":
                reference.update({"bucket_bytes": plain["bucket_bytes"], "has_bug": False})
                for key in ("threshold", "max_wait_seconds"):
                    reference.pop(key, None)
            base = by_setting.get(json.dumps(reference, sort_keys=True))
            if base is not None:
                row[name] = paired_ratio(row["workload_mean_jct_seconds"], base["workload_mean_jct_seconds"])


def add_readings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the paper's four ratios for each contention term and each reading of SRSF(n)."""
    found = []
    for term in (None, 1.0):
        times = {
            (row["setting"]["policy"], row["setting"]["is_strict"], row["setting"]["placer"]): row[
                "workload_mean_jct_seconds"
            ]
            for row in rows
            if row["setting"].get("contention_over_wire") == term
        }
        ada, buckets = times["ada-srsf", False, "LWF-1"], times["ada-srsf-buckets", False, "LWF-1"]
        for strict in (False, True):
            one, two = times["srsf-1", strict, "LWF-1"], times["srsf-2", strict, "LWF-1"]
            ratios = {
                "Ada-SRSF / SRSF(1)": paired_ratio(ada, one),
                "Ada-SRSF / SRSF(2)": paired_ratio(ada, two),
                "SRSF(2) / SRSF(1)": paired_ratio(two, one),
                "FF / LWF-1": paired_ratio(times["ada-srsf", False, "FF"], ada),
                "buckets / SRSF(1)": paired_ratio(buckets, one),
                "this SRSF(1) / SRSF(1)": paired_ratio(one, times["srsf-1", False, "LWF-1"]),
            }
            found.append({"contention_over_wire": term, "is_strict": strict, "ratios": ratios})
    return found


def print_readings(readings: list[dict[str, Any]]) -> None:
    """Print the ratios, each with its interval and range over workloads."""
    for reading in readings:
        term = "0.27 of the wire's" if reading["contention_over_wire"] is None else "as large as the wire's"
        print(f"contention {term}, {'to the letter' if reading['is_strict'] else 'messages may pass'}")
        for name, ratio in reading["ratios"].items():
            print(
                f"  {name:24}{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}], "
                f"{ratio['least']:.2f}..{ratio['most']:.2f}"
            )


def run_part(part: str, workloads: int) -> dict[str, Any]:
    """Run a part of the report with a progress bar."""
    settings = settings_of(part)
    began = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    rows = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(part, total=len(settings) * workloads)
        for setting in settings:
            outcomes = []
            for seed in range(1, workloads + 1):
                outcomes.append(run_one(setting, seed))
                progress.advance(task)
            rows.append(measure(setting, outcomes))
    add_ratios(rows)
    answer = {"workloads": workloads, "wall_seconds": round(time.perf_counter() - began, 1), "rows": rows}
    return answer | ({"readings": add_readings(rows)} if part == "readings" else {})


def print_part(part: str, answer: dict[str, Any]) -> None:
    """Print a part as a table."""
    print(f"\n{part}: {answer['workloads']} workloads, {answer['wall_seconds']:.0f} s")
    print(
        f"{'placer':8}{'policy':20}{'Gb/s':>5} {'':14}"
        f"{'mean':>8}{'median':>8}{'p95':>8}{'worst':>8}{'util':>7}  vs SRSF(1)"
    )
    for row in answer["rows"]:
        setting = row["setting"]
        extra = [
            "" if setting["shared"] else "exclusive",
            f"thr {setting['threshold']:g}" if "threshold" in setting else "",
            f"{setting['bucket_bytes'] / 1e6:.3g} MB" if setting["bucket_bytes"] != 25e6 else "",
            f"wait {setting['max_wait_seconds']:g}" if "max_wait_seconds" in setting else "",
            "bug" if setting["has_bug"] else "",
            "paper" if setting["paper_form"] else "",
        ]
        ratio = row.get("to_srsf_1")
        says = f"{ratio['ratio']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]" if ratio else ""
        print(
            f"{setting['placer']:8}{setting['policy']:20}{setting['gigabits']:5g} "
            f"{' '.join(filter(None, extra)):14}"
            f"{row['mean_jct_seconds']:8.0f}{row['median_jct_seconds']:8.0f}"
            f"{row['p95_jct_seconds']:8.0f}{row['worst_jct_seconds']:8.0f}"
            f"{row['gpu_utilisation_fraction']:7.1%}  {says}"
        )


def main() -> None:
    """Run the parts that the flags select."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--workloads", type=int, help="workloads per setting (default 100; full size 20)")
    parser.add_argument("--quick", action="store_true", help="few workloads, nothing stored, under 30 s")
    parser.add_argument("--plot", action="store_true", help="only draw, from the stored results")
    flags = parser.parse_args()
    stored: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not flags.plot:
        for part in flags.part or PARTS:
            if flags.quick and part == "full":
                continue
            workloads = flags.workloads or (3 if flags.quick else WORKLOADS.get(part, 100))
            stored[part] = run_part(part, workloads)
            print_part(part, stored[part])
            print_readings(stored[part].get("readings", []))
            if not flags.quick:
                RESULTS.parent.mkdir(parents=True, exist_ok=True)
                RESULTS.write_text(json.dumps(stored, indent=None, separators=(",", ":")) + "\n")
    if not flags.quick:
        draw(stored, ROOT / "docs" / "images")


if __name__ == "__main__":
    main()
