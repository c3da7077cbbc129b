"""Stand-ins for `systemd-run`, `systemctl` and `aws`, as far as the scripts of the `ssm` engine use them."""

from __future__ import annotations

import ctypes
import fnmatch
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from boa_daemon.job.processes import descendants, is_alive, send, started_ticks
from boa_daemon.job.unit import read_json, write_json

_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> int:
    """Run the stand-in of the command that the first argument names."""
    name, *rest = arguments
    return {"systemd-run": systemd_run, "systemctl": systemctl, "aws": aws}[name](rest)


def systemd_run(arguments: list[str]) -> int:
    """Start a transient unit: a session of its own, with a supervisor that ends it with its main process."""
    name, properties, environment, command = "", {}, {}, []
    at = 0
    while at < len(arguments):
        word = arguments[at]
        if word.startswith("--unit="):
            name = word[7:]
        elif word == "-p":
            at += 1
            key, _, value = arguments[at].partition("=")
            properties[key] = value
        elif word.startswith("--setenv="):
            key, _, value = word[9:].partition("=")
            environment[key] = value
        elif not word.startswith("--"):
            command = arguments[at:]
            break
        at += 1
    file = Path(os.environ["BOA_FAKE_UNITS"], f"{name}.service")
    if _is_active(file):
        sys.stderr.write(f"Failed to start transient service unit: {name}.service already exists.\n")
        return 1
    child_environment = {**os.environ, **environment}
    if "PYTHONPATH" not in environment:
        child_environment.pop("PYTHONPATH", None)
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        os.setsid()
        _supervise(file, command, child_environment, properties, writer)
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    return 0


def _supervise(
    file: Path, command: list[str], environment: dict[str, str], properties: dict[str, str], ready: int
) -> None:
    """Run the unit's main process, again after a failure if it is restarted; end what KillMode says."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    quiet: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    while True:
        process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
        about = {"pid": process.pid, "ticks": started_ticks(process.pid), "supervisor": os.getpid()}
        write_json(file, about)
        if ready:
            os.write(ready, b".")
            os.close(ready)
            ready = 0
            for stream in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        code = process.wait()
        while properties.get("KillMode") != "process" and (alive := _living_below(os.getpid())):
            send(alive, signal.SIGKILL)
            time.sleep(0.02)
        if code == 0 or properties.get("Restart") != "on-failure":
            break
        time.sleep(float(properties.get("RestartSec", "0.1")))
    file.unlink(missing_ok=True)


def _living_below(pid: int) -> list[int]:
    return [each for each in descendants(pid) if started_ticks(each) is not None]


def _is_active(file: Path) -> bool:
    """Return whether a unit's main process runs."""
    unit = read_json(file)
    return unit is not None and is_alive(int(unit["pid"]), int(unit["ticks"]))


def systemctl(arguments: list[str]) -> int:
    """Kill the main process of units, or all of theirs, or check whether one is active."""
    if arguments == ["--version"]:
        sys.stdout.write("systemd 252 (252-stand-in)\n")
        return 0
    verb, *rest = arguments
    pattern = rest[-1] if rest[-1].endswith(".service") else f"{rest[-1]}.service"
    folder = Path(os.environ["BOA_FAKE_UNITS"])
    loaded = [file for file in folder.iterdir() if fnmatch.fnmatch(file.name, pattern)]
    units = [file for file in loaded if _is_active(file)]
    if verb == "is-active":
        return 0 if units else 3
    number = signal.SIGTERM
    for word in rest:
        if word.startswith("--signal="):
            number = signal.Signals[word[9:]]
    for file in loaded:
        about = read_json(file) or {}
        if "--kill-who=all" in rest:
            send(_living_below(int(about["supervisor"])), number)
        elif file in units:
            send([int(about["pid"])], number)
    return 0 if units == loaded or "--kill-who=all" in rest else 1


