"""The bodies of the REST API that are about users, groups, tokens, secrets and the audit log.

Instants are seconds since 1970 (UTC). Limits are per account as a whole; None is no limit.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millpond.specs.api.base import ONE_LINE
from millpond.specs.api.models import Body, RequestBody
from millpond.specs.api.reports.usage import DiskInfo
from millpond.specs.job.fields import Name
from millpond.specs.validation import PLAIN_NAME

CSRF_HEADER = "X-CSRF-Token"
"""What a browser sends beside its cookie with every request that changes something."""

AccountName = Annotated[str, Field(pattern=PLAIN_NAME, max_length=64)]
"""A name that is safe in paths, headers and logs; the same letters as a user name of a machine."""

Line = Annotated[str, Field(max_length=100, pattern=ONE_LINE)]
"""Free text that people give things as a label."""

Secret = Annotated[str, Field(max_length=256)]
GroupRole = Literal["lead", "member", "viewer"]
LONGEST_LIMIT_S = 10 * 366 * 86_400
Seconds = Annotated[float, Field(gt=0, le=LONGEST_LIMIT_S)]
LONGEST_SECRET = 65_536
MOST_RUNNING_JOBS = 10**9


class AccountLimits(RequestBody):
    """What an account may hold at once, on the server's disk too, and how long one of its dev jobs may run."""

    jobs: Annotated[int, Field(ge=0, le=MOST_RUNNING_JOBS, strict=True)] | None = None
    gpu_milli: Annotated[int, Field(ge=0, le=10**12, strict=True)] | None = None
    cpu_milli: Annotated[int, Field(ge=0, le=10**12, strict=True)] | None = None
    card_mib: Annotated[int, Field(ge=0, le=10**12, strict=True)] | None = None
    dev_s: Seconds | None = None
    disk_bytes: Annotated[int, Field(ge=0, le=2**62, strict=True)] | None = None


class LoginRequest(RequestBody):
    """Who one is, by password or by invitation.

    Attributes:
        invitation: instead of user and password: what an admin handed over; ``new_password`` is needed with it.
        session: answer with a cookie, for browsers, instead of a token.
        label: what the token is called in lists.
    """

    user: Annotated[str, Field(max_length=64)] = ""
    password: Secret = ""
    invitation: Secret = ""
    new_password: Secret = ""
    session: bool = False
    label: Line = ""


class LoginInfo(Body):
    """A login that was accepted: a token, or for a session what goes into the header ``X-CSRF-Token``."""

    user: str
    token: str = ""
    csrf: str = ""
    expires_at: float | None = None


class PortalLinkRequest(RequestBody):
    """A link that logs a browser in.

    Attributes:
        job: its page is opened; empty: the overview.
    """

    job: Annotated[str, Field(max_length=200, pattern=ONE_LINE)] = ""


class PortalLink(Body):
    """An address that logs one browser in, once, until an instant."""

    url: str
    expires_at: float


class PasswordChange(RequestBody):
    """Another password for oneself; the present one may be left out only by the owner of the server."""

    password: Secret = ""
    new_password: Secret


class MembershipInfo(Body):
    """A group of a user, and the role in it."""

    group: str
    queue: str
    role: str


class GroupInvitationInfo(Body):
    """A place in a group that one has been offered; ``until`` is in seconds since 1970."""

    group: str
    role: str
    by: str
    until: float


class WhoInfo(Body):
    """Who is asking.

    Attributes:
        invitations: places in groups that one can accept.
        how: ``owner`` (the token in the state directory), ``token`` or ``session``.
        verbs: what the token in use is confined to; empty: to nothing.
        disk: what one holds on the server's disk, and what one's groups hold; as of some seconds ago.
    """

    user: str
    admin: bool
    how: str
    groups: list[MembershipInfo] = Field(default=[])
    invitations: list[GroupInvitationInfo] = Field(default=[])
    verbs: list[str] = Field(default=[])
    limits: AccountLimits = AccountLimits()
    disk: list[DiskInfo] = Field(default=[])


class NewUser(RequestBody):
    """An account to be made.

    Attributes:
        service: a program's: it gets tokens and never a password.
    """

    name: AccountName
    admin: bool = False
    service: bool = False
    group: AccountName | None = None
    role: GroupRole = "member"
    limits: AccountLimits = AccountLimits()


