"""Host names of jobs: which jobs have one, and which job a name stands for."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.specs.config.listen import ListenFile
from millpond.specs.config.origins import PATHS_ONLY, JobOrigins, job_of, label_of
from millpond.specs.job.job_ids import revision_job

LOCAL = JobOrigins("localhost", "http", ":7433")
IDS = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,49}[a-z0-9])?-[a-z2-7]{5}", fullmatch=True)


@given(IDS, st.integers(2, 99_999))
def test_every_id_that_is_given_and_every_revision_of_it_has_a_name_of_its_own(job: str, number: int) -> None:
    labels = {}
    for name in (job, revision_job(job, number)):
        label = labels[name] = label_of(name)
        assert re.fullmatch(r"[a-z0-9-]{1,63}", label)
        assert not label.startswith("-")
        assert not label.endswith("-")
        assert job_of(label) == name
        assert LOCAL.job_at(f"{label.upper()}.localhost:7433") == name
    assert len(set(labels.values())) == 2


@given(st.text(max_size=80))
def test_no_two_ids_share_a_name_and_what_fits_no_host_name_has_none(job: str) -> None:
    label = label_of(job)
    assert label == "" or job_of(label) == job


@pytest.mark.parametrize("job", ["", "a b", "a.b-abcde", "a.17", "A-abcde", "-abcde", "x" * 64])
def test_ids_that_are_no_labels_have_no_origin(job: str) -> None:
    assert LOCAL.url_of(job) == ""


NO_JOBS = (
    *("localhost", ".localhost", "a.b.localhost", "web.localhost.", "web.localhost.evil.test", "weblocalhost", ""),
    *("we_b.localhost", "-web.localhost", "web--r02.localhost"),
)


@pytest.mark.parametrize("host", NO_JOBS)
def test_other_names_stand_for_no_job(host: str) -> None:
    assert LOCAL.job_at(host) is None
    assert PATHS_ONLY.job_at(host) is None


@pytest.mark.parametrize(
    ("listening", "url"),
    [
        (ListenFile(jobs_domain="localhost"), "http://web-abcde.localhost:7433"),
        (ListenFile(jobs_domain="jobs.test", public_url="https://pool.test"), "https://web-abcde.jobs.test"),
        (ListenFile(jobs_domain="jobs.test", public_url="https://pool.test:8443"), "https://web-abcde.jobs.test:8443"),
        (ListenFile(public_url="https://pool.test"), ""),
    ],
)
def test_scheme_and_port_are_those_by_which_people_reach_the_server(listening: ListenFile, url: str) -> None:
    assert JobOrigins.of(listening, "http://127.0.0.1:7433").url_of("web-abcde") == url
