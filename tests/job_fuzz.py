"""Random hostile job files, submitted by a user without a role and run under a root daemon.

A place holds what is not the job's: files of root, and folders that only root may pass. `Fuzz.run` submits
files, runs those that are accepted (some of them twice, with a waiting unit in between), and returns every
file that changed, every process that is left, and every answer or log that holds what a job may not read.
"""

from __future__ import annotations

# ruff: noqa: E501  scripts of jobs in one line each
import gzip
import hashlib
import io
import json
import random
import stat
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from node_networks import ETC as NETWORKS_OF_TESTS
from starlette.testclient import TestClient

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.engines.accounts import COUNT, FIRST
from boa_daemon.engines.local import LocalEngine
from boa_daemon.testing import ManualClock, a_node
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder
from boa_daemon.tick.facts.actions import StartJob, StopJob
from boa_daemon.tick.facts.ports import Accepted, JobSpec, Runner
from policies.model import GpuSlot, Width

SECRET = "secret-that-is-not-the-jobs"
TOKENS = {"mallory": "token-of-mallory-01", "nobody": "token-of-nobody-001", "eve": "token-of-eve-stranger"}
PATIENCE_SECONDS = 120.0
WATCHED = ("/etc", "/opt", "/usr/local/bin", "/usr/lib/systemd", "/var/spool", "/usr/local/lib/systemd")
MADE_BESIDE = (NETWORKS_OF_TESTS, Path("/etc/cni/net.d"))
"""What tests that run beside this one make and take away."""

STAND_IN = """#!/usr/bin/python3
# A container tool: it runs what is inside as the user that it is told, and notes who runs it.
import os, sys
from pathlib import Path
words = sys.argv[1:]
if words[:1] != ["run"]:
    sys.exit(0)
names, where, at, entry, user = {}, "/", 1, "", None
while words[at].startswith("--"):
    name, has, value = words[at].partition("=")
    if not has and name in ("--env", "--volume", "--workdir", "--ulimit", "--name", "--entrypoint", "--device",
                            "--gpus", "--user", "--group-add"):
        at += 1
        value = words[at]
    if name == "--env":
        key, has, said = value.partition("=")
        names[key] = said if has else os.environ.get(key, "")
    where = value if name == "--workdir" else where
    entry = value if name == "--entrypoint" else entry
    user = value if name == "--user" else user
    at += 1
uid, gid = map(int, user.split(":"))
os.setgroups([]); os.setgid(gid); os.setuid(uid)
os.chdir(where)
os.execve(entry, [entry, *words[at + 1:]], {"PATH": "/usr/bin:/bin", **names})
"""

