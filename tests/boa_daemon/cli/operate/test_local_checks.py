"""The doctor's checks of the settings alone."""

from __future__ import annotations

from typing import Any

from boa_daemon.cli.operate.local_checks import local_checks
from boa_daemon.daemon.settings.config import Settings


def checked(name: str, **settings: Any) -> tuple[str, str]:
    """Return status and message of one check."""
    found = {check.name: check for check in local_checks(Settings.model_validate(settings))}
    return found[name].status, found[name].said


def test_an_engine_or_cloud_of_another_package_is_accepted() -> None:
    """A built-in engine on the wrong cloud fails."""
    assert checked("engine", engine={"name": "pbs"}) == ("ok", "pbs on simulated")
    assert checked("engine", cloud={"provider": "ours"})[0] == "ok"
    assert checked("engine", engine={"name": "ssm"})[0] == "failed"


def test_a_cloud_without_a_spot_market_is_planned_at_one_price() -> None:
    """The check plans as the daemon does: two markets on AWS, one on the local cloud."""
    for provider, kinds in (("aws", "g5.xlarge, g5.xlarge@spot"), ("local", "g5.xlarge")):
        said = checked(
            "plan", cloud={"provider": provider, "market": "planned"}, budget={"usd_per_hour": 50.0}
        )
        assert said == ("ok", f"1 class on {kinds}")
