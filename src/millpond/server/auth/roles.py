"""Authorization: one table of role, verb and scope, and the one function that reads it.

Nothing else in the server decides about rights. Routes name a verb and an object (``server.api.permits``), which comes
down to ``demand``; lists ask ``allows`` about each entry. What a user may not see reads exactly like what does not
exist (``absent``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final, TypeVar

from millpond.model.errors import NotAllowedError, NotFoundError
from millpond.model.workloads import Kind
from millpond.specs.api.jobs.jobs import JobInfo

Found = TypeVar("Found")

_LONGEST_SHOWN: Final = 120
_LISTED_BY: Final = {
    "job": "list the jobs with `pond ps --all`",
    "user": "list them with `pond user ls`",
    "group": "list them with `pond group ls`",
    "token": "list them with `pond token ls`",
    "key": "list them with `pond ssh-key ls`",
    "secret": "list them with `pond secret ls`",
    "image": "list them with `pond image ls`",
    "queue": "list them with `pond queue show`",
    "reservation": "list them with `pond reservations`",
    "view": "the page of jobs lists them",
}


class UserRole(StrEnum):
    """What a user is: an admin everywhere, the others within one group."""

    ADMIN = "admin"
    LEAD = "lead"
    MEMBER = "member"
    VIEWER = "viewer"


class Verb(StrEnum):
    """What can be done. Tokens may be confined to some of them."""

    READ_CLUSTER = "read-cluster"
    CHANGE_CLUSTER = "change-cluster"
    """To close machines and open them again, to define queues, and to add, try and remove webhooks."""
    READ_JOBS = "read-jobs"
    SUBMIT_JOBS = "submit-jobs"
    CHANGE_JOBS = "change-jobs"
    SEND_FILES = "send-files"
    """To send contents, which do nothing before a job or a dataset refers to them."""
    READ_DATA = "read-data"
    CHANGE_DATA = "change-data"
    READ_IMAGES = "read-images"
    CHANGE_IMAGES = "change-images"
    USE_JOBS = "use-jobs"
    """To be inside a job: open what a ``dev`` job serves, run commands beside its tasks, reach their ports."""
    VISIT_SERVICES = "visit-services"
    """To open what a job of the kind ``service`` serves."""
    READ_USERS = "read-users"
    CHANGE_USERS = "change-users"
    READ_GROUPS = "read-groups"
    CHANGE_GROUPS = "change-groups"
    CHANGE_MEMBERS = "change-members"
    READ_TOKENS = "read-tokens"
    CHANGE_TOKENS = "change-tokens"
    READ_SECRETS = "read-secrets"
    """To see which secrets there are, never their values."""
    CHANGE_SECRETS = "change-secrets"
    READ_VIEWS = "read-views"
    """To see the lists of jobs that were saved under names."""
    CHANGE_VIEWS = "change-views"
    READ_USAGE = "read-usage"
    ASK_WHAT_IF = "ask-what-if"
    """To ask what a change of queues or jobs would do to all who wait; an admin also of nodes and policies."""
    READ_METRICS = "read-metrics"
    """To read figures about all jobs, without names of users: what a Prometheus needs."""
    READ_DELIVERIES = "read-deliveries"
    READ_AUDIT = "read-audit"
    READ_NOTIFICATIONS = "read-notifications"
    """To see what one is told of, by mail and by chat, and where."""
    CHANGE_NOTIFICATIONS = "change-notifications"
    READ_SELF = "read-self"
    """To ask who one is, and to log out; a token that is confined to other verbs may still do this."""
    CHANGE_SELF = "change-self"
    """To change one's own password."""


_IN_WORDS: Final = {
    Verb.READ_CLUSTER: "look at the cluster",
    Verb.CHANGE_CLUSTER: "change the cluster",
    Verb.READ_AUDIT: "read the audit log",
    Verb.ASK_WHAT_IF: "ask what a change would do",
    Verb.USE_JOBS: "enter jobs",
    Verb.READ_SELF: "ask who they are",
    Verb.CHANGE_SELF: "change their own password",
}
"""Those that are not what their names say with a blank."""


def in_words(verb: Verb) -> str:
    """What a verb allows, as it stands behind ``may not``."""
    return _IN_WORDS.get(verb, verb.value.replace("-", " "))


class Scope(IntEnum):
    """Whose objects a verb reaches."""

    NONE = 0
    OWN = 1
    """One's own."""
    GROUP = 2
    """One's own, and those of the group in which one has the role."""
    ALL = 3


_NONE, _OWN, _GROUP, _ALL = Scope.NONE, Scope.OWN, Scope.GROUP, Scope.ALL

