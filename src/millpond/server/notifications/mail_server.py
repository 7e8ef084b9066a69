"""Sends mail by the mail server of the configuration: encrypted, within a bound of time, and never in a loop.

A mail is marked as sent by a program (RFC 3834), so that no other program answers it; nothing here reads mail.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP as MAIL_POLICY
from email.utils import format_datetime
from typing import Final

from millpond.model.errors import InvalidInputError, MillpondError, NotFoundError, UnavailableError
from millpond.node.host.clocks import WallClock
from millpond.node.host.late_calls import LateCalls
from millpond.server.auth.vault.secrets import SERVER, Vault
from millpond.server.notifications.delivery_worker import Carried, Carry
from millpond.server.notifications.messages import MessageWriter, UserMessage
from millpond.server.notifications.subscriptions import Subscriptions
from millpond.server.store.deliveries import MAIL, Delivery, Target
from millpond.specs.config.notifications import MailRules

WITHIN_S: Final = 20.0
"""For a connection with its login, and for each mail."""
_PERMANENT: Final = range(500, 600)
_READY: Final = 220


class MailServer:
    """Sends test messages and codes at once, and is the carrier of what users are told of.

    Args:
        rules: gives the mail server as it is configured now; None: there is none.
        vault: where its password may lie.
        writer: writes the texts.
    """

    name = "mail"
    channels: tuple[str, ...] = (MAIL,)

    def __init__(
        self,
        rules: Callable[[], MailRules | None],
        vault: Vault,
        subscriptions: Subscriptions,
        writer: MessageWriter,
        clock: WallClock,
    ) -> None:
        self._rules = rules
        self._vault = vault
        self._subscriptions = subscriptions
        self._writer = writer
        self._clock = clock
        self._late = LateCalls()

    def send(self, address: str, message: UserMessage) -> None:
        """Send one mail now. Blocks.

        Raises:
            NotFoundError: no mail server is configured.
            UnavailableError: it cannot be reached, or does not take the mail.
            InvalidInputError: it refuses the address for good.
        """
        with _MailConnection(self._rules, self._vault, self._late) as connection:
            rules = connection.rules
            mail = _mail(rules, address, message, f"{self._clock():.3f}.at-once", self._clock())
            try:
                connection.send(address, mail)
            except smtplib.SMTPRecipientsRefused as error:
                if not _is_final(error):
                    raise UnavailableError(f"the mail server waits: {_said(error)}", "try again later") from error
                raise InvalidInputError(f"the mail server refuses {address}: {_said(error)}", "check it") from error
            except OSError as error:
                raise _unavailable(rules, error) from error

    def why_not(self) -> str:
        """Why a configured mail server cannot be reached, or refuses the login; empty: nothing of it is known."""
        if self._rules() is None:
            return ""
        with _MailConnection(self._rules, self._vault, self._late) as connection:
            try:
                connection.open()
            except MillpondError as error:
                return str(error)
        return ""

    def lane_of(self, target: Target) -> str:
        """One mail server takes the mails to all users."""
        return target.channel

    @contextmanager
    def opened(self) -> Iterator[Carry]:
        """What sends, by one connection for all mails that are due; where that fails, none of them is tried."""
        with _MailConnection(self._rules, self._vault, self._late) as connection:
            yield lambda together: self._carry(connection, together)

    def cut(self) -> None:
        """End all connections."""
        self._late.call_all()

    def close(self) -> None:
        """No connection outlives its pass."""

    def _carry(self, connection: _MailConnection, together: Sequence[Delivery]) -> Carried:
        to = self._subscriptions.of(together[0].target.name)
        if not to.address:
            return Carried("the user has no mail address any more", is_final=True)
        try:
            rules = connection.rules
            if not rules.takes(to.address):
                return Carried("the configuration does not allow mail to this domain", is_final=True)
            message = self._writer.message(to, together)
            mail = _mail(rules, to.address, message, f"{together[0].id}.{int(together[0].at)}", self._clock())
            connection.send(to.address, mail)
        except smtplib.SMTPRecipientsRefused as error:
            return Carried(_said(error), is_final=_is_final(error))
        except NotFoundError as error:
            return Carried(error.cause, is_final=True)
        except MillpondError as error:
            return Carried(error.cause)
        except OSError as error:
            return Carried(_said(error))
        return Carried()


class _MailConnection:
    """One to the mail server, made when the first mail is sent; where it fails, no other mail is tried by it."""

    def __init__(self, rules: Callable[[], MailRules | None], vault: Vault, late: LateCalls) -> None:
        self._configured = rules
        self._vault = vault
        self._late = late
        self._open: _SmtpConnection | None = None
        self._failed: UnavailableError | None = None

    def __enter__(self) -> _MailConnection:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open is not None:
            with suppress(OSError), self._within(self._open):
                self._open.quit()
            self._open.close()

    @property
    def rules(self) -> MailRules:
        """What counts now.

        Raises:
            NotFoundError: no mail server is configured.
        """
        rules = self._configured()
        if rules is None:
            raise NotFoundError("this server sends no mail", "an admin sets notifications.mail in its configuration")
        return rules

    def send(self, address: str, mail: EmailMessage) -> None:
        """Send a mail.

        Raises:
            UnavailableError: the server cannot be reached, or refuses the login.
            SMTPException: it does not take this mail.
        """
        server = self.open()
        try:
            with self._within(server):
                server.send_message(mail, self.rules.sender_address, [address])
        except (smtplib.SMTPRecipientsRefused, smtplib.SMTPResponseException):
            raise  # of this mail alone
        except OSError as error:
            self._failed = _unavailable(self.rules, error)
            raise self._failed from error

    def open(self) -> _SmtpConnection:
        """The connection, made when it is asked for first.

        Raises:
            UnavailableError: the server cannot be reached, or refuses the login; now, or before.
        """
        if self._failed is not None:
            raise self._failed
        if self._open is None:
            try:
                self._open = self._connected(self.rules)
            except OSError as error:
                self._failed = _unavailable(self.rules, error)
                raise self._failed from error
            except UnavailableError as error:
                self._failed = error
                raise
        return self._open

    def _connected(self, rules: MailRules) -> _SmtpConnection:
        context = None if rules.encryption == "none" else ssl.create_default_context()
        server = _SmtpConnection(rules.host, context if rules.encryption == "tls" else None)
        try:
            with self._within(server):
                code, said = server.connect(rules.host, rules.port)
                if code != _READY:
                    raise smtplib.SMTPConnectError(code, said)
                if rules.encryption == "starttls":
                    server.starttls(context=context)
                if rules.user:
                    server.login(rules.user, self._password(rules))
        except BaseException:
            server.close()
            raise
        return server

    def _within(self, server: _SmtpConnection) -> AbstractContextManager[None]:
        """Cut the connection off when its time is over: the timeout of a socket counts from one byte to the next."""
        return self._late.called_if_late(WITHIN_S, server.cut)

    def _password(self, rules: MailRules) -> str:
        if not rules.password_name:
            return rules.password
        try:
            return self._vault.value(SERVER, "", rules.password_name)
        except NotFoundError as error:
            hint = f"set it with `pond secret set {rules.password_name} --server`"
            raise UnavailableError(f"the password of the mail server is missing: {error.cause}", hint) from error


class _SmtpConnection(smtplib.SMTP):
    """A connection that can be cut off at any moment, also within the handshake of TLS.

    Args:
        context: for TLS from the first byte; None: without, or later by STARTTLS.
    """

    def __init__(self, host: str, context: ssl.SSLContext | None) -> None:
        super().__init__(timeout=WITHIN_S)
        self._host = host  # what STARTTLS compares the certificate with; ``connect`` does not set it
        self._context = context
        self._handle: socket.socket | None = None
        self._is_cut = False

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        raw: socket.socket = super()._get_socket(host, port, timeout)  # type: ignore[misc]
        self._handle = raw.dup()
        if self._is_cut:
            self.cut()
        return raw if self._context is None else self._context.wrap_socket(raw, server_hostname=host)

    def cut(self) -> None:
        """End the connection, whatever another thread waits for; one that is not there yet, as soon as it is."""
        self._is_cut = True
        if self._handle is not None:
            with suppress(OSError):
                self._handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of it."""
        super().close()
        if self._handle is not None:
            self._handle.close()


