"""IAM in front of the fake cloud: who may do what to what, by actions, resources and conditions.

moto knows actions alone: it takes a statement with a condition for one without, so every conditional Allow
allows everything and every conditional Deny denies everything. Here a request is taken apart into the checks
that AWS makes of it (a launch is one per thing that it uses or makes, one per kind that it tags, and one on
the role that it hands over), and each is decided by the policies of whoever signed the request. What no
policy speaks of is denied, in the words of the service.

Callers without an entry in `principals` are administrators. `SimulatePrincipalPolicy` is answered too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from boa_daemon.testing.fake_answers import Answer, Call, ec2_error, json_error

ACCOUNT = "123456789012"
Context: TypeAlias = Mapping[str, str | Sequence[str]]
Check: TypeAlias = tuple[str, str, Context]
"""An action, the ARN of what it is done to, and what is known of the request."""
_ENCODED = "Encoded authorization failure message: x"
_ADMINISTRATOR: Mapping[str, Any] = {
    "Statement": [{"Sid": "All", "Effect": "Allow", "Action": ["*"], "Resource": ["*"]}]
}
_FREE = frozenset({"sts:GetCallerIdentity"})
_LAUNCH_PARTS = ("instance", "volume", "network-interface", "spot-instances-request")


@dataclass(slots=True)
class Principal:
    """Who signs with a key: an ARN, and the policies that say what it may do."""

    arn: str
    documents: list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policies say: allowed by a statement, denied by one, or not spoken of (`sid` is empty)."""

    is_allowed: bool
    sid: str = ""


@dataclass(slots=True)
class FakeIam:
    """Decides about requests. `used` counts (principal, statement) by which something was allowed."""

    tags_of: Callable[[str, str], Mapping[str, str]]
    principals: dict[str, Principal] = field(default_factory=dict)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)
    checks: Counter[tuple[str, str]] = field(default_factory=Counter)
    denied: list[tuple[str, str, str]] = field(default_factory=list)

    def refusal(self, call: Call) -> Answer | None:
        """Return why a request is refused; None where it is not."""
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
        """Answer GetCallerIdentity for a principal that we know."""
        principal = self.principals.get(call.access_key)
        if principal is None:
            return None
        arn = principal.arn.replace(":iam:", ":sts:").replace(":role/", ":assumed-role/") + "/session"
        rows = f"<Arn>{arn}</Arn><UserId>AROA:session</UserId><Account>{ACCOUNT}</Account>"
        return _xml("GetCallerIdentity", "sts.amazonaws.com/doc/2011-06-15/", rows)

    def simulated(self, call: Call) -> Answer:
        """Answer SimulatePrincipalPolicy: every action on every resource, in the context that was given."""
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
    """Return what policies say of an action: an explicit Deny wins, and what nobody allows is denied."""
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
    """Return whether a statement is about an action on a resource in a context."""
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
    """Return whether a pattern of ARNs covers one; wildcards stay within the first five parts."""
    if pattern == "*" or resource == "*":
        # Actions that know no resource are asked about `*`, which only `*` covers.
        return pattern == "*"
    wanted, given = pattern.split(":", 5), resource.split(":", 5)
    return len(wanted) == len(given) and all(
        fnmatchcase(one, other) for one, other in zip(given, wanted, strict=True)
    )


def _holds(operator: str, key: str, wanted: Sequence[str], context: Context) -> bool:
    """Return whether a condition holds; an absent key fails what is positive, and passes what is not."""
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
    """Return whether a value is as wanted.

    Raises:
        NotImplementedError: for an operator that none of our policies has.
    """
    if operator in ("StringEquals", "Bool", "ArnEquals"):
        return given == wanted
    if operator in ("StringLike", "ArnLike"):
        return fnmatchcase(given, wanted)
    raise NotImplementedError(operator)


def _listed(value: str | Sequence[str]) -> list[str]:
    """Return a value, or several, as a list."""
    return [value] if isinstance(value, str) else list(value)


_BUCKET_SETTINGS = {
    "policy": "BucketPolicy",
    "encryption": "EncryptionConfiguration",
    "lifecycle": "LifecycleConfiguration",
    "publicAccessBlock": "BucketPublicAccessBlock",
}
"""What is asked of a bucket in the query of its address, and how IAM calls that."""


