"""What the server wrote in English, read back in the language of its reader."""

from __future__ import annotations

import re
import unicodedata

import pytest
from api_world import Api
from hypothesis import given
from hypothesis import strategies as st

from millpond.engines.local.health import LOST_CARD
from millpond.engines.task_ends import exit_text
from millpond.forecasting.rate_hours import predict_rate
from millpond.model.energy import RateMeasure, RateSeries
from millpond.model.events import CardClosed, QueueChanged
from millpond.model.hardware.nodes import Cordon
from millpond.model.policy_trials import ClusterPolicies
from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import Queue
from millpond.model.units import DAY_S
from millpond.node.devices.amd import AmdVendor
from millpond.node.devices.ascend import AscendVendor
from millpond.node.devices.cambricon import CambriconVendor
from millpond.node.devices.hygon import HygonVendor
from millpond.node.devices.intel import IntelVendor
from millpond.node.devices.nvml.faults import RECOVERY_ACTIONS, xid_text
from millpond.server.catalogues import ENGLISH, LANGUAGES, TextCatalogue
from millpond.server.phrases.phrasebook import PHRASES, REFUSALS, pattern_of, phrase_in
from millpond.server.web.jobs.drafts import DraftRequest, draft_of
from millpond.server.wording import lasting, rounded_span
from millpond.simulation.adaptation import TriedPolicy, WindowFigures, choose_policy

CHINESE = "zh-CN"
TEMPLATES = [
    pytest.param(catalogue, language, id=f"{catalogue.name}-{language}")
    for language in LANGUAGES
    if language != ENGLISH
    for catalogue in (PHRASES, REFUSALS)
]
TOOLS = tuple(each.tool for each in (AmdVendor, AscendVendor, CambriconVendor, HygonVendor, IntelVendor))
_OURS = re.compile(r"GPU|CPU|SIG[A-Z0-9+-]+|GiB|MiB")


def left_in_english(text: str, *names: str) -> list[str]:
    """Words of a Chinese text that are neither units nor names."""
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "")
    return re.findall("[A-Za-z]{2,}", _OURS.sub("", text))


@pytest.mark.parametrize(("catalogue", "language"), TEMPLATES)
def test_each_template_reads_back_what_it_would_write_and_names_the_same_values(
    catalogue: TextCatalogue, language: str
) -> None:
    for template, words in catalogue.texts(language).items():
        assert words, template
        holes = dict(re.findall(r"%\((\w+)\)([sd])", template))
        assert dict.fromkeys(re.findall(r"%\((\w+)\)[sd]", words)).keys() == holes.keys(), template
        values = {name: "7" if kind == "d" else "x-1" for name, kind in holes.items()}
        written = re.sub(r"\)d", ")s", template).replace("(s)", "s") % values
        found = pattern_of(template).fullmatch(written)
        assert found is not None, template
        assert found.groupdict() == values, template


@given(st.text(max_size=300))
def test_english_readers_get_each_text_as_it_is(text: str) -> None:
    assert phrase_in(ENGLISH, text) == text
    assert phrase_in("fr", text) == text


@given(st.text(alphabet="xyz;,(): ", max_size=300))
def test_words_without_a_template_stay_as_they_are(text: str) -> None:
    assert phrase_in(CHINESE, text) == text


def test_what_happens_to_nodes_and_cards_is_told_in_the_language_of_the_reader() -> None:
    for text in (
        "power: on", "power: booting (x-1)", "card 3 is faulty: x-1", "card 3 is ok", "card 3 reports x-1",
        "card 3 drained by x-1: x-1", "card 3 closed until 20:00 by x-1", "drained until 20:00 by x-1: x-1",
        "to be closed from 20:00 on by x-1", "opened by somebody", "could not be done: x-1",
        "end task 0, 1 within 30s (shrunk)", "live-migrate it to n-1 (migrated)",
        "restart-migrated: start 1 task on n-1 (attempt 2)",
        "give the place of task 0 back, as the job is tried again or goes on without it",
    ):  # fmt: skip
        assert left_in_english(phrase_in(CHINESE, text), "x-1", "n-1", "30s") == [], text


