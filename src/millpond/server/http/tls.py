"""Encryption by the server itself: its certificate and key, which may be renewed while it runs."""

from __future__ import annotations

import logging
import math
import ssl
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from millpond.model.errors import UnavailableError
from millpond.specs.config.listen import ListenFile

log = logging.getLogger(__name__)

EXPIRES_SOON_DAYS: Final = 14
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Certificate:
    """What a certificate says of itself.

    Attributes:
        pem: the certificate itself.
        ends_at: until when it is valid, in seconds since 1970.
        names: the host names that it is for.
    """

    path: Path
    pem: str
    ends_at: float
    names: frozenset[str] = frozenset()

    def days_left(self, now: float) -> int:
        """Whole days until it ends; negative once it has."""
        return math.floor((self.ends_at - now) / 86_400)

    def trouble(self, now: float) -> str:
        """What people should know about its end; empty while that is far away."""
        days = self.days_left(now)
        if days < 0:
            return f"the certificate in {self.path} has expired: clients refuse it"
        if days < EXPIRES_SOON_DAYS:
            return f"the certificate in {self.path} expires in {days} days"
        return ""


def read_certificate(path: Path) -> Certificate:
    """The first certificate of a PEM file.

    Raises:
        UnavailableError: there is none, or it cannot be read.
    """
    from cryptography import x509  # most servers do not encrypt, and need not load it
    from cryptography.hazmat.primitives.serialization import Encoding

    _require_file(path)
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise UnavailableError(
            f"the certificate {path} cannot be read ({error.strerror})", "let the server's account read it"
        ) from error
    except ValueError as error:
        raise UnavailableError(f"{path} holds no certificate in PEM form ({error})", "name the right file") from error
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = frozenset(name.lower() for name in names.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        hosts = frozenset()
    pem = found.public_bytes(Encoding.PEM).decode()
    return Certificate(path, pem, found.not_valid_after_utc.replace(tzinfo=UTC).timestamp(), hosts)


def _require_file(path: Path) -> None:
    """A pipe would be waited for without end."""
    if path.exists() and not path.is_file():
        raise UnavailableError(f"{path} is not a file", "name one in PEM form")


class Encryption:
    """The TLS side of a listening socket.

    Args:
        certificate, key: PEM files.
        jobs_domain: jobs have names below it, for which the certificate must be too; empty: they have none.

    Raises:
        UnavailableError: one cannot be read, they do not belong together, others may read the key, or the certificate
            is not for the names of jobs.
    """

    def __init__(self, certificate: Path, key: Path, jobs_domain: str = "") -> None:
        self._jobs = f"*.{jobs_domain}" if jobs_domain else ""
        self.certificate = self._for_jobs(read_certificate(certificate))
        self._key = key
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._load(self.context)

    def renew(self) -> None:
        """Read both files again: new connections get what is there now.

        Raises:
            UnavailableError: as above; connections go on with what they had.
        """
        fresh = self._for_jobs(read_certificate(self.certificate.path))
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # what cannot be loaded would leave a context half changed
        self._load(self.context)
        self.certificate = fresh
        ends = datetime.fromtimestamp(fresh.ends_at, UTC)
        log.info("new connections get the certificate that is valid until %s", f"{ends:%Y-%m-%d}")

    def _for_jobs(self, certificate: Certificate) -> Certificate:
        if self._jobs and self._jobs not in certificate.names:
            raise UnavailableError(
                f"the certificate {certificate.path} is not for {self._jobs}, so browsers would open no job",
                "have it made for that name as well, or leave listen.jobs_domain out",
            )
        return certificate

    def _load(self, context: ssl.SSLContext) -> None:
        key, certificate = self._key, self.certificate.path
        _require_file(key)
        try:
            if key.stat().st_mode & _FOR_OTHERS:
                raise UnavailableError(f"others may read the private key {key}", f"chmod 600 {key}")
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, password=b"")
        except ssl.SSLError as error:
            reason = "they do not belong together" if "MISMATCH" in str(error) else str(error.reason or error)
            raise UnavailableError(
                f"the certificate {certificate} and the key {key} cannot be used ({reason})",
                "name a certificate in PEM form and its own key, without a passphrase",
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"the private key {key} cannot be read ({error.strerror})", "let the server's account read it"
            ) from error


def open_encryption(listening: ListenFile) -> Encryption | None:
    """What a configuration says of encryption; None: nothing.

    Raises:
        UnavailableError: as ``Encryption``.
    """
    if listening.certificate is None or listening.key is None:
        return None
    return Encryption(Path(listening.certificate), Path(listening.key), listening.jobs_domain or "")


def renew(encryption: Encryption) -> bool:
    """Read certificate and key again; where they cannot be used, the log says why and all stays as it was."""
    try:
        encryption.renew()
    except UnavailableError as error:
        log.error("the certificate stays as it was: %s", error)
        return False
    return True