def checks_of(call: Call, tags_of: Callable[[str, str], Mapping[str, str]]) -> list[Check]:
    """Return what AWS checks of a request. `tags_of(region, id)` are the tags of what exists."""
    if f"{call.service}:{call.operation}" in _FREE:
        return []
    base: dict[str, str | Sequence[str]] = {"aws:RequestedRegion": call.region}
    makers: Mapping[str, Callable[..., Iterator[Check]]] = {
        "ec2": _ec2_checks, "ssm": _ssm_checks, "sqs": _sqs_checks, "s3": _s3_checks,
        "scheduler": _schedule_checks,
    }  # fmt: skip
    if call.service in makers:
        return list(makers[call.service](call, tags_of, base))
    if call.service == "sns":
        return [("sns:Publish", call.query.get("TopicArn", "*"), base)]
    if call.service == "iam" and call.operation == "SimulatePrincipalPolicy":
        return [("iam:SimulatePrincipalPolicy", call.query["PolicySourceArn"], base)]
    return [(f"{call.service}:{call.operation}", "*", base)]


def _ec2_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    action = f"ec2:{call.operation}"
    if call.operation.startswith("Describe"):
        yield action, "*", base
        return
    if call.operation == "RunInstances":
        yield from _launch_checks(call, base)
        return
    if call.operation == "CreateImage":
        yield from _image_checks(call, tags_of, base)
        return
    kinds = {"Instance": "instance", "SpotInstanceRequest": "spot-instances-request"}
    ids = [(kind, name) for key, kind in kinds.items() for name in call.numbered(f"{key}Id")]
    ids += [("volume", call.query["VolumeId"])] if "VolumeId" in call.query else []
    kept = (("image", "ImageId"), ("snapshot", "SnapshotId"))
    for kind, key in kept:
        if key in call.query:
            known = base | _tagged("aws:ResourceTag", tags_of(call.region, call.query[key]))
            yield action, f"arn:aws:ec2:{call.region}::{kind}/{call.query[key]}", known
    card = call.query.get("NetworkInterfaceId")
    ids += [("network-interface", card)] if card else []
    ids += [("instance", name) for name in call.numbered("ResourceId")]
    wanted = {
        call.query[f"Tag.{number}.Key"]: call.query.get(f"Tag.{number}.Value", "")
        for number in range(1, 1 + sum(key.startswith("Tag.") and key.endswith(".Key") for key in call.query))
    }
    for kind, name in ids:
        context = base | _tagged("aws:ResourceTag", tags_of(call.region, name))
        if wanted:
            context |= _tagged("aws:RequestTag", wanted) | {"aws:TagKeys": list(wanted)}
        yield action, _ec2_arn(call, kind, name), context


def _image_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    """Yield the checks of an image: on the instance that it is of, and on what is made and tagged."""
    name = call.query["InstanceId"]
    mine = base | _tagged("aws:ResourceTag", tags_of(call.region, name))
    yield "ec2:CreateImage", _ec2_arn(call, "instance", name), mine
    for kind in ("image", "snapshot"):
        tags, arn = call.tags(kind), f"arn:aws:ec2:{call.region}::{kind}/*"
        context = base | _tagged("aws:RequestTag", tags) | {"aws:TagKeys": list(tags)}
        yield "ec2:CreateImage", arn, context
        if tags:
            yield "ec2:CreateTags", arn, context | {"ec2:CreateAction": "CreateImage"}


def _launch_checks(call: Call, base: dict[str, Any]) -> Iterator[Check]:
    query = call.query
    inputs = [f"arn:aws:ec2:{call.region}::image/{query.get('ImageId', '')}"]
    subnet = query.get("SubnetId") or query.get("NetworkInterface.1.SubnetId") or "subnet-default"
    inputs.append(_ec2_arn(call, "subnet", subnet))
    groups = call.numbered("SecurityGroupId") or call.numbered("NetworkInterface.1.SecurityGroupId")
    inputs += [_ec2_arn(call, "security-group", name) for name in groups or ["sg-default"]]
    for key, kind in (
        ("KeyName", "key-pair"),
        ("Placement.GroupName", "placement-group"),
        ("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId",
         "capacity-reservation"),
    ):  # fmt: skip
        if key in query:
            inputs.append(_ec2_arn(call, kind, query[key]))
    for arn in inputs:
        yield "ec2:RunInstances", arn, base
    machine = {
        "ec2:InstanceType": query["InstanceType"],
        "ec2:MetadataHttpTokens": query.get("MetadataOptions.HttpTokens", "optional"),
    }
    is_spot = query.get("InstanceMarketOptions.MarketType") == "spot"
    for kind in _LAUNCH_PARTS if is_spot else _LAUNCH_PARTS[:-1]:
        tags = call.tags(kind)
        context = base | _tagged("aws:RequestTag", tags) | {"aws:TagKeys": list(tags)}
        yield "ec2:RunInstances", _ec2_arn(call, kind, "*"), context | (machine if kind == "instance" else {})
        if tags:
            yield (
                "ec2:CreateTags", _ec2_arn(call, kind, "*"), context | {"ec2:CreateAction": "RunInstances"}
            )  # fmt: skip
    profile = query.get("IamInstanceProfile.Name") or query.get("IamInstanceProfile.Arn", "")
    if profile:
        role = f"arn:aws:iam::{ACCOUNT}:role/{profile.rpartition('/')[2]}"
        yield "iam:PassRole", role, base | {"iam:PassedToService": "ec2.amazonaws.com"}


