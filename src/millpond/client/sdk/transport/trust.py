"""Which server certificates are trusted: those of the system's authorities, of one that is named, or a very own one."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from millpond.client.sdk.transport.discovery import Address
from millpond.model.errors import UnavailableError

AUTHORITY_VARIABLE = "MILLPOND_CA"


def trust(address: Address) -> ssl.SSLContext | bool:
    """What connections to a server are checked by; True for the authorities that the system trusts.

    A server that does not encrypt has no certificate, so no authority is needed: reading the system's
    authorities would take longer than all else that connecting does.

    The certificate of a server of this machine is for the name under which others reach it, not for 127.0.0.1; so here
    it is compared with the very certificate that the server says it shows.

    Raises:
        UnavailableError: a file of certificates cannot be read.
    """
    if not encrypts(address.url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if address.certificate:
        context = ssl.create_default_context(cadata=address.certificate)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.check_hostname = False
        return context
    named = address.authority or os.environ.get(AUTHORITY_VARIABLE, "")
    if not named:
        return True
    try:
        context = ssl.create_default_context(cafile=named)
    except ssl.SSLError as error:
        raise UnavailableError(f"{named} holds no certificates in PEM form", "name the right file") from error
    except OSError as error:
        raise UnavailableError(
            f"the certificates in {named} cannot be read ({error.strerror})", f"see --ca and {AUTHORITY_VARIABLE}"
        ) from error
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # what was named is trusted, by any signature
    return context


def encrypts(url: str) -> bool:
    """Whether a server at this address has a certificate to show."""
    return urlsplit(url).scheme == "https"


def distrusted(error: Exception, url: str) -> UnavailableError | None:
    """The error for a connection that failed by its encryption; None when it failed by something else."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, ssl.SSLError):
        seen = seen.__cause__ or seen.__context__
    if isinstance(seen, ssl.SSLCertVerificationError):
        return UnavailableError(
            f"the certificate of {url} is not trusted ({seen.verify_message})",
            f"name the file of its authority with `pond login --ca FILE {url}` or {AUTHORITY_VARIABLE}",
        )
    if isinstance(seen, ssl.SSLError):
        return UnavailableError(
            f"{url} does not speak TLS as it should ({seen.reason or seen})", "is it http:// that is meant?"
        )
    return None


def absolute(path: Path | None) -> str:
    """A named file of authorities, as it is kept; empty for none.

    Raises:
        UnavailableError: it cannot be used.
    """
    if path is None:
        return ""
    kept = str(path.expanduser().absolute())
    trust(Address("https://", "", authority=kept))
    return kept