RIGHTS: dict[Verb, dict[UserRole, Scope]] = {
    verb: dict(zip(UserRole, scopes, strict=True))
    for verb, scopes in {
        #                     admin  lead    member  viewer
        Verb.READ_CLUSTER: (_ALL, _ALL, _ALL, _ALL),
        Verb.CHANGE_CLUSTER: (_ALL, _NONE, _NONE, _NONE),
        Verb.READ_JOBS: (_ALL, _GROUP, _GROUP, _GROUP),
        Verb.SUBMIT_JOBS: (_ALL, _GROUP, _GROUP, _NONE),
        Verb.CHANGE_JOBS: (_ALL, _GROUP, _OWN, _NONE),
        Verb.SEND_FILES: (_ALL, _ALL, _ALL, _NONE),
        Verb.READ_DATA: (_ALL, _GROUP, _GROUP, _GROUP),
        Verb.CHANGE_DATA: (_ALL, _GROUP, _OWN, _NONE),
        Verb.READ_IMAGES: (_ALL, _GROUP, _GROUP, _GROUP),
        Verb.CHANGE_IMAGES: (_ALL, _GROUP, _OWN, _NONE),
        Verb.USE_JOBS: (_ALL, _OWN, _OWN, _NONE),
        Verb.VISIT_SERVICES: (_ALL, _GROUP, _GROUP, _GROUP),
        Verb.READ_USERS: (_ALL, _GROUP, _GROUP, _GROUP),
        Verb.CHANGE_USERS: (_ALL, _NONE, _NONE, _NONE),
        Verb.READ_GROUPS: (_ALL, _GROUP, _GROUP, _GROUP),
        Verb.CHANGE_GROUPS: (_ALL, _NONE, _NONE, _NONE),
        Verb.CHANGE_MEMBERS: (_ALL, _GROUP, _NONE, _NONE),
        Verb.READ_TOKENS: (_ALL, _OWN, _OWN, _OWN),
        Verb.CHANGE_TOKENS: (_ALL, _OWN, _OWN, _OWN),
        Verb.READ_SECRETS: (_ALL, _GROUP, _GROUP, _NONE),
        Verb.CHANGE_SECRETS: (_ALL, _GROUP, _OWN, _NONE),
        Verb.READ_VIEWS: (_ALL, _GROUP, _GROUP, _GROUP),
        Verb.CHANGE_VIEWS: (_ALL, _GROUP, _OWN, _OWN),
        Verb.READ_USAGE: (_ALL, _GROUP, _OWN, _OWN),
        Verb.ASK_WHAT_IF: (_ALL, _GROUP, _NONE, _NONE),
        Verb.READ_METRICS: (_ALL, _NONE, _NONE, _NONE),
        Verb.READ_DELIVERIES: (_ALL, _NONE, _NONE, _NONE),
        Verb.READ_AUDIT: (_ALL, _GROUP, _NONE, _NONE),
        Verb.READ_NOTIFICATIONS: (_OWN, _OWN, _OWN, _OWN),
        Verb.CHANGE_NOTIFICATIONS: (_OWN, _OWN, _OWN, _OWN),
        Verb.READ_SELF: (_OWN, _OWN, _OWN, _OWN),
        Verb.CHANGE_SELF: (_OWN, _OWN, _OWN, _OWN),
    }.items()
}
"""The table. ``docs/security.md`` shows it, and a test compares the two."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user who makes a request.

    Attributes:
        roles: group and role of each membership, the oldest first.
        verbs: what the token in use is confined to; None: to nothing.
        how: by what they showed who they are: ``owner`` (the file in the state directory), ``token`` or ``session``.
        token: id of the token in use; empty for the owner.
    """

    user: str
    admin: bool = False
    roles: tuple[tuple[str, UserRole], ...] = ()
    verbs: frozenset[Verb] | None = None
    how: str = ""
    token: str = ""

    @property
    def groups(self) -> frozenset[str]:
        """The groups they are in."""
        return frozenset(group for group, _ in self.roles)


def first_group(caller: Caller) -> str:
    """The group that a caller's new objects belong to: the one they have been in longest; empty when in none."""
    return caller.roles[0][0] if caller.roles else ""


@dataclass(frozen=True, slots=True)
class AccessTarget:
    """What a verb is applied to.

    Attributes:
        kind, name: for messages and for the audit log: ``job``, ``train-abcde``.
        user: the owner; empty when there is none.
        groups: the groups it belongs to.
        shared: its owner lets all users see it; it counts as every group's.
    """

    kind: str
    name: str
    user: str = ""
    groups: frozenset[str] = frozenset()
    shared: bool = False


def own_target(kind: str, name: str, caller: Caller) -> AccessTarget:
    """An object that the caller is about to make: theirs, and their group's."""
    return AccessTarget(kind, name, caller.user, frozenset({first_group(caller)} - {""}))


