"""Reports of use, costs and waits: sums that add up, who sees what of them, and pages that lead to the jobs."""

from __future__ import annotations

import csv
import html
import io
import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from auth_world import API, AuthWorld
from portal_browser import HOSTILE, browser_of
from starlette.requests import Request

from job_infos import job_info
from millpond.model.energy import J_PER_KWH, EnergyRates, EnergySum, RateSeries
from millpond.server.api.routes.reports import usage_json
from millpond.server.http.long_answers import LongAnswers
from millpond.server.store.jobs import NewJob
from millpond.server.store.statistics.books import HeldAmount, UsageChange, UsageInterval
from millpond.server.store.statistics.card_use import JobCardUse
from millpond.server.views.reports.usage import ReportRates
from millpond.server.web.reports import report_pages
from millpond.specs.api.models import adapter_of
from millpond.specs.api.reports.usage import UsageList, UsageRow
from millpond.specs.calendar_spans import day_begin
from millpond.specs.config.prices import PriceList

BEGUN = day_begin("2001-03-30") + 3_600.0
PAGES = ("reports", "reports?by=group", "reports?by=queue", "reports?by=model", "reports?by=month", "reports?by=kind")
PAGES += ("reports?by=job", "reports/waits", "reports/waits?by=user", "reports/waits/jobs", "reports/mine")
ENERGY = EnergyRates(RateSeries((BEGUN,), (0.3,), BEGUN + 60.0), RateSeries.constant(300.0))
AMOUNTS = ("gpu_hours", "cpu_hours", "memory_gib_hours", "cost", "measured_gpu_hours", "idle_gpu_hours")
AMOUNTS += ("energy_kwh", "energy_cost", "co2_kg")
SPRING = {"since": day_begin("2001-03-01"), "until": day_begin("2001-05-01")}
SPAN = "since=2001-03-01&until=2001-04-30"


def used(
    world: AuthWorld, job: str, user: str, group: str, *held: tuple[str, int, float], begun: float = BEGUN
) -> None:
    """A job held cards of these models: how many thousandths, and for how long."""
    queue = group or "default"
    parts = [
        UsageInterval(job, user, queue, "train", begun, HeldAmount(model, milli, 1_000, 1_024), group)
        for model, milli, _ in held
    ]
    for part, (_, _, seconds) in zip(parts, held, strict=True):
        begins, ends = UsageChange(job, begun, (part,), is_first=True), UsageChange(job, begun + seconds, ())
        world.store.record([], [], [begins, ends])


def ended(world: AuthWorld, job: str, user: str, group: str, cards: float, wait: float | None, **more: Any) -> None:
    """A job was submitted, and started or gave up after a wait."""
    begun = {} if wait is None else {"first_started_at": BEGUN + wait, "started_at": BEGUN + wait}
    fields = {"ended_at": BEGUN + 7_200.0, "gpu_milli": int(cards * 1_000)}
    fields |= {"submitted_at": BEGUN, "eligible_at": BEGUN, "queue": group or "default", "user": user, "group": group}
    state = "cancelled" if wait is None else "succeeded"
    info = job_info(id=job, name=job, state=state, **fields | begun | more)
    world.store.append([], [NewJob(job, user, BEGUN, {"command": "x"}, group=group)])
    world.store.record([], [info])


@pytest.fixture
def filled(world: AuthWorld) -> AuthWorld:
    used(world, "a-1", "max", "vision", ("A100", 1_000, 100.0), ("V100", 250, 1_000.0))
    used(world, "a-2", "mia", "vision", ("A100", 3_000, 1_000.0 / 3))
    used(world, "a-3", "sam", "speech", ("A100", 1_000, 9.0))
    used(world, "a-4", "sam", "speech", ("", 0, 500.0))
    used(world, "a-5", "nob", "", ("H100", 8_000, 3 * 86_400.0))  # over the end of a month
    made_of = (BEGUN, BEGUN + 100.0, 80.0, 20.0, 50.0)
    drawn = EnergySum(80.0, 3 * J_PER_KWH, J_PER_KWH, 0.6, 2 * J_PER_KWH, 900.0, 3 * J_PER_KWH)
    world.store.card_use.add([JobCardUse("a-1", "A100", BEGUN, "max", "vision", "vision", "train", *made_of, drawn)])
    prices = PriceList(gpu_hour={"A100": 1.8, "V100": 0.6})
    world.service.books._rates = lambda: ReportRates(prices, ENERGY)
    return world


