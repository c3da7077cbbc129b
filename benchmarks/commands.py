"""The steps that an ordered stop loses, for each way in which people start a training: a table of commands.

    python benchmarks/commands.py                          # all shapes that can run here; half an hour
    python benchmarks/commands.py --only tee --only Pool   # those whose name has one of these words
    python benchmarks/commands.py --package OLD --column before   # with an older `boa_daemon` in OLD
    python benchmarks/commands.py --kill-keeper            # the keeper is killed about the stop
    python benchmarks/commands.py --kill-keeper --kill-guard   # its guard too: nobody is left but the command

Each command runs a loop of small steps that saves only when it is stopped, in 3 s unless its name says
otherwise, on the local engine with a grace of 60 s. It is stopped after some steps. Lost steps are the
engine's own count. A command that does not come to its steps, or whose stop does not end, "hangs"; one whose
next command ran after the stop, as if the training were done, is marked. The baseline is the column of an
older version. A kill comes 0.5 s before the stop to 4 s after it, at a moment drawn for each command. Results
are added to `--output`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
FOUND = HERE.parent / "docs" / "explanation" / "data" / "commands.json"


def main() -> None:
    """Try the shapes, and print the table."""
    flags = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    flags.add_argument("--only", action="append", default=[], help="part of a name")
    flags.add_argument("--package", type=Path, help="folder with another version of boa_daemon")
    flags.add_argument("--column", help="name of the results")
    flags.add_argument("--kill-keeper", action="store_true")
    flags.add_argument("--kill-guard", action="store_true", help="with its keeper")
    flags.add_argument("--output", type=Path, default=FOUND)
    flags.add_argument("--table", action="store_true", help="only print what was found")
    asked = flags.parse_args()
    sys.path.insert(0, str(HERE.parent / "tests"))
    if asked.package is not None:
        sys.path.insert(0, str(asked.package))
        os.environ["PYTHONPATH"] = str(asked.package)
    from command_shapes import SHAPES  # noqa: PLC0415  the version of the package is chosen first

    whom = ("guard", "pid") if asked.kill_guard else ("pid",) if asked.kill_keeper else ()
    column = asked.column or {0: "after", 1: "keeper", 2: "both"}[len(whom)]
    found = json.loads(asked.output.read_text()) if asked.output.exists() else {}
    for name, shape in SHAPES.items():
        is_asked = not asked.only or any(word in name for word in asked.only)
        if asked.table or not is_asked or not shape.is_possible:
            continue
        found.setdefault(name, {})[column] = lost_by(name, whom)
        print(f"{name}: {found[name][column]}", file=sys.stderr, flush=True)
        asked.output.write_text(json.dumps(found, indent=1) + "\n")
    columns = ("before", "after", "keeper", "both")
    print("| command | lost before | lost now | its keeper killed | its guard too |\n|---|---|---|---|---|")
    for name in SHAPES:
        if name in found:
            print(f"| {name} | {' | '.join(found[name].get(each, '-') for each in columns)} |")


def lost_by(name: str, whom: tuple[str, ...]) -> str:
    """Return what the stop of a shape lost, as a cell of the table; `whom` is killed meanwhile."""
    from command_shapes import SHAPES, try_shape  # noqa: PLC0415
    from engine_bench import Bench  # noqa: PLC0415

    from boa_daemon.engines.local import LocalEngine  # noqa: PLC0415

    shape = SHAPES[name]
    with tempfile.TemporaryDirectory(prefix="boa-commands-", ignore_cleanup_errors=True) as folder:
        bench = Bench(engine=LocalEngine(Path(folder) / "root"), workdir=Path(folder) / "work")
        try:
            kill_at = random.Random(f"{name} {whom}").uniform(-0.5, 4.0) if whom else None
            end, printed = try_shape(
                bench, shape, seconds=120.0, save_seconds=3.0, kill_at=kill_at, whom=whom
            )
        except AssertionError:
            said = "does not run" if bench.report().is_over else "hangs"
            bench.engine.kill(bench.job, bench.generation)
            return said
    if end.phase != "stopped":
        return f"ended: {end.evidence[:60]}"
    went_on = bool(shape.never) and shape.never in printed
    return f"{end.lost_steps}{' (its next command ran)' if went_on else ''}"


if __name__ == "__main__":
    main()
