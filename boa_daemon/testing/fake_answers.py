"""Requests and answers of the fake cloud: EC2's XML and the JSON of the other services."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_REQUEST = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request to AWS: `query` of EC2's form bodies, `document` of JSON bodies.

    `operation` is the HTTP method for S3; `path` is the URL without its host; `access_key` signed the call.
    """

    service: str
    operation: str
    region: str
    query: Mapping[str, str]
    document: Mapping[str, Any]
    access_key: str = ""
    path: str = ""

    @classmethod
    def read(
        cls, body: bytes, *, authorization: str, target: str, method: str = "POST", path: str = ""
    ) -> Call:
        """Return a request parsed from its body, two of its headers, its method and its path."""
        scope = authorization.partition("Credential=")[2].partition(",")[0].split("/")
        region, service = (scope[2], scope[3]) if len(scope) > 3 else ("us-east-1", "")
        who = scope[0]
        if target:
            document = json.loads(body or b"{}")
            return cls(service, target.rpartition(".")[2], region, {}, document, who, path)
        if service == "s3":
            return cls(service, method, region, {}, {}, who, path)
        if service == "scheduler":
            operation = {"POST": "CreateSchedule"}.get(method, method)
            return cls(service, operation, region, {}, json.loads(body or b"{}"), who, path)
        query = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
        return cls(service, query.get("Action", ""), region, query, {}, who, path)

    def with_query(self, query: Mapping[str, str]) -> bytes:
        """Return the body of the same request with another query."""
        return urlencode(query).encode()

    def numbered(self, prefix: str) -> list[str]:
        """Return the values of `prefix.1`, `prefix.2`, ..."""
        found = [(int(key[len(prefix) + 1 :]), value) for key, value in self.query.items()
                 if key.startswith(f"{prefix}.") and key[len(prefix) + 1 :].isdigit()]  # fmt: skip
        return [value for _, value in sorted(found)]

    def tags(self, kind: str = "instance") -> dict[str, str]:
        """Return the tags that a launch gives to one kind of resource."""
        found: dict[str, str] = {}
        for key, value in self.query.items():
            part = key.split(".")
            if part[0] == "TagSpecification" and part[2:3] == ["ResourceType"] and value == kind:
                stem, number = f"TagSpecification.{part[1]}.Tag.", 1
                while f"{stem}{number}.Key" in self.query:
                    found[self.query[f"{stem}{number}.Key"]] = self.query.get(f"{stem}{number}.Value", "")
                    number += 1
        return found


def ec2_error(code: str, message: str, status: int = 400) -> Answer:
    """Return an error in EC2's format."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>'
        f"<Code>{code}</Code><Message>{escape(message)}</Message>"
        f"</Error></Errors><RequestID>{_REQUEST}</RequestID></Response>"
    )
    return Answer(status, body.encode(), {"content-type": "text/xml"})


def json_error(code: str, message: str, status: int = 400) -> Answer:
    """Return an error in the format of the JSON services."""
    body = json.dumps({"__type": code, "message": message}).encode()
    return Answer(status, body, {"content-type": "application/x-amz-json-1.1", "x-amzn-errortype": code})


def json_answer(document: Mapping[str, Any]) -> Answer:
    """Return a JSON answer."""
    return Answer(200, json.dumps(document).encode(), {"content-type": "application/x-amz-json-1.1"})


def ec2_rows(operation: str, items: str, rows: Iterable[Mapping[str, object]]) -> Answer:
    """Return a flat list in EC2's format."""
    listed = "".join(
        "<item>" + "".join(f"<{key}>{escape(str(value))}</{key}>" for key, value in row.items()) + "</item>"
        for row in rows
    )
    body = (
        f'<{operation}Response xmlns="{_NAMESPACE}"><requestId>{_REQUEST}</requestId>'
        f"<{items}>{listed}</{items}></{operation}Response>"
    )
    return Answer(200, body.encode(), {"content-type": "text/xml"})


def price_entry(instance_type: str, usd_per_hour: float, *, dated: Sequence[tuple[float, float]] = ()) -> str:
    """Return an entry of the price list: JSON in a string, as the Pricing API sends it.

    `dated` are (instant, USD per hour) of terms that begin then; without them the price has no date.
    """
    prices: Sequence[tuple[float | None, float]] = dated or ((None, usd_per_hour),)
    terms = {}
    for number, (since, usd) in enumerate(prices):
        rate = {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd:.10f}"}}
        term: dict[str, Any] = {"priceDimensions": {"SKU.TERM.RATE": rate}}
        terms[f"SKU.TERM{number or ''}"] = term | ({} if since is None else {"effectiveDate": iso(since)})
    attributes = {"instanceType": instance_type}
    return json.dumps({"product": {"attributes": attributes}, "terms": {"OnDemand": terms}})


def iso(instant: float) -> str:
    """Return an instant in EC2's format."""
    return datetime.fromtimestamp(instant, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def reason_time(instant: float) -> str:
    """Return an instant in the format of EC2's state reasons."""
    return datetime.fromtimestamp(instant, tz=UTC).strftime("%Y-%m-%d %H:%M:%S GMT")