def test_energy_is_shown_with_what_it_cost_and_what_is_not_known_of_it(filled: AuthWorld) -> None:
    found = usage(filled, "olga", by="job")
    rows = {row["name"]: row for row in found["rows"]}
    assert (rows["a-1"]["energy_kwh"], rows["a-1"]["declared_kwh"], rows["a-1"]["energy_cost"]) == (3.0, 1.0, 0.6)
    assert (rows["a-1"]["co2_kg"], rows["a-1"]["priced_kwh"]) == (0.9, 2.0)
    assert (rows["a-2"]["energy_kwh"], rows["a-2"]["energy_cost"], rows["a-2"]["co2_kg"]) == (None, None, None)
    assert (found["energy_currency"], [gap["of"] for gap in found["gaps"]]) == ("EUR", ["price"])
    page = filled.client("olga").get(f"/portal/reports?{SPAN}&by=job")
    for label, shown in (("Energy, EUR", "≥ 0.60"), ("kg CO₂", "≥ 0.900")):
        assert re.search(f'<td data-label="{label}" class="number"><span title="[^"]+">{shown}</span></td>', page.text)
    assert "No price of energy is known:" in page.text
    tiles = {who: energy_tile(filled.client(who).get(f"/portal/reports/mine?{SPAN}").text) for who in ("max", "mia")}
    assert tiles == {
        "max": "Energy of the cards≥ 3.000 kWh≥ 0.900 kg CO₂ · ≥ 0.60 EUR",
        "mia": "Energy of the cardsunknown",
    }
    assert ",3.0,1.0,0.6,2.0,0.9,3.0" in filled.client("olga").get(f"/portal/reports.csv?{SPAN}&by=job").text


def energy_tile(page: str) -> str:
    """The text of the tile, on a page of reports."""
    (tile,) = re.findall(r'<div class="tile">(<h2 class="small">Energy.*?)</div>', page, re.DOTALL)
    return re.sub("<[^>]+>", "", tile)


