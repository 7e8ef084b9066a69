"""Pods that others made are jobs: submitted once, in the queue of their namespace, told why they wait, given up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Event

import pytest
from api_world import Api

from millpond.engines.kubernetes.adoption.gangs import FoundGang, GangKey, GangTerms, PodRole
from millpond.model.contents import Content
from millpond.model.errors import UnavailableError
from millpond.model.events import NodeJoined, QueueChanged
from millpond.model.hardware.node_selection import NodeOperator, NodeRequirement
from millpond.model.hardware.topology import Level
from millpond.model.resources import SHARE_OF_CARD, Amount, SliceRequest, TaskRequest
from millpond.model.states import Outcome
from millpond.model.task_spacing import SpacingKind, SpacingRule
from millpond.model.tenancy.tenants import Queue
from millpond.node.task.records import TaskId
from millpond.server.jobs.adoption import adopter as adopter_module
from millpond.server.jobs.adoption.adopter import Adopter
from millpond.server.jobs.adoption.gang_documents import GangPlace, as_pods_can, key_in, place_of, spec_of
from millpond.server.runtime.core import Core
from millpond.specs.api.jobs.reasons import ReasonInfo, RemedyInfo
from millpond.specs.config.kubernetes import AdoptFile
from millpond.specs.job.job_spec import JobSpec

TRIO = FoundGang(
    GangKey("team-a", "Job", "trio", "uid-1"),
    GangTerms(account="trainer", grace_s=45.0),
    (PodRole("worker", TaskRequest(500, 256, 1), 3, 3),),
)
RULES = AdoptFile.model_validate(
    {
        "namespaces": {"team-a": "default", "team-b": {"queues": ["default"], "user": "bob"}},
        "priorities": {"urgent": "high"},
    }
)
ALIASES_OF_ALIASES = "\n".join(
    ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
)
"""A text of 600 characters that stands for more values than there is memory."""


class Cluster:
    """The engine's side, as a test sets it."""

    def __init__(self, *gangs: FoundGang) -> None:
        self.waiting = list(gangs)
        self.jobs: dict[str, GangKey] = {}
        self.answers: dict[GangKey, str] = {}

    def gangs(self) -> Sequence[FoundGang]:
        return self.waiting

    def entrust(self, jobs: Mapping[str, GangKey]) -> None:
        self.jobs |= jobs

    def withdraw(self, job: str) -> None:
        del self.jobs[job]

    def answer(self, key: GangKey, text: str) -> None:
        self.answers[key] = text


def adopter_of(api: Api, cluster: Cluster, known: Mapping[str, GangKey] | None = None) -> Adopter:
    return Adopter(api.components, cluster, lambda: RULES, known or {})


def behind_a_job(api: Api, gpus: int) -> tuple[Cluster, Adopter]:
    """A gang that waits for a job with so many cards, and has been told why."""
    api.submit(gpus=gpus)
    cluster = Cluster(TRIO)
    adopter = adopter_of(api, cluster)
    adopter.look()
    adopter.look()
    return cluster, adopter


def only_job(cluster: Cluster) -> str:
    (job,) = cluster.jobs
    return job


def test_a_gang_becomes_one_job_of_its_namespace_however_often_it_is_looked_at(api: Api) -> None:
    cluster = Cluster(TRIO)
    adopter = adopter_of(api, cluster)
    adopter.look()
    info = api.job(only_job(cluster))
    assert (info.user, info.queue, info.name, info.gpus) == ("team-a:trainer", "default", "trio", "3 x 1")
    cluster.waiting = []
    adopter.look()
    assert len(cluster.jobs) == 1
    assert {task.node for task in api.job(info.id).tasks} == {"n1"}


@pytest.mark.parametrize(
    ("written", "level", "required"),
    [("{prefer: zone}", Level.ZONE, False), ("{require: zone}", Level.ZONE, True), ("any", Level.CLUSTER, False)],
)
def test_the_zone_that_pods_wish_for_or_require_is_that_of_their_job(
    written: str, level: Level, required: bool
) -> None:
    wishing = replace(TRIO, terms=GangTerms(fields=(("topology", written),)))
    job = spec_of(wishing, GangPlace("team-a:trainer", "default"), RULES).job
    assert (job.together, job.together_required) == (level, required)


