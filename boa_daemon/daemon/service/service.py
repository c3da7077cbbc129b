"""The daemon's API service: answers as JSON documents, for the socket, tests and programs."""

from __future__ import annotations

from boa_daemon.daemon.service.job_service import JobService
from boa_daemon.daemon.service.site_service import SiteService
from boa_daemon.daemon.service.submissions import Submissions


class Service(Submissions, JobService, SiteService):
    """Answers requests for one daemon; `as_of` in a document is the instant that it describes."""
