"""`api/contract.py`: what each verb sends, from its declaration alone."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import boa_daemon
from boa_daemon.api.client import Client
from boa_daemon.api.contract import VERBS, Verb, Verbs

Sent = tuple[str, str, dict[str, Any]]
NOTHING = {"job": "", "user": "", "node": "", "kind": ""}
"""Decisions about everything."""


class Recorded(Verbs):
    """Verbs whose requests are only noted."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        self.sent.append(("GET", path, {key: value for key, value in query.items() if value is not None}))
        return {"answers": path}

    def post(self, path: str, document: Mapping[str, Any] | None = None) -> dict[str, Any]:
        self.sent.append(("POST", path, dict(document or {})))
        return {"answers": path}


@pytest.mark.parametrize(
    ("ask", "sent"),
    [
        (lambda boa: boa.jobs(), ("GET", "/jobs", {"ended": False, "limit": 1000})),
        (
            lambda boa: boa.jobs(user="ann", before=7, ended=True),
            ("GET", "/jobs", {"user": "ann", "before": 7, "ended": True, "limit": 1000}),
        ),
        (lambda boa: boa.job("a-1"), ("GET", "/jobs/a-1", {})),
        (lambda boa: boa.job("a/b c"), ("GET", "/jobs/a%252Fb%20c", {})),
        (lambda boa: boa.job(""), ("GET", "/jobs/%20", {})),
        (lambda boa: boa.job("{name}"), ("GET", "/jobs/%7Bname%7D", {})),
        (lambda boa: boa.group("s-g1"), ("GET", "/groups/s-g1", {})),
        (lambda boa: boa.logs("a-1", since=9, node=0), ("GET", "/jobs/a-1/logs", {"since": 9, "node": 0})),
        (lambda boa: boa.resize("a-1", 4), ("POST", "/jobs/a-1/resize", {"gpus": 4})),
        (lambda boa: boa.resize("a-1", None), ("POST", "/jobs/a-1/resize", {"gpus": None})),
        (lambda boa: boa.resize(name="a-1", gpus=2), ("POST", "/jobs/a-1/resize", {"gpus": 2})),
        (lambda boa: boa.interrupt("a-1"), ("POST", "/jobs/a-1/interrupt", {})),
        (lambda boa: boa.decision(12), ("GET", "/decisions/12", {})),
        (
            lambda boa: boa.decisions(acting=True),
            ("GET", "/decisions", {"limit": 20, "acting": True, **NOTHING}),
        ),
        (
            lambda boa: boa.decisions(job="a-1", kind="start"),
            ("GET", "/decisions", {"limit": 20, "acting": False, **NOTHING, "job": "a-1", "kind": "start"}),
        ),
        (lambda boa: boa.hold("a-1", is_held=False), ("POST", "/jobs/a-1/hold", {"is_held": False})),
        (lambda boa: boa.instances(), ("GET", "/instances", {"ended": False, "after": ""})),
        (lambda boa: boa.cost(by="tag:team"), ("GET", "/cost", {"by": "tag:team"})),
        (lambda boa: boa.down(), ("POST", "/down", {"is_down": True})),
        (lambda boa: boa.down(is_down=False), ("POST", "/down", {"is_down": False})),
        (lambda boa: boa.apply_settings(), ("POST", "/settings/apply", {"code": ""})),
        (lambda boa: boa.slurm_suspend("c[1-3]"), ("POST", "/slurm/suspend", {"nodes": "c[1-3]"})),
    ],
)
def test_a_verb_sends_its_arguments_where_its_declaration_says(
    ask: Callable[[Verbs], Any], sent: Sent
) -> None:
    """Ids are parts of the path, other arguments are the query or the body; the document comes back."""
    boa = Recorded()
    assert ask(boa) == {"answers": sent[1]}
    assert boa.sent == [sent]


