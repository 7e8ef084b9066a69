"""Where a job can be reached, and what whoever looks for it is told when it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from api_world import JOBS, Api

from millpond.server.serving.proxy.endpoints import NotRunningError, places_of


def test_who_looks_for_a_suspended_place_to_work_is_told_how_it_goes_on(tmp_path: Path) -> None:
    api = Api(tmp_path / "state")
    job = api.submit(kind="dev", command="sleep 60")
    assert api.client.post(f"{JOBS}/{job.id}/suspend").status_code == 202
    assert api.job(job.id).state == "suspended"
    with pytest.raises(NotRunningError, match=f"job {job.id} is suspended") as caught:
        places_of(api.job(job.id), api.state_dir)
    assert caught.value.remedy == f"pond resume {job.id} has it go on"
    api.close()