class UserChange(RequestBody):
    """What should be otherwise about an account; what is left out stays."""

    admin: bool | None = None
    disabled: bool | None = None
    limits: AccountLimits | None = None


class UserInfo(Body):
    """An account."""

    name: str
    admin: bool = False
    service: bool = False
    disabled: bool = False
    has_password: bool = False
    created_at: float = 0.0
    groups: list[MembershipInfo] = Field(default=[])
    limits: AccountLimits = AccountLimits()


class ChangedUser(UserInfo):
    """An account as it is now; ``warning`` says what else follows from the change."""

    warning: str = ""


class UserList(Body):
    """The accounts that one may see."""

    users: list[UserInfo]


class Invitation(Body):
    """A secret by which a user chooses a password, once; it is not shown again.

    Attributes:
        warning: what else follows from there being one user more.
    """

    user: UserInfo
    invitation: str = ""
    expires_at: float | None = None
    warning: str = ""


class NewGroup(RequestBody):
    """A group to be made; its queue is made with it where there is none of that name. Default: the group's name."""

    name: AccountName
    queue: Name | None = None
    limits: AccountLimits = AccountLimits()


class GroupChange(RequestBody):
    """Other limits for a group."""

    limits: AccountLimits


class MemberInfo(Body):
    """Who is in a group, and as what."""

    user: str
    role: str


class GroupInfo(Body):
    """A group and its members, the oldest first.

    Attributes:
        invited: who has been invited and has not answered; for those alone who choose the members.
    """

    name: str
    queue: str
    members: list[MemberInfo] = Field(default=[])
    invited: list[MemberInfo] = Field(default=[])
    limits: AccountLimits = AccountLimits()


class GroupList(Body):
    """The groups that one may see."""

    groups: list[GroupInfo]


class Membership(RequestBody):
    """The role of a user in a group."""

    role: GroupRole = "member"


class NewToken(RequestBody):
    """A token to be made.

    Attributes:
        name: what it is for; lists show it.
        user: for whom; left out: for oneself. Others' only by an admin, such as for a service.
        verbs: what it is confined to; empty: to nothing.
        lifetime_s: None: until it is revoked.
    """

    name: Annotated[Line, Field(min_length=1)]
    user: AccountName | None = None
    verbs: Annotated[list[Annotated[str, Field(max_length=40)]], Field(max_length=50)] = Field(default=[])
    lifetime_s: Seconds | None = 90 * 86_400.0


class TokenInfo(Body):
    """What is known of a token. ``secret`` is there once, in the answer that made it."""

    id: str
    kind: str
    user: str
    name: str
    verbs: list[str] = Field(default=[])
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    used_at: float | None = None
    secret: str = ""


class TokenList(Body):
    """Tokens, the newest first."""

    tokens: list[TokenInfo]


class AuditInfo(Body):
    """One request that changed something, or was refused to.

    Attributes:
        user: who; for a failed login, who they said they were.
        address: from where.
        how: by what they showed who they are; empty when they did not.
        kind, object: what it was about: ``job``, ``train-abcde``.
        group: the group that the object belonged to; its leads see the entry.
        before, after: in short, what was and what is now; empty where the verb says it all.
        status: the HTTP status of the answer.
    """

    at: float
    user: str
    address: str
    how: str
    verb: str
    kind: str
    object: str
    group: str
    before: str
    after: str
    status: int


class AuditList(Body):
    """Entries of the audit log, the newest first."""

    entries: list[AuditInfo]


class SecretPut(RequestBody):
    """A secret to be kept; what it is called and whose it is stands in the path."""

    value: Annotated[str, Field(min_length=1, max_length=LONGEST_SECRET, pattern=r"^[^\x00]*$", repr=False)]


class SecretInfo(Body):
    """What is known of a secret.

    Attributes:
        kind: whose it is: ``user``, ``group`` or ``server``.
        owner: the name of the user or group; empty for the server.
        by, at: who set it last, and when.
        jobs: in lists, ids of the jobs that have not ended and are given it when they start.
    """

    kind: str
    owner: str
    name: str
    cipher: str
    by: str
    at: float
    jobs: list[str] = Field(default=[])


class SecretList(Body):
    """The secrets that one may use or change, by owner and name."""

    secrets: list[SecretInfo]