def test_what_a_driver_reports_of_a_card_is_told_in_the_language_of_the_reader() -> None:
    faults = [xid_text(xid) for xid in range(200)]
    assert sum("(" in fault for fault in faults) > 20
    for fault in (*faults, *(text for _, text in RECOVERY_ACTIONS.values()), LOST_CARD):
        for text in (f"{fault}; it had failed shortly before", f"card 3 of x-1 is faulty ({fault})"):
            assert left_in_english(phrase_in(CHINESE, text), "x-1", "XID", "NVLink") == [], text


def test_who_uses_a_card_and_what_the_driver_says_of_it_is_told_in_the_language_of_the_reader() -> None:
    for text in (
        "x-1 A: 0; busy-elsewhere (used by process 12 (python))",
        "x-1 A: 0; busy-elsewhere (used by processes 12 (python), 13, 14 (python) and 3 more)",
        "x-1 A: 0; busy-elsewhere (pods that are not Millpond's have it)",
        "faulty (the driver says: Unknown Error)",
        *(f"{tool} says: Unknown Error" for tool in TOOLS),
    ):
        names = ("python", "Unknown Error", "Millpond", "Pod", *TOOLS)
        assert left_in_english(phrase_in(CHINESE, text), "x-1", *names) == [], text


def test_what_keeps_jobs_from_starting_is_told_in_the_language_of_the_reader() -> None:
    names = ("swap_memory", "memory_overcommit", "topology: any", "preemptible: true", "it runs hot", "ada", "x-1")
    for text in (
        (
            "it gets no turn with its equals there, as that takes 512 GiB of host memory: node x-1 sets 256 GiB "
            "aside (swap_memory), and 256 GiB of it are free"
        ),
        "no turn comes free, as what runs there could not leave: x-1",
        (
            "its 7 GiB of device memory do not fit into host memory: node x-1 sets 7 GiB aside (swap_memory), "
            "and 7 GiB of it are free"
        ),
        (
            "its 7 GiB of device memory do not fit into host memory: node x-1 sets 7 GiB aside (swap_memory), "
            "and 7 GiB of it are free, which others on their way there need"
        ),
        (
            "it would borrow beyond the hours in which pool x-1 lends (x-1), and lose its work then: it neither "
            "saves that on notice nor can it be swapped"
        ),
        "it waits for card 3 of x-1 to be divided into x-1",
        (
            "there is room, but node x-1, where less of what it needs is missing, should be free in 50s; "
            "to fetch it elsewhere takes 1m"
        ),
        "node x-1 should be free then; at the latest it takes what there is",
        "what the estimate knows of would have let it start by now",
        "starting on x-1, run 1; what it needs takes 3m20s to fetch to x-1",
        "starting on x-1, run 1; node x-1 is closed: x-1",
        "there is room, but 2 cards are kept for reservation x-1 of queue x-1",
        "there is room, but 1 card is kept for reservation x-1 of queue x-1",
        (
            "there is room, but 2 cards are kept for reservation x-1 of queue x-1, which begins before the job "
            "would have ended"
        ),
        (
            "there is room, but 2 cards are kept for reservation x-1 of queue x-1; room is reserved for x-1: "
            "it is ahead, and would else wait ever longer"
        ),
        (
            "there is room, but 2 cards are kept for reservation x-1 of queue x-1; room is claimed for x-1 and "
            "2 other jobs: other work is leaving for it"
        ),
        "it starts on the cards of its reservation x-1 alone: 2 of 4 are left; 3 cannot be had now",
        "let its tasks lie apart (topology: any)",
        "let it be asked to leave again (preemptible: true)",
        ("the job is not preemptible, so it borrows nothing, and 2 GPUs more would exceed the guarantee of queue x-1"),
        (
            "the job is not preemptible, so it borrows nothing, and 2 GPUs more would exceed the guarantee of queue "
            "x-1; preemptible work of a higher class holds 2 GPUs of the guarantee of queue x-1; preemptible work in "
            "cells holds 1 GPU of the guarantee of queue x-1"
        ),
        (
            "the job is not preemptible, so it borrows nothing, and 2 GPUs more would exceed the guarantee of queue "
            "x-1; preemptible work on reserved cards holds 2 GPUs of the guarantee of queue x-1; preemptible work that "
            "has used up its budget of preemptions holds 1 GPU of the guarantee of queue x-1"
        ),
        (
            "the job is not preemptible, so it borrows nothing, and 2 GPUs more would exceed the guarantee of queue "
            "x-1 with what is reserved"
        ),
        "queue x-1 may not borrow, and 2 GPUs more would exceed its guarantee with what is reserved",
        (
            "the job is not preemptible, so it borrows nothing, and 2 GPUs more would exceed what the guarantee "
            "of queue x-1 leaves beside those of the queues below it"
        ),
        ("running on x-1, run 1; 1 task is left out until it is measured how fast it is with those that it has"),
        ("running on x-1, run 1; 2 tasks are left out until it is measured how fast it is with those that it has"),
        (
            "running on x-1, run 1; 2 tasks are left out, as another would add less than 50 % of what each of "
            "its first cards does"
        ),
        "being ended on x-1, x-2, x-3 and 4 more: time-limit",
        "being ended: stop-requested",
        (
            "it asks for 8 GPUs; 2 GPUs are free for it, and no node has room; x-1 is being ended, which will be "
            "room enough"
        ),
        (
            "it asks for 8 GPUs; 2 GPUs are free for it, and no node has room; x-1 and 2 other jobs are being ended, "
            "which will be room enough"
        ),
        (
            "it asks for 8 GPUs; 2 GPUs are free for it, and no node has room; x-1 is suspended and keeps its device "
            "memory on its cards, which would be room enough"
        ),
        (
            "it asks for 8 GPUs; 2 GPUs are free for it, and no node has room; 2 GiB of device memory are kept for "
            "work that was swapped off (memory_overcommit)"
        ),
        "its last run failed (exit code 3); it is tried again after a delay",
        "its last run failed; it is tried again after a delay",
        "its last start was refused (x-1); it lines up again after a pause",
        "1 job of lower priority would have to end for it, but may not be ended now (not preemptible)",
        (
            "2 jobs of lower priority would have to end for it, but may not be ended now (its budget of "
            "preemptions is used up, in its minimum run time)"
        ),
        (
            "2 jobs of lower priority or on borrowed room would have to end for it, but may not be ended now "
            "(within the guarantee of its queue, it took back what this job had borrowed)"
        ),
        (
            "2 jobs of lower priority or on borrowed room would have to end for it, but may not be ended now "
            "(in the minimum run time of queue x-1)"
        ),
        (
            "2 jobs of lower priority or on borrowed room would have to end for it, but may not be ended now "
            "(in the minimum run time of queue x-1, not preemptible)"
        ),
        "it waits for node x-1, which is booting, about 3 min",
        "it would fit with card 3 of x-1, which is closed by ada (it runs hot)",
        "it would fit on x-1, which is closed (x-1)",
        (
            "it asks for 8 GPUs; 2 GPUs are free for it, and no node has room; a card is divided into x-1 for it once "
            "one is idle"
        ),
        (
            "it asks for 8 GPUs; 2 GPUs are free for it, and no node has room; a card is divided into x-1 for it once "
            "one is idle and has been as it is for 10 min"
        ),
        "there is room, but the ordering 'x-1' has given all cards of its pool to work that is ahead",
        "there is room, but it is claimed for x-1: other work is leaving for it",
        ("there is room, but it is reserved for x-1 and 2 other jobs: it is ahead, and would else wait ever longer"),
        "there is room, but it is claimed for x-1: it is being moved there",
        "failed (exit code 3); its place on x-1 is kept",
        "it asks for 8 GPUs; 2 GPUs are free for it, and not where it could use them",
        "it asks for 8 GPUs; 0 GPUs are free for it, and no node takes new work (x-1)",
        (
            "it asks for 8 GPUs; 2 GPUs are free for it, and no node has room; card 3 of x-1 is faulty (x-1); and "
            "2 cards more"
        ),
        ("user x-1 has 2 jobs running or about to start with 2 GPUs and 4 CPUs, and may have at most 2 running jobs"),
        ("user x-1 has 2 jobs (with what is reserved) with 2 GPUs and 4 CPUs, and may have at most 2 running jobs"),
        (
            "user x-1 has 2 jobs running or about to start (with what is reserved) with 2 GPUs and 4 CPUs, and "
            "may have at most 2 running jobs"
        ),
        "queue x-1 runs 2 jobs with 2 GPUs and 4 CPUs, and may have at most 4 GPUs",
        ("queue x-1 holds 2 GPUs of at most 8 GPUs; the job asks for 8 GPUs; cards of x-1 alone could never take it"),
    ):
        assert left_in_english(phrase_in(CHINESE, text), *names) == [], text


