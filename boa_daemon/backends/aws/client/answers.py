"""Is this an answer of AWS? Proxies, captive portals and broken connections answer in AWS's place.

Each answer is checked before botocore parses it, in one place for all services: its status, its root element
or JSON object, and its end. What is no answer becomes a server error that carries the HTTP status and the
first characters, so botocore retries it where a retry is safe. A field that an answer lacks fails like
an answer that is none, and never as a `KeyError` in the caller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from boa_daemon.backends.aws.client.errors import CallFailed

NO_ANSWER = "NoAnswer"
"""Our code for an answer that is none, and the key of its facts in the parsed response."""
SHOWN_CHARACTERS = 100
_HEAD_BYTES = 4096
_ROOT = re.compile(
    rb"^(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<([A-Za-z_][\w.:-]*)", re.DOTALL
)
_UNPRINTABLE = re.compile(r"(?:[^\x20-\x7e\xa1-\uffff]|\s)+")
_ERROR_ROOTS = frozenset({"Response", "ErrorResponse", "Error"})
_ROOTS_OF_S3 = {
    "ListObjectsV2": "ListBucketResult",
    "DeleteObjects": "DeleteResult",
    "GetBucketLifecycleConfiguration": "LifecycleConfiguration",
}
"""Root elements of S3's answers whose name is not that of their payload."""
_ERROR_HEADERS = ("x-amzn-errortype", "x-amzn-query-error")
_REQUEST_ID_HEADERS = ("x-amz-request-id", "x-amzn-requestid", "x-amz-id-2")


class Answer(dict[str, Any]):
    """A part of an answer. A missing key raises CallFailed, for the call is then as good as unanswered."""

    __slots__ = ("operation",)

    def __init__(self, values: Mapping[str, Any], operation: str) -> None:
        super().__init__(values)
        self.operation = operation

    def __missing__(self, key: str) -> Any:
        raise CallFailed(self.operation, NO_ANSWER, f"the answer has no {key}", http_status=200)


class Body:
    """The body of an object of S3; a connection that breaks while it is read raises CallFailed."""

    def __init__(self, body: Any, operation: str) -> None:
        self._body, self._operation = body, operation

    def read(self, most: int | None = None) -> bytes:
        """Return the rest of the body, at most so many bytes of it.

        Raises:
            CallFailed: when the connection breaks.
        """
        try:
            found: bytes = self._body.read(most)
        except Exception as error:
            said = f"{type(error).__name__}: {cleaned(str(error))}"
            raise CallFailed(self._operation, "ConnectionLost", said) from error
        return found

    def close(self) -> None:
        """Give the connection back."""
        self._body.close()


def answer_of(parsed: Any, operation: str) -> Any:
    """Return a parsed answer whose missing keys raise CallFailed, at every depth."""
    if hasattr(parsed, "read"):
        return Body(parsed, operation)
    if isinstance(parsed, dict):
        return Answer({key: answer_of(value, operation) for key, value in parsed.items()}, operation)
    return [answer_of(each, operation) for each in parsed] if isinstance(parsed, list) else parsed


@contextmanager
def reading(operation: str) -> Iterator[None]:
    """Read values that botocore does not check, such as JSON in a string: what does not fit is no answer.

    Raises:
        CallFailed: when the values cannot be read.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        said = f"the answer cannot be read: {type(error).__name__}: {cleaned(str(error))}"
        raise CallFailed(operation, NO_ANSWER, said, http_status=200) from error


def cleaned(text: str | bytes) -> str:
    """Return the first characters of a text in one printable line."""
    if isinstance(text, bytes):
        text = text[:_HEAD_BYTES].decode("utf-8", "replace")
    return _UNPRINTABLE.sub(" ", text[:_HEAD_BYTES]).strip()[:SHOWN_CHARACTERS]


def facts_of(status: int, body: str | bytes) -> str:
    """Return status and first characters of an answer as a sentence."""
    shown = cleaned(body)
    return (
        f"HTTP {status} with {f'the text {shown!r}' if shown else 'an empty body'}, which is no answer of AWS"
    )


def mark_no_answer(
    operation_model: Any,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
    """Replace what is no answer of AWS by a server error with its facts: a handler of `before-parse`."""
    status, body = response_dict["status_code"], response_dict.get("body")
    if not isinstance(body, bytes | str | None):
        # A stream: reading it here would take it from the caller.
        if _is_ours(response_dict["headers"]):
            return
        raw, body = body, b""
        read = getattr(raw, "read", None)
        body = read(_HEAD_BYTES) if read is not None else b""
    elif _is_answer(operation_model, status, _bytes(body), response_dict["headers"]):
        return
    customized_response_dict[NO_ANSWER] = {"status": status, "said": facts_of(status, body or b"")}
    response_dict["status_code"], response_dict["body"] = max(status, 502), b""


def _bytes(body: bytes | str | None) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""


def _is_ours(headers: Mapping[str, str]) -> bool:
    """Return whether S3, or what speaks like it, sent these headers."""
    names = {str(name).lower() for name in headers}
    return any(name in names for name in _REQUEST_ID_HEADERS)


def _is_answer(operation_model: Any, status: int, body: bytes, headers: Mapping[str, str]) -> bool:
    protocol = operation_model.service_model.resolved_protocol
    if status >= 300:
        return _is_error(protocol, status, body, headers)
    if protocol in ("json", "rest-json"):
        return _is_object(body) or (not body.strip() and not _members(operation_model))
    root = _root(body)
    if protocol in ("ec2", "query"):
        return root == f"{operation_model.name}Response"
    return _is_answer_of_s3(operation_model, body, root)


def _is_error(protocol: str, status: int, body: bytes, headers: Mapping[str, str]) -> bool:
    """Return whether an answer with an error's status is AWS's own; a bare 304 or 404 of S3 has no body."""
    if protocol in ("json", "rest-json"):
        names = {str(name).lower() for name in headers}
        found = _object(body)
        has_code = found is not None and ("__type" in found or "code" in found)
        return has_code or any(name in names for name in _ERROR_HEADERS)
    if protocol == "rest-xml" and not body.strip():
        return _is_ours(headers)
    return _root(body) in _ERROR_ROOTS and b"<Code>" in body


def _is_answer_of_s3(operation_model: Any, body: bytes, root: str) -> bool:
    """Return whether S3 sent it: a document where the operation has one, nothing where it has none."""
    members = _members(operation_model)
    if not members:
        return not body.strip()
    shape = operation_model.output_shape
    payload = shape.serialization.get("payload")
    if payload and shape.members[payload].type_name not in ("structure", "list", "map"):
        return _is_object(body) if payload == "Policy" else True
    return root == str(_ROOTS_OF_S3.get(operation_model.name, payload))


def _members(operation_model: Any) -> list[str]:
    """Return the fields of an operation's answer that its body carries."""
    shape = operation_model.output_shape
    if shape is None:
        return []
    return [name for name, member in shape.members.items() if "location" not in member.serialization]


def _root(body: bytes) -> str:
    """Return the name of the root element without its prefix; empty without one, or if it is not closed."""
    found = _ROOT.match(body[:_HEAD_BYTES])
    if found is None:
        return ""
    name = found[1]
    end = body[-_HEAD_BYTES:].rstrip()
    is_whole = end.endswith(b"</" + name + b">") or (end.endswith(b"/>") and body.count(b"<") <= 2)
    return name.rpartition(b":")[2].decode("ascii", "replace") if is_whole else ""


def _is_object(body: bytes) -> bool:
    return _object(body) is not None


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
