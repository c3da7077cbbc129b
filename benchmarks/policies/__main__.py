"""The study: BOA as the daemon runs it beside its rivals, on public workloads, at equal spend.

    python benchmarks/policies DATA [--quick|--everything] [--only NAME] [--on WHERE] [--out DIR]
        [--write PAGE]

DATA holds ``pollux``, ``gavel``, ``microsoft-itp``, ``elasticflow`` and ``shockwave`` as docs/benchmarks.md
says. BOA is the daemon's default policy with its defaults, and learns its beliefs during the run; the fixed
plan that is tuned on the trace is a row of its own. A budget is a multiple of the load, which is the cost of
the work at its cheapest width without any overhead. Every rival knows the true figures and is tuned to spend
what the daemon spent. Ratios are a rival's mean JCT over the daemon's, paired by trace: the geometric mean,
and its 95 % interval in brackets.

Finished runs are kept in --out under a hash of their settings and of the code, so the same command continues
after an interruption, and a change of the code runs everything again. --write puts the blocks between the
markers ``<!-- study: NAME -->`` and ``<!-- end -->`` of PAGE; a PAGE without markers becomes
benchmarks/policies/page.md first.

The script is a folder, because a file ``policies.py`` here would hide the package of that name from every
script beside it.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import tables
from checks import closed_form, published
from scenarios import scenarios
from work import Outcome, run_task, tasks_of

from boa_daemon.cli.task_progress import tasks_with_progress
from boa_daemon.comparing.content_hash import code_hash

TEMPLATE = Path(__file__).with_name("page.md")
BLOCK = re.compile(r"(<!-- study: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    """Print every block, and write the blocks into a page if one is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer traces, budgets, caps and rivals")
    parser.add_argument(
        "--everything", action="store_true", help="more traces, seeds and budgets, and a spot market: hours"
    )
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--on", help="local, local:4 or ray://HOST; a process for each core if left out")
    parser.add_argument("--out", type=Path, default=Path("build/policies"), help="keeps finished runs")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the blocks into this page")
    arguments = parser.parse_args()
    if arguments.write is not None and arguments.only:
        parser.error("--write takes all scenarios, not --only some")
    began = time.perf_counter()
    if arguments.quick and arguments.everything:
        parser.error("--quick and --everything exclude each other")
    every = scenarios(quick=arguments.quick, everything=arguments.everything)
    chosen = [s for s in every if arguments.only in s.name]
    todo = [task for s in chosen for task in tasks_of(s, arguments.data, arguments.out)]
    with tasks_with_progress(arguments.on, arguments.out / "runs", len(todo), "traces") as headway:
        done: dict[int, Outcome] = {}
        for number, outcome in headway.tasks.each(
            lambda number: run_task(todo[number], headway.tasks), range(len(todo))
        ):
            done[number] = outcome
            headway.step()
            print(
                f"{len(done)} of {len(todo)}: {outcome.scenario.name}, {outcome.seconds:.0f} s, "
                f"{len(outcome.failures)} errors",
                file=sys.stderr,
                flush=True,
            )
        outcomes = [done[number] for number in range(len(todo))]
        known = "" if arguments.only else published(arguments.data, arguments.out, headway.tasks)
    workers, runs = headway.tasks.workers.count, headway.tasks.done
    blocks = {
        "short": tables.short(outcomes),
        "readme": tables.readme(outcomes),
        "rivals": tables.rivals(outcomes),
        "beliefs": tables.beliefs(outcomes),
        "caps": f"{tables.CAPS_NOTE}\n\n{tables.caps(outcomes)}",
        "elasticity": tables.elasticity(outcomes),
        "hours": tables.hours(outcomes),
        "goals": tables.goals(outcomes),
        "failures": tables.failures(outcomes),
    }
    if not arguments.only:
        blocks["theory"] = closed_form(
            seeds=4 if arguments.quick else 10, jobs=500 if arguments.quick else 2000
        )
        blocks["published"] = known
    size = "a quick subset" if arguments.quick else "everything" if arguments.everything else "the study"
    minutes = (time.perf_counter() - began) / 60.0
    blocks["run"] = (
        f"Measured with code {code_hash()}: {size}, {len(todo)} traces, {minutes:.0f} min in "
        f"{workers} processes for {runs} runs ({headway.tasks.found} were kept from before)."
    )
    for name, text in blocks.items():
        print(f"\n## {name}\n\n{text}", flush=True)
    if arguments.write is not None:
        write(arguments.write, blocks)


def write(page: Path, blocks: Mapping[str, str]) -> None:
    """Put the blocks between their markers; a page without markers starts from the template."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    if not BLOCK.search(text):
        text = TEMPLATE.read_text(encoding="utf-8")
    missing = {match[1] for match in BLOCK.findall(text)} - blocks.keys()
    if missing:
        raise SystemExit(f"{page} has markers that the study knows nothing of: {', '.join(sorted(missing))}")
    page.write_text(
        BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n\n{found[3]}", text), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