def test_what_is_measured_forecast_and_switched_is_told_in_the_language_of_the_reader() -> None:
    names = ("flexible", "MAC", "UTC", "x-1", "5e+13")
    for text in (
        "steps: not measured, its reports are ignored: 5e+13 steps in a second cannot be",
        "steps: not measured, its reports are ignored: its steps run back, from 200 to 3",
        "flexible changes nothing: energy costs, and emits, the same at all hours, or it is not configured",
        *(
            f"flexible changes nothing: {predict_rate(rate, measure, 40 * DAY_S).missing}"
            for measure in RateMeasure
            for rate in (None, RateSeries((0.0, 1.0), (0.3, None)), RateSeries((0.0, 38.5 * DAY_S), (0.3, None)))
        ),
        "flexible changes nothing: its series has no price for this hour, nor for it on 14 days before",
        "flexible changes nothing: its series has no carbon intensity for this hour, nor for it on 14 days before",
        "power: on (it was switched off and did not go down)",
        "off after a failed boot: it was switched on and did not join",
        "off after a failed boot, not tried again for about 15 min: it was switched on and did not join",
        "power: on (the command ended with 255: x-1)",
        "power: on (the command ended with 1)",
        "power: on (the command was ended after 0.2 s)",
        "power: on (no MAC address of x-1 is configured)",
        "power: on (the packet could not be sent to x-1 (x-1))",
    ):
        assert left_in_english(phrase_in(CHINESE, text), *names) == [], text


