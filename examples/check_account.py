"""Test a whole site on a real AWS account, from `boa up` to the removal of everything, and write a report.

python examples/check_account.py --type g4dn.xlarge --report report.md

It uses one instance for about ten minutes: about $0.10 for a g4dn.xlarge, disk and address included.
Whatever fails, it ends everything that was rented and removes the stack. The report says where it stopped
and why.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

JOB = """name: check
class: default
max_gpus: 1
run: |
  nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
  df -h "$BOA_SCRATCH" | tail -n 1
  dd if=/dev/zero of="$BOA_SCRATCH/written" bs=1M count=256 conv=fsync 2>&1 | tail -n 1
  python3 -u - <<'SCRIPT'
  import json, time
  from boa_daemon import job
  done = []
  def load(path):
      done.extend(json.loads(path.read_text()))
  def save(file):
      file.write(json.dumps(done).encode())
  for step in job.steps(40, load=load, save=save, every=10):
      done.append(step)
      time.sleep(0.5)
      job.report(step + 1)
      print("step", step + 1, flush=True)
  SCRIPT
"""


@dataclass
class Report:
    """The steps with their durations, outcomes and outputs."""

    steps: list[tuple[str, float, str, str]] = field(default_factory=list)

    def note(self, name: str, seconds: float, outcome: str, said: str) -> None:
        """Add a step and print it."""
        self.steps.append((name, seconds, outcome, said))
        print(f"{outcome:6} {seconds:7.1f} s  {name}", flush=True)

    @property
    def is_good(self) -> bool:
        """Whether every step went well."""
        return all(outcome == "ok" for _, _, outcome, _ in self.steps)

    def text(self) -> str:
        """Return the report as a Markdown page."""
        rows = "".join(
            f"| {name} | {seconds:.1f} | {outcome} |\n" for name, seconds, outcome, _ in self.steps
        )
        said = "".join(f"\n## {name}\n\n```text\n{text.strip()}\n```\n" for name, _, _, text in self.steps)
        head = f"# BOA on a real account\n\n{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, "
        return (
            f"{head}Python {platform.python_version()}\n\n| step | seconds | |\n|---|---|---|\n{rows}{said}"
        )


class Failed(Exception):
    """A step failed: the remaining steps are skipped, and everything is ended."""


class Check:
    """Run the steps in a separate folder."""

    def __init__(self, folder: Path, report: Report, patience_seconds: float, *, has_image: bool) -> None:
        self.folder, self.report, self.patience = folder, report, patience_seconds
        self.has_image = has_image
        self.daemon: subprocess.Popen[bytes] | None = None

    def boa(self, name: str, *words: str, may_fail: bool = False) -> str:
        """Run a `boa` command and add its output to the report."""
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "boa_daemon", *words],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
        outcome = "ok" if done.returncode == 0 else "FAILED"
        self.report.note(name, time.monotonic() - began, outcome, f"$ boa {' '.join(words)}\n{said}")
        if done.returncode and not may_fail:
            raise Failed(name)
        return done.stdout

    def wait(self, name: str, is_so: object) -> None:
        """Wait until a condition is true, and note the time."""
        began = time.monotonic()
        while time.monotonic() - began < self.patience:
            if callable(is_so) and is_so():
                self.report.note(name, time.monotonic() - began, "ok", "")
                return
            time.sleep(1.0)
        log = (self.folder / "daemon.log").read_text()[-4000:]
        explained = self.ask("explain", "check-1").get("text", "")
        self.report.note(name, time.monotonic() - began, "FAILED", f"{explained}\n\n{log}")
        raise Failed(name)

    def ask(self, *words: str) -> dict[str, object]:
        """Return the JSON document of a `boa` command; empty if the command failed."""
        done = subprocess.run(
            [sys.executable, "-m", "boa_daemon", *words, "--json"],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return {}
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def job(self) -> dict[str, object]:
        """Return the daemon's document on the job."""
        rows = self.ask("jobs", "--all").get("jobs")
        return dict(rows[0]) if isinstance(rows, list) and rows else {}

    def run(self, kind: str, market: str) -> None:
        """Run all steps."""
        site = ("--cluster", "check", "--type", kind, "--market", market, "--usd-per-hour", "2")
        self.boa("what it would make", "up", *site)
        self.boa("make the stack", "up", *site, "--yes")
        self.boa("what disks, addresses and gateways cost", "prices", "--beside", may_fail=True)
        self.boa("the doctor", "doctor")
        if self.has_image:
            self.boa("build an image", "image", "build", "--minutes", "30", "--yes")
            self.boa("its age and what it holds", "image", "list")
        with (self.folder / "daemon.log").open("wb") as log:
            self.daemon = subprocess.Popen(
                [sys.executable, "-m", "boa_daemon", "daemon", "--state-dir", str(self.folder / "state")],
                cwd=self.folder, stdout=log, stderr=log,
            )  # fmt: skip
        self.wait("the daemon answers", lambda: bool(self.ask("status")))
        (self.folder / "job.yaml").write_text(JOB)
        self.boa("submit", "submit", "job.yaml")
        self.wait("a node is rented", lambda: bool(self.ask("instances").get("instances")))
        self.wait("its GPUs are fit and the job runs", lambda: bool(self.job().get("step")))
        self.wait("the job ends", lambda: self.job().get("status") in ("finished", "failed"))
        self.boa("its log, from the bucket", "logs", "check-1")
        self.boa("what it cost", "cost")
        if self.job().get("status") != "finished":
            raise Failed("the job failed")

    def end(self) -> None:
        """Stop the daemon, then end everything."""
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait()
        if self.has_image:
            self.boa("take the image away", "image", "remove", "--keep", "0", may_fail=True)
        self.boa("end everything", "down", "--all", "--stack", "--data", may_fail=True)
        self.boa("nothing is left", "gc", "--check", may_fail=True)


def main() -> None:
    """Run the check and write the report."""
    parser = argparse.ArgumentParser(description="Try a whole site on a real account; costs some cents.")
    parser.add_argument("--type", default="g4dn.xlarge")
    parser.add_argument("--market", default="on-demand")
    parser.add_argument("--report", type=Path, default=Path("report.md"))
    parser.add_argument("--patience", type=float, default=900.0, help="seconds that a step may take")
    parser.add_argument("--image", action="store_true", help="boot from an image built before; $0.20 more")
    asked = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="boa-check") as folder:
        os.environ["BOA_DAEMON_STATE_DIR"] = str(Path(folder) / "state")
        check = Check(Path(folder), report, asked.patience, has_image=asked.image)
        try:
            check.run(asked.type, asked.market)
        except Failed as failed:
            print(f"stopped at: {failed}")
        finally:
            check.end()
    asked.report.write_text(report.text())
    print(f"{'All went well' if report.is_good else 'Something failed'}; see {asked.report}")
    sys.exit(0 if report.is_good else 1)


if __name__ == "__main__":
    main()