def _mail(rules: MailRules, address: str, message: UserMessage, number: str, now: float) -> EmailMessage:
    """A mail in plain text.

    Args:
        number: of the message; the same again makes the same ``Message-ID``, by which a repeated mail is known.
    """
    mail = EmailMessage(policy=MAIL_POLICY)
    mail["From"] = rules.sender
    mail["To"] = address
    mail["Subject"] = message.subject
    mail["Date"] = format_datetime(datetime.fromtimestamp(now, UTC))
    mail["Message-ID"] = f"<{number}.millpond@{rules.sender_address.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(message.text, cte="quoted-printable")
    return mail


def _unavailable(rules: MailRules, error: Exception) -> UnavailableError:
    cause = f"the mail server {rules.host}:{rules.port} does not take mail: {_said(error)}"
    match error:
        case smtplib.SMTPAuthenticationError():
            hint = "check notifications.mail.user and its password"
        case smtplib.SMTPNotSupportedError():
            hint = "the server offers no STARTTLS or no login; see notifications.mail.encryption"
        case ssl.SSLError():
            hint = "check notifications.mail.encryption, and whether this machine trusts the server's certificate"
        case _:
            hint = "check notifications.mail in the configuration, and whether that server runs"
    return UnavailableError(cause, hint)


def _is_final(error: smtplib.SMTPRecipientsRefused) -> bool:
    return all(code in _PERMANENT for code, _ in error.recipients.values())


def _said(error: Exception) -> str:
    """What a mail server said, as one line."""
    match error:
        case smtplib.SMTPRecipientsRefused():
            said = "; ".join(f"{code} {_text(text)}" for code, text in error.recipients.values())
        case smtplib.SMTPResponseException():
            said = f"{error.smtp_code} {_text(error.smtp_error)}"
        case TimeoutError():
            said = f"no answer within {WITHIN_S:g} s"
        case _:
            said = str(error) or type(error).__name__
    return "".join(letter if letter.isprintable() else " " for letter in said)[:300]


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said
