"""The texts that users get, in their language: what happened, each with a link into the portal.

Words of users are shown as one line each, without what turns the direction of text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from millpond.server.auth.guard import PORTAL_PREFIX
from millpond.server.catalogues import Translate
from millpond.server.notifications.notices import NOTICE_TEXTS, Notice, one_line, sentence
from millpond.server.notifications.subscriptions import Subscription
from millpond.server.store.deliveries import Delivery
from millpond.server.wording import local_time

SETTINGS_PATH: Final = f"{PORTAL_PREFIX}notifications"
MOST_SHOWN: Final = 50
"""Notices that a message names; of the rest it says how many."""
_LONGEST_SUBJECT: Final = 150


@dataclass(frozen=True, slots=True)
class UserMessage:
    """What a user gets; ``subject`` is one line."""

    subject: str
    text: str


class MessageWriter:
    """Writes them.

    Args:
        url: gives the address by which people reach the server, without a slash at the end.
    """

    most_shown = MOST_SHOWN

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url

    def message(self, to: Subscription, deliveries: Sequence[Delivery], most_bytes: int | None = None) -> UserMessage:
        """A message about one delivery or more.

        Args:
            most_bytes: of its text, which names as many as fit, but always one; None: any number.
        """
        _ = NOTICE_TEXTS.words(to.language)
        notices = [Notice.of_plain(each.notice) for each in deliveries[:MOST_SHOWN]]
        entries = [self._entry(notice, to.language) for notice in notices]
        text = self._text(entries, len(deliveries), _)
        while most_bytes is not None and len(entries) > 1 and len(text.encode()) > most_bytes:
            entries.pop()
            text = self._text(entries, len(deliveries), _)
        several = _("%(count)d events") % {"count": len(deliveries)}
        subject = sentence(notices[0], to.language) if len(deliveries) == 1 else several
        return UserMessage(self._subject(subject), text)

    def trial(self, to: Subscription) -> UserMessage:
        """A test message."""
        _ = NOTICE_TEXTS.words(to.language)
        text = _("This is a trial: what you chose to be told of comes here.")
        return UserMessage(self._subject(_("Trial")), f"{text}\n\n{self._why(_)}")

    def code(self, to: Subscription, code: str, minutes: int) -> UserMessage:
        """A message with the code that confirms an address.

        Args:
            minutes: how long it counts.
        """
        _ = NOTICE_TEXTS.words(to.language)
        lines = (
            _("%(user)s wants to be told at this address of what happens to jobs in Millpond, at %(url)s."),
            _("If that is you, confirm it within %(minutes)d minutes with this code: %(code)s"),
            _("Otherwise do nothing; no more mail comes."),
        )
        values = {"user": one_line(to.user, 64), "url": self._url(), "code": code, "minutes": minutes}
        return UserMessage(self._subject(_("Confirm your address")), "\n\n".join(line % values for line in lines))

    def _text(self, entries: Sequence[str], events: int, _: Translate) -> str:
        rest = events - len(entries)
        more = _("And %(count)d more:") % {"count": rest} + f"\n{self._url()}{PORTAL_PREFIX}jobs?all=true"
        return "\n\n".join([*entries, *([more] if rest else []), self._why(_)])

    def _entry(self, notice: Notice, language: str) -> str:
        link = f"{self._url()}{PORTAL_PREFIX}{_page_of(notice)}"
        return f"{local_time(notice.at)}  {sentence(notice, language)}\n{link}"

    def _why(self, _: Translate) -> str:
        return "-- \n" + _("You chose this yourself. Change it here:") + f"\n{self._url()}{SETTINGS_PATH}"

    def _subject(self, text: str) -> str:
        return f"[Millpond] {one_line(text, _LONGEST_SUBJECT)}"


def _page_of(notice: Notice) -> str:
    if notice.job:
        return f"jobs/{quote(notice.job, safe='[]')}"
    return "reservations" if notice.reservation else f"queues/{quote(notice.queue, safe='')}"
