"""An origin of its own for each job behind the proxy: names of jobs as host names below a domain.

Browsers keep apart what belongs to different origins: storage, service workers, what scripts may read. Under paths of
one origin they keep nothing apart. Where a domain is configured, a job is therefore shown at ``https://LABEL.DOMAIN``.
A label can be turned back into the job, so nothing has to be looked up or stored.

Source: RFC 1123, section 2.1, and RFC 5891, section 4.2.3.1 (labels); RFC 6761, section 6.3 (``localhost``).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from millpond.specs.config.listen import ListenFile
from millpond.specs.job.job_ids import REVISION_MARK, revision_job, service_of

LONGEST_LABEL: Final = 63
LONGEST_JOB_NAME: Final = 51
"""Characters of a name in an id: with what the server adds, and the number of a revision, it is still a label."""
_LABEL: Final = re.compile(rf"[a-z0-9](?:[a-z0-9-]{{0,{LONGEST_LABEL - 2}}}[a-z0-9])?")
_REVISION: Final = "--r"
"""In a label, before the number of a revision: ids have a dot there, which would begin another label."""


def slug_of(name: str) -> str:
    """A name as it stands in ids: small letters without accents, digits and hyphens; empty where nothing is left."""
    plain = unicodedata.normalize("NFKD", name.casefold()).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain)[:LONGEST_JOB_NAME].strip("-")


def label_of(job: str) -> str:
    """The label of a job's host name; empty where its id cannot be one."""
    service = service_of(job)
    label = service if service == job else f"{service}{_REVISION}{job.rpartition(REVISION_MARK)[2]}"
    return label if _LABEL.fullmatch(label) and job_of(label) == job else ""


def job_of(label: str) -> str:
    """The job that a label stands for; there may be none of that name."""
    service, mark, number = label.rpartition(_REVISION)
    return revision_job(service, int(number)) if mark and service and number.isdecimal() else label


@dataclass(frozen=True, slots=True)
class JobOrigins:
    """Where browsers reach the programs of jobs.

    Attributes:
        domain: below which each job has a name; empty: jobs are shown under paths of the server's own origin.
        scheme: ``http`` or ``https``.
        port: with its colon; empty for the usual one.
    """

    domain: str = ""
    scheme: str = "http"
    port: str = ""

    @staticmethod
    def of(listening: ListenFile, url: str) -> JobOrigins:
        """Those of a server.

        Args:
            url: where the server itself listens; scheme and port are those of its public address, if it has one.
        """
        base = urlsplit(listening.public_url or url)
        return JobOrigins(listening.jobs_domain or "", base.scheme, "" if base.port is None else f":{base.port}")

    def url_of(self, job: str) -> str:
        """The origin of a job, without a slash at the end; empty where it has none."""
        label = label_of(job) if self.domain else ""
        return f"{self.scheme}://{label}.{self.domain}{self.port}" if label else ""

    def job_at(self, host: str) -> str | None:
        """The job that a ``Host`` header names; None when it names none."""
        name = host.partition(":")[0].lower()
        label, _, domain = name.partition(".")
        if not self.domain or domain != self.domain or not _LABEL.fullmatch(label):
            return None
        job = job_of(label)
        return job if label_of(job) == label else None


PATHS_ONLY: Final = JobOrigins()
"""No job has an origin of its own."""