def aws(arguments: list[str]) -> int:
    """Send a message to SQS, or copy a folder from or to S3, with plain requests to a fake endpoint."""
    service, verb, *rest = arguments
    if service == "sqs":
        url, body = rest[rest.index("--queue-url") + 1], rest[rest.index("--message-body") + 1]
        host, own = str(urlsplit(url).hostname), os.environ.get("AWS_DEFAULT_REGION", "")
        if own and ".amazonaws." in host and not host.startswith(f"sqs.{own}."):
            sys.stderr.write(f"An error occurred (InvalidAddress): {url} is not valid for this endpoint.\n")
            return 1
        form = {"Action": "SendMessage", "MessageBody": body, "Version": "2012-11-05"}
        # Send to the endpoint, whatever host the URL names, as the real command does.
        _request(f"{_endpoint()}{urlsplit(url).path}", data=urlencode(form).encode())
        return 0
    if service in _SECRETS:
        return _secret(service, rest)
    if Path(os.environ["HOME"], "s3-fails").exists():
        sys.stderr.write("fatal error: An error occurred (503): Slow Down\n")
        return 1
    if service == "s3api":
        return _list_objects(rest[rest.index("--bucket") + 1], rest[rest.index("--prefix") + 1])
    words = [word for word in rest if word not in ("--only-show-errors", "--no-progress", "--recursive")]
    if verb != "sync" and "--recursive" not in rest:
        return _s3(verb, words)
    paths = [word.rstrip("/") for word in words[: 1 if verb in ("rm", "ls") else 2]]
    return _s3_below(verb, paths, words[len(paths) :])


def _s3_below(verb: str, paths: list[str], filters: list[str]) -> int:
    """Copy, list or remove the files below a folder or a prefix that pass the filters."""
    source, target = paths[0], paths[-1]
    if verb == "ls":
        return _s3(verb, paths)
    if source.startswith("s3://"):
        for name, url in _listed(source):
            if not _passes(name, filters):
                continue
            if verb == "rm":
                _request(url, method="DELETE")
                continue
            Path(target, name).parent.mkdir(parents=True, exist_ok=True)
            Path(target, name).write_bytes(_request(url))
            sys.stdout.write(f"download: {source}/{name} to {target}/{name}\n")
        return 0
    for file in Path(source).rglob("*"):
        name = file.relative_to(source).as_posix()
        if file.is_file() and _passes(name, filters):
            _request(f"{_endpoint()}/{target[5:]}/{quote(name)}", data=file.read_bytes(), method="PUT")
            sys.stdout.write(f"upload: {file} to {target}/{name}\n")
    return 0


_SECRETS = {
    "ssm": ("AmazonSSM.GetParameter", "--name", "Name", ("Parameter", "Value")),
    "secretsmanager": ("secretsmanager.GetSecretValue", "--secret-id", "SecretId", ("SecretString",)),
}
"""By service: its call, the option and the field that name a secret, and the path of its value."""


def _secret(service: str, rest: list[str]) -> int:
    """Print a secret as `--output text` does."""
    from urllib.error import HTTPError  # noqa: PLC0415  the others start faster without it

    target, option, member, path = _SECRETS[service]
    body = json.dumps({member: rest[rest.index(option) + 1], "WithDecryption": True}).encode()
    try:
        answer = json.loads(_request(f"{_endpoint()}/", data=body, target=target))
    except HTTPError as error:
        sys.stderr.write(f"An error occurred ({error.code}) when calling {target.partition('.')[2]}\n")
        return 254
    for name in path:
        answer = answer[name]
    sys.stdout.write(f"{answer}\n")
    return 0


def _s3(verb: str, words: list[str]) -> int:
    """Copy one file, list a prefix, or remove the objects below it."""
    from urllib.error import HTTPError  # noqa: PLC0415  the others start faster without it

    if verb == "cp":
        source, target = words
        if source.startswith("s3://"):
            try:
                Path(target).write_bytes(_request(f"{_endpoint()}/{quote(source[5:])}"))
            except HTTPError as error:
                sys.stderr.write(f"fatal error: An error occurred ({error.code}) when calling HeadObject\n")
                return 1
        else:
            _request(f"{_endpoint()}/{quote(target[5:])}", data=Path(source).read_bytes(), method="PUT")
        return 0
    for name, size in _sizes(words[0]):
        if verb == "ls":
            sys.stdout.write(f"2026-01-01 00:00:00 {size:10d} {name}\n")
        else:
            _request(f"{_endpoint()}/{words[0][5:].partition('/')[0]}/{quote(name)}", method="DELETE")
    return 0


