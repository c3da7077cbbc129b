"""Pure tasks, each a function with arguments: run once by workers, with a cache of answers.

A task's function is at the top level of a module, annotates its return type, and is deterministic. Its answer
is cached in a folder under a hash of function, arguments and code, so that a stopped study resumes and an
extended study runs only what is new.
"""

from __future__ import annotations

import copyreg
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, TypeVar

import platformdirs

from boa_daemon.errors import InputError
from boa_daemon.job.whole_files import write_whole
from boa_daemon.tasks.content_hash import code_hash, content_hash
from boa_daemon.tasks.workers import InlineWorkers, Workers, read_answer

_Answer = TypeVar("_Answer")
_Item = TypeVar("_Item")


def _proxy_of(plain: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    """Rebuild a mapping proxy, which pickle cannot send to a worker by itself."""
    return MappingProxyType(plain)


copyreg.pickle(MappingProxyType, lambda proxy: (_proxy_of, (dict(proxy),)))


class AnswerCache:
    """A folder of answers, one file each; without a folder nothing is cached."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"--out: cannot use this folder: {error}", file=folder) from error

    @classmethod
    def for_user(cls) -> AnswerCache:
        """Return a cache in the user's cache folder; one without a folder if that cannot be made."""
        try:
            return cls(platformdirs.user_cache_path("boa") / "tasks")
        except InputError:
            return cls(None)

    def find(self, key: str) -> bytes | None:
        """Return a cached answer, or None."""
        if self.folder is None:
            return None
        try:
            return self._path(self.folder, key).read_bytes()
        except FileNotFoundError:
            return None

    def add(self, key: str, answer: bytes) -> None:
        """Cache an answer atomically: a kill leaves no partial file."""
        if self.folder is None:
            return
        path = self._path(self.folder, key)
        try:
            path.parent.mkdir(exist_ok=True)
            write_whole(path, answer, durable=False)
        except OSError as error:
            raise InputError(f"--out: cannot write an answer: {error}", file=path) from error

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key[:2] / f"{key[2:]}.json"


class Tasks:
    """Run tasks by workers, each once; `done` counts tasks that ran, `found` those read from the cache."""

    def __init__(self, workers: Workers | None = None, kept: AnswerCache | None = None) -> None:
        self.workers = workers or InlineWorkers()
        self.kept = kept or AnswerCache(None)
        self.done = self.found = 0
        self._known: dict[str, Future[Any]] = {}
        self._waiting = 0
        self._guard = threading.Lock()
        self._threads = ThreadPoolExecutor(self.workers.count) if self.workers.count > 1 else None

    def __enter__(self) -> Tasks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, and cancel the futures that wait for them."""
        for future in list(self._known.values()):
            future.cancel()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self.workers.close()

    @property
    def has_idle(self) -> bool:
        """Whether some worker is idle, so that likely next tasks can be run ahead."""
        return self._threads is not None and self._waiting < self.workers.count

    def run(self, function: Callable[..., _Answer], *arguments: object) -> _Answer:
        """Run a task and return its answer."""
        return self.submit(function, *arguments).result()

    def submit(self, function: Callable[..., _Answer], *arguments: object) -> Future[_Answer]:
        """Submit a task; a task that is submitted again is not run again."""
        key = content_hash(code_hash(), function, arguments)
        with self._guard:
            if key in self._known:
                return self._known[key]
            future: Future[Any] = Future()
            self._known[key] = future
            self._waiting += 1
        if self._threads is None:
            self._settle(future, key, function, arguments)
        else:
            try:
                self._threads.submit(self._settle, future, key, function, arguments)
            except RuntimeError:
                future.cancel()
        return future

    def each(
        self,
        function: Callable[[_Item], _Answer],
        items: Iterable[_Item],
        then: Callable[[_Item, _Answer], Iterable[_Item]] = lambda item, answer: (),
    ) -> Iterator[tuple[_Item, _Answer]]:
        """Yield each item with `function(item)` as it is done; `then` returns further items.

        The function is not a task itself: it submits tasks and waits for them.
        """
        if self._threads is None:
            waiting = deque(items)
            while waiting:
                item = waiting.popleft()
                answer = function(item)
                yield item, answer
                waiting.extend(then(item, answer))
            return
        # These threads only wait for answers, so there may be more of them than workers.
        with ThreadPoolExecutor(4 * self.workers.count) as crew:
            asked = {crew.submit(function, item): item for item in items}
            try:
                while asked:
                    for future in wait(asked, return_when=FIRST_COMPLETED).done:
                        item, answer = asked.pop(future), future.result()
                        yield item, answer
                        asked |= {crew.submit(function, one): one for one in then(item, answer)}
            except BaseException:
                crew.shutdown(wait=False, cancel_futures=True)
                self.close()
                raise

    def _settle(
        self, future: Future[Any], key: str, function: Callable[..., Any], arguments: tuple[object, ...]
    ) -> None:
        """Read the answer from the cache or run the task, and set the future's result."""
        try:
            value, was_kept = self._answer(key, function, arguments)
        except BaseException as error:
            if self._threads is None and not isinstance(error, Exception):
                raise
            with suppress(InvalidStateError):
                future.set_exception(error)
            return
        finally:
            with self._guard:
                self._waiting -= 1
        with self._guard:
            self.found += was_kept
            self.done += not was_kept
        with suppress(InvalidStateError):
            future.set_result(value)

    def _answer(
        self, key: str, function: Callable[..., _Answer], arguments: tuple[object, ...]
    ) -> tuple[_Answer, bool]:
        """Return the answer, and whether it was cached. A damaged file is ignored."""
        kept = self.kept.find(key)
        if kept is not None:
            with suppress(ValueError):
                return read_answer(function, kept), True
        answer = self.workers.answer(pickle.dumps((function, arguments)))
        self.kept.add(key, answer)
        return read_answer(function, answer), False
