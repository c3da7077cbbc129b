"""Whether EventBridge may send to a queue, judged by the queue's policy and key.

A queue whose policy does not let EventBridge in stays empty and looks healthy. The policy is judged as IAM
does it: some statement must allow the message, and none may deny it. What cannot be judged, such as a
condition on a key that EventBridge may or may not send, is taken for met in an allow and for not met in a
deny: an alert needs to be true.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

EVENTS = "events.amazonaws.com"
_ACTION = "sqs:sendmessage"
_AWS_KEY = "alias/aws/sqs"
_OF_PRINCIPALS = (
    "aws:principalorgid", "aws:principalorgpaths", "aws:principalarn", "aws:principalaccount", "aws:userid",
    "aws:username", "aws:sourcevpc", "aws:sourcevpce", "aws:sourceip", "aws:vpcsourceip",
)  # fmt: skip
"""Keys of conditions that a message of a service never has."""


def why_events_cannot_send(attributes: Mapping[str, str], *, queue: str, rule: str) -> str:
    """Return why events of a rule do not reach a queue, from its attributes; empty if nothing says so.

    `queue` and `rule` are ARNs. `attributes` are those of SQS, with the policy as JSON.
    """
    if attributes.get("KmsMasterKeyId", "").endswith(_AWS_KEY):
        return (
            f"the queue is encrypted with the key {_AWS_KEY}, which EventBridge cannot use: "
            "`aws sqs set-queue-attributes` with KmsMasterKeyId= and SqsManagedSseEnabled=true mends it"
        )
    try:
        document = json.loads(attributes.get("Policy") or "{}")
        statements = document.get("Statement", ())
    except (ValueError, AttributeError):
        return ""
    statements = [statements] if isinstance(statements, Mapping) else list(statements)
    context = {
        "aws:sourceaccount": [queue.split(":")[4]],
        "aws:sourcearn": [rule],
        "aws:securetransport": ["true"],
        "aws:principalisawsservice": ["true"],
        "aws:principalservicename": [EVENTS],
        "aws:principaltype": ["AWSService"],
    }
    about = [each for each in statements if isinstance(each, Mapping) and _is_about(each, queue)]
    denies = [each for each in about if each.get("Effect") == "Deny" and _is_met(each, context, unsure=False)]
    if denies:
        name = denies[0].get("Sid") or "without a name"
        return f"the policy of the queue denies EventBridge to send to it (statement {name})"
    if not any(each.get("Effect") == "Allow" and _is_met(each, context, unsure=True) for each in about):
        return "the policy of the queue does not let EventBridge send to it"
    return ""


def _is_about(statement: Mapping[str, Any], queue: str) -> bool:
    """Return whether a statement is about messages of EventBridge to the queue, apart from conditions."""
    return (
        _names(statement, "Action", lambda each: fnmatchcase(_ACTION, each.lower()))
        and _names(statement, "Resource", lambda each: fnmatchcase(queue, each))
        and _is_principal(statement)
    )


def _names(statement: Mapping[str, Any], key: str, fits: Any) -> bool:
    if f"Not{key}" in statement:
        return not any(fits(str(each)) for each in _listed(statement[f"Not{key}"]))
    return key not in statement or any(fits(str(each)) for each in _listed(statement[key]))


def _is_principal(statement: Mapping[str, Any]) -> bool:
    """Return whether EventBridge is among those that a statement names."""
    is_not = "NotPrincipal" in statement
    named = statement.get("NotPrincipal" if is_not else "Principal", "*")
    if isinstance(named, Mapping):
        everybody = "*" in _listed(named.get("AWS", ()))
        found = everybody or any(each in (EVENTS, "*") for each in _listed(named.get("Service", ())))
    else:
        found = named == "*"
    return found != is_not


def _is_met(statement: Mapping[str, Any], context: Mapping[str, list[str]], *, unsure: bool) -> bool:
    """Return whether all conditions of a statement are met; `unsure` is the answer where nobody can say."""
    return all(
        _holds(operator, key.lower(), [str(each) for each in _listed(wanted)], context, unsure=unsure)
        for operator, keys in (statement.get("Condition") or {}).items()
        for key, wanted in keys.items()
    )


def _holds(
    operator: str, key: str, wanted: list[str], context: Mapping[str, list[str]], *, unsure: bool
) -> bool:
    plain = operator.rpartition(":")[2].lower()
    may_lack, plain = plain.endswith("ifexists"), plain.removesuffix("ifexists")
    given = context.get(key)
    is_negative = "not" in plain
    if plain == "null":
        if key not in context and key not in _OF_PRINCIPALS:
            return unsure
        return (given is None) == ("true" in [each.lower() for each in wanted])
    if given is None:
        if key not in _OF_PRINCIPALS:
            return unsure
        return is_negative or may_lack
    if not given or not plain.startswith(("string", "arn", "bool")):
        return unsure
    if plain == "bool" or "ignorecase" in plain:
        given, wanted = [each.lower() for each in given], [each.lower() for each in wanted]
    has_patterns = "like" in plain or plain.startswith("arn")
    met = any(fnmatchcase(one, each) if has_patterns else one == each for one in given for each in wanted)
    return met != is_negative


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
