"""Shell completion of job ids, policies and placers. Completion never raises an error."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from policies import plugins

MOST = 200


def complete_jobs(incomplete: str) -> list[str]:
    """Return the ids of active jobs that begin with `incomplete`; an empty list where no daemon answers."""
    try:
        from boa_daemon.cli.common.daemon_client import a_client  # noqa: PLC0415 - completion of other words needs none of it

        with a_client(None, None) as client:
            rows = client.jobs(limit=MOST)["jobs"]
    except Exception:
        # An error message would garble the command line that the user is typing.
        return []
    return [str(row["id"]) for row in rows if str(row["id"]).startswith(incomplete)]


JobArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="JOB", help="The id of a job.", autocompletion=complete_jobs)
]


def complete_policies(incomplete: str) -> list[tuple[str, str]]:
    """Return the policies that begin with `incomplete`, with their summaries."""
    from policies.registry import POLICIES  # noqa: PLC0415 - slow to import

    own = [(entry.name, entry.summary) for entry in POLICIES.values()]
    others = [(name, "from a plug-in") for name in plugins.names("boa.policies")]
    return [one for one in (*own, *others) if one[0].startswith(incomplete)]


def complete_placers(incomplete: str) -> list[str]:
    """Return the placers that begin with `incomplete`."""
    from policies.registry import PLACERS  # noqa: PLC0415 - slow to import

    names = (*PLACERS, *plugins.names("boa.placers"))
    return [name for name in names if name.startswith(incomplete)]
