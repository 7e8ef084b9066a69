"""A real mail server on this machine: it keeps what it is sent, and refuses, waits and breaks off as it is set to."""

from __future__ import annotations

import asyncio
import email
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult

from own_address import free_port

USER, PASSWORD = "pond", "quiet"
_READY_WITHIN_S = 120.0


class MailCatcher:
    """What handles the mails.

    Args:
        host: the address that it takes them at.

    Attributes:
        mails: what was taken.
        refuses: answers to recipients, by address: ``550 no such user``.
        on_data: what is answered to a mail.
        silent: set while mails are not answered at all.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.host = host
        self.mails: list[EmailMessage] = []
        self.senders: list[str] = []
        self.was_encrypted: list[bool] = []
        self.refuses: dict[str, str] = {}
        self.on_data = "250 taken"
        self.silent = False
        self.connections = 0
        self.port = 0

    async def handle_EHLO(  # noqa: N802 - aiosmtpd names it so
        self, server: SMTP, session: Any, _envelope: Any, hostname: str, responses: list[str]
    ) -> list[str]:
        session.host_name = hostname
        self.connections += 1
        return responses

    async def handle_RCPT(  # noqa: N802
        self, _server: SMTP, _session: Any, envelope: Any, address: str, _options: Any
    ) -> str:
        if address in self.refuses:
            return self.refuses[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, _session: Any, envelope: Any) -> str:  # noqa: N802
        while self.silent:
            await asyncio.sleep(0.01)
        if self.on_data.startswith("2"):
            mail = email.message_from_bytes(envelope.content, policy=default)
            assert isinstance(mail, EmailMessage)
            self.mails.append(mail)
            self.senders.append(envelope.mail_from)
            self.was_encrypted.append(server.transport.get_extra_info("sslcontext") is not None)
        return self.on_data

    def texts(self) -> list[str]:
        """What the mails say."""
        return [mail.get_content().replace("\r\n", "\n") for mail in self.mails]


@contextmanager
def catching(
    catcher: MailCatcher,
    certificate: tuple[Path, Path] | None = None,
    with_login: bool = False,
    from_first_byte: bool = False,
) -> Iterator[MailCatcher]:
    """The mail server runs; on the port that it had before, when it did.

    Args:
        certificate: and its key: mail is taken encrypted alone.
        with_login: mail is taken after a login alone.
        from_first_byte: it speaks TLS, and no STARTTLS.
    """
    options: dict[str, Any] = {"ready_timeout": _READY_WITHIN_S}
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        starttls = {"tls_context": context, "require_starttls": True}
        options |= {"ssl_context": context} if from_first_byte else starttls
    if with_login:
        needs_starttls = certificate is not None and not from_first_byte
        options |= {"authenticator": _authenticate, "auth_required": True, "auth_require_tls": needs_starttls}
    controller = Controller(catcher, hostname=catcher.host, port=catcher.port or free_port(catcher.host), **options)
    controller.start()
    catcher.port = controller.port
    try:
        yield catcher
    finally:
        controller.stop()


def _authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
    is_right = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
    return AuthResult(success=is_right, handled=False)
