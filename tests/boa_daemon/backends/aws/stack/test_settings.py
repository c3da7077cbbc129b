"""`aws/stack/settings.py`: the names of a stack's resources."""

from __future__ import annotations

import re

from boa_daemon.backends.aws.stack.settings import ACCOUNT, stack_settings_of
from boa_daemon.backends.settings import AwsSettings


def test_names_of_buckets_and_roles_fit_for_any_cluster_name() -> None:
    """A bucket has at most 63 characters and no capitals, also in the region with the longest name."""
    for cluster in ("lab", "A.Very_long-Name." * 3):
        site = stack_settings_of(AwsSettings().model_copy(update={"cluster": cluster}), account="1" * 12)
        bucket = site.uses.uri.split("/")[2].replace("us-east-1", "ap-northeast-1")
        assert re.fullmatch(r"[a-z0-9-]{3,63}", bucket)
        assert len(site.names.control) <= 64
    assert ACCOUNT in stack_settings_of(AwsSettings()).uses.uri