def test_what_a_night_chose_is_told_in_the_language_of_the_reader() -> None:
    names = ("sjf", "ssf", "default", "12:00")
    plain, other = ClusterPolicies("default", "default", False, True), ClusterPolicies("sjf", "default", True, False)

    def windows(slowdown: float, wait_s: float = 0.0, jobs: int = 90) -> tuple[WindowFigures, ...]:
        return (WindowFigures(jobs, slowdown, wait_s),) * 3

    busy, quiet = TriedPolicy(plain, windows(4.0)), (WindowFigures(90, 1.0, 0.0), *windows(4.0)[:2])
    verdicts = [
        choose_policy(TriedPolicy(plain, ()), [], 0.1),
        choose_policy(TriedPolicy(plain, windows(4.0, jobs=3)), [], 0.1),
        choose_policy(busy, [TriedPolicy(other, ())], 0.1),
        choose_policy(TriedPolicy(plain, windows(1.0)), [busy], 0.1),
        choose_policy(busy, [TriedPolicy(other, windows(4.0))], 0.1),
        choose_policy(busy, [TriedPolicy(other, windows(2.0, 900.0))], 0.1),
        choose_policy(TriedPolicy(plain, quiet), [TriedPolicy(other, windows(2.0))], 0.1),
        choose_policy(busy, [TriedPolicy(other, windows(2.0))], 0.1),
    ]
    assert verdicts[-1].choice == other
    stays = f"{plain} stays, on trial since 12:00: "
    measured = (
        f"mean slowdown measured 1.20, of {other} replayed on the same 90 jobs 2.00 "
        "(before the change measured was 1.00 times replayed)"
    )
    for text in (
        *(f"the policies stay as they are: {verdict.why}" for verdict in verdicts[:-1]),
        "the policies stay as they are: every candidate holds, is pinned at the start, or was given up lately",
        f"{verdicts[-1].why}; by replays of three windows since 12:00",
        f"{stays}too few jobs to judge by: 3 since then, 50 are needed",
        f"{stays}the replay of {other} took too long",
        stays + measured,
        f"back to {other}, as {plain} did worse since 12:00: {measured}",
        "the replays are under way",
        "not finished: the server ended meanwhile, or its log says why; the next night tries again",
        str(ClusterPolicies("sjf", "ssf", True, True)),
        str(ClusterPolicies("sjf", "ssf", False, False)),
    ):
        assert left_in_english(phrase_in(CHINESE, text), *names) == [], text