def _ssm_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    """Yield the checks of a call to SSM: a command is one on the document, and one on each instance."""
    action = f"ssm:{call.operation}"
    if call.operation == "SendCommand":
        yield action, f"arn:aws:ssm:{call.region}::document/{call.document['DocumentName']}", base
        for name in call.document["InstanceIds"]:
            tags = tags_of(call.region, name)
            context = base | _tagged("ssm:resourceTag", tags) | _tagged("aws:ResourceTag", tags)
            yield action, _ec2_arn(call, "instance", name), context
    elif call.operation == "GetParameter":
        yield action, f"arn:aws:ssm:{call.region}::parameter{call.document['Name']}", base
    else:
        yield action, "*", base


def _sqs_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    del tags_of
    url = (
        str(call.document.get("QueueUrl", ""))
        or call.query.get("QueueUrl", "")
        or call.path.partition("?")[0]
    )
    action = {"DeleteMessageBatch": "DeleteMessage"}.get(call.operation, call.operation)
    yield f"sqs:{action}", f"arn:aws:sqs:{call.region}:{ACCOUNT}:{url.rpartition('/')[2]}", base


def _s3_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    """Yield the check of a call to S3: a bucket is listed, an object is read or written."""
    del tags_of
    path, _, query = call.path.partition("?")
    bucket, _, key = unquote(path).lstrip("/").partition("/")
    if not key and (setting := _BUCKET_SETTINGS.get(query.split("=")[0])):
        yield f"s3:Get{setting}", f"arn:aws:s3:::{bucket}", base
        return
    if not key:
        action = "s3:ListBucket" if call.operation in ("GET", "HEAD") else f"s3:{call.operation}"
        prefix = dict(parse_qsl(query, keep_blank_values=True)).get("prefix", "")
        yield action, f"arn:aws:s3:::{bucket}", base | {"s3:prefix": prefix}
        return
    action = {"PUT": "s3:PutObject", "POST": "s3:PutObject", "DELETE": "s3:DeleteObject"}.get(
        call.operation, "s3:GetObject"
    )
    yield action, f"arn:aws:s3:::{bucket}/{key}", base


def _schedule_checks(
    call: Call, tags_of: Callable[[str, str], Mapping[str, str]], base: dict[str, Any]
) -> Iterator[Check]:
    """Yield the checks of a schedule: on itself, and on the role that it hands over."""
    del tags_of
    name = call.path.partition("?")[0].rpartition("/")[2]
    arn = f"arn:aws:scheduler:{call.region}:{ACCOUNT}:schedule/default/{name}"
    yield f"scheduler:{call.operation}", arn, base
    role = call.document["Target"]["RoleArn"]
    yield "iam:PassRole", role, base | {"iam:PassedToService": "scheduler.amazonaws.com"}


def _ec2_arn(call: Call, kind: str, name: str) -> str:
    """Return the ARN of something of EC2 in our account."""
    return f"arn:aws:ec2:{call.region}:{ACCOUNT}:{kind}/{name}"


def _tagged(key: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return tags as the keys of a condition."""
    return {f"{key}/{name}": value for name, value in tags.items()}


def _denied(call: Call, who: str, action: str, resource: str, found: Decision) -> Answer:
    """Return a refusal as the service words it."""
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
    """Return an answer of the services that speak XML."""
    body = (
        f'<{operation}Response xmlns="https://{namespace}"><{operation}Result>{rows}</{operation}Result>'
        f"<ResponseMetadata><RequestId>x</RequestId></ResponseMetadata></{operation}Response>"
    )
    return Answer(200, body.encode(), {"content-type": "text/xml"})
