"""What a server says of itself: to those who ask it, and in its state directory to those who look for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SERVER_FILE = "server.json"
"""Name of the file in the state directory by which clients find a running server (``ServerFile``)."""

STANDBY_FILE = "standby.json"
"""The same about a server that stands by."""

LOCK_FILE = "lock"
"""Name of the file in the state directory that its server has locked, by flock(2)."""

FIRST_LOGIN_FILE = "first-login"
"""Name of the file in the state directory with the invitation for the first login from elsewhere."""


def first_login_text(public_url: str) -> str:
    """How to log in from elsewhere for the first time; empty: the server does not know its address."""
    return f"first login from elsewhere: pond login {public_url or 'URL'} --invitation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFile:
    """``server.json`` in the state directory while a server runs.

    Attributes:
        url: base address, without a slash at the end.
        token_path: file whose content is the API token.
        certificate: what the server shows, in PEM form; empty where it does not encrypt. Its file may change meanwhile.
    """

    url: str
    pid: int
    token_path: str
    version: str
    certificate: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """The server itself.

    Attributes:
        engine: what carries decisions out: ``local`` or ``kubernetes``.
        fake: whether any device is pretended.
        jobs: how many jobs are in which state.
        unsandboxed: why jobs are not kept apart from each other on this machine; empty when they are.
        unshared: why slices and swapping of real cards are refused, as another server shares them out; empty where
            they are not.
        unlimited: why all processes of a task together are not kept to what it asked for; empty when they are.
        notes: what was said of its start: options of the last start that count still, jobs that lost their machine,
            warnings.
        apart: why it changes nothing, where it has a copy of another server's state; else empty.
    """

    version: str
    url: str
    engine: str
    fake: bool
    pid: int
    state_dir: str
    started_at: float
    ordering: str
    placement: str
    jobs: dict[str, int] = field(default_factory=dict)
    unsandboxed: str = ""
    unlimited: str = ""
    unshared: str = ""
    apart: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInfo:
    """Answer of ``/healthz`` and ``/readyz``.

    Attributes:
        status: ``ok`` or ``ready``; ``degraded`` while it answers and takes no new work on, starts none, or starts it
            by a wrong time of day; else the reason why not.
        degraded: why it takes none on, starts none or has the wrong time; empty unless the status is ``degraded``.
        standby: another server leads, and this one waits to take over.
        leader: base address of the one that leads, when that is another and known.
    """

    status: str
    degraded: str = ""
    standby: bool = False
    leader: str = ""

    @property
    def who_leads(self) -> str:
        """In words: on a standby the database may never have said."""
        return f"{self.leader} leads" if self.leader else "which server leads is not known yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptationInfo:
    """How the server chooses among policies by replays of its own past.

    Attributes:
        chooses: whether it does, as the configuration has a section ``adapt``.
        policies: what holds, in words.
        next_at: when it chooses next, in seconds since 1970.
        looked_at: when it chose last; None where it has not yet.
        result: what that came to, with its numbers; also that nothing changed, and why.
        changed_at: when it went over to other policies last, or back; None where it never did.
        other: the policies of before; behind a change back, those that were given up.
        rolled_back: the last change was one back, as what had taken over did worse.
        trial_until: so long the days are held against replays under ``other``.
    """

    chooses: bool
    policies: str
    next_at: float | None = None
    looked_at: float | None = None
    result: str = ""
    changed_at: float | None = None
    other: str = ""
    rolled_back: bool = False
    trial_until: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsInfo:
    """The configuration that the server read last.

    Attributes:
        settings: as it stands in the file, with each address as far as its host; empty where there is none.
        at_start: the settings that count from the next start on, as ``nodes`` or ``tasks.cards``; all others do once
            the file is read again.
        pending: those of them that were changed since the start, and do not count yet.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    at_start: list[str] = field(default_factory=list)
    pending: list[str] = field(default_factory=list)
