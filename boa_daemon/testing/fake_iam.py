"""IAM in front of the fake cloud: decides about requests by actions, resources and conditions.

moto decides by actions alone: it ignores conditions, so every conditional Allow allows everything and every
conditional Deny denies everything. This module splits a request into the checks that AWS makes of it (a
launch is one check per resource that it uses or creates, one per kind that it tags, and one on the role that
it passes). The policies of the request's signer decide each check. What no policy allows is denied, with the
error of the service.

Callers without an entry in `principals` are administrators. `SimulatePrincipalPolicy` is supported too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any
from xml.sax.saxutils import escape

from boa_daemon.testing.fake_answers import Answer, Call, ec2_error, json_error
from boa_daemon.testing.fake_checks import ACCOUNT, Context, checks_of

_ENCODED = "Encoded authorization failure message: x"
_ADMINISTRATOR: Mapping[str, Any] = {
    "Statement": [{"Sid": "All", "Effect": "Allow", "Action": ["*"], "Resource": ["*"]}]
}


@dataclass(slots=True)
class Principal:
    """The owner of an access key: an ARN and its policies."""

    arn: str
    documents: list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the policies: allowed or denied by statement `sid`, or by default (`sid` is empty)."""

    is_allowed: bool
    sid: str = ""


@dataclass(slots=True)
class FakeIam:
    """Decides about requests; `used` counts the (principal, statement) pairs that allowed something."""

    tags_of: Callable[[str, str], Mapping[str, str]]
    principals: dict[str, Principal] = field(default_factory=dict)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    checks: Counter[tuple[str, str]] = field(default_factory=Counter)
    denied: list[tuple[str, str, str]] = field(default_factory=list)

    def refusal(self, call: Call) -> Answer | None:
        """Return the refusal of a request; None if it is allowed."""
        principal = self.principals.get(call.access_key)
        if principal is None:
            return None
        for action, resource, context in checks_of(call, self.tags_of):
            self.checks[principal.arn, action] += 1
            found = decide(principal.documents, action, resource, context)
            if found.is_allowed:
                self.used[principal.arn, found.sid] += 1
                continue
            self.denied.append((principal.arn, action, resource))
            return _denied(call, principal.arn, action, resource, found)
        return None

    def identity(self, call: Call) -> Answer | None:
        """Answer GetCallerIdentity for a known principal."""
        principal = self.principals.get(call.access_key)
        if principal is None:
            return None
        arn = principal.arn.replace(":iam:", ":sts:").replace(":role/", ":assumed-role/") + "/session"
        rows = f"<Arn>{arn}</Arn><UserId>AROA:session</UserId><Account>{ACCOUNT}</Account>"
        return _xml("GetCallerIdentity", "sts.amazonaws.com/doc/2011-06-15/", rows)

    def simulated(self, call: Call) -> Answer:
        """Answer SimulatePrincipalPolicy: every action on every resource, in the given context."""
        query = call.query
        documents = next(
            (each.documents for each in self.principals.values() if each.arn == query["PolicySourceArn"]),
            [_ADMINISTRATOR],
        )
        context: dict[str, str | Sequence[str]] = {"aws:RequestedRegion": call.region}
        number = 1
        while (key := query.get(f"ContextEntries.member.{number}.ContextKeyName")) is not None:
            values = call.numbered(f"ContextEntries.member.{number}.ContextKeyValues.member")
            is_list = query[f"ContextEntries.member.{number}.ContextKeyType"].endswith("List")
            context[key] = values if is_list else values[0]
            number += 1
        rows = ""
        for action in call.numbered("ActionNames.member"):
            for resource in call.numbered("ResourceArns.member") or ["*"]:
                found = decide(documents, action, resource, context)
                said = "allowed" if found.is_allowed else "explicitDeny" if found.sid else "implicitDeny"
                rows += (
                    f"<member><EvalActionName>{action}</EvalActionName>"
                    f"<EvalResourceName>{resource}</EvalResourceName><EvalDecision>{said}</EvalDecision>"
                    "<MatchedStatements/><MissingContextValues/></member>"
                )
        body = f"<EvaluationResults>{rows}</EvaluationResults><IsTruncated>false</IsTruncated>"
        return _xml("SimulatePrincipalPolicy", "iam.amazonaws.com/doc/2010-05-08/", body)


