"""The machines of `benchmarks/chaos.py`: control nodes with failing clock, disk and descriptors; PostgreSQL.

A library that is loaded before the daemon's own moves its clock and breaks its disk.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from boa_daemon.api.client import Client
from boa_daemon.testing.fronts import FAKE_CREDENTIALS

REGION = "us-east-1"
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile long long *ahead;  /* [0]: seconds of the clock; [1]: the disk's errno, 0 for none */
static int (*real)(clockid_t, struct timespec *);
__attribute__((constructor)) static void start(void) {
    const char *file = getenv("BOA_CHAOS_CLOCK");
    int fd = file ? open(file, O_RDONLY) : -1;
    real = dlsym(RTLD_NEXT, "clock_gettime");
    if (fd >= 0) ahead = mmap(0, 16, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
}
static int fault(int fd, int reads) {
    struct stat found;
    if (fd <= 2 || !ahead || ahead == MAP_FAILED || !ahead[1]) return 0;
    if (reads && ahead[1] != EIO) return 0;
    if (fstat(fd, &found) || !S_ISREG(found.st_mode)) return 0;
    errno = (int)ahead[1];
    return 1;
}
#define REAL(name, ...) ({ static __typeof__(&name) found; \
    if (!found) found = (__typeof__(&name))dlsym(RTLD_NEXT, #name); found(__VA_ARGS__); })
ssize_t write(int fd, const void *text, size_t size) {
    return fault(fd, 0) ? -1 : REAL(write, fd, text, size);
}
ssize_t pwrite(int fd, const void *text, size_t size, off_t at) {
    return fault(fd, 0) ? -1 : REAL(pwrite, fd, text, size, at);
}
ssize_t pwrite64(int fd, const void *text, size_t size, off64_t at) {
    return fault(fd, 0) ? -1 : REAL(pwrite64, fd, text, size, at);
}
ssize_t pread64(int fd, void *text, size_t size, off64_t at) {
    return fault(fd, 1) ? -1 : REAL(pread64, fd, text, size, at);
}
int fsync(int fd) { return fault(fd, 0) ? -1 : REAL(fsync, fd); }
int fdatasync(int fd) { return fault(fd, 0) ? -1 : REAL(fdatasync, fd); }
static int refused(int flags) {
    if (!ahead || ahead == MAP_FAILED || ahead[1] != EROFS || (flags & O_ACCMODE) == O_RDONLY) return 0;
    errno = EROFS;
    return 1;
}
int open64(const char *name, int flags, ...) {
    va_list more; va_start(more, flags); int mode = va_arg(more, int); va_end(more);
    if (refused(flags) && __builtin_strncmp(name, "/dev/", 5)) return -1;
    return REAL(open64, name, flags, mode);
}
int clock_gettime(clockid_t which, struct timespec *now) {
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int said = real(which, now);
    if (which == CLOCK_REALTIME && ahead && ahead != MAP_FAILED) now->tv_sec += *ahead;
    return said;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    now->tv_sec = at.tv_sec; now->tv_usec = at.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *out) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (out) *out = at.tv_sec;
    return at.tv_sec;
}
"""


