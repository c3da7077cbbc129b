"""What may be asked of a daemon, as documents: the same for the socket, for tests and for programs."""

from __future__ import annotations

from boa_daemon.daemon.job_service import JobService
from boa_daemon.daemon.site_service import SiteService
from boa_daemon.daemon.submissions import Submissions


class Service(Submissions, JobService, SiteService):
    """Answers for one daemon. Every document says as of when it is."""
