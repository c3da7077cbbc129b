"""Workers that run tasks: inline, in processes of this machine, or on a Ray cluster.

A task and its answer are bytes: a pickle is sent, and JSON is returned. `answer` blocks, so several tasks at
once need as many threads. If a worker dies, its task is run again, at most three times in total.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running
from typing import Any, Protocol, get_type_hints

from pydantic import TypeAdapter

from boa_daemon.errors import BoaError, InputError, MissingExtra
from boa_daemon.extras import install_command
from boa_daemon.tasks.content_hash import code_folders

TRIES = 3
TASKS = "boa_daemon.lab.compare.tune"
"""The module of most tasks; the fork server imports it once for all processes."""
RAY_PORT = 10001
"""The port on which `ray start --head` listens for clients."""
EXAMPLES = "local, local:4 or ray://HOST"


class Workers(Protocol):
    """Runs tasks, `count` at a time."""

    @property
    def count(self) -> int:
        """The number of tasks that run side by side."""
        ...

    def answer(self, task: bytes) -> bytes:
        """Run a task and return its answer."""
        ...

    def close(self) -> None:
        """End the workers; running tasks are lost."""
        ...


@cache
def answer_type(function: Any) -> TypeAdapter[Any]:
    """Return the adapter that writes and reads a function's answers as JSON, by its return annotation."""
    return TypeAdapter(get_type_hints(function, include_extras=True)["return"])


def perform(task: bytes) -> bytes:
    """Run a task: call its function, and return the answer as JSON."""
    function, arguments = pickle.loads(task)
    answer = answer_type(function).dump_python(function(*arguments), mode="json")
    return json.dumps(answer).encode()


def read_answer(function: Any, answer: bytes) -> Any:
    """Return a function's answer from its JSON, exact to the last digit.

    Raises:
        ValueError: when the JSON is not an answer of this function.
    """
    return answer_type(function).validate_python(json.loads(answer))


class InlineWorkers:
    """Runs tasks in the calling process, one after another."""

    count = 1

    def answer(self, task: bytes) -> bytes:
        """Run a task and return its answer."""
        return perform(task)

    def close(self) -> None:
        """Do nothing."""


class ProcessWorkers:
    """Processes of this machine, which end when the process that started them ends, even by a kill."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._guard = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._is_closed = False
        self._context = get_context("forkserver")
        _start_server(self._context)
        self._theirs, self._ours = self._context.Pipe(duplex=False)

    def answer(self, task: bytes) -> bytes:
        """Run a task in a process; if one died, start new processes."""
        for _ in range(TRIES):
            pool = self._living()
            try:
                return pool.submit(perform, task).result()
            except BrokenProcessPool:
                with self._guard:
                    if self._pool is pool:
                        self._pool = None
                pool.shutdown(wait=False)
        raise BoaError(f"a worker died {TRIES} times; was it short of memory? Try --on local:1")

    def close(self) -> None:
        """End the processes, which watch a pipe whose other end is closed here."""
        with self._guard:
            self._is_closed = True
            pool, self._pool = self._pool, None
            self._ours.close()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        self._theirs.close()

    def _living(self) -> ProcessPoolExecutor:
        """Return the process pool; start a new one if it broke."""
        with self._guard:
            if self._is_closed:
                raise BoaError("the workers were ended")
            if self._pool is None:
                _start_server(self._context)
                self._pool = ProcessPoolExecutor(
                    self.count, mp_context=self._context, initializer=_begin, initargs=(self._theirs,)
                )
            return self._pool


def _start_server(context: ForkServerContext) -> None:
    """Start the fork server unless it runs: a process without threads, from which workers are forked.

    The server imports what tasks need once for all. PYTHONPATH makes it use this process's packages; by
    default it would search the working directory first.
    """
    found = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    before = {name: os.environ.get(name) for name in found}
    context.set_forkserver_preload([TASKS])
    os.environ.update(found)
    # The server ignores Ctrl-C once it runs; without this it would print a traceback while it imports.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin(parent: Connection) -> None:
    """Initialise a worker: ignore Ctrl-C, which the parent handles, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        with suppress(EOFError, OSError):
            parent.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class RayWorkers:
    """A Ray cluster, which is sent this code, and which retries the tasks of dead workers by itself."""

    def __init__(self, address: str) -> None:
        try:
            import ray  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtra(f"--on {address} needs Ray", hint=install_command("ray")) from error

        self._ray: Any = ray
        try:
            self._connect(address)
        except (ConnectionError, OSError, RuntimeError) as error:
            hint = f"Start one: ray start --head; its clients come to port {RAY_PORT}"
            raise InputError(f"--on {address}: no Ray cluster answers", hint=hint) from error
        self.count = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._perform = ray.remote(perform).options(max_retries=TRIES - 1)

    def _connect(self, address: str) -> None:
        """Connect to the cluster; try again if it answers but has no server ready in time."""
        code = {"py_modules": [str(folder) for folder in code_folders()], "excludes": ["*.pyc"]}
        for left in range(TRIES - 1, -1, -1):
            try:
                self._ray.init(address, runtime_env=code, log_to_driver=False)
                return
            except ConnectionAbortedError:
                if not left:
                    raise
                self._ray.shutdown()

    def answer(self, task: bytes) -> bytes:
        """Run a task in the cluster."""
        try:
            return bytes(self._ray.get(self._perform.remote(task)))
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise BoaError(f"Ray lost a task {TRIES} times: {error}") from error

    def close(self) -> None:
        """Disconnect from the cluster."""
        self._ray.shutdown()


def workers_on(where: str | None) -> Workers:
    """Return the workers named by `--on`; None means a process per core of this machine.

    Raises:
        InputError: when the text is not valid, or no Ray cluster answers.
    """
    where = where or "local"
    if where.startswith("ray://"):
        host = where.removeprefix("ray://")
        return RayWorkers(where if ":" in host else f"{where}:{RAY_PORT}")
    name, colon, text = where.partition(":")
    if name != "local" or (colon and not (text.isascii() and text.isdigit() and int(text) >= 1)):
        raise InputError(f"--on {where!r} is not known", hint=f"Type {EXAMPLES}")
    count = int(text) if colon else len(os.sched_getaffinity(0))
    return InlineWorkers() if count == 1 else ProcessWorkers(count)