def test_moves_are_told_in_the_language_of_the_reader() -> None:
    for text in (
        "1 job is being moved to other nodes, and the room is claimed for it",
        "2 jobs are being moved to other nodes, and the room is claimed for it",
        "end all tasks within 30s, to be restart-migrated so that a node comes free for j-1",
        "end all tasks within 30s, to be restart-migrated so that a node comes free",
        "end all tasks within 30s, to be restart-migrated",
        "end all tasks within 30s, to be restart-migrated off a busy card",
        "running on n-1, run 1; live-migrated from n-1/0 (load 90 %) to n-1/3 (load 5 %)",
        "start 1 task on n-1 (attempt 2, consolidated)",
        "start 1 task on n-1 (attempt 2, fits, beside load of 12.5 %)",
        "running on n-1, run 2; restart-migrated from n-2/0 to n-1/3",
        "running on n-1, run 2; it shares its cards with j-1",
        "running on n-1, run 2; it shares its cards with j-1; cards that two jobs share have no power cap",
        *(
            f"it asks for 1 GPU; 0 GPUs are free for it, and no node has room; {why}"
            for why in (
                "only training jobs with a name and one task of whole cards share cards",
                "it shares no cards, as it does not save itself on notice, or is protected from being asked to leave",
                "it shares no cards, as no job of its queue and class has as many for itself",
                "it shares no cards, as no job of its name was measured alone on such cards",
                "it shares no cards, as those who have them were not measured alone",
                "it shares no cards, as it is not known to fit into their memory beside another",
                "it shares no cards, as it is expected to be too slow beside another",
            )
        ),
        "running on n-1, run 2; a job without cards has no power cap",
        "running on n-1, run 2; a part of a card has no power cap of its own",
        "running on n-1, run 2; its cards have no power cap, as nothing says which caps they can have",
        "running on n-1, run 2; its cards have no power cap, as one cap does not suit all of them",
        "running on n-1, run 2; only training jobs with a name and a fixed size have a power cap",
        "start 1 task on n-1 (attempt 2, shares-cards)",
        "end all tasks within 30s for j-1 (packed)",
        "end all tasks within 30s (unpacked)",
        "end all tasks within 30s (card-memory-full)",
        "end all tasks within 30s (own-cards-free)",
    ):
        assert left_in_english(phrase_in(CHINESE, text), "j-1", "n-1", "n-2", "30s") == [], text


