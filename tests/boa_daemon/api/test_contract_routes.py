"""`api/contract_routes.py`: the service answers each verb with the document that its declaration promises."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from daemon_time import pass_time

from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.client import Client, RefusedByDaemon
from boa_daemon.api.contract import VERBS, Verb
from boa_daemon.api.server import ApiServer, unix_socket
from boa_daemon.daemon.service.service import Service
from boa_daemon.daemon.service.slurm_nodes import SlurmNodes
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

TOLD: Mapping[str, set[str]] = {
    "anyone": set(),
    "admin": set(),
    "slurm": set(),
    "reader": {"may_read"},
    "owner": {"user", "is_admin"},
}
"""What the service is told of a caller, by the role of a verb."""


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_the_service_takes_the_parameters_of_each_verb_and_what_its_role_says(verb: Verb) -> None:
    """A parameter that the service alone has, has a default."""
    of_slurm = verb.answers.startswith("slurm.")
    answer = getattr(SlurmNodes if of_slurm else Service, verb.answers.removeprefix("slurm."))
    taken = dict(list(inspect.signature(answer).parameters.items())[1:])
    given = {each.name for each in verb.parameters} | TOLD[verb.role]
    assert given <= taken.keys()
    assert all(taken[name].default is not inspect.Parameter.empty for name in taken.keys() - given)
    # Whoever is told to the service has to be told by the role.
    assert taken.keys() & {"may_read", "user", "is_admin"} - {"user"} == TOLD[verb.role] - {"user"}


def faults(value: object, kind: Any, at: str = "answer") -> list[str]:
    """Return where a document is not of a declared type: keys, and the types of values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return []
    if is_typeddict(kind):
        if not isinstance(value, dict):
            return [f"{at}: {type(value).__name__} for {kind.__name__}"]
        hints = get_type_hints(kind, include_extras=True)
        needed = {key for key in kind.__required_keys__ if get_origin(hints[key]) is not NotRequired}
        found = [f"{at}: lacks {key}" for key in sorted(needed - value.keys())]
        found += [f"{at}: has {key}, which is not declared" for key in value.keys() - hints.keys()]
        return found + [
            fault
            for key, each in value.items()
            if key in hints
            for fault in faults(each, hints[key], f"{at}.{key}")
        ]
    if origin is NotRequired:
        return faults(value, arguments[0], at)
    if origin is list:
        if not isinstance(value, list):
            return [f"{at}: no list"]
        return [fault for n, each in enumerate(value) for fault in faults(each, arguments[0], f"{at}[{n}]")]
    if origin is dict:
        if not isinstance(value, dict):
            return [f"{at}: no object"]
        return [fault for key, each in value.items() for fault in faults(each, arguments[1], f"{at}[{key}]")]
    if arguments:
        every = [faults(value, each, at) for each in arguments]
        return [] if [] in every else [f"{at}: {value!r} is none of {kind}"]
    if kind is float:
        return [] if isinstance(value, int | float) and not isinstance(value, bool) else [f"{at}: {value!r}"]
    return [] if type(value) is kind or (kind is type(None) and value is None) else [f"{at}: {value!r}"]


@pytest.fixture(scope="module")
def boa(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, dict[str, Any]]]:
    """Yield a client of a daemon with jobs in every state, and arguments for its verbs."""
    settings = {"budget": {"usd_per_hour": 10.0, "max_instances": 4}, "daemon": {"tick_seconds": 30.0}}
    play = DaemonInAFolder(tmp_path_factory.mktemp("site"), ManualClock(1.8e9), settings)
    with tempfile.TemporaryDirectory(prefix="boa") as name:
        app = create_app(play.service, Authenticator(ApiSettings()))
        server = ApiServer(app, [unix_socket(Path(name) / "s")])
        server.start()
        with Client(Path(name) / "s") as client:
            group = job_content("sweep", matrix={"LR": [0.1, 0.2]})
            sent = client.submit_checked(
                [job_content("runs", hours=9.0), job_content("ends", hours=0.01), group]
            )
            pass_time(play, 1200.0)
            acting = client.decisions(acting=True)["decisions"]
            yield client, {"job": sent["jobs"][0], "group": sent["groups"][0], "tick": acting[0]["tick"]}
        server.stop()
    play.close()


def arguments_of(verb: Verb, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with which a verb can be asked."""
    name = known["group" if "/groups/" in verb.path else "job"]
    chosen = {"name": name, "tick": known["tick"], "gpus": 1, "nodes": "c[1-2]", "ended": True}
    chosen["is_held"] = False
    return {each.name: chosen[each.name] for each in verb.parameters if each.name in chosen}


@pytest.mark.parametrize("name", VERBS)
def test_each_answer_has_the_declared_keys_and_types(name: str, boa: tuple[Client, dict[str, Any]]) -> None:
    """No key is missing, none is undeclared, and values have their types, down to the rows."""
    client, known = boa
    verb = VERBS[name]
    ask = getattr(client, name)
    if verb.role == "slurm":
        with pytest.raises(RefusedByDaemon, match="provides no nodes for Slurm"):
            ask(**arguments_of(verb, known))
        return
    if name == "artifacts":
        with pytest.raises(RefusedByDaemon, match="keeps no files of jobs"):
            ask(**arguments_of(verb, known))
        return
    answer = client.down(is_down=False) if name == "down" else ask(**arguments_of(verb, known))

    assert faults(answer, get_type_hints(verb.declared)["return"]) == []


def test_faults_are_found() -> None:
    """The check above notices a key too many, a key too few, and a wrong type."""
    kind = get_type_hints(VERBS["down"].declared)["return"]
    assert faults({"as_of": 1.0, "is_down": True}, kind) == []
    assert faults({"as_of": 1}, kind) == ["answer: lacks is_down"]
    assert faults({"as_of": "1", "is_down": True}, kind) == ["answer.as_of: '1'"]
    assert faults({"as_of": 1.0, "is_down": 1, "more": 2}, kind) == [
        "answer: has more, which is not declared",
        "answer.is_down: 1",
    ]


def test_routes_that_go_through_a_verb_are_the_services_answers(boa: tuple[Client, dict[str, Any]]) -> None:
    """What a request leaves out has the default of HTTP: all jobs, and an order to go down must say which."""
    client, _ = boa
    assert len(client.get("/jobs")["jobs"]) == 4
    assert len(client.jobs()["jobs"]) < 4
    with pytest.raises(RefusedByDaemon, match=r"body\.is_down: Field required"):
        client.post("/down", {})
    with pytest.raises(RefusedByDaemon, match=r"query: the parameter 'of' is not one of 'user'"):
        client.get("/jobs", of="ann")
