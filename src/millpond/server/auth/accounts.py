"""All accounts, in memory and in the store: who a secret stands for, who is in which group, and every change of it.

There is one server on a store (it is locked), so what is in memory is the truth; a change is stored first and shown
then. Looking a caller up costs no I/O, which every request relies on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from millpond.model.errors import ConflictError, InvalidInputError, NotFoundError, NotLoggedInError
from millpond.node.host.clocks import WallClock
from millpond.server.auth import run_tokens, secrets
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.records import Group, GroupMember, OidcIdentity, Token, TokenKind, User
from millpond.server.auth.roles import AccessTarget, Caller, Scope, UserRole, Verb, allows, present, widest
from millpond.server.auth.run_tokens import RunTokens
from millpond.server.auth.tokens import TokenRegistry
from millpond.server.auth.user_numbers import UserNumbers
from millpond.specs.api.accounts.accounts import AccountLimits

OWNER: Final = "owner"


class Accounts:
    """The users, groups and memberships of one server.

    Args:
        owner: name of the account of the user who can read the state directory; made an admin if missing.
        owner_token: the token in the state directory.

    Attributes:
        owner: as it was given.
        tokens: their credentials.
        runs: the credentials of pods.
        numbers: under which their tasks run.
    """

    def __init__(self, store: AccountStore, owner: str, owner_token: str, clock: WallClock) -> None:
        self._store = store
        self._clock = clock
        self._lock = threading.RLock()
        self._users = {user.name: user for user in store.users()}
        self._groups = {group.name: group for group in store.groups()}
        self._members = {(member.group, member.user): member for member in store.members()}
        self.tokens = TokenRegistry(store, clock)
        self.runs = RunTokens(owner_token)
        self.numbers = UserNumbers(store)
        self._callers: dict[str, dict[tuple[str, str], Caller]] = {}
        self.owner = owner
        self._owner_digest = secrets.digest_of(owner_token)
        if owner not in self._users:
            self._save_user(User(owner, admin=True, created_at=clock()))

    # ---- who is it? ---------------------------------------------------------------------------------------------

    def caller(self, secret: str, session: bool = False) -> Caller | None:
        """The caller whom a secret stands for; None when there is none, or no longer.

        Args:
            session: it came in a cookie; only a session's secret counts there, and nowhere else.
        """
        if not session and secret.startswith(run_tokens.PREFIX):
            return self._in_pod(secret)
        digest = secrets.digest_of(secret)
        if not session and secrets.is_same(digest, self._owner_digest):
            return self._known(self.owner, OWNER)
        token = self.tokens.find(secret, digest)
        if token is None:
            return None
        user = self._users.get(token.user)
        wrong_kind = session != (token.kind is TokenKind.SESSION) or token.kind is TokenKind.INVITATION
        if wrong_kind or user is None or user.disabled or not token.is_valid(self._clock()):
            return None
        return self._known(token.user, "session" if session else "token", token)

    def _in_pod(self, secret: str) -> Caller | None:
        """A pod of a run: it may do for its user what carrying its files takes, and no more."""
        run = self.runs.run_of(secret)
        known = None if run is None else self.caller_named(run.user)
        if run is None or known is None:
            return None
        return replace(known, verbs=frozenset({Verb.SEND_FILES}), how=run_tokens.HOW, token=run.name)

    def caller_named(self, name: str) -> Caller | None:
        """The owner of an account who is known otherwise, such as by a signed cookie; None when it is disabled."""
        user = self._users.get(name)
        return None if user is None or user.disabled else self._known(name, "pass")

    def still_may(self, caller: Caller, verb: Verb, target: AccessTarget | None) -> bool:
        """Whether a caller who was let in may go on: what they showed is valid, and their rights of now are enough.

        Args:
            target: what the verb is applied to; None: to no one object.
        """
        if caller.how == OWNER:
            return True
        known = self.caller_with_pass(caller.user, self.pass_epoch(caller.user), caller.token)
        if known is None or (known.verbs is not None and verb not in known.verbs):
            return False
        return widest(known, verb) is not Scope.NONE if target is None else allows(known, verb, target)

    def pass_epoch(self, name: str) -> int:
        """The present one of an account; -1 where there is none of this name."""
        user = self._users.get(name)
        return -1 if user is None else user.pass_epoch

    def caller_with_pass(self, name: str, epoch: int, token: str) -> Caller | None:
        """The owner of an account for whom a browser was given access to a job.

        Args:
            epoch: of the account, when it was given.
            token: id of the token by which it was asked for; empty where there was none.

        Returns:
            None when the account is disabled, the epoch has passed, or the token is no longer valid.
        """
        caller = self.caller_named(name)
        if caller is None or epoch != self.pass_epoch(name):
            return None
        if not token:
            return caller
        verbs = self.tokens.valid_verbs(token)
        return None if verbs is None else replace(caller, verbs=verbs or None)

    def void_passes(self, name: str) -> None:
        """What browsers were given for jobs in this account's name opens nothing any more.

        Raises:
            NotFoundError: there is no account of this name.
        """
        with self._lock:
            user = self.user(name)
            self._save_user(replace(user, pass_epoch=user.pass_epoch + 1))

    def _known(self, name: str, how: str, token: Token | None = None) -> Caller:
        """The caller as they came in; kept until anything about them changes."""
        callers, way = self._callers.setdefault(name, {}), (how, token.id if token else "")
        found = callers.get(way)
        if found is None:
            with self._lock:
                roles = tuple((member.group, member.role) for member in self.memberships(name))
                admin, verbs = how == OWNER or self._users[name].admin, (token.verbs or None) if token else None
                found = callers[way] = Caller(name, admin, roles, verbs, *way)
        return found

    # ---- looking ------------------------------------------------------------------------------------------------

    def user(self, name: str) -> User:
        """One account.

        Raises:
            NotFoundError: there is none of this name.
        """
        return present(self._users.get(name), "user", name)

    def group(self, name: str) -> Group:
        """One group.

        Raises:
            NotFoundError: there is none of this name.
        """
        return present(self._groups.get(name), "group", name)

    def limits_of_user(self, name: str) -> AccountLimits:
        """What a user may hold; nothing limits who is not known, as a job may be older than the accounts."""
        user = self._users.get(name)
        return AccountLimits() if user is None else user.limits

    def limits_of_group(self, name: str) -> AccountLimits:
        """The same of a group."""
        group = self._groups.get(name)
        return AccountLimits() if group is None else group.limits

    def users(self) -> list[User]:
        """All accounts, by name."""
        with self._lock:
            return sorted(self._users.values(), key=lambda user: user.name)

    def groups(self) -> list[Group]:
        """All groups, by name."""
        with self._lock:
            return sorted(self._groups.values(), key=lambda group: group.name)

    def members_of(self, group: str) -> list[GroupMember]:
        """Who is in a group, the oldest member first."""
        with self._lock:
            return sorted((member for member in self._members.values() if member.group == group), key=_age)

    def memberships(self, user: str) -> list[GroupMember]:
        """The groups that a user is in, the oldest first; the first is where their jobs go by default."""
        with self._lock:
            return sorted((member for member in self._members.values() if member.user == user), key=_age)

    def group_of_queue(self, queue: str) -> Group | None:
        """Which group owns a queue; None when none does."""
        with self._lock:
            return next((group for group in self._groups.values() if group.queue == queue), None)

    def queues_for(self, caller: Caller, verb: Verb) -> frozenset[str]:
        """The queues of all groups to which the caller's roles let them do this."""
        with self._lock:
            groups = [group for group in self._groups.values() if allows(caller, verb, self.target_group(group.name))]
            return frozenset(group.queue for group in groups)

    def target_user(self, name: str) -> AccessTarget:
        """A user as what a verb is applied to; in no group when there is none of this name."""
        return AccessTarget("user", name, name, frozenset(member.group for member in self.memberships(name)))

    def target_group(self, name: str) -> AccessTarget:
        """A group as what a verb is applied to."""
        return AccessTarget("group", name, groups=frozenset({name}))

    # ---- changing users and groups ------------------------------------------------------------------------------

    def add_user(
        self, user: User, group: str = "", role: UserRole = UserRole.MEMBER, identity: OidcIdentity | None = None
    ) -> User:
        """Make an account, as a member of a group when one is named.

        Args:
            identity: is stored with it, so that neither is ever there alone.

        Raises:
            ConflictError: the name is taken.
            NotFoundError: there is no such group.
        """
        with self._lock:
            if user.name in self._users:
                raise ConflictError(f"a user {user.name!r} exists already", "choose another name")
            made = replace(user, created_at=self._clock())
            beside = () if identity is None else (identity,)
            if group:
                member = GroupMember(self.group(group).name, user.name, role, made.created_at)
                self._store.save(made, member, *beside)
                self._members[member.group, member.user] = member
            else:
                self._store.save(made, *beside)
            self._users[made.name] = made
            self._callers.pop(made.name, None)
        return made

    def change_user(self, name: str, change: Callable[[User], User]) -> User:
        """Replace an account's record.

        Raises:
            NotFoundError: there is none of this name.
            ConflictError: no admin would be left who could undo it, or the owner of the server would be shut out.
        """
        with self._lock:
            user = self.user(name)
            changed = change(user)
            if name == self.owner and (changed.disabled or not changed.admin):
                raise ConflictError(
                    f"{name!r} owns this server: its state directory makes them an admin", "leave that account alone"
                )
            if changed.disabled and not user.disabled:
                changed = replace(changed, pass_epoch=user.pass_epoch + 1)
            self._save_user(changed)
        return changed

    def add_group(self, group: Group) -> Group:
        """Make a group.

        Raises:
            ConflictError: the name or the queue is taken.
        """
        with self._lock:
            if group.name in self._groups:
                raise ConflictError(f"a group {group.name!r} exists already", "choose another name")
            owner = self.group_of_queue(group.queue)
            if owner is not None:
                raise ConflictError(f"queue {group.queue!r} belongs to group {owner.name!r}", "choose another queue")
            made = replace(group, created_at=self._clock())
            self._store.save(made)
            self._groups[made.name] = made
        return made

    def change_group(self, name: str, change: Callable[[Group], Group]) -> Group:
        """Replace a group's record; its name and queue stay.

        Raises:
            NotFoundError: there is none of this name.
        """
        with self._lock:
            changed = change(self.group(name))
            self._store.save(changed)
            self._groups[name] = changed
        return changed

    def put_member(self, group: str, user: str, role: UserRole, issuer: str = "") -> GroupMember:
        """Take a user into a group, or give a member another role.

        Args:
            issuer: by whose word, where it is a provider's.

        Raises:
            NotFoundError: there is no such group or user.
            InvalidInputError: the role is admin, which is none within a group.
        """
        if role is UserRole.ADMIN:
            raise InvalidInputError("admin is not a role within a group", "use lead, member or viewer")
        with self._lock:
            key = self.group(group).name, self.user(user).name
            known = self._members.get(key)
            since = known.since if known else self._clock()
            member = GroupMember(*key, role, since, issuer)
            self._store.save(member)
            self._members[key] = member
            self._callers.pop(user, None)
        return member

    def drop_member(self, group: str, user: str) -> GroupMember:
        """Let a user leave a group.

        Raises:
            NotFoundError: they are not in it.
        """
        with self._lock:
            member = self._members.get((group, user))
            if member is None:
                raise NotFoundError(f"{user!r} is not in group {group!r}", "list its members with `pond group ls`")
            self._store.drop(member)
            del self._members[group, user]
            self._callers.pop(user, None)
        return member

    # ---- invitations and passwords ------------------------------------------------------------------------------

    def invited(self, secret: str) -> User:
        """Whose invitation this is. It is used up by ``set_password``.

        Raises:
            NotLoggedInError: it is none, or has been used, or has expired.
        """
        token = self.tokens.find(secret, secrets.digest_of(secret))
        is_one = token is not None and token.kind is TokenKind.INVITATION and token.is_valid(self._clock())
        if token is None or not is_one or self._users[token.user].disabled:
            raise NotLoggedInError("the invitation is wrong, used or expired", "ask an admin for another one")
        return self._users[token.user]

    def set_password(self, user: str, password: str, keep: str = "", invitation: str = "") -> User:
        """Give an account another password hash; ends its logins and invitations.

        What browsers were given for jobs is void, too.

        Args:
            keep: id of a token that stays: the one in use.
            invitation: by whose secret it is given; empty: otherwise.

        Raises:
            NotFoundError, NotLoggedInError: there is no such account; as ``invited``.
        """
        with self._lock:
            known = self.invited(invitation) if invitation else self.user(user)
            changed = replace(known, password=password, pass_epoch=known.pass_epoch + 1)
            self._save_user(changed)
            self.tokens.end_logins(user, keep)
        return changed

    # ---- inside -------------------------------------------------------------------------------------------------

    def _save_user(self, user: User) -> None:
        self._store.save(user)
        self._users[user.name] = user
        self._callers.pop(user.name, None)


def _age(member: GroupMember) -> tuple[float, str, str]:
    """The order of memberships: the oldest first."""
    return member.since, member.group, member.user