def usage(world: AuthWorld, who: str, **query: Any) -> dict[str, Any]:
    answer = world.client(who).get(f"{API}/usage", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def exactly(rows: list[dict[str, Any]], name: str) -> Decimal:
    return sum((Decimal(str(row[name])) for row in rows if row[name] is not None), Decimal(0))


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_rows_add_up_to_the_total_which_is_the_same_by_whatever_is_added_up(
    filled: AuthWorld, limit: int | None
) -> None:
    totals = []
    for by in ("user", "group", "queue", "model", "kind", "job", "month"):
        found = usage(filled, "olga", by=by, **SPRING, **({} if limit is None else {"limit": limit}))
        rows = [*found["rows"], *([found["rest"]] if found["rest"] else [])]
        for amount in (
            "gpu_hours",
            "cpu_hours",
            "memory_gib_hours",
            "cost",
            "measured_gpu_hours",
            "idle_gpu_hours",
            "energy_kwh",
            "energy_cost",
            "co2_kg",
        ):
            assert exactly(rows, amount) == Decimal(str(found["total"][amount])), (by, amount)
        totals.append(found["total"])
    assert all(total == totals[0] for total in totals)
    assert totals[0]["jobs"] == 5
    gpu_s = 100 + 250 + 1000 + 9 + 24 * 86_400
    assert totals[0]["gpu_hours"] == pytest.approx(gpu_s / 3600, abs=5e-4)
    assert totals[0]["cost"] == pytest.approx((1109 * 1.8 + 250 * 0.6) / 3600, abs=5e-3)


@pytest.mark.long
def test_a_month_has_its_part_of_what_goes_on_over_its_end(filled: AuthWorld) -> None:
    rows = {(row["name"], row["model"]): row["gpu_hours"] for row in usage(filled, "olga", by="month")["rows"]}
    assert rows["2001-03", "H100"] == pytest.approx(8 * (47 + 0), abs=1e-3)
    assert rows["2001-04", "H100"] == pytest.approx(8 * 25, abs=1e-3)


def test_what_was_made_of_cards_is_shown_where_it_was_measured(filled: AuthWorld) -> None:
    (row,) = (row for row in usage(filled, "max", by="model")["rows"] if row["model"] == "A100")
    assert (row["measured_gpu_hours"], row["busy_gpu_hours"], row["idle_gpu_hours"]) == (0.022, 0.006, 0.014)
    (row,) = (row for row in usage(filled, "max", by="model")["rows"] if row["model"] == "V100")
    assert row["measured_gpu_hours"] == 0


def test_small_sums_are_shown_to_three_digits_as_their_rows_are(filled: AuthWorld) -> None:
    small = browser_of(filled, "max").get(f"/portal/reports?{SPAN}").text
    assert "<b>0.097</b>" in small
    assert "0.075 GPU-hours were not measured" in small
    assert "<b>0.014</b>" in small
    assert "<b>576.4</b>" in browser_of(filled, "olga").get(f"/portal/reports?{SPAN}").text


def test_who_may_see_less_gets_sums_of_that_alone(filled: AuthWorld) -> None:
    def users(who: str) -> set[str]:
        return {row["name"] for row in usage(filled, who)["rows"]}

    assert users("olga") == {"max", "mia", "sam", "nob"}
    assert users("lea") == {"max", "mia"}
    assert users("max") == {"max"}
    assert usage(filled, "max")["total"]["jobs"] == 1
    assert usage(filled, "max", user="sam")["rows"] == []
    assert {row["name"] for row in usage(filled, "olga", by="job", group="")["rows"]} == {"a-5"}


def test_waits_count_those_who_gave_up_and_show_where_it_would_have_been_longer(world: AuthWorld) -> None:
    for number, wait in enumerate((10.0, 20.0, 30.0)):
        ended(world, f"w-{number}", "max", "vision", 1, wait)
    ended(world, "w-9", "mia", "vision", 1, None)
    ended(world, "w-10", "sam", "speech", 4, 50.0)
    report = world.client("olga").get(f"{API}/usage/waits").json()
    vision = next(row for row in report["rows"] if row["name"] == "vision")
    assert (vision["cards"], vision["jobs"], vision["started"], vision["gave_up"]) == ("1", 4, 3, 1)
    assert vision["p50"] == {"seconds": 20.0, "at_least": False}
    assert vision["p95"] == {"seconds": 7200.0, "at_least": True}
    assert next(row for row in report["rows"] if row["name"] == "speech")["cards"] == "3-4"
    assert report["total"]["jobs"] == sum(row["jobs"] for row in report["rows"])
    jobs = world.client("olga").get(f"{API}/usage/waits/jobs", params={"group": "vision", "cards": "1"}).json()["jobs"]
    assert [(job["job"], job["outcome"]) for job in jobs][:2] == [("w-9", "gave up"), ("w-2", "started")]
    for path in ("usage", "usage/waits", "usage/waits/jobs"):
        answer = world.client("olga").get(f"{API}/{path}", params={"queue": "a\0b"})
        assert answer.status_code == 422, "PostgreSQL would refuse to look for it"
    for none in ("1111111111111111111", "9" * 19, "1-", "3-4-5", "-1"):  # of what no database has a number for, too
        answer = world.client("olga").get(f"{API}/usage/waits/jobs", params={"cards": none})
        assert (answer.status_code, answer.json()["jobs"]) == (200, []), none
    assert world.client("max").get(f"{API}/usage/waits").json()["total"]["jobs"] == 3
    assert world.client("sue").get(f"{API}/usage/waits").json()["total"]["jobs"] == 1


def test_waits_of_jobs_that_live_count_so_far_and_deleted_ones_stay(world: AuthWorld) -> None:
    waits = world.submit("max", gpus=4)
    behind = world.submit("max", gpus=4)
    world.settled()
    world.clock.now += 60
    ended(world, "gone-1", "max", "vision", 2, 10.0)
    assert world.client("max").delete(f"{API}/jobs/gone-1").status_code in (200, 204)
    report = world.client("max").get(f"{API}/usage/waits/jobs").json()
    assert {job["job"]: job["outcome"] for job in report["jobs"]} == {
        waits: "started",
        behind: "waiting",
        "gone-1": "started",
    }
    browser = browser_of(world, "max")
    day = datetime.fromtimestamp(world.clock.now).astimezone().date()
    page = browser.get(f"/portal/reports/waits?since={day}&until={day}").text
    links = re.findall(r'href="(/portal/reports/waits/jobs[^"]*)"', page)
    assert len(links) == 2, "of a row, and of all"
    for link in links:
        assert browser.get(html.unescape(link)).status_code == 200, link


@pytest.mark.parametrize("path", PAGES)
def test_every_page_of_reports_is_whole_and_keeps_others_out(filled: AuthWorld, path: str) -> None:
    ended(filled, "w-1", "max", "vision", 2, 15.0)
    ended(filled, "w-2", "sam", "speech", 2, None)
    address = f"/portal/{path}{'&' if '?' in path else '?'}{SPAN}"
    text = browser_of(filled, "olga").get(address).text
    assert "How these figures come about" in text or "/jobs" in path or "mine" in path
    for language in ("en", "zh-CN"):
        browser = browser_of(filled, "max", **{"accept-language": language})
        answer = browser.get(address)
        assert answer.status_code == 200
        assert not re.search(r"\bsam\b", answer.text)
        assert "a-3" not in answer.text


def test_a_report_of_thousands_of_rows_is_written_in_parts_as_it_is_in_one() -> None:
    mark = '","rows":[],"'
    hours = {"gpu_hours": 0.1, "cpu_hours": 1.0, "memory_gib_hours": 0.0}
    rows = [UsageRow(name=f"{mark}{number}", model=mark, jobs=number, **hours) for number in range(2_500)]
    for many in (0, 1, 1_000, 2_500):
        found = UsageList(by="job", since=0.0, until=1.0, currency=mark, rows=rows[:many], total=rows[0])
        assert usage_json(found) == adapter_of(UsageList).dump_json(found), many


def test_each_row_leads_to_the_jobs_behind_it(filled: AuthWorld) -> None:
    browser = browser_of(filled, "olga")
    page = browser.get(f"/portal/reports?by=group&{SPAN}").text
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/portal/reports\?by=job[^"]*)"', page)]
    assert len(links) == 5  # speech has work with cards and without
    vision = next(link for link in links if "group=vision" in link and "A100" in link)
    assert re.findall(r'href="/portal/jobs/(a-\d)"', browser.get(vision).text) == ["a-2", "a-1"]
    nobody = next(link for link in links if "group=&" in link or link.endswith("group="))
    assert re.findall(r'href="/portal/jobs/(a-\d)"', browser.get(nobody).text) == ["a-5"]


def names_on(page: str) -> list[str]:
    """What stands in the first column of a report, without the total."""
    return re.findall(r'class="whose"><a [^>]*><bdi>([^<]*)</bdi>', page)


def test_rows_stand_by_the_figure_whose_heading_was_chosen_and_chosen_again_the_other_way_round(
    filled: AuthWorld,
) -> None:
    browser = browser_of(filled, "olga")
    assert names_on(browser.get(f"/portal/reports?by=user&{SPAN}").text)[0] == "nob"
    page = browser.get(f"/portal/reports?by=user&{SPAN}&order=idle_gpu_hours").text
    assert names_on(page)[0] == "max"
    assert page.count("aria-sort") == 1
    again = re.search(r'aria-sort="descending"><a href="([^"]*)"', page)
    assert again is not None
    turned = browser.get(f"/portal/reports{again[1].replace('&amp;', '&')}").text
    assert names_on(turned)[-1] == "max"
    assert 'aria-sort="ascending"' in turned
    assert names_on(browser.get(f"/portal/reports?by=user&{SPAN}&order=name").text)[:2] == ["max", "max"]
    # Of max's two models one was measured: where a figure is not known is last in both directions.
    for order in ("busy_percent", "-busy_percent"):
        assert names_on(browser.get(f"/portal/reports?by=user&{SPAN}&order={order}").text)[0] == "max", order
    assert browser.get(f"/portal/reports?by=user&{SPAN}&order=password").status_code == 422


def test_a_page_of_jobs_waits_for_its_readers_turn_only_where_all_rows_have_to_be_read_for_it(
    filled: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, in_turn = browser_of(filled, "olga"), []
    answer = LongAnswers.answer

    async def noted(self: LongAnswers, request: Request, user: str, make: Any) -> Any:
        in_turn.append(request.url.query)
        return await answer(self, request, user, make)

    monkeypatch.setattr(LongAnswers, "answer", noted)
    largest = browser.get(f"/portal/reports?by=job&{SPAN}").text
    assert names_on(browser.get(f"/portal/reports?by=job&{SPAN}&order=gpu_hours").text) == names_on(largest)
    browser.get(f"/portal/reports?by=user&{SPAN}&order=idle_gpu_hours")
    assert not in_turn
    by_name = browser.get(f"/portal/reports?by=job&{SPAN}&order=name").text
    assert names_on(by_name) != names_on(largest)
    assert len(in_turn) == 1


def test_programs_get_a_report_in_the_order_that_its_page_names(filled: AuthWorld) -> None:
    page = browser_of(filled, "olga").get(f"/portal/reports?by=job&{SPAN}&order=-gpu_hours").text
    twin = re.search(r'class="twin">GET ([^<]*order=-gpu_hours[^<]*)</code>', page)
    assert twin is not None
    found = filled.client("olga").get(twin[1].replace("&amp;", "&")).json()
    assert [row["name"] for row in found["rows"]][:2] == ["a-4", "a-3"]
    two = usage(filled, "olga", by="job", order="-gpu_hours", limit=2)
    assert [row["name"] for row in two["rows"]] == ["a-4", "a-3"]
    assert two["rest"]["gpu_hours"] == found["total"]["gpu_hours"] - found["rows"][1]["gpu_hours"]
    assert filled.client("olga").get(f"{API}/usage?order=password").status_code == 422


@pytest.mark.parametrize("order", ["", "-gpu_hours"])
@pytest.mark.parametrize("by", ["user", "group", "queue", "model", "month", "kind", "job"])
def test_a_job_with_several_rows_counts_once_among_the_jobs_that_are_left(
    filled: AuthWorld, by: str, order: str
) -> None:
    used(filled, "b-1", "max", "vision", ("A100", 1_000, 60.0), ("V100", 1_000, 60.0), begun=BEGUN)
    used(filled, "b-1", "max", "vision", ("A100", 1_000, 60.0), begun=BEGUN + 40 * 86_400.0)
    summer = day_begin("2001-06-01")  # else the report of months goes on to today
    cut = usage(filled, "olga", by=by, order=order, until=summer, limit=1)
    shown = {(row["name"], row["model"]) for row in cut["rows"]}
    all_rows = usage(filled, "olga", by=by, until=summer)["rows"]
    left = [row for row in all_rows if (row["name"], row["model"]) not in shown]
    assert sum(row["jobs"] for row in left) > cut["rest"]["jobs"]
    # Six jobs: first stands the only one on H100, or the only one without cards, or of months what b-1 held in May.
    assert cut["rest"]["jobs"] == (6 if by == "month" and not order else 5)


def test_rows_beyond_those_of_a_page_are_added_up_in_each_order(
    filled: AuthWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_pages, "ROWS_ON_A_PAGE", 2)
    browser = browser_of(filled, "olga")
    page = browser.get(f"/portal/reports?by=job&{SPAN}&order=-gpu_hours").text
    assert re.findall(r'href="/portal/jobs/(a-\d)"', page) == ["a-4", "a-3"]
    assert "others" in page
    total = re.search(r"<b>([\d.]+)</b></p>", page)
    assert total is not None
    assert total[1] == re.search(r"<b>([\d.]+)</b></p>", browser.get(f"/portal/reports?by=job&{SPAN}").text)[1]


def test_waits_stand_by_the_figure_whose_heading_was_chosen(world: AuthWorld) -> None:
    for job, user, wait in (("a-1", "max", 10.0), ("a-2", "mia", 500.0), ("a-3", "sam", 60.0), ("a-4", "nob", None)):
        ended(world, job, user, "", 1, wait)
    browser = browser_of(world, "olga")

    def users(order: str) -> list[str]:
        page = browser.get(f"/portal/reports/waits?by=user&{SPAN}&order={order}").text
        return re.findall(r'data-label="User"><a [^>]*><bdi>([^<]*)</bdi>', page)

    assert users("p50") == ["nob", "mia", "sam", "max"]
    assert users("-p50") == ["max", "sam", "mia", "nob"]
    assert users("-name") == ["sam", "nob", "mia", "max"]
    found = world.client("olga").get(f"{API}/usage/waits?by=user&order=-p50").json()
    assert [row["name"] for row in found["rows"]] == ["max", "sam", "mia", "nob"]


def test_a_report_is_a_file_for_spreadsheets_in_which_names_are_no_formulas(filled: AuthWorld) -> None:
    used(filled, "a-6", "=cmd()", "vision", ("A100", 1_000, 100.0))
    answer = browser_of(filled, "olga").get(f"/portal/reports.csv?by=user&{SPAN}")
    assert answer.headers["content-type"].startswith("text/csv")
    assert 'filename="usage-by-user-2001-03-01-2001-04-30.csv"' in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))
    assert {row["user"] for row in rows} == {"max", "mia", "sam", "nob", "'=cmd()"}
    total = usage(filled, "olga")["total"]["gpu_hours"]
    assert sum(Decimal(row["gpu_hours"]) for row in rows) == Decimal(str(total))
    assert browser_of(filled, "olga").get(f"/portal/reports/waits.csv?{SPAN}").text.startswith("\ufeffgroup,cards,jobs")


def test_hostile_names_are_text_and_wrong_periods_are_explained(filled: AuthWorld) -> None:
    used(filled, "a-7", HOSTILE, HOSTILE[:60], ("A100", 1_000, 100.0))
    browser = browser_of(filled, "olga")
    for path in (f"reports?{SPAN}", f"reports?by=group&{SPAN}"):
        text = browser.get(f"/portal/{path}").text
        assert "&lt;script&gt;alert(1)" in text
        assert "<script>alert" not in text
    text = browser.get("/portal/reports", params={"user": HOSTILE, "since": "2001-03-01"}).text
    assert "<script>alert" not in text
    for query in (
        "since=yesterday",
        "month=2001-13",
        "since=2001-04-01&until=2001-03-01",
        "days=0",
        "until=99999-01-01",
    ):
        answer = browser.get(f"/portal/reports?{query}")
        assert answer.status_code == 422, query
        assert answer.headers["content-type"].startswith("text/html")


# ---- what if --------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_what_if_question_is_in_the_address_and_its_answer_says_who_gains_and_who_loses(world: AuthWorld) -> None:
    world.service.what_if._clock = world.clock
    world.submit("max", gpus=4, time_limit="1h")
    waits = world.submit("max", gpus=4, time_limit="1h")
    world.settled()
    browser = browser_of(world, "olga")
    page = browser.get("/portal/what-if?past_days=0&add_nodes=1x4:V100").text
    assert 'data-load="/portal/what-if/answer?past_days=0&amp;add_nodes=1x4:V100"' in page
    assert 'value="1x4:V100"' in page
    text = browser.get("/portal/what-if/answer?past_days=0&add_nodes=1x4:V100").text
    assert "better" in text
    assert f'href="/portal/jobs/{waits}"' in text
    assert "<script>alert" not in text
    for query, cause in (
        ("past_days=0&queue=vision&cards=nan", "not a number of cards"),
        ("past_days=0&ordering=none", "unknown ordering"),
        ("past_days=7&ordering=fifo", "no job that ended was submitted then"),
        ("past_days=0", "no change is asked about"),
    ):
        assert cause in browser.get(f"/portal/what-if/answer?{query}").text, query
    assert "data-load" not in browser.get("/portal/what-if?past_days=3").text
    assert "a policy, a queue, or nodes" in browser.get("/portal/what-if").text
    assert "a policy, a queue, or nodes" not in browser_of(world, "lea").get("/portal/what-if").text
    several = "queue=vision&field=guarantee.gpus&cards=1&queue=&cards=&field=&queue=speech&field=limit.gpus&cards=2"
    page = browser.get(f"/portal/what-if?past_days=0&{several}").text
    assert page.count("<fieldset data-row>") == 3, "one for each queue, and one more"
    assert "<option selected>vision</option>" in page
    assert "<option selected>speech</option>" in page
    asked = browser.get(f"/portal/what-if/answer?past_days=0&{several}&cards=x").text
    changes = re.search(r'id="changes".*?</ul>', asked, re.DOTALL)
    assert changes is not None
    assert [queue for queue in ("vision", "speech") if queue in changes[0]] == ["vision", "speech"]


def test_who_may_not_ask_sees_no_way_to_and_a_lead_asks_about_queues_alone(world: AuthWorld) -> None:
    assert browser_of(world, "max").get("/portal/what-if").status_code == 403
    assert "/portal/what-if" not in browser_of(world, "max").get("/portal/reports").text
    lead = browser_of(world, "lea")
    assert "/portal/what-if" in lead.get("/portal/reports").text
    page = lead.get("/portal/what-if").text
    assert 'name="queue"' in page
    assert 'name="ordering"' not in page
    assert "may not ask" in lead.get("/portal/what-if/answer?past_days=0&ordering=fifo").text
