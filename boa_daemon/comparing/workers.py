"""Where tasks are done: here, in processes of this machine, or on a Ray cluster. One method, `answer`.

A task and its answer are bytes: a pickle goes out, and JSON comes back. `answer` waits, so that whoever wants
several at once calls it from as many threads. A worker that dies takes its task with it, which is then done
anew, three times at the most.
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

from boa_daemon.comparing.content_hash import code_folders
from boa_daemon.errors import BoaError, InputError, MissingExtra

TRIES = 3
TASKS = "boa_daemon.comparing.tune"
"""The module of most tasks, which imports what a run takes: once for all processes."""
RAY_PORT = 10001
"""Where `ray start --head` listens for clients."""
EXAMPLES = "local, local:4 or ray://HOST"


class Workers(Protocol):
    """Whoever does tasks, `count` at a time."""

    @property
    def count(self) -> int:
        """How many tasks are done side by side."""
        ...

    def answer(self, task: bytes) -> bytes:
        """Do a task and return its answer."""
        ...

    def close(self) -> None:
        """End the workers; tasks that run are lost."""
        ...


@cache
def answer_type(function: Any) -> TypeAdapter[Any]:
    """Return how a function's answers are written as JSON and read: by the type that it says it returns."""
    return TypeAdapter(get_type_hints(function, include_extras=True)["return"])


def perform(task: bytes) -> bytes:
    """Do a task: call its function, and return the answer as JSON."""
    function, arguments = pickle.loads(task)
    answer = answer_type(function).dump_python(function(*arguments), mode="json")
    return json.dumps(answer).encode()


def read_answer(function: Any, answer: bytes) -> Any:
    """Return what a function's answer was, to the last digit.

    Raises:
        ValueError: when it is no answer of this function.
    """
    return answer_type(function).validate_python(json.loads(answer))


class InlineWorkers:
    """Tasks are done where they are asked for, one after the other."""

    count = 1

    def answer(self, task: bytes) -> bytes:
        """Do a task and return its answer."""
        return perform(task)

    def close(self) -> None:
        """Nothing is left."""


class ProcessWorkers:
    """Processes of this machine. They end with the process that started them, however that ends."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._guard = threading.Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._is_closed = False
        self._context = get_context("forkserver")
        _start_server(self._context)
        self._theirs, self._ours = self._context.Pipe(duplex=False)

    def answer(self, task: bytes) -> bytes:
        """Do a task in a process; where one died, in new ones."""
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
        """End the processes: they watch a pipe whose other end is ours."""
        with self._guard:
            self._is_closed = True
            pool, self._pool = self._pool, None
            self._ours.close()
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)
        self._theirs.close()

    def _living(self) -> ProcessPoolExecutor:
        """Return the processes, anew where some died."""
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
    """Start the process that workers are forked from, unless it runs: one without threads, unlike this one.

    It imports what tasks need, once for all of them, from where this process has it: by itself it would look
    in the working directory first.
    """
    found = {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    before = {name: os.environ.get(name) for name in found}
    context.set_forkserver_preload([TASKS])
    os.environ.update(found)
    try:
        ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin(parent: Connection) -> None:
    """Start a worker; Ctrl-C is for the parent, and with the parent it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        with suppress(EOFError, OSError):
            parent.poll(None)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class RayWorkers:
    """A Ray cluster, which gets this very code. It does what a dead worker left anew by itself."""

    def __init__(self, address: str) -> None:
        try:
            import ray  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise MissingExtra(f"--on {address} needs Ray", hint="pip install 'boa-daemon[ray]'") from error

        self._ray: Any = ray
        try:
            self._connect(address)
        except (ConnectionError, OSError, RuntimeError) as error:
            hint = f"Start one: ray start --head; its clients come to port {RAY_PORT}"
            raise InputError(f"--on {address}: no Ray cluster answers", hint=hint) from error
        self.count = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        self._perform = ray.remote(perform).options(max_retries=TRIES - 1)

    def _connect(self, address: str) -> None:
        """Join the cluster; one that answers and has no server for us in time is asked again."""
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
        """Do a task somewhere in the cluster."""
        try:
            return bytes(self._ray.get(self._perform.remote(task)))
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise BoaError(f"Ray lost a task {TRIES} times: {error}") from error

    def close(self) -> None:
        """Leave the cluster."""
        self._ray.shutdown()


def workers_on(where: str | None) -> Workers:
    """Return the workers that `--on` names; None is a process for each core of this machine.

    Raises:
        InputError: when it names nothing, or nobody answers there.
    """
    where = where or "local"
    if where.startswith("ray://"):
        host = where.removeprefix("ray://")
        return RayWorkers(where if ":" in host else f"{where}:{RAY_PORT}")
    name, colon, text = where.partition(":")
    if name != "local" or (colon and not (text.isascii() and text.isdigit() and int(text) >= 1)):
        raise InputError(f"--on {where!r} is no place to work", hint=f"Type {EXAMPLES}")
    count = int(text) if colon else len(os.sched_getaffinity(0))
    return InlineWorkers() if count == 1 else ProcessWorkers(count)
