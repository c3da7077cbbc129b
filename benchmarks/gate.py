"""The gate on real traffic: hosts as network namespaces, rate-limited links, DDP jobs over gloo.

    python benchmarks/gate.py                    all parts, about an hour and a half; needs root and iproute2
    python benchmarks/gate.py --part four        one part
    python benchmarks/gate.py --quick            all parts, few repetitions, about three minutes
    python benchmarks/gate.py --show             only the tables and the picture, from the stored results

Jobs are the four models of arXiv 2002.10105 with bytes and seconds scaled down alike; computing is a sleep,
the gradients are real. In one repetition every policy runs the same jobs, in a newly drawn order; ratios are
paired. Each real time is printed beside that of the network simulator for the same case, on the link as
measured in the same run. Results go to docs/explanation/data/gate.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.gate_cost import measure_overhead, measure_round_trips
from benchmarks.gate_plots import draw
from boa_daemon.gate.benchmark_gate import DEFAULT, NO_GATE, open_benchmark_gate
from boa_daemon.gate.virtual_hosts import (
    NICENESS,
    VirtualHosts,
    WorkerGroup,
    run_jobs,
    start_worker_groups,
    why_not,
)
from boa_daemon.lab.network.model import Cluster, Experiment, NetworkJob
from boa_daemon.lab.network.simulate import simulate
from policies.links.ada_srsf import DEFAULT_LINK_POLICY, LEAST_BUCKET_BYTES, LinkPolicy, link_policy
from policies.links.contention import ETHERNET_10G, Link, LinkFit, LinkSample, fit_link

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from paper_jobs import MODELS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "explanation" / "data" / "gate.json"
PICTURE = ROOT / "docs" / "images" / "gate.png"
TITLES = {
    "two": "2 jobs, 2 hosts",
    "four": "4 jobs, 2 hosts",
    "six": "6 jobs, 3 hosts",
    "eight": "8 jobs, 4 hosts",
    "uplink": "8 jobs, 4 hosts, slow uplink",
}

MEGABITS = 200.0
TIME_SCALE = 0.4
"""Times of messages and of computing over those at the paper's 10 Gbit/s."""
POLICIES = (NO_GATE, "srsf-1", "srsf-2", "ada-srsf", "ada-srsf-buckets", DEFAULT)
CASES: dict[str, list[tuple[int, ...]]] = {
    "two": [(0, 1)] * 2,
    "four": [(0, 1)] * 4,
    "six": [(0, 1), (1, 2), (0, 2), (0, 1), (1, 2), (0, 2)],
    "eight": [(0, 1), (1, 2), (2, 3), (0, 3), (0, 1), (1, 2), (2, 3), (0, 3)],
    "uplink": [(0, 2), (1, 3), (0, 3), (1, 2), (0, 2), (1, 3), (0, 3), (1, 2)],
}
"""Hosts of each job, by case; all jobs have one rank per host."""
BEHIND_UPLINK: dict[str, tuple[int, ...]] = {"uplink": (2, 3)}
"""Hosts on a second switch. In this case cards are twice as fast, and the uplink carries as much as a card in
the other cases: a quarter of what the hosts on one side could send."""
UPLINK = "uplink"
PARTS = [*CASES, "round-trips", "overhead"]
REPETITIONS = {**dict.fromkeys(CASES, 20), "overhead": 6, "round-trips": 1}


def a_job(model: int, iterations: int) -> dict[str, Any]:
    """Return a job of one of the four models, its bytes scaled for the slow link."""
    _, message, forward, backward, _ = MODELS[model]
    wire_seconds = message * ETHERNET_10G.seconds_per_byte * TIME_SCALE
    return {
        "job": "alone",
        "model": model,
        "message_bytes": int(wire_seconds * MEGABITS * 1e6 / 8.0) // 4 * 4,
        "forward_seconds": forward * TIME_SCALE,
        "backward_seconds": backward * TIME_SCALE,
        "iterations": iterations,
    }