class Machine:
    """A control node: its folder, its clock and its daemon."""

    def __init__(self, folder: Path, shim: Path | None, endpoint: str) -> None:
        self.folder, self._endpoint = folder, endpoint
        folder.mkdir(parents=True, exist_ok=True)
        self._clock_file = folder / "clock"
        self._clock_file.write_bytes(bytes(16))
        self._shim, self._said_before = shim, 0
        self.process: subprocess.Popen[bytes] | None = None
        self.socket = folder / "state" / "boa.sock"
        with self._clock_file.open("r+b") as file:
            self._clock = mmap.mmap(file.fileno(), 16)

    def jump(self, seconds: int) -> None:
        """Set the machine's clock this many seconds ahead of real time."""
        self._clock[:8] = bytes(ctypes.c_longlong(seconds))

    def break_disk(self, number: int) -> None:
        """Let every write to a file fail with this errno, and with EIO every read; 0 mends the disk."""
        self._clock[8:] = bytes(ctypes.c_longlong(number))

    def limit_descriptors(self, seconds: float) -> bool:
        """Leave the daemon no free file descriptor for a while; return whether it ran."""
        process = self.process
        if process is None or process.poll() is not None:
            return False
        with suppress(OSError):
            before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            used = max(int(name) for name in os.listdir(f"/proc/{process.pid}/fd")) + 1
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used, before[1]))
            time.sleep(seconds)
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
            return True
        return False

    def start(self) -> None:
        """Start a daemon that takes over when no other daemon leads."""
        environment = {
            **os.environ, **FAKE_CREDENTIALS, "AWS_ENDPOINT_URL": self._endpoint,
            "BOA_CHAOS_CLOCK": str(self._clock_file), "AWS_DEFAULT_REGION": REGION,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
        }  # fmt: skip
        if self._shim is not None:
            environment["LD_PRELOAD"] = str(self._shim)
        with (self.folder / "log").open("ab") as log:
            self._said_before = log.tell()
            command = [sys.executable, "-m", "boa_daemon", "daemon", "--standby"]
            self.process = subprocess.Popen(
                command, cwd=self.folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    def read_again(self, text: str) -> None:
        """Give the daemon new settings; restart it if it cannot be told yet."""
        (self.folder / "boa.toml").write_text(text)
        if self.process is not None and self.process.poll() is None:
            if self.get("/status") or self.is_standing_by:
                self.process.send_signal(signal.SIGHUP)
            else:
                self.kill()
                self.start()

    @property
    def is_standing_by(self) -> bool:
        """Return whether the daemon runs and has said since its start that another daemon leads."""
        if self.process is None or self.process.poll() is not None:
            return False
        with (self.folder / "log").open("rb") as log:
            log.seek(self._said_before)
            return b"standing by" in log.read()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the daemon."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            if number in (signal.SIGKILL, signal.SIGTERM):
                self.process.wait(60.0)

    def get(self, path: str) -> dict[str, Any] | None:
        """Return an answer of the daemon, or None if it does not answer, for instance while it stands by."""
        try:
            with Client(self.socket) as client:
                return dict(client.get(path))
        except Exception:
            return None


def built_shim(folder: Path) -> Path | None:
    """Build the library that moves a process's clock and breaks its disk; None without a compiler."""
    if shutil.which("cc") is None:
        return None
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(source), "-ldl"], check=True)
    return library


class Postgres:
    """A PostgreSQL server for this run, on a Unix socket, run by a user that is not root."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("initdb")
        folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
        self._programs = Path(found).parent if found else next(iter(folders), None)
        self._folder = folder
        self._prefix: list[str] = []

    def __enter__(self) -> str:
        """Start the server and return its URL; return an empty URL if PostgreSQL is not installed."""
        if self._programs is None:
            return ""
        self._folder.mkdir(mode=0o700)
        if os.getuid() == 0:
            shutil.chown(self._folder, "nobody")
            self._prefix = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        self._do("initdb", "-D", str(self._folder / "data"), "-U", "boa", "-A", "trust", "--no-sync")
        self._start()
        return f"postgresql://boa@/postgres?host={self._folder}"

    def _start(self) -> None:
        options, folder = f"-k {self._folder} -c listen_addresses=''", str(self._folder)
        self._do(
            "pg_ctl", "-D", f"{folder}/data", "-l", f"{folder}/log", "-w", "-o", options, "start"
        )  # fmt: skip

    def crash(self) -> None:
        """Stop the server as a loss of power does, and start it again."""
        if self._programs is not None:
            self._do("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")
            self._start()

    def __exit__(self, *_: object) -> None:
        """Stop the server and delete its folder."""
        if self._programs is not None:
            self._do("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop")
            shutil.rmtree(self._folder, ignore_errors=True)

    def _do(self, name: str, *words: str) -> None:
        """Run one of the server's programs."""
        command = [*self._prefix, str((self._programs or Path()) / name), *words]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder)