def test_a_gang_whose_submission_is_answered_late_is_lined_up_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.submit(gpus=4)
    cluster, goes_on = Cluster(TRIO), Event()
    adopter = adopter_of(api, cluster)
    busy = api.loop.query(lambda core: goes_on.wait(60))
    with monkeypatch.context() as impatient:
        impatient.setattr(adopter_module, "ANSWER_WITHIN_S", 0.0)
        for _ in range(2):
            with pytest.raises(UnavailableError, match="no answer from the scheduler"):
                adopter.look()
    goes_on.set()
    assert busy.result(60)
    adopter.look()
    adopter.look()
    assert api.job(only_job(cluster)).state == "queued"
    assert [info["name"] for info in api.client.get("/api/v1/jobs").json()["jobs"]].count("trio") == 1


def test_parts_of_cards_become_those_of_a_job_for_nodes_that_give_out_parts() -> None:
    parts = [SliceRequest(300, 2048, 300), SliceRequest(10, SHARE_OF_CARD, 10), SliceRequest()]
    wanted = [TaskRequest(500, 256, 1, part, extras=(("gpu-slices", 1),)) for part in parts]
    roles = tuple(PodRole(f"r{number}", request, 1, 1) for number, request in enumerate(wanted))
    spec = spec_of(replace(TRIO, roles=roles), GangPlace("team-a:trainer", "default"), RULES)
    assert [role.request for role in spec.job.roles] == wanted


def test_a_job_that_waits_is_told_the_text_of_pond_why(api: Api) -> None:
    cluster, adopter = behind_a_job(api, 4)
    why = api.client.get(f"/api/v1/jobs/{only_job(cluster)}/why").json()
    assert cluster.answers[TRIO.key].startswith(why["summary"])
    cluster.answers.clear()
    adopter.look()
    assert cluster.answers == {}, "nothing is written where nothing has changed"


def test_what_would_help_pods_of_others_is_told_in_words_and_is_no_field_of_a_job_file(api: Api) -> None:
    cluster, _ = behind_a_job(api, 2)
    remedy = api.client.get(f"/api/v1/jobs/{only_job(cluster)}/why").json()["remedy"]
    assert remedy == {"change": "run 2 tasks instead of 3", "field": "", "value": ""}
    assert cluster.answers[TRIO.key].endswith("; run 2 tasks instead of 3")


@pytest.mark.parametrize("takes_parts", [False, True])
def test_a_part_of_a_card_is_advised_to_pods_that_ask_for_parts_alone(takes_parts: bool) -> None:
    change = "ask for 0.5 GPUs a task instead of 1"
    remedy = RemedyInfo(change=change, field="gpus", value="0.5")
    reason = ReasonInfo(job="trio-abcde", state="queued", cause="over-limit", summary="why", remedy=remedy)
    request = TaskRequest(500, 256, 1, extras=(("gpu-slices", 1),) if takes_parts else ())
    gang = replace(TRIO, roles=(PodRole("worker", request, 1, 1),))
    document = spec_of(gang, GangPlace("team-a:trainer", "default"), RULES).document
    assert as_pods_can(reason, document).remedy == (RemedyInfo(change=change) if takes_parts else None)
    assert as_pods_can(reason, {"gpus": 1}) == reason


