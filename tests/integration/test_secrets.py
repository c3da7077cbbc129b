"""A job's secrets are in the environment of its command and nowhere else."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from daemon_site import SETTINGS, a_site, wait_for
from engine_bench import Bench, until
from engine_worlds import ssm_world

from boa_daemon.api.client import Client
from boa_daemon.daemon.settings.config import EngineSettings
from boa_daemon.daemon.settings.secret_references import check_secrets
from boa_daemon.errors import InputError
from boa_daemon.inputs.document_file import Document
from boa_daemon.inputs.job_file import check_job
from boa_daemon.testing import a_node
from boa_daemon.tick.facts.ports import Accepted

VALUE = "hunter2-AKIA/1234+x=y"
DIGEST = hashlib.sha256(VALUE.encode()).hexdigest()
RUN = """
printf %s "$TOKEN" | sha256sum | cut -c1-64 > {file}; until [ -e {go} ]; do sleep 0.1; done; echo done
"""
ARN = "arn:aws:secretsmanager:us-east-1:123456789012:secret:boa/wandb-abcdef"


def places_with(value: str, *folders: Path) -> Iterator[str]:
    """Yield the files below folders, and the command lines of all processes, that hold a value."""
    for folder in folders:
        for file in folder.rglob("*"):
            if file.is_file() and value.encode() in file.read_bytes():
                yield str(file)
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if value.encode() in line.read_bytes():
                yield line.read_text()
        except OSError:
            continue


def test_a_local_jobs_secret_is_in_no_file_answer_or_command_line() -> None:
    """The secret is in no file but the secret store, in no answer of the API, and in no command line."""
    with a_site(SETTINGS.format(usd=10.0) + '[engine]\nsecrets_file = "store"\n') as site:
        store, out, go = site.folder / "store", site.folder / "out", site.folder / "go"
        store.write_text(f"# keys\nWANDB={VALUE}\n")
        store.chmod(0o600)
        site.up()
        content = {
            "name": "s", "class": "default", "run": RUN.format(file=out, go=go), "workdir": str(site.folder),
            "secrets": {"TOKEN": "env:WANDB"},
        }  # fmt: skip
        with Client(site.socket) as client:
            (job,) = client.post("/jobs", {"jobs": [content]})["jobs"]
            wait_for(lambda: out.exists() and out.read_text().strip() == DIGEST, site)
            during = list(places_with(VALUE, site.folder))
            go.touch()
            wait_for(lambda: site.get(f"/jobs/{job}").get("status") == "finished", site)
            said = [
                json.dumps(client.get(path))
                for path in (f"/jobs/{job}", "/jobs", "/status", f"/jobs/{job}/explain", "/decisions")
            ]
            text = client.get(f"/jobs/{job}/logs")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(site.socket))) as plain:
            metrics = plain.get("http://boa/metrics").text
        assert "env:WANDB" in said[0]
        assert during == [str(store)]
        assert list(places_with(VALUE, site.folder)) == [str(store)]
        assert "boa_fault" in metrics
        assert VALUE not in json.dumps([*said, text, metrics])
        assert "done" in json.dumps(text)


@pytest.mark.parametrize("kind", ["ssm", pytest.param("secretsmanager", marks=pytest.mark.exhaustive)])
def test_a_node_fetches_its_jobs_secrets_itself(tmp_path: Path, kind: str) -> None:
    """Scripts for nodes hold the reference; no file and no object in S3 holds the secret."""
    with ssm_world(tmp_path) as make:
        engine = make()
        region = engine.sqs.meta.endpoint_url  # type: ignore[attr-defined]
        reference = _put(kind, region)
        bench = Bench(engine=engine, workdir=tmp_path)
        until(lambda: engine.prepare([a_node("n1")])["n1"] == Accepted())
        out, go = tmp_path / "out", tmp_path / "go"
        bench.admit(RUN.format(file=out, go=go), workdir=".", secrets={"TOKEN": reference})
        bench.start(1)
        until(lambda: out.exists() and out.read_text().strip() == DIGEST)
        time.sleep(1.5)  # A heartbeat goes out.
        assert list(places_with(VALUE, tmp_path)) == []
        go.touch()
        assert bench.wait_end().phase == "finished"
        objects = engine.s3.list_objects_v2(Bucket="boa").get("Contents", [])  # type: ignore[attr-defined]
        kept = [engine.s3.get_object(Bucket="boa", Key=row["Key"])["Body"].read() for row in objects]  # type: ignore[attr-defined]
        assert objects
        assert not [body for body in kept if VALUE.encode() in body]
        assert list(places_with(VALUE, tmp_path)) == []
        scripts = [file.read_text() for file in tmp_path.rglob("*.sh")]
        assert any(reference in text for text in scripts)


def _put(kind: str, endpoint: str) -> str:
    """Write the secret to AWS, where nodes fetch it; return its reference."""
    import boto3

    client = boto3.session.Session("test", "test", region_name="us-east-1").client(
        kind, endpoint_url=endpoint
    )
    try:
        if kind == "ssm":
            client.put_parameter(Name="/boa/wandb", Value=VALUE, Type="SecureString")
            return "ssm:/boa/wandb"
        return f"secretsmanager:{client.create_secret(Name='boa/wandb', SecretString=VALUE)['ARN']}"
    finally:
        client.close()


def test_a_job_whose_secret_cannot_be_fetched_fails_and_names_the_reference(tmp_path: Path) -> None:
    """The evidence names the reference, and the command does not start."""
    with ssm_world(tmp_path) as make:
        bench = Bench(engine=make(), workdir=tmp_path)
        bench.admit("echo started", workdir=".", secrets={"TOKEN": "ssm:/boa/none"})
        bench.start(1)
        end = bench.wait_end()
        assert (end.phase, end.exit_code) == ("failed", 1)
        assert "cannot start: ssm:/boa/none" in end.evidence
        assert "started" not in bench.printed().replace("cannot start", "")


REFUSED = {
    "no store": (EngineSettings(), "env:A", "no secret store"),
    "no name": (EngineSettings(secrets_file="{store}"), "env:B", "no such name"),
    "readable": (EngineSettings(secrets_file="{open}"), "env:A", "others can read"),
    "not there": (EngineSettings(secrets_file="/no/such"), "env:A", "cannot be read"),
    "local, of AWS": (EngineSettings(secrets_file="{store}"), "ssm:/boa/x", "only nodes of AWS"),
    "not named": (EngineSettings(name="ssm", secrets=["ssm:/boa/*"]), "ssm:/other/x", "may not read"),
    "env on nodes": (EngineSettings(name="ssm", secrets=["ssm:/*"]), "env:A", "may not read"),
    "another's": (
        EngineSettings(name="ssm", secrets=["ssm:/boa/*"]),
        f"secretsmanager:{ARN}",
        "may not read",
    ),
}


@pytest.mark.parametrize("way", sorted(REFUSED))
def test_a_secret_that_the_jobs_nodes_cannot_fetch_is_refused_at_submission(way: str, tmp_path: Path) -> None:
    """The error names the variable, the reference and what to do."""
    engine, reference, why = REFUSED[way]
    for name, mode in (("store", 0o600), ("open", 0o644)):
        (tmp_path / name).write_text("A=1\n")
        (tmp_path / name).chmod(mode)
    file = engine.secrets_file.format(store=tmp_path / "store", open=tmp_path / "open")
    engine = engine.model_copy(update={"secrets_file": file})
    with pytest.raises(InputError, match=f"secrets: TOKEN: {reference}.*{why}") as refused:
        check_secrets({"secrets": {"TOKEN": reference}}, engine)
    assert refused.value.hint
    check_secrets({"secrets": {"TOKEN": "env:A"}}, EngineSettings(secrets_file=str(tmp_path / "store")))
    named = EngineSettings(name="ssm", secrets=["ssm:/boa/*", f"secretsmanager:{ARN}"])
    check_secrets({"secrets": {"A": "ssm:/boa/x", "B": f"secretsmanager:{ARN}"}}, named)


@pytest.mark.parametrize(
    "text", [VALUE, "env:", "env:A B", "ssm:boa", "secretsmanager:boa", "file:/x", "ssm:/a;b"]
)
def test_a_value_in_place_of_a_reference_is_refused_and_not_repeated(text: str) -> None:
    """The value may be the secret itself, so the message names its key only."""
    content = {"name": "a", "class": "c", "run": "true", "secrets": {"TOKEN": text}}
    with pytest.raises(InputError, match="TOKEN is not a reference") as refused:
        check_job(Document(name="job.yaml", content=content, language="json"))
    assert text not in f"{refused.value} {refused.value.hint}".replace("env:NAME", "")
