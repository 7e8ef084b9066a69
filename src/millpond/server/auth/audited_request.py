"""What one request is about, told to the audit log: filled in by the route's permit, completed by the route."""

from __future__ import annotations

from dataclasses import dataclass

from millpond.server.auth.roles import AccessTarget, Caller, Verb
from millpond.server.store.audit import AuditEntry

_LONGEST_OBJECT = 200
_LONGEST_ACCOUNT = 2_000


@dataclass(slots=True)
class Act:
    """One request.

    Attributes:
        caller: None while nobody has shown who they are.
        verb: empty until a route has taken the request on.
        claimed: who somebody says they are who logs in.
        before, after: in short, what was and what is now.
        changes: it is written down although it only fetches something: so does a browser that comes back from a login.
        continues: it goes on with what was written down when it began.
        lasts: the answer begins before it is known how it comes out; who does it writes it down when it is.
    """

    at: float
    address: str
    caller: Caller | None
    verb: str = ""
    target: AccessTarget = AccessTarget("", "")
    claimed: str = ""
    before: str = ""
    after: str = ""
    changes: bool = False
    lasts: bool = False
    continues: bool = False

    @property
    def is_kept_elsewhere(self) -> bool:
        """Whether the scheduler's log names its user too."""
        return self.verb in (Verb.SUBMIT_JOBS, Verb.CHANGE_JOBS)

    def entry(self, status: int) -> AuditEntry | None:
        """The entry for the audit log, once the answer is known; None when there is nothing to tell."""
        if self.verb in ("", Verb.SEND_FILES):
            return None
        # Whoever is in several groups is not one group's matter: of what they do and of themselves only admins read.
        groups = self.target.groups or (self.caller.groups if self.caller and not self.target.kind else frozenset())
        return AuditEntry(
            self.at,
            _plain(self.caller.user if self.caller else self.claimed, 64),
            _plain(self.address, 64),
            self.caller.how if self.caller else "",
            self.verb,
            self.target.kind,
            _plain(self.target.name, _LONGEST_OBJECT),
            next(iter(groups)) if len(groups) == 1 else "",
            _plain(self.before, _LONGEST_ACCOUNT),
            _plain(self.after, _LONGEST_ACCOUNT),
            status,
        )


def _plain(text: str, longest: int) -> str:
    """Text that stays on its line, whatever somebody sent."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:longest])