@pytest.mark.parametrize(
    "text",
    [
        "it succeeded", "it was cancelled", "it failed with exit code 1", "it succeeded: 3/3 done", "never ran",
        "it was stopped early: behind the best third of 7 at step 9: x-1 0.81, and 0.42 was needed",
        "it succeeded: 3/3 done, 1 stopped early",
        ("it failed and never ran: command 'x-1' was not found on node n-1; check its spelling and PATH, or give its "
        "whole path (of a script: also the interpreter in its first line)"),
        ("could not be started: command 'x-1' cannot be executed on node n-1: Argument list too long; one argument or "
        "variable may have 128 KiB: send what is longer as a file (`ship: true`)"),
        ("could not be started: working directory 'x-1' on node n-1: Permission denied; send it with the job "
        "(`ship: true`), or let the account that the job runs as enter it"),
        "a task asks for 9 GPUs of x-1; the largest node has 8",
        "ask for 0.25 GPUs a task instead of 1", "ask for 4 GPUs a task of role 'x-1' instead of 8",
        "run 2 tasks of role 'x-1' instead of 4", "accept any device model of role 'x-1'",
        "a task asks for 2 TiB of memory; the largest node has 1 TiB",
        "the job asks for 20 GPUs; queue 'x-1' never holds more than 12 GPUs", "no node has a GPU model 'x-1'",
        ("it waits for a cell that queue x-1 is owed (x-1, on 2 nodes): 3 cards of it are held by work that has not "
        "left or may not be asked to"),
        ("the job is not preemptible, so it stays off what other queues are owed as cells; the cells of queue x-1 have "
        "no room for it, even if all of them are free; beside all cells there is never room for it, with 8 cards a "
        "task"),
        ("the job is not preemptible, so it stays off what other queues are owed as cells; beside all cells there are "
        "never more than 8 cards, and it asks for 16"),
        "leave it preemptible, ask for less, or have the cells changed",
        "of the 8 cards that reservation x-1 of its queue has left, no node has more than 6",
        "those who make room for it end within 1m30s",
        "those who make room for it end on node x-1, which is closed: x-1",
        ("reservation 'x-1' does not fit: of the 8 cards that queue x-1 is guaranteed, 5 are left beside what is "
        "guaranteed to other queues below it"),
        ("reservation 'x-1' does not fit: of the 8 cards that queue x-1 is guaranteed, 5 are neither reserved then nor "
        "held by work that cannot be asked to leave"),
    ],
)  # fmt: skip
def test_what_became_of_jobs_and_what_never_fits_is_told_in_the_language_of_the_reader(text: str) -> None:
    names = ("x-1", "n-1", "PATH", "ship: true", "KiB", "TiB")
    assert left_in_english(phrase_in(CHINESE, text), *names) == []


@pytest.mark.parametrize(
    "text",
    [
        "", "[1]", "command: [", "command:\n\t- x", "command: *x", "a: b: c", "command: x\ncommand: y",
        "nam: x\ngpus: two\ntasks: {desired: 3}\npriority: 7\nkind: 7\nretries: -1\ndata: {a: b}",
        "command: x\nmemory: 5\ntime_limit: 3\ncpus: -1\ngpus: 1.5\nname: ' '\ntasks: 0\nnetwork: 1",
        "command: x\ncheckpoint: 1\ntopology: 1\nwindow: 1\nafter: 3\nship: 1\nenv: {7-: x}\nsweep: 1",
        "command: x\ntasks: 2\nstdin: true\nworkdir: a", "command: x\narray: 5-3", "command: x\ndeadline: 5",
        "command: x\nkind: dev\narray: 3", "command: x\nsweep: {parameters: {a: [1]}, method: random}",
        "command: x\nretry_on: [1]\nroles: [{name: a, command: b}, {name: a, command: b}]\ntasks: 1",
    ],
)  # fmt: skip
def test_faults_of_a_job_file_are_told_in_the_language_of_the_reader(text: str) -> None:
    faults = draft_of(DraftRequest(text=text)).problems
    assert faults
    for fault in faults:
        for said in (fault.message, fault.hint):
            assert phrase_in(CHINESE, said) != said or not said, said


def test_all_exit_codes_and_spans_are_told_in_the_language_of_the_reader() -> None:
    for code in (None, *range(256)):
        assert left_in_english(phrase_in(CHINESE, exit_text(code)), "/dev/shm") == []
    for seconds in (1.0, 60.0, 90.0, 7_200.0, 86_400.0, 200_000.0):
        assert left_in_english(phrase_in(CHINESE, lasting(seconds))) == []
        assert left_in_english(phrase_in(CHINESE, rounded_span(seconds))) == []


