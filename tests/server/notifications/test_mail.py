"""Mail to users through a real mail server: what comes, how often, and what is done when it is not taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from email.utils import parseaddr
from pathlib import Path
from unittest.mock import Mock

import pytest
from hostile_server import answering
from notice_world import PORTAL, NoticeWorld, by_mail

from certificates import make_certificate
from mail_catcher import PASSWORD, USER, MailCatcher, catching
from millpond.model.errors import InvalidInputError, NotFoundError, UnavailableError
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId
from millpond.server.auth.roles import UserRole
from millpond.server.notifications import mail_server
from millpond.server.notifications.delivery_worker import FIRST_PAUSE_S
from millpond.server.notifications.messages import MOST_SHOWN, MessageWriter, UserMessage
from millpond.server.notifications.outbox import GATHER_S, PAUSES_S
from millpond.server.notifications.subscriptions import Subscription
from millpond.server.store.deliveries import Delivery, NewDelivery, Target
from millpond.specs.api.notifications import Topic
from millpond.specs.config.notifications import NotificationRules

HOSTILE = "a\r\nBcc: victim@example.org\r\n\r\n<b>\N{RIGHT-TO-LEFT OVERRIDE}moor\N{LINE SEPARATOR}x" + "y" * 10_000


@pytest.fixture
def catcher() -> Iterator[MailCatcher]:
    with catching(MailCatcher()) as made:
        yield made


@pytest.fixture
def world(tmp_path: Path, catcher: MailCatcher) -> Iterator[NoticeWorld]:
    made = NoticeWorld(tmp_path)
    made.mail_at(catcher.port)
    yield made
    made.close()


def test_the_user_of_a_job_that_fails_gets_a_mail_that_leads_to_it(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.subscribe("ada", by_mail(Topic.FAILED))
    world.run(outcome=Outcome.USER_ERROR, code=3)
    world.settle(2)
    (mail,) = catcher.mails
    assert mail["Subject"] == "[Millpond] a of ada failed: exit code 3"
    assert (parseaddr(mail["From"])[1], mail["To"]) == ("pond@example.org", "ada@example.org")
    (text,) = catcher.texts()
    assert f"{PORTAL}/portal/jobs/a\n" in text
    assert f"{PORTAL}/portal/notifications" in text
    assert mail.get_content_type() == "text/plain"
    assert mail["Auto-Submitted"] == "auto-generated", "so that no program answers it"
    assert re.fullmatch(r"<[\w.-]+@example\.org>", mail["Message-ID"])
    assert world.states() == ["delivered"]


def test_a_job_whose_id_does_not_tell_its_name_is_named(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.run("1-abcde", name="训练-1")
    world.settle()
    assert catcher.mails[0]["Subject"] == "[Millpond] 1-abcde (训练-1) of ada succeeded"


def test_nobody_is_told_who_did_not_choose_it(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.add_group("vision", bob=UserRole.MEMBER)
    world.subscribe("ada", by_mail(Topic.FAILED))
    world.subscribe("bob", by_mail(Topic.SUCCEEDED))
    world.run()
    world.settle()
    assert (catcher.mails, world.states()) == ([], [])


def test_a_user_is_told_in_the_language_of_their_portal(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.subscribe("ada", by_mail(Topic.FAILED), language="zh-CN")
    world.run(outcome=Outcome.USER_ERROR, code=3)
    world.settle()
    (mail,) = catcher.mails
    assert "失败" in mail["Subject"]
    assert "退出码 3" in mail["Subject"]
    assert "可在此修改" in mail.get_content()


@pytest.mark.long
def test_hundreds_of_jobs_are_a_few_mails(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.subscribe("ada", by_mail(Topic.CANCELLED))
    for part in range(3):
        for number in range(100):
            world.server.submit(f"job-{part}-{number}", gpus=1)
        world.server.turn(1)
        for number in range(100):
            world.server.loop.stop_job(f"job-{part}-{number}", "ada")
        world.server.turn(4)
        world.deliver()
    world.settle_all()
    assert world.states() == ["delivered"] * 100
    assert 1 <= len(catcher.mails) <= 3
    assert sum(int(mail["Subject"].split()[1]) for mail in catcher.mails) == 300
    assert all(mail.get_content().count("was cancelled") <= MOST_SHOWN for mail in catcher.mails)
    assert any("more:" in text for text in catcher.texts())


def test_the_next_mail_waits_for_the_pause_also_across_a_restart(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.run("a")
    world.settle()
    assert len(catcher.mails) == 1
    sent_at = world.clock.now
    world.told = world.new_notifications()
    world.run("b")
    assert world.clock.now + GATHER_S < sent_at + PAUSES_S["mail"]
    while len(catcher.mails) == 1:
        world.settle()
    assert world.clock.now >= sent_at + PAUSES_S["mail"]


def test_of_an_array_its_end_alone_is_told(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.subscribe("ada", *(by_mail(topic) for topic in Topic))
    world.server.submit("many", array="0-99")
    world.server.run_to_the_end()
    world.settle(2)
    texts = "\n".join(catcher.texts())
    assert (texts.count("many of ada succeeded"), texts.count("many[")) == (1, 0)


@pytest.mark.parametrize("fault", ["down", "refuses the mail", "asks to wait"])
def test_no_mail_is_lost_while_the_mail_server_does_not_take_it(tmp_path: Path, fault: str) -> None:
    catcher, world = MailCatcher(), NoticeWorld(tmp_path)
    with catching(catcher):
        world.mail_at(catcher.port)
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.run()
    if fault == "down":
        world.settle()
    else:
        catcher.on_data = "451 busy"
        catcher.refuses = {"ada@example.org": "450 greylisted"} if fault == "asks to wait" else {}
        with catching(catcher):
            world.settle()
    (waiting,) = world.store.deliveries.latest(10)
    assert waiting.state == "waiting"
    assert waiting.tries >= 1
    assert waiting.trouble
    catcher.on_data, catcher.refuses = "250 taken", {}
    with catching(catcher):
        world.settle_all()
    assert (len(catcher.mails), world.states()) == (1, ["delivered"])
    world.close()


def test_an_address_that_is_refused_for_good_is_not_tried_again(world: NoticeWorld, catcher: MailCatcher) -> None:
    catcher.refuses["ada@example.org"] = "550 no such user"
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.run()
    world.settle()
    (over,) = world.store.deliveries.latest(10)
    assert (over.state, over.tries, over.trouble) == ("given up", 1, "550 no such user")


def test_one_users_trouble_holds_up_no_other(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.add_group("default", bob=UserRole.LEAD)
    catcher.refuses["ada@example.org"] = "450 later"
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.subscribe("bob", by_mail(Topic.SUCCEEDED, queue="default"))
    world.run()
    world.settle()
    assert [mail["To"] for mail in catcher.mails] == ["bob@example.org"]
    assert catcher.connections == 1, "one connection for all mails of a pass"


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")  # what speaks TLS from the first byte
@pytest.mark.parametrize("encryption", ["starttls", "tls"])
def test_mail_is_sent_encrypted_after_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encryption: str) -> None:
    certificate = make_certificate(tmp_path / "certificate", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    world, catcher = NoticeWorld(tmp_path), MailCatcher()
    with catching(catcher, certificate, with_login=True, from_first_byte=encryption == "tls"):
        world.mail_at(catcher.port, encryption=encryption, user=USER, password_name="MAIL")
        world.subscribe("ada", by_mail(Topic.SUCCEEDED))
        world.run()
        world.settle()
        (waiting,) = world.store.deliveries.latest(1)
        assert "the password of the mail server is missing" in waiting.trouble
        world.vault.put("server", "", "MAIL", "wrong", "ada")
        world.settle()
        (waiting,) = world.store.deliveries.latest(1)
        assert "535" in waiting.trouble
        world.vault.put("server", "", "MAIL", PASSWORD, "ada")
        world.settle()
    assert (catcher.was_encrypted, world.states()) == ([True], ["delivered"])
    world.close()


def test_mail_goes_to_no_server_whose_certificate_is_not_trusted(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path / "certificate", "127.0.0.1")
    world, catcher = NoticeWorld(tmp_path), MailCatcher()
    with catching(catcher, certificate):
        world.mail_at(catcher.port, encryption="starttls")
        with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED") as refused:
            world.told.settings.ask_code("ada@example.org", world.caller("ada"))
    assert "trusts the server's certificate" in refused.value.remedy
    assert catcher.mails == []
    world.close()


def test_mail_is_not_sent_unencrypted_where_the_server_offers_no_starttls(
    world: NoticeWorld, catcher: MailCatcher
) -> None:
    world.mail_at(catcher.port, encryption="starttls")
    with pytest.raises(UnavailableError, match="STARTTLS"):
        world.told.settings.ask_code("ada@example.org", world.caller("ada"))
    assert catcher.mails == []


@pytest.mark.parametrize("encryption", ["none", "tls"])
def test_a_mail_server_that_dribbles_or_is_silent_is_left_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encryption: str
) -> None:
    monkeypatch.setattr(mail_server, "WITHIN_S", 0.3)

    def dribble() -> Iterator[bytes]:
        while True:
            yield b"220-"
            yield b""

    world = NoticeWorld(tmp_path)
    with answering(dribble, speaks_first=True) as port:
        world.mail_at(port, encryption=encryption)
        with pytest.raises(UnavailableError, match="does not take mail"):
            world.told.settings.ask_code("ada@example.org", world.caller("ada"))
    world.close()


def test_a_server_that_is_killed_after_it_sent_sends_the_same_mail_once_more_at_most(
    world: NoticeWorld, catcher: MailCatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.run()
    world.clock.now += GATHER_S

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(world.store.deliveries, "tried", killed)
        with pytest.raises(KeyboardInterrupt):
            world.deliver()
    world.told = world.new_notifications()
    world.settle(3)
    assert len(catcher.mails) == 2
    first, again = (mail["Message-ID"] for mail in catcher.mails)
    assert first == again, "by which it is known"
    assert first.endswith("@example.org>")
    assert world.states() == ["delivered"]


def test_words_of_users_add_no_header_and_turn_no_text(world: NoticeWorld, catcher: MailCatcher) -> None:
    notice = {"topic": "job.failed", "at": 0.0, "job": HOSTILE, "name": "", "user": HOSTILE, "queue": "q", "attempt": 1}
    delivery = Delivery(1, Target("mail", "ada"), 0.0, {**notice, "detail": HOSTILE}, "", "waiting", 0, 0.0, "")
    message = MessageWriter(lambda: PORTAL).message(Subscription("ada"), [delivery])
    world.told.settings._senders.mail.send("ada@example.org", message)
    (mail,) = catcher.mails
    assert mail["Bcc"] is None
    assert mail["To"] == "ada@example.org"
    assert "\N{RIGHT-TO-LEFT OVERRIDE}" not in mail.get_content() + mail["Subject"]
    assert len(mail["Subject"]) < 200
    assert mail.get_content().count("\n") < 10
    assert len(mail.get_content()) < 50_000


def test_an_address_that_is_refused_is_said_at_once(world: NoticeWorld, catcher: MailCatcher) -> None:
    catcher.refuses["nobody@example.org"] = "550 no such user"
    with pytest.raises(InvalidInputError, match="550 no such user"):
        world.told.settings.ask_code("nobody@example.org", world.caller("ada"))
    catcher.refuses["ada@example.org"] = "450 greylisted"
    with pytest.raises(UnavailableError, match="450 greylisted"):
        world.told.settings.ask_code("ada@example.org", world.caller("ada"))


def test_a_server_whose_mail_was_taken_out_of_the_configuration_gives_up_what_waits(world: NoticeWorld) -> None:
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.run()
    world.rules = NotificationRules()
    world.settle()
    assert world.states() == ["given up"]
    world.run("b")
    assert world.states() == ["given up"], "nothing is stored for a way that is not there"


def test_a_message_that_cannot_be_made_holds_up_no_other(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.add_group("vision", bob=UserRole.MEMBER)
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.subscribe("bob")
    world.store.deliveries.add([NewDelivery(Target("mail", "bob"), 1.0, {"topic": "of a later version"}, "x")])
    world.run()
    world.settle(4)
    assert [mail["To"] for mail in catcher.mails] == ["ada@example.org"]
    (odd,) = world.store.deliveries.latest(10, "bob")
    assert (odd.state, odd.trouble) == ("waiting", "a defect: ValueError")


def test_a_delivery_that_fails_waits_longer_each_time(world: NoticeWorld, catcher: MailCatcher) -> None:
    catcher.on_data = "451 busy"
    world.subscribe("ada", by_mail(Topic.SUCCEEDED))
    world.run()
    world.clock.now += GATHER_S
    pauses = []
    for _ in range(3):
        pauses.append(world.deliver())
        world.clock.now += pauses[-1]
    assert pauses == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]


def test_a_message_is_one_line_of_subject_and_ends_with_where_to_change_it() -> None:
    message = MessageWriter(lambda: PORTAL).trial(Subscription("ada"))
    assert isinstance(message, UserMessage)
    assert "\n" not in message.subject
    assert message.text.endswith(f"{PORTAL}/portal/notifications")


def test_a_job_that_makes_room_is_named_to_those_whose_job_went(world: NoticeWorld, catcher: MailCatcher) -> None:
    world.subscribe("ada", by_mail(Topic.PREEMPTED), by_mail(Topic.SUSPENDED))
    world.server.submit("low", gpus=4, preemptible=True)
    world.server.turn(2)
    world.server.submit("high", gpus=4, priority="high")
    world.server.turn(3)
    assert TaskId("high", 1, 0) in world.server.world.tasks
    world.settle()
    assert "low of ada was preempted for high" in catcher.texts()[0]


def test_a_mail_server_that_cannot_be_used_is_said_in_the_log_at_the_start(
    world: NoticeWorld, catcher: MailCatcher, caplog: pytest.LogCaptureFixture
) -> None:
    carriers = {worker._carrier.name: worker._carrier for worker in world.told.workers}
    assert (carriers["mail"].why_not(), carriers["webhooks"].why_not()) == ("", "")
    world.mail_at(catcher.port, user="pond", password="quiet")
    assert "no STARTTLS or no login" in carriers["mail"].why_not()
    world.mail_at(9)
    assert "127.0.0.1:9 does not take mail" in carriers["mail"].why_not()
    world.deliver()
    assert "mail cannot be sent now: the mail server 127.0.0.1:9 does not take mail" in caplog.text


def test_a_code_counts_until_the_address_that_it_confirms_is_stored(
    world: NoticeWorld, catcher: MailCatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, ada = world.told.settings, world.caller("ada")
    settings.ask_code("ada@example.org", ada)
    (mail,) = catcher.mails
    code = re.findall(r"\b\d{8}\b", mail.get_content())[0]
    with monkeypatch.context() as full:
        full.setattr(world.store.notification_settings, "save", Mock(side_effect=OSError("the disk is full")))
        with pytest.raises(OSError, match="the disk is full"):
            settings.confirm(code, ada)
    assert settings.info(ada).pending == "ada@example.org"
    assert settings.confirm(code, ada).address == "ada@example.org"
    with pytest.raises(NotFoundError, match="no code is waited for"):
        settings.confirm(code, ada)
