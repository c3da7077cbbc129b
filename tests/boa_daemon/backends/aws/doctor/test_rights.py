"""`aws/doctor/rights.py`: which statements are missing, how much that matters, and what gives them."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from ec2_rows import Answers, failed

from boa_daemon.backends.aws.client.calls import AwsCalls
from boa_daemon.backends.aws.client.errors import CallFailed
from boa_daemon.backends.aws.doctor.rights import RightsDoctor
from boa_daemon.backends.aws.rights.policy_statements import UsedResources
from boa_daemon.backends.aws.rights.resource_policies import bucket_policy, queue_policy
from boa_daemon.backends.settings import AwsSettings

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/boa-lab-control"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/boa-lab-control/i-1"
URL = f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/boa-warnings"
QUEUE = f"arn:aws:sqs:us-east-1:{ACCOUNT}:boa-warnings"


def a_doctor(
    *refused: str, caller: str = SESSION, by: str = "", settings: dict[str, Any] | None = None, **answers: Any
) -> tuple[RightsDoctor, Answers]:
    """Return a doctor for whom IAM refuses some actions of all principals, or of the one `by` a name."""

    def simulate(PolicySourceArn: str, ActionNames: list[str], **asked: Any) -> Any:  # noqa: N803
        contexts = str(asked["ContextEntries"])
        held = "explicitDeny" if "not-lab" in contexts else "allowed"
        rows = [
            {
                "EvalActionName": name,
                "EvalDecision": "implicitDeny" if name in refused and by in PolicySourceArn else held,
            }
            for name in ActionNames
        ]
        return {"EvaluationResults": rows}

    known = AwsSettings(cluster="lab", **(settings or {}))
    calls = Answers(known, **({"SimulatePrincipalPolicy": simulate} | answers))
    doctor = RightsDoctor(cast(AwsCalls, calls), UsedResources(uri="s3://b/jobs"))
    doctor.caller, doctor.account = caller, ACCOUNT
    return doctor, calls


def test_a_role_with_all_statements_is_well() -> None:
    """The policies of a session are those of its role."""
    doctor, calls = a_doctor()
    (check,) = doctor.own()
    assert (check.name, check.status) == ("rights", "ok")
    assert check.said.startswith(f"all {len(doctor.policy()['Statement'])} statements")
    assert {asked["PolicySourceArn"] for _, asked in calls.asked} == {ROLE}


def test_a_missing_statement_fails_and_a_missing_denial_is_a_warning() -> None:
    """Each is a check with its actions, and the command that attaches it."""
    doctor, _ = a_doctor("ec2:StopInstances", "ssm:SendCommand")
    checks = {check.name: check for check in doctor.own()}
    assert {name: check.status for name, check in checks.items()} == {
        "right NeverForeign": "warning",
        "right CommandDocument": "failed",
        "right CommandNodes": "failed",
    }
    assert "ec2:StopInstances: not denied" in checks["right NeverForeign"].said
    assert "--role-name boa-lab-control --policy-name boa-lab" in checks["right CommandNodes"].fix


def test_of_alternatives_those_are_named_that_were_found_missing() -> None:
    """All of them, where none was looked at; a missing right of the nodes is none of the caller."""
    doctor, _ = a_doctor("ssm:SendCommand")
    assert "statement Read or CommandNodes of" in doctor.fix(["Read", "CommandNodes"])
    list(doctor.own())
    assert "statement CommandNodes of" in doctor.fix(["Read", "CommandNodes"])
    both, _ = a_doctor("ssm:SendCommand", settings={"instance_profile": "nodes"})
    assert [*both.own(), *both.others()]
    assert "statement CommandNodes of" in both.fix(["Read", "CommandNodes"])
    other, _ = a_doctor("s3:GetObject", by="nodes", settings={"instance_profile": "nodes"})
    own = list(other.own())
    assert len(own) == 1
    assert any(check.status == "failed" for check in other.others())
    assert "statement ReadLogs or Claim of" in other.fix(["ReadLogs", "Claim"])


def test_roles_of_nodes_and_pool_are_checked_where_there_are_such() -> None:
    """Each with its own policy; root, which may do everything, asks nothing."""
    settings = {"instance_profile": "nodes", "pool_end_role": f"arn:aws:iam::{ACCOUNT}:role/end"}
    doctor, calls = a_doctor(settings=settings)
    assert [check.name for check in doctor.others()] == ["rights of nodes", "rights of the pool's end"]
    principals = {asked["PolicySourceArn"].rpartition("/")[2] for _, asked in calls.asked}
    assert principals == {"nodes", "end"}
    assert list(a_doctor()[0].others()) == []
    root, quiet = a_doctor(caller=f"arn:aws:iam::{ACCOUNT}:root", settings=settings)
    assert [(check.status, list(root.others())) for check in root.own()] == [("warning", [])]
    assert quiet.asked == []


def test_who_may_not_ask_gets_a_warning_and_other_failures_are_raised() -> None:
    """Not to know is not to lack."""
    denied = failed("iam:SimulatePrincipalPolicy", "AccessDenied")
    (check,) = a_doctor(SimulatePrincipalPolicy=denied)[0].own()
    assert (check.name, check.status) == ("rights", "warning")
    assert "AskOwnRights" in check.fix
    with pytest.raises(CallFailed):
        list(a_doctor(SimulatePrincipalPolicy=failed("iam:x", "InternalFailure", status=500))[0].own())


def test_the_policy_of_a_queue_is_compared_by_statement() -> None:
    """A missing one has the command that prints and attaches it."""
    doctor, _ = a_doctor()
    wanted = queue_policy("warnings", QUEUE, ACCOUNT)
    (well,) = doctor.of_queue("warnings", URL, json.dumps(wanted))
    assert (well.name, well.status, well.said) == ("policy of warnings", "ok", "all 2 statements")
    missing = list(doctor.of_queue("warnings", URL, ""))
    assert [(check.name, check.status) for check in missing] == [
        ("policy of warnings Events", "warning"),
        ("policy of warnings TlsOnly", "warning"),
    ]
    assert f"boa iam --queue warnings --account {ACCOUNT} > policy.json" in missing[0].fix
    assert f"--queue-url {URL}" in missing[0].fix


def test_a_bucket_without_a_policy_is_told_and_one_that_cannot_be_asked_is_an_error() -> None:
    """S3 answers with an error where there is no policy."""
    arn = "arn:aws:s3:::b"
    standing = {"Policy": json.dumps(bucket_policy(arn, f"{arn}/*"))}
    assert [check.status for check in a_doctor(GetBucketPolicy=standing)[0].of_bucket()] == ["ok"]
    none = failed("s3:GetBucketPolicy", "NoSuchBucketPolicy", status=404)
    (check,) = a_doctor(GetBucketPolicy=none)[0].of_bucket()
    assert (check.name, check.status) == ("policy of bucket TlsOnly", "warning")
    with pytest.raises(CallFailed):
        list(a_doctor(GetBucketPolicy=failed("s3:GetBucketPolicy", "AccessDenied"))[0].of_bucket())
