"""Users, groups, tokens and the audit log of a server as Python methods: ``Client().accounts.users()``."""

from __future__ import annotations

from millpond.client.sdk.transport.connection import Requests, segment
from millpond.specs.api.accounts.accounts import (
    AccountLimits,
    AuditInfo,
    AuditList,
    ChangedUser,
    GroupInfo,
    GroupList,
    Invitation,
    NewToken,
    NewUser,
    PortalLink,
    PortalLinkRequest,
    TokenInfo,
    TokenList,
    UserChange,
    UserInfo,
    UserList,
    WhoInfo,
)
from millpond.specs.api.accounts.sign_on import IdentityInfo


class AccountsClient(Requests):
    """The accounts of the server that a client talks to. What one may not do raises ``NotAllowedError``."""

    def whoami(self) -> WhoInfo:
        """Who one is to the server."""
        return self._ask(WhoInfo, "GET", "/whoami")

    def logout(self) -> None:
        """Revoke the token in use.

        Raises:
            ConflictError: it is that of the server's state directory.
        """
        self._connection.send("POST", "/logout")

    def portal_link(self, job: str = "") -> PortalLink:
        """An address that logs a browser in to the portal, once, within ten minutes.

        Args:
            job: its page is opened; empty: the overview.

        Raises:
            NotAllowedError: the account is a program's.
        """
        return self._ask(PortalLink, "POST", "/portal/links", json=PortalLinkRequest(job=job).model_dump())

    def change_password(self, present: str, new: str) -> None:
        """Choose another password for oneself; all other logins end.

        Raises:
            NotLoggedInError: the present one is wrong.
        """
        self._connection.send("PUT", "/password", json={"password": present, "new_password": new})

    def users(self) -> list[UserInfo]:
        """The accounts that one may see."""
        return self._ask(UserList, "GET", "/users").users

    def add_user(self, user: NewUser) -> Invitation:
        """Make an account; a person's comes with an invitation."""
        return self._ask(Invitation, "POST", "/users", json=user.model_dump())

    def change_user(self, name: str, change: UserChange) -> ChangedUser:
        """Change what is given of an account."""
        body = change.model_dump(exclude_none=True)
        return self._ask(ChangedUser, "PATCH", f"/users/{segment(name)}", json=body)

    def invite(self, name: str) -> Invitation:
        """Another invitation for a user."""
        return self._ask(Invitation, "POST", f"/users/{segment(name)}/invitation")

    def bind_user(self, name: str, subject: str) -> IdentityInfo:
        """Give an account to the user who logs in at the provider as this subject."""
        return self._ask(IdentityInfo, "PUT", f"/users/{segment(name)}/identity", json={"subject": subject})

    def unbind_user(self, name: str) -> IdentityInfo:
        """Unbind an account from its identity at a provider."""
        return self._ask(IdentityInfo, "DELETE", f"/users/{segment(name)}/identity")

    def groups(self) -> list[GroupInfo]:
        """The groups that one may see."""
        return self._ask(GroupList, "GET", "/groups").groups

    def add_group(self, name: str, queue: str | None = None, limits: AccountLimits | None = None) -> GroupInfo:
        """Make a group; its queue is called like it unless another is named."""
        body = {"name": name, "queue": queue, "limits": (limits or AccountLimits()).model_dump()}
        return self._ask(GroupInfo, "POST", "/groups", json=body)

    def limit_group(self, name: str, limits: AccountLimits) -> GroupInfo:
        """Give a group other limits."""
        body = {"limits": limits.model_dump()}
        return self._ask(GroupInfo, "PATCH", f"/groups/{segment(name)}", json=body)

    def put_member(self, group: str, user: str, role: str) -> GroupInfo:
        """Add a user to a group, or change their role in it."""
        path = f"/groups/{segment(group)}/members/{segment(user)}"
        return self._ask(GroupInfo, "PUT", path, json={"role": role})

    def drop_member(self, group: str, user: str) -> GroupInfo:
        """Remove a user from a group."""
        return self._ask(GroupInfo, "DELETE", f"/groups/{segment(group)}/members/{segment(user)}")

    def invite_member(self, group: str, user: str, role: str) -> GroupInfo:
        """Invite a user into a group."""
        path = f"/groups/{segment(group)}/invitations/{segment(user)}"
        return self._ask(GroupInfo, "PUT", path, json={"role": role})

    def withdraw_invitation(self, group: str, user: str) -> GroupInfo:
        """Take such an offer back."""
        return self._ask(GroupInfo, "DELETE", f"/groups/{segment(group)}/invitations/{segment(user)}")

    def accept_invitation(self, group: str) -> GroupInfo:
        """Take a place in a group that one was offered."""
        return self._ask(GroupInfo, "POST", f"/groups/{segment(group)}/membership")

    def decline_invitation(self, group: str) -> None:
        """Decline such an offer."""
        self._connection.send("DELETE", f"/groups/{segment(group)}/membership")

    def tokens(self) -> list[TokenInfo]:
        """The tokens that one may see, the newest first."""
        return self._ask(TokenList, "GET", "/tokens").tokens

    def create_token(self, token: NewToken) -> TokenInfo:
        """Make a token; its ``secret`` cannot be seen again."""
        return self._ask(TokenInfo, "POST", "/tokens", json=token.model_dump())

    def revoke_token(self, token_id: str) -> TokenInfo:
        """A token opens nothing any more."""
        return self._ask(TokenInfo, "DELETE", f"/tokens/{segment(token_id)}")

    def audit(self, by: str = "", since: float = 0.0, about: str = "", limit: int = 1000) -> list[AuditInfo]:
        """Who changed what and who was refused, the newest first.

        Args:
            since: seconds since 1970.
            about: name of the object: a job's id, a user, a group.
        """
        params = {"by": by, "since": since, "object": about, "limit": limit}
        return self._ask(AuditList, "GET", "/audit", params=params).entries
