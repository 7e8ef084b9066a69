"""What helps where PostgreSQL refuses a connection or a statement.

A refused statement comes with a code (PostgreSQL, appendix A). A connection that was refused comes with text alone, in
the language of the server's ``lc_messages``: what is in another one gets the remedy of all.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_CONNECTIONS: Final = 16
"""That a server may have at a time."""
_ANY: Final = (
    f"it has to be there, for an account that may make tables in it and have {_CONNECTIONS} connections at a time, and "
    "not be read-only; one that is damaged is restored from a backup"
)


class _Case(NamedTuple):
    """``codes`` begin those of its refusals; ``texts`` are in what a refused connection says."""

    codes: tuple[str, ...]
    texts: tuple[str, ...]
    remedy: str


_CASES: Final = (
    _Case(
        ("28P01",),
        ("password authentication failed", "no password supplied"),
        "write the password of this account into ~/.pgpass of the server's account: HOST:PORT:DATABASE:USER:PASSWORD",
    ),
    _Case(
        ("53300",),
        ("too many connections", "too many clients", "remaining connection slots"),
        f"a server takes up to {_CONNECTIONS} connections: raise the limit of PostgreSQL (max_connections), of the "
        "database or of the account, or end other programs that are connected",
    ),
    _Case(
        ("28",),
        ('role "', "no pg_hba.conf entry", "authentication failed"),
        "name another account in --store, or have PostgreSQL let this one in: CREATE ROLE … LOGIN, and pg_hba.conf",
    ),
    _Case(
        ("42501",),
        ("permission denied",),
        "make the account the owner of the database, or grant it CONNECT on that and CREATE on its schema public",
    ),
    _Case(
        ("25006",),
        ("read-only", "session is not read-write"),
        "name the primary in --store: a standby takes no changes; nor does what has default_transaction_read_only",
    ),
    _Case(("57P03",), ("the database system is",), "wait until PostgreSQL has started, then start again"),
    _Case(("53100",), ("No space left on device",), "make room on the disk of PostgreSQL, then start again"),
    _Case(("XX001", "XX002"), (), "the database is damaged: restore it from a backup"),
    _Case(
        ("3D000",),
        ('database "',),
        "create it (CREATE DATABASE … OWNER …), or name another in --store",
    ),
    _Case(
        ("08",),
        ("Connection refused", "failed to resolve host", "No such file or directory", "timeout expired", "No route"),
        "check host and port in --store, and that PostgreSQL runs there, listens, and can be reached from here",
    ),
)


def postgresql_remedy(cause: BaseException | None) -> str:
    """What helps against an error of psycopg; the first of the cases above that fits."""
    code, text = getattr(cause, "sqlstate", None) or "", str(cause)
    for case in _CASES:
        if code.startswith(case.codes) if code else any(each in text for each in case.texts):
            return case.remedy
    return _ANY