def decide(documents: Sequence[Mapping[str, Any]], action: str, resource: str, context: Context) -> Decision:
    """Return the decision of policies on an action: an explicit Deny wins, and the default is denial."""
    allowed = Decision(is_allowed=False)
    for document in documents:
        for statement in document["Statement"]:
            if not _speaks_of(statement, action, resource, context):
                continue
            if statement["Effect"] == "Deny":
                return Decision(is_allowed=False, sid=statement.get("Sid", "?"))
            if not allowed.is_allowed:
                allowed = Decision(is_allowed=True, sid=statement.get("Sid", "?"))
    return allowed


def _speaks_of(statement: Mapping[str, Any], action: str, resource: str, context: Context) -> bool:
    """Return whether a statement applies to an action on a resource in a context."""
    if not any(fnmatchcase(action.lower(), name.lower()) for name in _listed(statement["Action"])):
        return False
    if not any(_matches_arn(pattern, resource) for pattern in _listed(statement["Resource"])):
        return False
    return all(
        _holds(operator, key, _listed(wanted), context)
        for operator, keys in statement.get("Condition", {}).items()
        for key, wanted in keys.items()
    )


def _matches_arn(pattern: str, resource: str) -> bool:
    """Return whether an ARN matches a pattern; wildcards do not cross the first five parts."""
    if pattern == "*" or resource == "*":
        # Actions without resources are checked on `*`, which only the pattern `*` matches.
        return pattern == "*"
    wanted, given = pattern.split(":", 5), resource.split(":", 5)
    return len(wanted) == len(given) and all(
        fnmatchcase(one, other) for one, other in zip(given, wanted, strict=True)
    )


def _holds(operator: str, key: str, wanted: Sequence[str], context: Context) -> bool:
    """Return whether a condition holds; an absent key fails positive operators and passes negative ones."""
    everyone, _, plain = operator.rpartition(":")
    if plain.endswith("IfExists"):
        plain = plain.removesuffix("IfExists")
        if key not in context:
            return True
    given = context.get(key)
    if everyone == "ForAllValues":
        return all(any(_compares(plain, one, want) for want in wanted) for one in _listed(given or []))
    if plain == "Null":
        return wanted == ["true" if given is None else "false"]
    is_negative = "Not" in plain
    if given is None:
        return is_negative
    values = _listed(given)
    positive = plain.replace("Not", "")
    found = any(_compares(positive, one, want) for one in values for want in wanted)
    return not found if is_negative else found


def _compares(operator: str, given: str, wanted: str) -> bool:
    """Return whether a value matches.

    Raises:
        NotImplementedError: for an operator that none of our policies uses.
    """
    if operator in ("StringEquals", "Bool", "ArnEquals"):
        return given == wanted
    if operator in ("StringLike", "ArnLike"):
        return fnmatchcase(given, wanted)
    raise NotImplementedError(operator)


def _listed(value: str | Sequence[str]) -> list[str]:
    """Return a value, or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


def _denied(call: Call, who: str, action: str, resource: str, found: Decision) -> Answer:
    """Return a refusal in the service's format."""
    because = (
        f"with an explicit deny in an identity-based policy ({found.sid})"
        if found.sid
        else f"because no identity-based policy allows the {action} action"
    )
    said = f"User: {who} is not authorized to perform: {action} on resource: {resource} {because}"
    if call.service == "ec2":
        text = f"You are not authorized to perform this operation. {said}. {_ENCODED}"
        return ec2_error("UnauthorizedOperation", text, 403)
    if call.service == "s3":
        body = (
            f"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>{escape(said)}</Message></Error>"
        )
        return Answer(403, body.encode(), {"content-type": "application/xml"})
    if call.query:
        body = (
            "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
            f"<Message>{escape(said)}</Message></Error></ErrorResponse>"
        )
        return Answer(403, body.encode(), {"content-type": "text/xml"})
    return json_error("AccessDeniedException", said, 400)


def _xml(operation: str, namespace: str, rows: str) -> Answer:
    """Return an answer in the format of the XML services."""
    body = (
        f'<{operation}Response xmlns="https://{namespace}"><{operation}Result>{rows}</{operation}Result>'
        f"<ResponseMetadata><RequestId>x</RequestId></ResponseMetadata></{operation}Response>"
    )
    return Answer(200, body.encode(), {"content-type": "text/xml"})