def draw_jobs(seed: int, count: int, *, quick: bool) -> list[dict[str, Any]]:
    """Return one draw: models and iterations uniform, arrivals within the first second."""
    draw = np.random.default_rng(seed)
    jobs = []
    for number in range(count):
        job = a_job(
            int(draw.integers(len(MODELS))), int(draw.integers(4, 9) if quick else draw.integers(10, 41))
        )
        jobs.append({**job, "job": f"j{number}", "arrived_at_seconds": float(draw.uniform(0.0, 1.0))})
    return jobs


def bucket_bytes(link: Link) -> float:
    """Return the default bucket: 25 MB scaled like the messages, and at least 30 latencies."""
    scaled = LEAST_BUCKET_BYTES * ETHERNET_10G.seconds_per_byte * TIME_SCALE / link.seconds_per_byte
    return max(scaled, 30 * link.latency_seconds / link.seconds_per_byte)


def calibrate(crews: list[WorkerGroup], *, quick: bool) -> LinkFit:
    """Return the link's constants from jobs that only send: one, two and three at once."""
    samples = []
    for at_once in range(1, min(3, len(crews)) + 1):
        for size in (400_000, 1_600_000) if quick else (400_000, 1_600_000, 4_000_000):
            order = {"forward_seconds": 0.0, "backward_seconds": 0.0, "iterations": 5 if quick else 12}
            answers = run_jobs(crews, [{**order, "job": "c", "message_bytes": size}] * at_once)
            # Use the middle of each run: at its ends only some jobs send.
            for answer in answers:
                middle = answer["iteration_seconds"][2:-2]
                samples.append(
                    LinkSample(messages_at_once=at_once, message_bytes=size, seconds=float(np.mean(middle)))
                )
    return fit_link(samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Figures of single jobs: computing seconds per iteration of each model, and seconds per question."""

    compute_seconds: tuple[float, ...]
    ask_seconds: float


def calibrate_jobs(crews: list[WorkerGroup], link: Link, *, quick: bool) -> Alone:
    """Return the seconds of an iteration besides the message, and of a question, from single jobs."""
    compute, asking = [], []
    for model in range(len(MODELS)):
        job = a_job(model, 6 if quick else 14)
        plain = float(np.median(run_real(crews[:1], NO_GATE, link, [job])[0]["iteration_seconds"][2:]))
        gated = float(np.median(run_real(crews[:1], "srsf-1", link, [job])[0]["iteration_seconds"][2:]))
        compute.append(plain - link.seconds(job["message_bytes"]))
        asking.append(gated - plain)
    return Alone(compute_seconds=tuple(compute), ask_seconds=max(0.0, float(np.mean(asking))))


def run_real(
    crews: list[WorkerGroup], policy: str, link: Link, jobs: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return each job's answer under a policy on real traffic."""
    if policy == NO_GATE:
        return run_jobs(crews, jobs)
    with open_benchmark_gate(policy, link, jobs, bucket_bytes=bucket_bytes(link)) as addresses:
        gated = [{**job, "gate": address} for job, address in zip(jobs, addresses, strict=True)]
        return run_jobs(crews, gated)


def run_simulated(
    seats: list[tuple[int, ...]], policy: str, link: Link, alone: Alone, jobs: list[dict[str, Any]]
) -> list[float]:
    """Return each job's JCT in the network simulator, with constants measured on single jobs."""
    if policy == NO_GATE:
        rule = LinkPolicy(link=link, max_at_once=64)
    else:
        asked = replace(link, latency_seconds=link.latency_seconds + alone.ask_seconds)
        # The simulator does not fill gaps: for the default policy it shows the gain of the order alone.
        name = DEFAULT_LINK_POLICY if policy == DEFAULT else policy
        rule = link_policy(name, asked, bucket_bytes=bucket_bytes(link))
    hosts = 1 + max(host for seat in seats for host in seat)
    experiment = Experiment(
        cluster=Cluster(servers=hosts, gpus_per_server=len(jobs), gpu_memory_bytes=1.0),
        jobs=tuple(
            NetworkJob(
                id=job["job"],
                gpus=len(seat),
                iterations=job["iterations"],
                forward_seconds=0.4 * alone.compute_seconds[job["model"]],
                backward_seconds=0.6 * alone.compute_seconds[job["model"]],
                message_bytes=job["message_bytes"],
                arrived_at_seconds=job["arrived_at_seconds"],
            )
            for job, seat in zip(jobs, seats, strict=True)
        ),
        link_policy=rule,
        pinned={n: tuple(host * len(jobs) + n for host in seat) for n, seat in enumerate(seats)},
    )
    return [float(value) for value in simulate(experiment, engine="python").jct]


def run_case(
    name: str, repetitions: int, *, quick: bool, store: Any, policies: tuple[str, ...] = POLICIES
) -> dict[str, Any]:
    """Run a case: every policy on the same jobs, repetition by repetition."""
    seats = CASES[name]
    began = time.perf_counter()
    behind = BEHIND_UPLINK.get(name, ())
    # If all messages take the uplink, the simulator has two servers: one for each side of the uplink.
    sides = [tuple(int(host in behind) for host in seat) for seat in seats] if behind else seats
    cards_megabits = 2.0 * MEGABITS if behind else MEGABITS
    count = 1 + max(host for seat in seats for host in seat)
    with VirtualHosts(
        count, megabits=cards_megabits, behind_uplink=behind, uplink_megabits=MEGABITS
    ) as hosts:
        crews = start_worker_groups(hosts, seats)
        try:
            fit = calibrate([crew for crew in crews if crew.seats == seats[0]], quick=quick)
            alone = calibrate_jobs(crews, fit.link, quick=quick)
            answer: dict[str, Any] = {
                "link": _link(fit),
                "alone": asdict(alone),
                "bucket_bytes": bucket_bytes(fit.link),
                "repetitions": [],
            }
            for seed in range(1, repetitions + 1):
                jobs = [
                    {**job, "uplinks": [UPLINK] if hosts.takes_uplink(seat) else []}
                    for job, seat in zip(draw_jobs(seed, len(seats), quick=quick), seats, strict=True)
                ]
                row: dict[str, Any] = {
                    "seed": seed,
                    "real": {},
                    "simulated": {},
                    "counts": {},
                }
                for index in np.random.default_rng(1000 + seed).permutation(len(policies)):
                    policy = policies[int(index)]
                    answers = run_real(crews, policy, fit.link, jobs)
                    row["real"][policy] = [round(a["jct_seconds"], 4) for a in answers]
                    row["simulated"][policy] = [
                        round(value, 4) for value in run_simulated(sides, policy, fit.link, alone, jobs)
                    ]
                    row["counts"][policy] = _sum([a.get("counts", {}) for a in answers])
                answer["repetitions"].append(row)
                answer["wall_seconds"] = round(time.perf_counter() - began, 1)
                store(name, answer)
                print(
                    f"  {name} {seed}/{repetitions}  "
                    + "  ".join(
                        f"{p} {np.mean(row['real'][p]):.2f}|{np.mean(row['simulated'][p]):.2f}"
                        for p in policies
                    ),
                    file=sys.stderr,
                    flush=True,
                )
        finally:
            for crew in crews:
                crew.stop()
    return answer


def _link(fit: LinkFit) -> dict[str, float]:
    """Return the constants as JSON."""
    return {
        "latency_seconds": fit.latency_seconds.value,
        "seconds_per_byte": fit.seconds_per_byte.value,
        "contention_seconds_per_byte": fit.contention_seconds_per_byte.value,
        "contention_high": fit.contention_seconds_per_byte.high,
        "adadual_threshold": fit.adadual_threshold,
        "median_relative_error": fit.median_relative_error,
    }


def _sum(counts: list[dict[str, int]]) -> dict[str, int]:
    """Return the sum of the counts."""
    return {key: sum(c.get(key, 0) for c in counts) for key in sorted({key for c in counts for key in c})}


def interval(values: Any) -> tuple[float, float, float]:
    """Return a mean and its 95 % interval."""
    data = np.asarray(values, dtype=float)
    mean = float(data.mean())
    if len(data) < 2:
        return mean, math.nan, math.nan
    half = float(stats.t.ppf(0.975, len(data) - 1) * data.std(ddof=1) / math.sqrt(len(data)))
    return mean, mean - half, mean + half


def print_case(name: str, answer: dict[str, Any]) -> None:
    """Print a case as a table."""
    rows = answer["repetitions"]
    link = answer["link"]
    print(
        f"\n{name} jobs: {len(rows)} paired repetitions. Link: a {link['latency_seconds'] * 1e3:.2f} ms, "
        f"{8e-6 / link['seconds_per_byte']:.0f} Mbit/s, eta/b "
        f"{link['contention_seconds_per_byte'] / link['seconds_per_byte']:.3f}; "
        f"threshold {link['adadual_threshold']:.3f}"
    )
    print(
        f"{'policy':18}{'mean JCT':>9} {'95 %':16}{'vs no gate':>11} {'95 %':16}"
        f"{'simulated':>10}{'vs no gate':>11}{'real/sim':>9}"
    )
    base = {kind: np.array([np.mean(row[kind][NO_GATE]) for row in rows]) for kind in ("real", "simulated")}
    for policy in (policy for policy in POLICIES if policy in rows[0]["real"]):
        mean = {
            kind: np.array([np.mean(row[kind][policy]) for row in rows]) for kind in ("real", "simulated")
        }
        jct, low, high = interval(mean["real"])
        ratio, least, most = interval(mean["real"] / base["real"])
        predicted = float((mean["simulated"] / base["simulated"]).mean())
        agrees = float((mean["real"] / mean["simulated"]).mean())
        print(
            f"{policy:18}{jct:8.2f}s [{low:5.2f}, {high:5.2f}]  {ratio:10.3f} [{least:.3f}, {most:.3f}]"
            f"{mean['simulated'].mean():10.2f}s{predicted:10.3f}{agrees:9.3f}"
        )


def show(results: dict[str, Any]) -> None:
    """Print all stored results."""
    for name in CASES:
        if name in results:
            print_case(name, results[name])
    for row in results.get("round_trips", []):
        print(
            f"{row['jobs']:4} jobs asking over {row['over']}: round trip p50 {row['p50_ms']:.2f} ms, "
            f"p99 {row['p99_ms']:.2f} ms, {row['asks_per_second']:,.0f} questions/s"
        )
    for name, row in results.get("overhead", {}).items():
        print(
            f"overhead, {name}: {row['mean']:+.2%} [{row['low']:+.2%}, {row['high']:+.2%}], "
            f"{row['pairs']} pairs; counted as lost: {row['lost_fraction']:.2%}"
        )


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true", help="two repetitions of few iterations")
    parser.add_argument(
        "--policy", choices=POLICIES[1:], action="append", help="policies besides no gate; default: all"
    )
    parser.add_argument("--repetitions", type=int, help="instead of the default of each case")
    parser.add_argument("--show", action="store_true", help="print and draw the stored results")
    parser.add_argument("--output", type=Path, default=None, help="where results go; --quick stores nothing")
    flags = parser.parse_args()
    path = flags.output or RESULTS
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() and not flags.quick else {}
    if flags.show:
        show(results)
        draw(results, TITLES, PICTURE)
        return
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return

    # On SIGTERM the network namespaces are still removed.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    os.setpriority(os.PRIO_PROCESS, 0, NICENESS)

    def store(name: str, answer: Any) -> None:
        results[name] = answer
        if not flags.quick or flags.output:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    for part in flags.part or PARTS:
        count = flags.repetitions or (2 if flags.quick else REPETITIONS[part])
        if part in CASES:
            policies = (NO_GATE, *(flags.policy or POLICIES[1:]))
            run_case(part, count, quick=flags.quick, store=store, policies=policies)
        elif part == "round-trips":
            store("round_trips", measure_round_trips(quick=flags.quick))
        else:
            store("overhead", measure_overhead(count, quick=flags.quick))
    show(results)


if __name__ == "__main__":
    main()
