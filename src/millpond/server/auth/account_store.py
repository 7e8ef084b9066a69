"""Users, groups, tokens and identities in the database: all are read at the start, and each record is written alone."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from millpond.server.auth.records import (
    Group,
    GroupInvitation,
    GroupMember,
    OidcIdentity,
    Token,
    TokenKind,
    User,
)
from millpond.server.auth.roles import UserRole, Verb
from millpond.server.store import schema
from millpond.server.store.tables import TableStore
from millpond.specs.api.accounts.accounts import AccountLimits

log = logging.getLogger(__name__)

Account = User | Group | GroupMember | Token | OidcIdentity | GroupInvitation

_TABLES: Final[Mapping[type[Account], sa.Table]] = {
    User: schema.users,
    Group: schema.groups,
    GroupMember: schema.members,
    Token: schema.tokens,
    OidcIdentity: schema.identities,
    GroupInvitation: schema.group_invitations,
}


class AccountStore(TableStore):
    """The accounts' tables of one open database. Every ``save`` is a transaction."""

    def save(self, *records: Account) -> None:
        """Keep these as they are now, all or none."""
        self._save(*((_TABLES[type(record)], _row(record)) for record in records))

    def drop(self, *records: GroupMember | OidcIdentity | GroupInvitation | Token) -> None:
        """Forget these, all or none."""
        with self._engine.begin() as connection:
            for record in records:
                table = _TABLES[type(record)]
                same = (column == getattr(record, column.name) for column in table.primary_key)
                connection.execute(table.delete().where(*same))

    def forget_tokens(self, before: float) -> None:
        """Drop tokens that expired, or were revoked, before an instant."""
        table = schema.tokens
        self._execute(table.delete().where(sa.or_(table.c.expires_at < before, table.c.revoked_at < before)))

    def users(self) -> list[User]:
        """All accounts, by name."""
        return [
            User(
                row.name,
                row.admin,
                row.service,
                row.disabled,
                row.password,
                row.created_at,
                _limits(row),
                row.pass_epoch,
            )
            for row in self._all(schema.users, schema.users.c.name)
        ]

    def numbers(self) -> dict[str, int]:
        """The numbers under which tasks run, by user."""
        table = schema.user_numbers
        return {row.user: row.number for row in self._all(table, table.c.user)}

    def save_number(self, user: str, number: int) -> None:
        """Give a user a number, for good."""
        self._execute(schema.user_numbers.insert().values(user=user, number=number))

    def groups(self) -> list[Group]:
        """All groups, by name."""
        rows = self._all(schema.groups, schema.groups.c.name)
        return [Group(row.name, row.queue, row.created_at, _limits(row)) for row in rows]

    def members(self) -> list[GroupMember]:
        """All memberships, the oldest first."""
        table = schema.members
        return [
            GroupMember(row.group, row.user, UserRole(row.role), row.since, row.issuer)
            for row in self._all(table, table.c.since, table.c.group, table.c.user)
        ]

    def group_invitations(self) -> list[GroupInvitation]:
        """All invitations into groups, the oldest first."""
        table = schema.group_invitations
        return [
            GroupInvitation(row.group, row.user, UserRole(row.role), row.by, row.at)
            for row in self._all(table, table.c.at, table.c.group, table.c.user)
        ]

    def tokens(self) -> list[Token]:
        """All tokens, the oldest first, but for damaged ones, which open nothing."""
        found = []
        for row in self._all(schema.tokens, schema.tokens.c.created_at, schema.tokens.c.id):
            try:
                found.append(_token(row))
            except ValueError as error:
                log.error("the token %s (%s) of %s is damaged (%s): make another", row.id, row.name, row.user, error)
        return found

    def identities(self) -> list[OidcIdentity]:
        """All identities."""
        table = schema.identities
        return [
            OidcIdentity(row.issuer, row.subject, row.user, row.since, row.makes_admin)
            for row in self._all(table, table.c.issuer, table.c.subject)
        ]

    def _all(self, table: sa.Table, *order: sa.Column[Any]) -> Sequence[Any]:
        return self._rows(sa.select(table).order_by(*order))


def _token(row: sa.Row[Any]) -> Token:
    """A token by its row.

    Raises:
        ValueError: it is damaged.
    """
    return Token(
        row.id,
        row.digest,
        TokenKind(row.kind),
        row.user,
        row.name,
        frozenset(map(Verb, json.loads(row.verbs))),
        row.created_at,
        row.expires_at,
        row.revoked_at,
        row.used_at,
    )


def _row(record: Account) -> dict[str, Any]:
    row = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    limits = row.pop("limits", None)
    if limits is not None:
        row |= {f"limit_{name}": value for name, value in limits.model_dump().items()}
    if isinstance(record, Token):
        row["verbs"] = json.dumps(sorted(record.verbs))
    return row


def _limits(row: sa.Row[Any]) -> AccountLimits:
    return AccountLimits(**{name: getattr(row, f"limit_{name}") for name in AccountLimits.model_fields})
