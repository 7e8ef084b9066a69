"""What time alone brings about: it is told when it is time, once, also across restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from notice_world import NoticeWorld, by_mail

from mail_catcher import MailCatcher, catching
from millpond.model.events import QueueChanged, ReservationMade
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.tenancy.tenants import Queue
from millpond.node.task.records import TaskId
from millpond.server.auth.roles import UserRole
from millpond.server.jobs.monitors.idle_jobs import IdleEnd
from millpond.server.jobs.monitors.notice_watch import NoticeWatch, WatchSources
from millpond.server.store.settings import QueueRow
from millpond.specs.api.notifications import Topic


class Watched:
    """A world that is watched; questions to its scheduler are answered at once."""

    def __init__(self, directory: Path, catcher: MailCatcher) -> None:
        self.world = NoticeWorld(directory)
        self.world.mail_at(catcher.port)
        self.catcher = catcher
        self.idle_cards: dict[str, float] = {}
        self.idle_ends: dict[str, IdleEnd] = {}
        self.queue_rows: list[QueueRow] = []
        self.set_back_s = 0.0
        self.watch = self.new_watch()

    def new_watch(self) -> NoticeWatch:
        """That of the next server."""
        server = self.world.server
        answered = lambda question, is_long: question(server.core)  # noqa: E731
        self.loop: Any = SimpleNamespace(job_cache=server.loop.job_cache, look_up=answered, now=server.clock.now)
        queues: Any = SimpleNamespace(changed_since=lambda at: [row for row in self.queue_rows if row.at >= at])
        sources = WatchSources(self.loop, queues, lambda: self.idle_cards, lambda: self.idle_ends)
        wall = lambda: self.world.clock() - self.set_back_s  # noqa: E731
        return NoticeWatch(sources, self.world.told.settings.subscriptions, self.world.told.outbox, wall)

    def look_for(self, seconds: float, every_s: float = 15.0) -> None:
        """So much time passes, and the watch looks again and again."""
        for _ in range(int(seconds // every_s)):
            self.world.server.clock.now += every_s
            self.loop.now = self.world.server.core.now = self.world.server.clock.now
            self.watch.look()

    def restart(self) -> None:
        self.world.told = self.world.new_notifications()
        self.watch = self.new_watch()

    def told(self) -> list[str]:
        """What was addressed, oldest first."""
        return [each.text for each in reversed(self.world.store.deliveries.latest(100))]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    catcher = MailCatcher()
    catcher.port = 9  # nothing is sent here
    made = Watched(tmp_path, catcher)
    yield made
    made.world.close()


def test_a_job_that_waits_long_is_told_of_once_also_after_a_restart(watched: Watched) -> None:
    watched.world.subscribe("ada", by_mail(Topic.WAITING, span_s=600.0))
    watched.world.server.submit("runs", gpus=4)
    watched.world.server.submit("waits", gpus=4)
    watched.world.server.turn(2)
    watched.look_for(570.0)
    assert watched.told() == []
    watched.look_for(60.0)
    assert watched.told() == ["waits of ada has waited for its start for 10 min"]
    watched.look_for(600.0)
    watched.restart()
    watched.look_for(600.0)
    assert len(watched.told()) == 1


def test_each_user_is_told_after_a_span_of_their_own_choice(watched: Watched) -> None:
    world = watched.world
    world.add_group("default", lea=UserRole.LEAD, max=UserRole.MEMBER)
    world.subscribe("ada", by_mail(Topic.WAITING, span_s=1_200.0))
    world.subscribe("lea", by_mail(Topic.WAITING, span_s=300.0, queue="default"))
    world.subscribe("max", by_mail(Topic.WAITING, span_s=300.0, queue="default"))  # who leads it no more
    world.server.submit("runs", gpus=4)
    world.server.submit("waits", gpus=4)
    world.server.turn(2)
    watched.look_for(360.0)
    assert [each.target.name for each in world.store.deliveries.latest(10)] == ["lea"]
    watched.look_for(900.0)
    assert [each.target.name for each in world.store.deliveries.latest(10)] == ["ada", "lea"]


def test_cards_that_do_not_compute_are_told_of_and_those_that_do_are_not(watched: Watched) -> None:
    watched.world.subscribe("ada", by_mail(Topic.IDLE, span_s=600.0))
    for name in ("idle", "busy"):
        watched.world.server.submit(name, gpus=1)
    watched.world.server.turn(3)
    jobs = {job.id: job for job in watched.world.server.loop.job_cache.newest_first()}
    card = jobs["idle"].tasks[0].devices[0].uuid
    watched.idle_cards = {card: 0.0}
    watched.look_for(570.0)
    assert watched.told() == [], "what a card did before the job does not count"
    watched.look_for(60.0)
    assert watched.told() == ["the cards of idle of ada have not computed for 10 min"]
    watched.idle_cards = {}
    watched.look_for(30.0)
    watched.idle_cards = {card: watched.world.clock.now}
    watched.look_for(900.0)
    assert len(watched.told()) == 1, "of the same run once a day"


def test_a_job_that_its_time_limit_ends_soon_is_told_of_and_again_when_that_was_extended(watched: Watched) -> None:
    world = watched.world
    world.subscribe("ada", by_mail(Topic.ENDING, span_s=600.0))
    world.server.submit("short", gpus=1, time_limit="1h")
    world.server.submit("endless", gpus=1)
    world.server.turn(3)
    watched.look_for(2_940.0)
    assert watched.told() == []
    watched.look_for(120.0)
    (text,) = watched.told()
    assert text.startswith("short of ada ends at ")
    watched.look_for(120.0)
    assert len(watched.told()) == 1


def test_after_the_clock_was_set_back_waits_and_ends_are_told_no_later(watched: Watched) -> None:
    world = watched.world
    world.subscribe("ada", by_mail(Topic.ENDING, span_s=600.0), by_mail(Topic.WAITING, span_s=1_800.0))
    world.server.submit("short", gpus=4, time_limit="1h")
    world.server.submit("waits", gpus=4)
    world.server.turn(3)
    watched.set_back_s = 7_200.0
    watched.look_for(1_740.0)
    assert watched.told() == []
    watched.look_for(120.0)
    assert watched.told() == ["waits of ada has waited for its start for 30 min"]
    watched.look_for(1_260.0)
    assert len(watched.told()) == 2
    assert watched.told()[1].startswith("short of ada ends at ")


def test_an_idle_session_whose_user_was_warned_is_told_of(watched: Watched) -> None:
    world = watched.world
    world.subscribe("ada", by_mail(Topic.ENDING))
    world.server.submit("notebook", kind="dev", gpus=1)
    world.server.turn(3)
    watched.look_for(60.0)
    assert watched.told() == []
    watched.idle_ends = {"notebook": IdleEnd(300.0, world.clock.now)}
    watched.look_for(60.0)
    (text,) = watched.told()
    assert text.startswith("notebook of ada ends at ")


def test_a_reservation_that_begins_is_told_to_its_maker_and_to_the_group_of_its_queue(watched: Watched) -> None:
    world = watched.world
    world.add_group("vision", max=UserRole.MEMBER)
    world.add_group("speech", sam=UserRole.MEMBER)
    for user in ("ada", "max", "sam"):
        world.subscribe(user, by_mail(Topic.RESERVATION_BEGAN))
    now = world.clock.now
    core = world.server.core
    core.handle(QueueChanged(now, Queue("vision")))
    agreed = AdvanceReservation("demo", "vision", 2, now + 300.0, now + 9_000.0, beyond_guarantee=True, by="ada")
    core.handle(ReservationMade(now, agreed))
    watched.look_for(240.0)
    assert watched.told() == []
    watched.look_for(120.0)
    assert {each.target.name for each in world.store.deliveries.latest(10)} == {"ada", "max"}
    assert set(watched.told()) == {"reservation demo of queue vision has begun: 2 cards"}
    watched.restart()
    watched.look_for(120.0)
    assert len(watched.told()) == 2


def test_a_changed_quota_is_told_to_the_members_of_its_group(watched: Watched) -> None:
    world = watched.world
    world.add_group("vision", max=UserRole.MEMBER)
    world.add_group("speech", sam=UserRole.MEMBER)
    before = QueueRow("vision", {}, None, 1, "olga", world.clock.now)
    watched.queue_rows = [before]
    world.clock.now += 100.0
    for user in ("max", "sam"):
        world.choose(user, {"topic": "queue.changed", "channels": ["mail"]})
        world.subscribe(user, by_mail(Topic.QUEUE_CHANGED))
    watched.look_for(60.0)
    assert watched.told() == [], "what was before they chose it is not told"
    watched.queue_rows = [QueueRow("vision", {}, None, 2, "olga", world.clock.now)]
    watched.look_for(60.0)
    watched.restart()
    watched.look_for(60.0)
    assert watched.told() == ["olga changed queue vision"]
    assert world.store.deliveries.latest(1)[0].target.name == "max"


def test_who_has_no_address_yet_is_told_once_they_have_one(watched: Watched) -> None:
    watched.world.subscribe("ada", by_mail(Topic.WAITING, span_s=60.0), address="")
    watched.world.server.submit("runs", gpus=4)
    watched.world.server.submit("waits", gpus=4)
    watched.world.server.turn(2)
    watched.look_for(300.0)
    assert watched.told() == []
    watched.world.subscribe("ada", by_mail(Topic.WAITING, span_s=60.0))
    watched.look_for(30.0)
    assert len(watched.told()) == 1


def test_what_the_watch_found_is_sent(tmp_path: Path) -> None:
    with catching(MailCatcher()) as catcher:
        watched = Watched(tmp_path, catcher)
        watched.world.subscribe("ada", by_mail(Topic.WAITING, span_s=60.0), language="zh-CN")
        watched.world.server.submit("runs", gpus=4)
        watched.world.server.submit("waits", gpus=4)
        watched.world.server.turn(2)
        watched.look_for(120.0)
        watched.world.settle(2)
        assert "waits" in catcher.texts()[0]
        assert "已等待启动 1 分钟" in catcher.texts()[0]
        assert TaskId("waits", 1, 0) not in watched.world.server.world.tasks
        watched.world.close()