ACTIONS = {
    "its own folder becomes a link": 'd=$(dirname "$BOA_PROGRESS_FILE"); mv "$d/n0" "$d/x"; ln -s @precious@ "$d/n0"',
    "its progress is a pipe": 'rm -f "$BOA_PROGRESS_FILE"; mkfifo "$BOA_PROGRESS_FILE"',
    "its progress is a link": 'ln -sf @precious@/file.json "$BOA_PROGRESS_FILE"',
    "its progress is huge": 'head -c 3000000 /dev/zero | tr "\\0" "[" > "$BOA_PROGRESS_FILE"',
    "its progress is a device": 'ln -sf /dev/zero "$BOA_PROGRESS_FILE"; ln -sf /dev/tty "$BOA_PROGRESS_FILE.done"',
    "its error is deep": "python3 -c 'print(\"[\" * 200000)' > \"$TORCHELASTIC_ERROR_FILE\"",
    "its error is a link": 'ln -sf @precious@/file.json "$TORCHELASTIC_ERROR_FILE"',
    "its manifest is a link": 'ln -sf @precious@/file.json "$BOA_CHECKPOINT_DIR/manifest.json"',
    "its manifest leads out": (
        "echo '{\"generation\": 1, \"step\": 9, \"sha256\": \"x\", \"path\": \"../../../../etc/shadow\"}' "
        '> "$BOA_CHECKPOINT_DIR/manifest.json"'
    ),
    "its fence is a link": 'rm -f "$BOA_CHECKPOINT_DIR"/*; ln -s @precious@/file "$BOA_CHECKPOINT_DIR/generation"',
    "its lock is a link": 'ln -sf @precious@/file "$BOA_CHECKPOINT_DIR/.lock"',
    "its checkpoint is full of links": (
        'for n in 1 2 3; do ln -sf @precious@ "$BOA_CHECKPOINT_DIR/g1-step$n.ckpt"; done; '
        'ln @precious@/file "$BOA_CHECKPOINT_DIR/second" 2>/dev/null'
    ),
    "its checkpoint has holes": (
        'truncate -s 15T "$BOA_CHECKPOINT_DIR/x" || truncate -s 1T "$BOA_CHECKPOINT_DIR/x"; '
        "echo '{\"generation\": 1, \"step\": 9, \"sha256\": \"x\", \"path\": \"x\"}' "
        '> "$BOA_CHECKPOINT_DIR/manifest.json"'
    ),
    "its artifacts have holes": "mkdir -p out; truncate -s 15T out/holes",
    "its lock is a pipe": 'rm -f "$BOA_CHECKPOINT_DIR/.lock"; mkfifo "$BOA_CHECKPOINT_DIR/.lock"',
    "its files are pipes": (
        'd=$(dirname "$BOA_PROGRESS_FILE")/n0; for n in kept.json go lease register stop ready failure.json '
        'early-0.json; do rm -f "$d/$n"; mkfifo "$d/$n"; done; mkfifo "$BOA_PROGRESS_FILE.done"'
    ),
    "its files are folders": (
        'd=$(dirname "$BOA_PROGRESS_FILE")/n0; for n in kept.json go lease register stop ready failure.json; '
        'do rm -f "$d/$n"; mkdir -p "$d/$n"; done; rm -f "$BOA_CHECKPOINT_DIR"/.lock; '
        'mkdir "$BOA_CHECKPOINT_DIR/.lock" "$BOA_CHECKPOINT_DIR/generation"'
    ),
    "its folders are deep": (
        'for top in "$TMPDIR" "$BOA_SCRATCH" "$(dirname "$BOA_PROGRESS_FILE")/n0/ranks" "$BOA_CHECKPOINT_DIR/g1-step1.ckpt" '
        '"/dev/shm/boa-fuzz-$BOA_UNIT" out; do mkdir -p "$top"; python3 -c '
        "'import os, sys; os.chdir(sys.argv[1]); [(os.mkdir(\"d\"), os.chdir(\"d\")) for _ in range(1500)]' \"$top\"; done; "
        'rm -rf "/dev/shm/boa-fuzz-$BOA_UNIT"'
    ),
    "it gives up its folders": 'chmod 0 "$(dirname "$BOA_PROGRESS_FILE")/n0" "$BOA_CHECKPOINT_DIR" "$TMPDIR"',
    "its kept note is huge": (
        'd=$(dirname "$BOA_PROGRESS_FILE")/n0; python3 -c \'import json; print(json.dumps({"kept": '
        '[{"generation": 1, "step": 1, "sha256": "x" * 300000, "path": "y"}]}))\' > "$d/kept.json"'
    ),
    "its rank files are links": (
        'd=$(dirname "$BOA_PROGRESS_FILE")/n0/ranks; mkdir -p "$d"; ln -sf @precious@/file "$d/stdout.log"; '
        'ln -sf /etc "$d/etc"; ln -sf /dev/zero "$d/stderr.log"'
    ),
    "its scratch is a link": 'rm -rf "$BOA_SCRATCH"; ln -s @precious@ "$BOA_SCRATCH"',
    "its artifacts are links": (
        "mkdir -p out; ln -sf /etc/shadow out/shadow; ln -sf @precious@ out/precious; ln -sf / out/root; "
        "ln @precious@/file out/second 2>/dev/null; mkfifo out/pipe; ln -sf /dev/zero out/zero"
    ),
    "its artifacts have odd names": (
        "mkdir -p out; touch \"out/$(printf 'a\\033]0;x\\007')\" \"out/$(printf '\\377\\376')\" "
        "\"out/$(printf 'a\\nb')\" \"out/-rf\" \"out/$(head -c 250 /dev/zero | tr '\\0' n)\""
    ),
    "it reads where it is": "pwd; ls -la; cat ./file ./*/file 2>/dev/null",
    "it looks around": (
        "cat @precious@/file @closed@/open/file @root@/*/own/* /etc/shadow /proc/$PPID/environ 2>/dev/null; "
        "ls -R @root@ @closed@ 2>/dev/null; cat @root@/*/spec.json @root@/*/*/n0/unit.json 2>/dev/null"
    ),
    "it writes around": (
        "for f in @precious@ @closed@ @root@ @root@/* /etc /opt; do echo x 2>/dev/null > $f/planted; done; "
        "for f in @root@/*/g*/n0; do echo '{}' 2>/dev/null > $f/exit.json; done"
    ),
    "it kills": "kill -9 $PPID 2>/dev/null; kill -TERM -1 2>/dev/null",
    "it leaves processes": "(setsid sleep 1000 &) ; (setsid bash -c 'trap \"\" TERM; sleep 1000' &)",
    "it leaves set-uid files": "cp /bin/sh sh 2>/dev/null; chmod 4777 sh 2>/dev/null",
    "it prints sequences": "printf '\\033]0;x\\007\\033[2J\\r\\302\\233'",
    "its code becomes a link": 'cd /; w=$(dirname "$BOA_CHECKPOINT_DIR")/work; rm -rf "$w"/* 2>/dev/null; ln -s @precious@ "$w/x"',
}  # fmt: skip
VARIABLES = (
    "PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "BASH_ENV",
    "ENV", "IFS", "PS4", "SHELLOPTS", "DOCKER_HOST", "DOCKER_CONFIG", "CONTAINER_HOST", "CONTAINERS_CONF",
    "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "HOME", "TMPDIR",
    "GIT_CONFIG_GLOBAL", "GIT_SSH_COMMAND", "SSL_CERT_FILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE",
    "HTTPS_PROXY", "NOTIFY_SOCKET", "BOA_UNIT", "BOA_IN_PATH", "LANG", "UID", "OPTIND", "A B", "X\nY",
)  # fmt: skip