def test_words_of_users_within_a_reason_stay_as_they_wrote_them() -> None:
    said = phrase_in(CHINESE, "card 7 of node-1 is closed by ada (it runs hot, says 100 %s)")
    assert "(it runs hot, says 100 %s)" in unicodedata.normalize("NFKC", said)
    assert "closed" not in said
    assert phrase_in(CHINESE, "exit code 3; <b>who knows</b>") == "退出码 3; <b>who knows</b>"


def test_the_usual_reasons_of_jobs_that_wait_leave_no_english_words(api: Api) -> None:
    """The scheduler's own sentences, so that a template which they outgrow is found."""
    now, queue = api.clock.now, Queue("narrow", limit=Amount(1_000))
    card = api.client.get("/api/v1/nodes").json()["nodes"][0]["devices"][3]["uuid"]
    api.loop.notify([QueueChanged(now, queue), CardClosed(now, "n1", card, Cordon(now, by="ada", reason="%"))])
    holder = api.submit(gpus=1)
    names = [holder.id, "n1", "narrow", "ada", "default"]
    jobs = [
        api.submit(gpus=3),
        api.submit(gpus=1, tasks=4),
        api.submit(gpus=1, queue="narrow"),
        api.submit(gpus=1, queue="narrow"),
        api.submit(after=[holder.id]),
    ]
    for job in [holder, *jobs]:
        answer = api.client.get(f"/api/v1/jobs/{job.id}/why").json()
        said = phrase_in(CHINESE, answer["summary"])
        assert left_in_english(said, job.id, *names) == [], answer["summary"]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("it waits for nodes n1, n2 and n3, which are off", "n1, n2 和 n3"),
        ("it would fit on n1, n2 and 7 more, which are closed", "n1, n2 及另外 7 个"),
        ("it waits for its window (Mon-Fri 20:00-08:00 and Sat 00:00-24:00)", "Mon-Fri 20:00-08:00 和 Sat 00:00-24:00"),
        ("its cells have no room for it: queue v uses 1 of 2 x rack and 3 of 4 x node", " 和 "),
        ("it asks for 8 GPUs", "申请 8 块 GPU"),
    ],
)
def test_lists_and_amounts_are_joined_as_the_language_does(written: str, wanted: str) -> None:
    found = phrase_in(CHINESE, written)
    assert wanted in found
    assert " and " not in found


STAYS = "the job is not preemptible, so it borrows nothing, and "
IN_HOURS = ", and pool p lends only in its hours (20:00-21:00 UTC)"


@pytest.mark.parametrize(
    ("written", "begin"),
    [
        (f"{STAYS}2 GPUs more would exceed the guarantee of queue x", "该作业"),
        (
            f"{STAYS}asks for 8 and 1 CPU; no guarantee of queue 'x' or above it covers that (the largest is of 0)",
            "该作业",
        ),
        (
            (
                f"{STAYS}asks for 8 and 1 CPU; no guarantee of queue 'x' or above it covers that (the largest is of 2 "
                "GPUs of model A100) beside those of the queues below it"
            ),
            "该作业",
        ),
        (f"2 GPUs more would exceed the guarantee of queue x{IN_HOURS}", "再加 2"),
        (f"queue x has no guarantee{IN_HOURS}", "队列 x"),
        (f"background work has no guarantee{IN_HOURS}", "后台作业"),
    ],
)
def test_what_no_guarantee_covers_is_told_clause_by_clause(written: str, begin: str) -> None:
    found = phrase_in(CHINESE, written)
    assert found.startswith(begin)
    assert not re.search("[a-z]{2,} [a-z]{2,}", found)


def test_the_words_of_a_user_are_left_alone_also_where_they_look_like_a_list() -> None:
    assert "disk and driver" in phrase_in(CHINESE, "it would fit on n1, which are closed (disk and driver)")