def _list_objects(bucket: str, prefix: str) -> int:
    """Print key, size and ETag of each object whose key begins with the prefix, as `--query` does."""
    from urllib.error import HTTPError  # noqa: PLC0415  the others start faster without it
    from xml.etree import ElementTree  # noqa: PLC0415

    try:
        page = _request(f"{_endpoint()}/{bucket}?{urlencode({'list-type': 2, 'prefix': prefix})}")
    except HTTPError as error:
        sys.stderr.write(f"An error occurred ({error.code}) when calling the ListObjectsV2 operation\n")
        return 254
    every = list(ElementTree.fromstring(page).iter())
    keys, sizes, tags = (
        [each.text or "" for each in every if each.tag.endswith(tag)] for tag in ("}Key", "}Size", "}ETag")
    )
    rows = [[key, int(size), tag] for key, size, tag in zip(keys, sizes, tags, strict=True)]
    sys.stdout.write(json.dumps(rows or None) + "\n")
    return 0


def _sizes(uri: str) -> list[tuple[str, int]]:
    """Return (key, bytes) of each object whose key begins with the prefix."""
    bucket, _, prefix = uri[5:].partition("/")
    page = _request(f"{_endpoint()}/{bucket}?{urlencode({'list-type': 2, 'prefix': prefix})}")
    from xml.etree import ElementTree  # noqa: PLC0415  only this one of the stand-ins needs it

    keys, sizes = (
        [element.text or "" for element in ElementTree.fromstring(page).iter() if element.tag.endswith(tag)]
        for tag in ("}Key", "}Size")
    )
    return [(key, int(size)) for key, size in zip(keys, sizes, strict=True)]


def _listed(uri: str) -> list[tuple[str, str]]:
    """Return (name, URL) of each object below a prefix."""
    bucket, _, prefix = uri[5:].partition("/")
    page = _request(f"{_endpoint()}/{bucket}?{urlencode({'list-type': 2, 'prefix': prefix + '/'})}")
    from xml.etree import ElementTree  # noqa: PLC0415  only this one of the stand-ins needs it

    keys = [
        element.text or "" for element in ElementTree.fromstring(page).iter() if element.tag.endswith("Key")
    ]
    return [(key[len(prefix) + 1 :], f"{_endpoint()}/{bucket}/{quote(key)}") for key in keys]


def _endpoint() -> str:
    return os.environ["AWS_ENDPOINT_URL"]


def _request(url: str, *, data: bytes | None = None, method: str | None = None, target: str = "") -> bytes:
    """Return the answer to a request; the fake takes the service from the signature and checks no more."""
    from urllib.request import Request, urlopen  # noqa: PLC0415  the others start faster without it

    service = "sqs" if data is not None and method is None else "s3"
    service = {"AmazonSSM": "ssm", "secretsmanager": "secretsmanager"}.get(target.partition(".")[0], service)
    who = os.environ.get("AWS_ACCESS_KEY_ID", "test")
    credential = f"AWS4-HMAC-SHA256 Credential={who}/20260101/us-east-1/{service}/aws4_request"
    headers = {"Authorization": f"{credential}, SignedHeaders=host, Signature=none"}
    if target:
        headers |= {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.1"}
    if method == "PUT":
        headers["Content-Type"] = "application/octet-stream"
    with urlopen(Request(url, data=data, method=method, headers=headers), timeout=20) as answer:
        return bytes(answer.read())


def _passes(name: str, filters: list[str]) -> bool:
    """Return whether a name passes `--exclude` and `--include` patterns; the last that matches counts."""
    passes = True
    for flag, pattern in zip(filters[::2], filters[1::2], strict=True):
        if fnmatch.fnmatch(name, pattern):
            passes = flag == "--include"
    return passes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
