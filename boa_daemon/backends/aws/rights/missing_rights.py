"""Find the policy statements that a principal lacks, with IAM's policy simulator.

The simulator decides about actions, resources and conditions as for a real call, and does nothing. So missing
rights for a launch, a lease, a command or an end are known before the first of them, and are named as `boa
iam` names them. The caller may ask about its own role and the roles that it passes on (statement
AskOwnRights).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.client.resource_names import everything_of
from boa_daemon.backends.aws.rights.policy_statements import Statement

_ASSUMED = re.compile(r"^arn:([^:]+):sts::(\d+):assumed-role/([^/]+)/")
_MOST = 20
"""Most denied actions that one sentence names."""


def principal_of(caller: str) -> str:
    """Return the ARN whose policies apply to a caller: the role of a session, else itself; empty for root."""
    found = _ASSUMED.match(caller)
    if found:
        return f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}"
    return "" if caller.endswith(":root") else caller


def missing_statements(
    calls: AwsCalls, principal: str, document: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield (statement, sentence) for each statement of a policy that a principal lacks, wholly or partly.

    Raises:
        CallFailed: when IAM does not answer; its meaning is `denied` if the caller may not ask.
    """
    for statement in document["Statement"]:
        denies = statement["Effect"] == "Deny"
        wanted = "explicitDeny" if denies else "allowed"
        said = _decided(calls, principal, statement)
        wrong = sorted({action for action, decision in said if decision != wanted})
        if not wrong:
            continue
        names = ", ".join(wrong[:_MOST])
        verb = "not denied where it is foreign" if denies else "not allowed"
        yield statement["Sid"], f"{names}: {verb}"


def _decided(calls: AwsCalls, principal: str, statement: Statement) -> list[tuple[str, str]]:
    """Return (action, decision) for every action of a statement on each of its resources."""
    found: list[tuple[str, str]] = []
    here = calls.settings.region
    for resource in statement["Resource"]:
        arguments: dict[str, Any] = {} if resource == "*" else {"ResourceArns": [_one_of(resource, here)]}
        if statement["Effect"] == "Deny":
            arguments["ResourceArns"] = [_one_of(everything_of(calls.settings, "*", "instance"), here)]
        for context in _contexts(statement):
            answer = calls.call(
                "iam:SimulatePrincipalPolicy",
                PolicySourceArn=principal,
                ActionNames=statement["Action"],
                ContextEntries=context,
                **arguments,
            )
            found += [(row["EvalActionName"], row["EvalDecision"]) for row in answer["EvaluationResults"]]
    return found


def _one_of(arn: str, region: str) -> str:
    """Return an ARN that matches a pattern of ARNs, in a region where the pattern has any."""
    first, last = arn.split(":", 5)[:5], arn.split(":", 5)[5]
    account = first[4].replace("*", "123456789012")
    return ":".join([*first[:3], first[3].replace("*", region), account, last.replace("*", "x")])


def _contexts(statement: Statement) -> list[list[dict[str, Any]]]:
    """Return contexts of requests that meet a statement's conditions; together they cover every value."""
    wanted = [each for keys in statement.get("Condition", {}).values() for each in keys.values()]
    most = max((len(each) for each in wanted if not isinstance(each, str)), default=1)
    return [_context(statement, number) for number in range(most)]


def _context(statement: Statement, number: int) -> list[dict[str, Any]]:
    """Return the context of one request: of each list of allowed values, the value of that number."""
    entries = []
    for operator, keys in statement.get("Condition", {}).items():
        for key, wanted in keys.items():
            values = [wanted] if isinstance(wanted, str) else list(wanted)
            is_list = operator.startswith("ForAllValues")
            given = values if is_list else [values[number % len(values)].replace("*", "x")]
            if operator == "StringNotEquals":
                given = [f"not-{given[0]}"]
            entries.append(
                {
                    "ContextKeyName": key,
                    "ContextKeyValues": given,
                    "ContextKeyType": "stringList" if is_list else "string",
                }
            )
    return entries


def may_not_ask(error: CallFailed) -> bool:
    """Return whether the caller may not ask IAM, which says nothing about its other rights."""
    return error.meaning in ("denied", "not-found", "bad-request")


def to_attach(sids: str, flag: str, command: str, *, more: str = "") -> str:
    """Return the command that attaches missing statements: print the policy, then put it in place.

    `flag` makes `boa iam` print the policy, `more` holds further flags; the file is policy.json.
    """
    return (
        f"Attach statement {sids} of the policy that `boa iam{flag}` prints: "
        f"`boa iam{flag}{more} > policy.json && {command}`"
    )


def to_give(sids: str, principal: str, flag: str, *, name: str) -> str:
    """Return the command with which an administrator gives statements to a role or a user.

    A user's inline policies have at most 2,048 characters, so a user gets a managed policy.
    """
    arn, _, path = principal.partition("/")
    whose = path.rpartition("/")[2]
    if arn.endswith(":role"):
        default = whose.endswith("-control") or flag
        return to_attach(
            sids,
            flag,
            f"aws iam put-role-policy --role-name {whose} --policy-name {name} "
            "--policy-document file://policy.json",
            more="" if default else f" --control-role {principal}",
        )
    managed = f"{arn.rpartition(':')[0]}:policy/{name}"
    return to_attach(
        sids,
        flag,
        f"aws iam create-policy --policy-name {name} --policy-document file://policy.json "
        f"&& aws iam attach-user-policy --user-name {whose} --policy-arn {managed}",
    )
