"""Saved views (named lists of jobs), each of one user or of a group: who may see, save and delete which.

A user's own views are visible to no one else. All members of a group see its views; its leads save and delete them.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, urlencode

from millpond.model.errors import ConflictError, InvalidInputError
from millpond.server.auth.roles import AccessTarget, Caller, Verb, absent, allows, demand
from millpond.server.store.settings import SavedViewStore
from millpond.specs.api.jobs.saved_views import SavedViewInfo, SavedViewRequest

FILTERS: Final = ("state", "user", "queue", "name", "all", "order")
"""What lists of jobs are narrowed by, and their order."""
MOST_VIEWS: Final = 50
"""Of one owner."""


def filters_in(query: str) -> str:
    """A query with the filters of a list of jobs alone, in their usual order, so that equal lists read the same.

    Raises:
        InvalidInputError: it has too many parts.
    """
    try:
        pairs = parse_qsl(query, max_num_fields=100)
    except ValueError as error:
        raise InvalidInputError("a view of more than 100 filters", "keep fewer of them") from error
    return urlencode([(key, value) for name in FILTERS for key, value in pairs if key == name])


class SavedViews:
    """Keeps them. Blocks: not for the thread of requests.

    Args:
        require_group: raises NotFoundError where there is no group of this name.
    """

    def __init__(self, store: SavedViewStore, require_group: Callable[[str], object]) -> None:
        self._store = store
        self._require_group = require_group
        self._saving = threading.Lock()

    def seen_by(self, caller: Caller) -> list[SavedViewInfo]:
        """The caller's own, then those of their groups; by name."""
        own = [row for row in self._store.all() if row.user == caller.user or row.group in caller.groups]
        return sorted(own, key=lambda row: bool(row.group))

    def one(self, view: str, caller: Caller) -> SavedViewInfo:
        """One of those that the caller may see.

        Raises:
            NotFoundError: there is none of this id for them.
        """
        row = self._store.find(view)
        if row is None or not allows(caller, Verb.READ_VIEWS, _target(row)):
            raise absent("view", view)
        return row

    def may_change(self, caller: Caller, info: SavedViewInfo) -> bool:
        """Whether the caller may replace and forget it."""
        return allows(caller, Verb.CHANGE_VIEWS, _target(info))

    def may_change_of(self, caller: Caller, group: str) -> bool:
        """Whether the caller may keep views for a group."""
        return allows(caller, Verb.CHANGE_VIEWS, AccessTarget("view", "", groups=frozenset({group})))

    def save(self, request: SavedViewRequest, caller: Caller) -> SavedViewInfo:
        """Keep a list under a name; that of the same owner and name is replaced.

        Raises:
            NotAllowedError, NotFoundError: it is for a group for which the caller may not do this, or for none.
            ConflictError: the owner has too many.
            InvalidInputError: its name is blank.
        """
        name = request.name.strip()
        if not name:
            raise InvalidInputError("a view without a name", "give it one")
        row = SavedViewInfo(
            id=secrets.token_hex(4),
            user="" if request.group else caller.user,
            group=request.group,
            name=name,
            query=filters_in(request.query),
            by=caller.user,
            at=time.time(),
        )
        demand(caller, Verb.CHANGE_VIEWS, _target(row))
        if row.group:
            self._require_group(row.group)
        with self._saving:
            others = [each for each in self._store.all() if (each.user, each.group) == (row.user, row.group)]
            known = next((each.id for each in others if each.name == name), None)
            if known is None and len(others) >= MOST_VIEWS:
                raise ConflictError(f"there are {MOST_VIEWS} saved views already", "delete one of them first")
            saved = replace(row, id=known or row.id)
            self._store.save(saved)
        return saved

    def delete(self, view: str, caller: Caller) -> SavedViewInfo:
        """Forget one.

        Raises:
            NotFoundError: there is none of this id for them.
            NotAllowedError: it is not for them to do.
        """
        info = self.one(view, caller)
        demand(caller, Verb.CHANGE_VIEWS, _target(info))
        self._store.drop(view)
        return info


def _target(view: SavedViewInfo) -> AccessTarget:
    return AccessTarget("view", view.name, view.user, frozenset({view.group} - {""}))
