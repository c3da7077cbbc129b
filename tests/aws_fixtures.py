"""Fixtures with a fake AWS and made-up credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from aws_rigs import AwsRig, RigMaker, a_rig

from boa_daemon.testing.fake_terms import Terms
from boa_daemon.testing.fronts import FAKE_CREDENTIALS


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set made-up credentials and remove the machine's AWS endpoint, region and profile."""
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in FAKE_CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def rig() -> Iterator[AwsRig]:
    """AWS in process, with zones a and b."""
    with a_rig("process") as made:
        yield made


@pytest.fixture
def make_rig() -> Iterator[RigMaker]:
    """Return a function that makes rigs in process with given terms and settings."""
    with ExitStack() as stack:

        def make(terms: Terms | None = None, *, front: str = "process", **settings: object) -> AwsRig:
            return stack.enter_context(a_rig(front, terms, **settings))

        yield make