def _member(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode = kind, to, 0o6777
    return found


class Fuzz:
    """The place, the daemon, and what is not the job's."""

    def __init__(self, place: Path, seed: int, make: Callable[[], Runner] | None = None) -> None:
        """`make` returns the engine; by default the one of this machine."""
        self.place, self.random = place, random.Random(seed)
        self.root, self.precious, self.closed = place / "root", place / "precious", place / "closed"
        self.evil, self.marks, self.tools = place / "evil", place / "marks", place / "tools"
        for folder in (self.precious / "below", self.closed / "open", self.evil, self.marks, self.tools):
            folder.mkdir(parents=True)
        for folder in (place / "work", self.marks):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o1777)
        # Readable, but behind a folder that only root may pass, or for root alone.
        for file in (self.precious / "file", self.precious / "below" / "file", self.closed / "open" / "file"):
            file.write_text(SECRET)
        (self.precious / "file.json").write_text(json.dumps({"generation": 1, "step": 4, "node": SECRET}))
        for file in self.precious.rglob("file*"):
            file.chmod(0o600)
        self.closed.chmod(0o700)
        (place / "link-to-closed").symlink_to(self.closed / "open")
        (place / "secrets").write_text(f"TOKEN={SECRET}\n")
        (place / "secrets").chmod(0o600)
        # Whoever runs one of these with more rights than the job leaves a mark of its own user.
        for name in ("podman", "docker", "aws", "find", "tar", "bash", "sh", "env", "systemd-run", "setpriv"):
            self._mark(self.evil / name)
        for name in ("env-file", "sitecustomize.py", "start.py"):
            text = f"open('{self.marks}/py.%d' % __import__('os').getpid(), 'w')\n"
            shell = f": > {self.marks}/sh.$$\n"
            (self.evil / name).write_text(text if name.endswith(".py") else shell)
        (self.tools / "podman").write_text(STAND_IN)
        (self.tools / "podman").chmod(0o755)
        settings = {"api": {}, "secrets": {f"env:{name}": ["ann"] for name in ("TOKEN",)}}
        settings["engine"] = {"secrets_file": str(place / "secrets")}
        (place / "daemon").mkdir(mode=0o700)
        local = LocalEngine(self.root, own_user=True, secrets_file=str(place / "secrets"))
        self.engine: Runner = local if make is None else make()
        self.play = DaemonInAFolder(
            place / "daemon", ManualClock(1_800_000_000.0), settings, wrap_runner=lambda _: self.engine
        )
        tokens = place / "daemon" / "tokens"
        tokens.write_text("".join(f"{token} {user}\n" for user, token in TOKENS.items()))
        tokens.chmod(0o600)
        api = ApiSettings.model_validate({"listen": "127.0.0.1:0", "tokens": str(tokens)})
        self.web = TestClient(
            create_app(self.play.service, Authenticator(api)),
            base_url="http://127.0.0.1",
            client=("127.0.0.1", 1),
        )
        # An engine is the daemon's, which calls it from one thread.
        self.lock = threading.Lock()
        self.faults: list[str] = []
        self.counts = {"refused": 0, "ran": 0}

    def _mark(self, file: Path) -> None:
        file.write_text(f'#!/bin/sh\n: > {self.marks}/{file.name}.$$\nexec /usr/bin/{file.name} "$@"\n')
        file.chmod(0o755)

    def words(self, text: str) -> str:
        """Return an action with its paths."""
        for name in ("precious", "closed", "root"):
            text = text.replace(f"@{name}@", str(getattr(self, name)))
        return text

    def archive(self) -> bytes:
        """Return packed code with hostile members among plain ones."""
        out = self.precious
        choices = [
            _member("a/b.py"),
            _member(f"../{self.random.choice('xyz')}"),
            _member(f"{out}/planted"),
            _member("l", tarfile.SYMTYPE, str(out)),
            _member("l/planted"),
            _member("m", tarfile.SYMTYPE, "a/.."),
            _member("h", tarfile.LNKTYPE, str(out / "file")),
            _member("h2", tarfile.LNKTYPE, "a/b.py"),
            _member("p", tarfile.FIFOTYPE),
            _member("d", tarfile.CHRTYPE),
            _member("n" * self.random.choice((50, 300, 5000))),
            _member("c\x1b]0;x\x07"),
        ]
        buffer = io.BytesIO()
        kinds = (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
        with tarfile.open(fileobj=buffer, mode="w", format=self.random.choice(kinds)) as found:
            for each in self.random.sample(choices, self.random.choice((1, 1, 2, 4))):
                each.size = 5 if each.isfile() else 0
                found.addfile(each, io.BytesIO(b"print"))
        return buffer.getvalue()

    def content(self, number: int) -> tuple[dict[str, Any], bytes | None]:
        """Return a hostile job file, and the packed code that it names, if any."""
        pick, chance = self.random.choice, self.random.random
        evil = str(self.evil)
        values = (
            f"{evil}:/usr/bin:/bin",
            evil,
            f"{evil}/env-file",
            f"{evil}/start.py",
            "$(id)",
            "\x1b]0;x\x07",
            "x\ny",
        )
        actions = [self.words(ACTIONS[name]) for name in self.random.sample(sorted(ACTIONS), pick((1, 2, 3)))]
        end = pick(("true", "exit 3", "sleep 0.3", "echo end"))
        file: dict[str, Any] = {
            "name": pick(("job", "job", "job", "a\x1b[2J", "-rf", "../../etc", "x" * 101, "a b")),
            "class": "default",
            "max_gpus": 1,
            "run": "; ".join([*actions, end]) if chance() < 0.95 else "\x00",
            "stop_grace_seconds": 2.0,
            "environment": {name: pick(values) for name in self.random.sample(VARIABLES, pick((0, 1, 3, 8)))},
        }
        file["workdir"] = str(self.place / "work")
        packed = None
        if chance() < 0.25:
            plain = self.archive()
            packed = gzip.compress(plain)
            file["code"] = {"digest": hashlib.sha256(plain).hexdigest()}
            file["workdir"] = pick((".", ".", "a", "..", "../..", "l", str(self.precious)))
        elif chance() < 0.3:
            file["workdir"] = pick(
                ("../..", "/", "/root", str(self.closed / "open"), str(self.place / "link-to-closed"), "/none",
                 str(self.precious), "/proc/self/fd", "w" * 4000, "/tmp\n", str(self.place / "root"))
            )  # fmt: skip
        if chance() < 0.4:
            file["artifacts"] = self.random.sample(
                ("**/*", "out/*", "out", "/etc/shadow", "../*", "**x", "[", "out/*/*", "a\nb", "*"), 2
            )
        if chance() < 0.2:
            sources = ("/etc", "/root", str(self.closed / "open"), str(self.precious), str(self.place / "link-to-closed"),
                       "/proc", str(self.place / "work"), "-delete", "s3://bucket/x")  # fmt: skip
            file["data"] = pick(
                (pick(sources), {"a": pick(sources), pick(("b", "../x", "..")): pick(sources)})
            )
        if chance() < 0.2:
            file["image"] = pick(
                (
                    "a/b:1",
                    "a/b:1",
                    "--privileged",
                    "-v/:/host",
                    "dir:/root",
                    "docker-archive:/x",
                    "/x/y.sif",
                    "a b",
                    "a\n",
                )
            )
        if "image" in file and chance() < 0.5:
            file["environment"] |= dict.fromkeys(("PATH", "PYTHONPATH"), f"{evil}:/usr/bin:/bin")
            file["environment"] |= {"BASH_ENV": f"{evil}/env-file", "ENV": f"{evil}/env-file"}
        if chance() < 0.15:
            file["secrets"] = {"MINE": pick(("env:TOKEN", "env:../TOKEN", "ssm:/x", SECRET[:3]))}
        if chance() < 0.2:
            file["result"] = pick(("/etc/shadow", "../../x", "out/x", f"{self.closed}/open/file"))
        if chance() < 0.2:
            file["setup"] = self.words(ACTIONS[pick(sorted(ACTIONS))])
        if chance() < 0.1:
            file["slurm_options"] = "--uid=0"
        if chance() < 0.1:
            file["matrix"] = {pick(("LR", "PATH", "BOA_UNIT")): ["x", "\x1b]0;x\x07"]}
        if chance() < 0.1:
            file["team"] = pick(("x", "../x", "\x1b"))
        if chance() < 0.1:
            file["after"] = [pick(("job-1", "../../x", "job-1:end", ";"))]
        if chance() < 0.75:
            # Without what the check of the file refuses, so that most files get as far as a node.
            for key in ("slurm_options", "team", "after", "secrets"):
                file.pop(key, None)
            valid = {
                "image": lambda image: image == "a/b:1",
                "artifacts": lambda patterns: not {"/etc/shadow", "../*"} & {*patterns},
                "data": lambda data: not isinstance(data, dict) or data.keys() == {"a", "b"},
                "matrix": lambda matrix: "BOA_UNIT" not in matrix,
            }
            for key, is_valid in valid.items():
                if key in file and not is_valid(file[key]):
                    del file[key]
            file |= {"name": "job", "run": file["run"].replace("\0", "true")}
            file["environment"] = {
                k: v for k, v in file["environment"].items() if k.isidentifier() and "BOA" not in k
            }
        if file["workdir"].startswith(("/root", "/proc", "..")) or file["workdir"] == "/":
            file.pop("artifacts", None)  # Copying the machine proves nothing and takes an hour.
        return file, packed

    def snapshot(self) -> dict[str, tuple[Any, ...]]:
        """Return what is not the job's: each file with its owner, mode, size, time of change and content."""
        found: dict[str, tuple[Any, ...]] = {}
        own = (self.precious, self.closed, self.evil, self.tools, self.place / "secrets")
        for top in (*own, *map(Path, WATCHED)):
            for path in (top, *top.rglob("*")) if top.exists() else ():
                if any(path.is_relative_to(each) for each in MADE_BESIDE):
                    continue
                at = path.lstat()
                said = path.read_bytes() if top in own and stat.S_ISREG(at.st_mode) else b""
                found[str(path)] = (
                    at.st_uid,
                    at.st_gid,
                    stat.S_IMODE(at.st_mode),
                    *(
                        (at.st_nlink, at.st_mtime_ns)
                        if path not in {each.parent for each in MADE_BESIDE}
                        else ()
                    ),
                    said,
                )
        return found

    def run(self, count: int, *, at_once: int = 4) -> list[str]:
        """Submit and run `count` files; return what is wrong."""
        before = self.snapshot()
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(self._guarded, self._submitted(count)))
        after = self.snapshot()
        self.faults += [
            f"changed: {path}"
            for path in sorted(before.keys() | after.keys())
            if before.get(path) != after.get(path)
        ]
        self.faults += [f"root ran {mark.name}" for mark in self.marks.iterdir() if mark.stat().st_uid == 0]
        self.faults += [f"left behind: {line}" for line in left_processes()]
        planted = [file for file in self.place.iterdir() if file.name not in KNOWN]
        self.faults += [f"planted: {file}" for file in planted]
        return self.faults

    def _submitted(self, count: int) -> Iterator[JobSpec]:
        """Submit files; yield the specifications of accepted ones."""
        for number in range(count):
            file, packed = self.content(number)
            user = self.random.choice(("mallory", "nobody"))
            headers = {"Authorization": f"Bearer {TOKENS[user]}", "Content-Type": "application/json"}
            if packed is not None:
                put = self.web.put(f"/v1/code/{file['code']['digest']}", content=packed, headers=headers)
                self._check_answer(put.text, put.status_code, file)
            try:
                text = json.dumps({"jobs": [file]})
                answer = self.web.post("/v1/jobs", content=text, headers=headers)
            except Exception as error:
                self.faults.append(f"the daemon raised {error!r} at {file}")
                continue
            self._check_answer(answer.text, answer.status_code, file)
            if answer.status_code != 201:
                self.counts["refused"] += 1
                continue
            for job in answer.json()["jobs"]:
                record = self.play.storage.queue.active.get(job)
                if record is not None:
                    yield record.spec

    def _check_answer(self, text: str, code: int, file: object) -> None:
        if SECRET in text or code >= 500:
            self.faults.append(f"answer {code} {text[:300]} to {file}")

    def _guarded(self, spec: JobSpec) -> None:
        try:
            self._play(spec)
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error} at {spec}")

    def _play(self, spec: JobSpec) -> None:
        """Run an admitted job to its end, some with a second generation that waits for its turn."""
        engine = self.engine
        with self.lock:
            if engine.admit(spec) != Accepted():
                return
        self.counts["ran"] += 1
        is_twice = int(hashlib.sha256(spec.job.encode()).hexdigest(), 16) % 3 == 0
        self._start(spec.job, 1)
        if is_twice and hasattr(engine, "ahead"):
            time.sleep(0.3)
            with self.lock:
                engine.ahead(_order(spec.job, 2))
            time.sleep(0.3)
            with self.lock:
                engine.stop(StopJob(id="s", job=spec.job, generation=1, reason="test"))
        self._until_over(spec.job)
        if is_twice:
            self._start(spec.job, 2)
            self._until_over(spec.job)
        with self.lock:
            self._look_at(spec)
            engine.forget(spec.job)
            if hasattr(engine, "discard"):
                engine.discard(spec.job)

    def _start(self, job: str, generation: int) -> None:
        with self.lock:
            self.engine.start(_order(job, generation))

    def _until_over(self, job: str) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            with self.lock:
                found = self.engine.poll().get(job)
            if found is None or found.is_over:
                return
            if time.monotonic() > until:
                self.faults.append(f"{job} has not ended: {found}")
                return
            time.sleep(0.05)

    def _look_at(self, spec: JobSpec) -> None:
        """Read what the daemon shows of the job: its log, its end, its artifacts."""
        shown = [self.engine.logs(spec.job).text, repr(self.engine.poll().get(spec.job))]
        if isinstance(self.engine, LocalEngine):
            for name in self.engine.artifacts(spec.job):
                shown.append(name)
                shown.append(b"".join(self.engine.artifact(spec.job, name)).decode(errors="replace"))
        for text in shown:
            if SECRET in text or "root:$" in text or "root:*:" in text:
                self.faults.append(f"{spec.job} shows what is not its own: {text[:200]!r}; {spec}")


KNOWN = frozenset(
    {
        "root",
        "precious",
        "closed",
        "evil",
        "marks",
        "tools",
        "work",
        "link-to-closed",
        "secrets",
        "daemon",
        "nodes",
        "state",
    }
)


def _order(job: str, generation: int) -> StartJob:
    slots = (GpuSlot("n1", 0),)
    return StartJob(
        id=f"t{generation}", job=job, generation=generation, width=Width("cpu", 1), slots=slots, reason="test"
    )


def left_processes() -> list[str]:
    """Return the living processes of jobs' users."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            uid, state = folder.stat().st_uid, (folder / "stat").read_text().rpartition(")")[2].split()[0]
            if FIRST <= uid < FIRST + COUNT and state not in "ZX":
                found.append(f"{folder.name} {uid} {(folder / 'cmdline').read_bytes()!r}")
        except (OSError, ProcessLookupError):
            continue
    return found


def ready_nodes(fuzz: Fuzz) -> None:
    """Wait until the fuzz's node has taken what jobs need."""
    until = time.monotonic() + PATIENCE_SECONDS
    while fuzz.engine.prepare([a_node("n1")])["n1"] != Accepted():
        assert time.monotonic() < until
        time.sleep(0.1)