def changed_target(kind: str, name: str, user: str, group: str, visibility: str) -> AccessTarget:
    """An object to be changed: its owner's, and where it is not ``private`` its group's."""
    return AccessTarget(kind, name, user, frozenset({group} - {""}) if visibility != "private" else frozenset())


def seen_target(target: AccessTarget, visibility: str) -> AccessTarget:
    """The same object to be seen and used, by all users where its visibility is ``everyone``."""
    return replace(target, shared=visibility == "everyone")


def widest(caller: Caller, verb: Verb) -> Scope:
    """The widest scope in which the caller may do this at all, by any of their roles."""
    rights = RIGHTS[verb]
    if caller.admin:
        return rights[UserRole.ADMIN]
    # A user in no group is a viewer of their own objects alone.
    return max((rights[role] for _, role in caller.roles), default=min(rights[UserRole.VIEWER], Scope.GROUP))


def allows(caller: Caller, verb: Verb, target: AccessTarget) -> bool:
    """Whether the caller's roles let them do this to the target. What a token is confined to is asked elsewhere."""
    rights = RIGHTS[verb]
    scopes = (
        [(None, rights[UserRole.ADMIN])] if caller.admin else [(group, rights[role]) for group, role in caller.roles]
    )
    if not scopes:
        scopes = [(None, rights[UserRole.VIEWER])]
    own = bool(target.user) and target.user == caller.user
    return any(
        scope is Scope.ALL
        or (scope is Scope.GROUP and (own or target.shared or group in target.groups))
        or (scope is Scope.OWN and own)
        for group, scope in scopes
    )


_SEEN_BY = {
    "job": Verb.READ_JOBS,
    "user": Verb.READ_USERS,
    "group": Verb.READ_GROUPS,
    "token": Verb.READ_TOKENS,
    "key": Verb.READ_TOKENS,
    "secret": Verb.READ_SECRETS,
    "queue": Verb.READ_JOBS,
    "view": Verb.READ_VIEWS,
}
"""The verb by which a user sees that an object exists."""


def demand(caller: Caller, verb: Verb, target: AccessTarget | None = None) -> None:
    """Let the caller do this to the target, or to some object or other when there is none yet.

    Raises:
        NotFoundError: it is not theirs to see; the same words as if it were not there.
        NotAllowedError: they may see it, and not do this; or their token is confined to other things.
    """
    if caller.verbs is not None and verb not in caller.verbs and verb is not Verb.READ_SELF:
        raise NotAllowedError(
            f"this token does not allow {verb.value}, only {', '.join(sorted(caller.verbs))}", "use another token"
        )
    if target is None:
        if widest(caller, verb) is Scope.NONE:
            raise _not_allowed(caller, verb)
        return
    if allows(caller, verb, target):
        return
    # Who may not see an image reads nothing of it; that its name is taken they do learn when they want it themselves.
    seen = verb if verb is Verb.READ_IMAGES else _SEEN_BY.get(target.kind)
    if seen is not None and not allows(caller, seen, target):
        raise absent(target.kind, target.name)
    raise _not_allowed(caller, verb, f" {target.kind} {target.name!r}")


def _not_allowed(caller: Caller, verb: Verb, what: str = "") -> NotAllowedError:
    role = ", ".join(f"{role.value} of {group}" for group, role in caller.roles) or "in no group"
    return NotAllowedError(
        f"{caller.user} ({'admin' if caller.admin else role}) may not {in_words(verb)}{':' if what else ''}{what}",
        "ask an admin" if RIGHTS[verb][UserRole.LEAD] is Scope.NONE else "ask a lead or an admin for a role that may",
    )


def job_target(info: JobInfo, name: str = "") -> AccessTarget:
    """A job as what a verb is applied to.

    Args:
        name: as it was asked for; empty: by its id.
    """
    return owned_job(name or info.id, info.user, info.group)


def owned_job(name: str, user: str, group: str) -> AccessTarget:
    """A job of which no more is known as what a verb is applied to."""
    return AccessTarget("job", name, user, frozenset((group,)) if group else frozenset())


def program_permission(info: JobInfo) -> tuple[Verb, AccessTarget]:
    """The verb for opening what a job serves: a service is open to its group, other work is its user's own."""
    verb = Verb.VISIT_SERVICES if info.kind == Kind.SERVICE.value else Verb.USE_JOBS
    return verb, job_target(info)


def present(found: Found | None, kind: str, name: str) -> Found:
    """What was looked for.

    Raises:
        NotFoundError: it is None.
    """
    if found is None:
        raise absent(kind, name)
    return found


def absent(kind: str, name: str) -> NotFoundError:
    """The error for an object that does not exist, or that the caller may not see."""
    shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
    return NotFoundError(f"no {kind} {shown!r}", _LISTED_BY[kind])