@pytest.mark.parametrize(
    "ask",
    [
        lambda boa: boa.resize("a-1"),
        lambda boa: boa.jobs("ann"),
        lambda boa: boa.job("a-1", node=0),
        lambda boa: boa.status(1),
    ],
)
def test_a_call_that_the_declaration_does_not_allow_sends_nothing(ask: Callable[[Verbs], Any]) -> None:
    """It fails like a call of any function."""
    boa = Recorded()
    with pytest.raises(TypeError):
        ask(boa)
    assert boa.sent == []


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_every_verb_is_a_method_of_the_client_with_its_signature(verb: Verb) -> None:
    """Rules are about parameters that exist, and each part of the path is one."""
    method = getattr(Client, verb.name)
    assert inspect.signature(method) == inspect.signature(verb.declared)
    names = {each.name for each in verb.parameters}
    assert set(verb.rules) <= names
    assert set(re.findall(r"{(\w+)}", verb.path)) <= names
    assert verb.description.endswith(".")


def test_no_two_verbs_have_the_same_request() -> None:
    """One of them would never be asked."""
    requests = [(verb.method, verb.path) for verb in VERBS.values()]
    assert len(set(requests)) == len(requests)


DECLARED = '''
    @verb("POST /jobs/{name}/nudge", role="owner", body="Nudge", rules={"times": {"ge": 1, "le": 3}})
    def nudge(self, name: str, *, times: int = 1) -> dict[str, Any]:
        """Nudge a job."""
        raise NotImplementedError

'''
ANSWERED = '''
    def nudge(self, name: JobId, *, times: int, user: str, is_admin: bool) -> dict[str, Any]:
        """Nudge a job."""
        return {"job": self.owned(name, user, is_admin).id, "times": times}

'''
ASKED = """
import json, tempfile
from pathlib import Path
from boa_daemon.api.app import create_app
from boa_daemon.api.authentication import Authenticator
from boa_daemon.api.client import Client, RefusedByDaemon
from boa_daemon.api.server import ApiServer, unix_socket
from boa_daemon.daemon.settings.config import ApiSettings
from boa_daemon.testing import ManualClock
from boa_daemon.testing.daemon_in_a_folder import DaemonInAFolder, job_content

folder = Path(tempfile.mkdtemp(prefix="boa"))
play = DaemonInAFolder(folder, ManualClock(1.8e9))
app = create_app(play.service, Authenticator(ApiSettings()))
server = ApiServer(app, [unix_socket(folder / "s")])
server.start()
with Client(folder / "s") as boa:
    [job] = boa.submit_checked([job_content("a")])["jobs"]
    print(boa.nudge(job, times=2) == {"job": job, "times": 2})
    for wrong in (lambda: boa.nudge(job, times=4), lambda: boa.nudge("nobody-1")):
        try:
            wrong()
        except RefusedByDaemon as refused:
            print(refused.status)
print(list(app.openapi()["paths"]["/v1/jobs/{name}/nudge"]))
server.stop()
play.close()
"""


def test_one_more_verb_is_its_declaration_and_its_answer(tmp_path: Path) -> None:
    """Two methods make a route with its rights, checks and description, and a typed method of the client."""
    code = tmp_path / "boa_daemon"
    shutil.copytree(
        Path(boa_daemon.__file__).parent, code, ignore=shutil.ignore_patterns("__pycache__", "page")
    )
    contract, service = code / "api" / "contract.py", code / "daemon" / "service" / "job_service.py"
    for file, mark, text in (
        (contract, '    @verb("POST /jobs/{name}/interrupt"', DECLARED),
        (service, "    def interrupt(self, name: JobId", ANSWERED),
    ):
        found = file.read_text()
        assert found.count(mark) == 1
        file.write_text(found.replace(mark, f"{text.lstrip(chr(10))}{mark}"))

    said = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); exec({ASKED!r})"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=False)

    assert done.stdout.split("\n")[:-1] == ["True", "422", "404", "['post']"], done.stderr