def test_a_job_whose_reason_cannot_be_found_keeps_no_other_gang_from_being_told(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.submit(gpus=4)
    cluster = Cluster(TRIO, replace(TRIO, key=replace(TRIO.key, name="next")))
    adopter = adopter_of(api, cluster)
    adopter.look()
    broken, _ = cluster.jobs
    why = adopter_module._why

    def failing(core: Core, job: str, before: str | None) -> tuple[str, ReasonInfo | None]:
        if job == broken:
            raise KeyError("odd")
        return why(core, job, before)

    monkeypatch.setattr(adopter_module, "_why", failing)
    with pytest.raises(KeyError):
        adopter.look()
    assert [key.name for key in cluster.answers] == ["next"]


def test_gangs_that_come_are_lined_up_before_those_that_wait_are_told(api: Api) -> None:
    api.submit(gpus=4)
    cluster = Cluster(TRIO)
    adopter = adopter_of(api, cluster)
    adopter.look()
    cluster.waiting.append(replace(TRIO, key=replace(TRIO.key, name="next")))
    adopter.look()
    assert (len(cluster.jobs), cluster.answers) == (2, {})
    adopter.look()
    assert TRIO.key in cluster.answers


def test_what_comes_after_a_run_began_is_a_job_of_its_own(api: Api) -> None:
    cluster = Cluster(TRIO)
    adopter = adopter_of(api, cluster)
    adopter.look()
    first = only_job(cluster)
    assert api.job(first).state == "running"
    cluster.waiting = [replace(TRIO, roles=(replace(TRIO.roles[0], count=1, least=1),))]
    adopter.look()
    (second,) = set(cluster.jobs) - {first}
    assert api.job(second).gpus == "1"


def test_pods_beyond_the_least_of_a_gang_join_it_and_are_no_job_of_their_own(api: Api) -> None:
    cluster = Cluster(replace(TRIO, roles=(PodRole("worker", TaskRequest(500, 256, 1), 6, 3),)))
    adopter = adopter_of(api, cluster)
    adopter.look()
    job = only_job(cluster)
    assert [task.state for task in api.job(job).tasks] == ["running"] * 4 + ["queued"] * 2
    cluster.waiting = [replace(TRIO, roles=(replace(TRIO.roles[0], count=2, least=1),))]
    adopter.look()
    assert only_job(cluster) == job
    assert "joins when there is room" in cluster.answers[TRIO.key]


def test_a_new_server_goes_on_with_the_jobs_of_the_one_before(api: Api) -> None:
    api.submit(gpus=4)
    cluster = Cluster(TRIO)
    adopter_of(api, cluster).look()
    known = {job: key_in(file) for job, file in api.components.job_files.live_with("adopted").items()}
    assert known == {only_job(cluster): TRIO.key}
    adopter_of(api, cluster, known).look()
    assert len(cluster.jobs) == 1


def test_a_failed_pod_leaves_the_others_alone_and_is_not_started_again(api: Api) -> None:
    cluster = Cluster(TRIO)
    adopter = adopter_of(api, cluster)
    adopter.look()
    job = only_job(cluster)
    assert api.job(job).state == "running"
    cluster.waiting = []
    api.engine.finish(TaskId(job, 1, 1), Outcome.USER_ERROR, 3)
    assert [task.state for task in api.job(job).tasks] == ["running", "failed", "running"]
    for task in (0, 2):
        api.engine.finish(TaskId(job, 1, task))
    assert api.job(job).state == "failed"
    adopter.look()
    assert cluster.jobs == {}


@pytest.mark.parametrize(
    ("terms", "told"),
    [
        (GangTerms(queue="theirs"), "namespace team-a may not use queue 'theirs'; label its pods with one of: default"),
        (GangTerms(fields=(("topology", "moon"),)), "millpond.io/topology:"),
        (GangTerms(fields=(("gpu_models", "[H9000]"),)), "no node has a GPU model 'H9000'"),
        (GangTerms(fields=(("reservation", "none-such"),)), "none-such"),
        (GangTerms(fields=(("deadline", "2026-13-01"),)), "millpond.io/deadline:"),
        (GangTerms(fields=(("topology", "[" * 5_000),)), "millpond.io/topology:"),
        (GangTerms(fields=(("window", ALIASES_OF_ALIASES),)), "millpond.io/window:"),
        (GangTerms(fields=(("topology", "&itself [*itself]"),)), "millpond.io/topology:"),
        (GangTerms(fields=(("topology", ""),)), "millpond.io/topology:"),
        (GangTerms(fields=(("pool", "a\n---\nb"),)), "millpond.io/pool:"),
        (GangTerms(fields=(("min_run_time", ".inf"),)), "millpond.io/min-run-time:"),
        (GangTerms(fields=(("min_run_time", ".nan"),)), "millpond.io/min-run-time:"),
        (GangTerms(fields=(("min_run_time", "9" * 4_000),)), "millpond.io/min-run-time:"),
    ],
)
def test_what_a_gang_may_not_have_is_told_and_tried_again_when_it_has_changed(
    api: Api, terms: GangTerms, told: str
) -> None:
    cluster = Cluster(replace(TRIO, terms=terms))
    adopter = adopter_of(api, cluster)
    adopter.look()
    assert told in cluster.answers[TRIO.key]
    assert cluster.jobs == {}
    cluster.waiting = [TRIO]
    adopter.look()
    assert len(cluster.jobs) == 1


def test_amounts_that_no_machine_has_are_told_as_those_of_containers(api: Api) -> None:
    asks = replace(TRIO.roles[0], request=replace(TRIO.roles[0].request, memory_mib=2**43))
    cluster = Cluster(replace(TRIO, roles=(asks,)))
    adopter_of(api, cluster).look()
    assert cluster.answers[TRIO.key].startswith("the memory of its containers: '8796093022208MiB' is more than any")


def test_a_gang_that_cannot_be_handled_holds_up_no_other(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = replace(TRIO, key=replace(TRIO.key, name="odd"))
    cluster = Cluster(odd, TRIO)
    adopter = adopter_of(api, cluster)

    def spec(gang: FoundGang, place: GangPlace, rules: AdoptFile) -> JobSpec:
        if gang is odd:
            raise KeyError("odd")
        return spec_of(gang, place, rules)

    monkeypatch.setattr(adopter_module, "spec_of", spec)
    adopter.look()
    assert list(cluster.jobs.values()) == [TRIO.key]
    assert "a defect (KeyError)" in cluster.answers[odd.key]


def test_a_gang_beyond_the_limit_of_its_queue_hears_it(api: Api) -> None:
    api.loop.notify([QueueChanged(1.0, Queue("default", limit=Amount(2_000, 2**50, 2**50)))])
    api.loop.query(lambda core: None).result(60)
    cluster = Cluster(TRIO)
    adopter_of(api, cluster).look()
    assert "queue 'default'" in cluster.answers[TRIO.key]
    assert "2 GPUs" in cluster.answers[TRIO.key]


def test_a_stopped_job_whose_pods_still_wait_is_not_lined_up_again(api: Api) -> None:
    api.submit(gpus=4)
    cluster = Cluster(TRIO)
    adopter = adopter_of(api, cluster)
    adopter.look()
    job = only_job(cluster)
    assert api.client.post(f"/api/v1/jobs/{job}/stop").status_code == 202
    assert api.job(job).state == "cancelled"
    adopter.look()
    adopter.look()
    assert cluster.jobs == {}
    assert cluster.answers[TRIO.key].startswith(f"its job {job} was stopped; delete these pods")
    cluster.waiting = []
    adopter.look()
    cluster.waiting = [TRIO]
    adopter.look()
    assert len(cluster.jobs) == 1


def test_a_job_that_waits_for_a_group_of_another_size_is_lined_up_anew_and_one_that_runs_goes_on(api: Api) -> None:
    blocking = api.submit(gpus=4)
    group = GangKey("team-a", "PodGroup (scheduling.k8s.io)", "trio")
    grouped = replace(TRIO, key=group, size=3)
    cluster = Cluster(grouped)
    adopter = adopter_of(api, cluster)
    adopter.look()
    first = only_job(cluster)
    adopter.look()
    assert api.job(first).state == "queued", "nothing has changed"
    cluster.waiting = [replace(grouped, size=2, roles=(replace(TRIO.roles[0], least=2),))]
    adopter.look()
    assert api.job(first).state == "cancelled"
    assert (
        "2 pods of PodGroup (scheduling.k8s.io) team-a/trio start together now"
        in api.client.get(f"/api/v1/jobs/{first}/events").text
    )
    adopter.look()
    second = only_job(cluster)
    assert api.loop.query(lambda core: core.scheduler.jobs[second].job.roles[0].minimum).result(60) == 2
    api.client.post(f"/api/v1/jobs/{blocking.id}/stop")
    assert api.job(second).state == "running"
    cluster.waiting = [replace(grouped, size=1)]
    adopter.look()
    assert api.job(second).state == "running"


def test_a_queue_that_is_not_there_is_told(api: Api) -> None:
    cluster = Cluster(TRIO)
    rules = AdoptFile.model_validate({"namespaces": {"*": "gone"}})
    Adopter(api.components, cluster, lambda: rules, {}).look()
    assert "'gone'" in cluster.answers[TRIO.key]


def test_the_nodes_that_a_gang_selects_are_those_of_its_job(api: Api) -> None:
    ssd = ((NodeRequirement("disk", NodeOperator.IN, ("ssd",)),),)
    cluster = Cluster(replace(TRIO, terms=GangTerms(selection=ssd)))
    adopter = adopter_of(api, cluster)
    adopter.look()
    assert "no node of pool 'default' is as it asks: disk=ssd" in cluster.answers[TRIO.key]
    api.loop.notify([NodeJoined(1.0, replace(api.world.nodes[0], labels=(("disk", "ssd"),)))])
    api.loop.query(lambda core: None).result(60)
    cluster.waiting = [replace(TRIO, terms=GangTerms(selection=ssd, account="again"))]
    adopter.look()
    assert api.job(only_job(cluster)).state == "running"
    assert api.components.job_files.file_of(only_job(cluster)).adopted.selection == ssd


def test_what_the_nodes_of_a_gang_need_is_kept_of_its_job(api: Api) -> None:
    needed = ("image:docker.io/library/busybox:latest", "image:nvcr.io/nvidia/pytorch:24.05-py3")
    cluster = Cluster(replace(TRIO, terms=GangTerms(contents=needed)))
    adopter_of(api, cluster).look()
    stored = api.components.job_files.file_of(only_job(cluster))
    assert stored.adopted.contents == list(needed)
    contents = api.loop.query(lambda core: core.scheduler.jobs[only_job(cluster)].job.contents).result(60)
    assert contents == tuple(map(Content, needed))


def test_how_the_pods_of_a_gang_must_lie_is_kept_of_its_job(api: Api) -> None:
    rules = (
        SpacingRule(SpacingKind.APART, "host", ("worker",), ("worker",)),
        SpacingRule(SpacingKind.EVEN, "zone", ("worker",), ("worker",), 2, (("a", 3),), 4, 2),
    )
    cluster = Cluster(replace(TRIO, terms=GangTerms(spacing=rules)))
    spec = spec_of(cluster.waiting[0], GangPlace("team-a:trainer", "default"), RULES)
    assert spec.job.spacing == rules


def test_a_job_that_waits_follows_its_pods_to_other_nodes(api: Api) -> None:
    api.submit(gpus=4)
    chosen = [((NodeRequirement("disk", NodeOperator.NOT_IN, (disk,)),),) for disk in ("ssd", "tape")]
    cluster = Cluster(replace(TRIO, terms=GangTerms(selection=chosen[0])))
    adopter = adopter_of(api, cluster)
    adopter.look()
    job = only_job(cluster)

    def asked() -> object:
        return api.loop.query(lambda core: core.scheduler.jobs[job].job.only_on).result(60)

    cluster.waiting = [replace(TRIO, terms=GangTerms(selection=chosen[1]))]
    adopter.look()
    assert asked() == chosen[1]
    before = api.loop.seq
    adopter.look()
    assert asked() == chosen[1]
    assert api.loop.seq == before, "nothing is said twice"
    assert "other nodes than before" in api.client.get(f"/api/v1/jobs/{job}/events").text


def test_a_priority_class_is_a_class_of_jobs(api: Api) -> None:
    gangs = {
        "high": GangTerms(priority=-5, priority_class="urgent"),
        "low": GangTerms(priority=-5, priority_class="other"),
        "critical": GangTerms(priority=2_000_000_000),
        "normal": GangTerms(),
    }
    cluster = Cluster(*(replace(TRIO, key=replace(TRIO.key, name=name), terms=each) for name, each in gangs.items()))
    adopter_of(api, cluster).look()
    assert {api.job(job).priority: key.name for job, key in cluster.jobs.items()} == {name: name for name in gangs}


def test_whose_pods_are_is_told_apart_in_what_the_store_has_room_for() -> None:
    accounts = ("trainer", "a" * 253, "a" * 252 + "b")
    users = [place_of(replace(TRIO, terms=replace(TRIO.terms, account=account)), RULES).user for account in accounts]
    assert users[0] == "team-a:trainer"
    assert {len(user) for user in users[1:]} == {120}
    assert users[1].startswith("team-a:aaaa")
    assert len(set(users)) == 3


def test_a_namespace_may_belong_to_a_user(api: Api) -> None:
    cluster = Cluster(replace(TRIO, key=replace(TRIO.key, namespace="team-b")))
    adopter_of(api, cluster).look()
    assert api.job(only_job(cluster)).user == "bob"


def test_people_cannot_write_what_stands_for_pods(api: Api) -> None:
    adopted = {"namespace": "n", "kind": "Pod", "name": "p"}
    answer = api.client.post("/api/v1/jobs", json={"command": "work", "adopted": adopted})
    assert answer.status_code == 422
    assert "only the server itself writes" in answer.text
