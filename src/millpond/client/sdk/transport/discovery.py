"""Where the server is: what the caller says, else the environment, else the last login, else this user's own server.

A running server leaves ``server.json`` in its state directory, readable by its owner only, with its address and the
place of the token. Finding it anew after a lost connection finds a restarted server, on whatever port it listens.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard
from urllib.parse import urlsplit

from millpond.client.sdk.transport.credentials import kept_login
from millpond.model.errors import InvalidInputError, UnavailableError
from millpond.specs.api.codec import from_json
from millpond.specs.api.server import SERVER_FILE, STANDBY_FILE, ServerFile
from millpond.specs.base_directories import default_state_dir

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


@dataclass(frozen=True, slots=True)
class Address:
    """How to reach a server.

    Attributes:
        url: its base address, without a slash at the end.
        token: the API token.
        authority: file with the certificates that may vouch for the server; empty: those that the system trusts.
        certificate: what the server must show, in PEM form, where it is this machine's; else empty.
    """

    url: str
    token: str
    authority: str = ""
    certificate: str = ""


def is_on_this_machine(url: str) -> bool:
    """Whether an address is this machine's own: a proxy meant for the outer world must not get such requests."""
    return urlsplit(url).hostname in _LOOPBACK


def no_answer_remedy(url: str) -> str:
    """What to do where no server answers at an address."""
    if is_on_this_machine(url):
        return "start it with `pond up` if it is yours, else ask its admin"
    return "check the address and the network, or ask an admin whether the server runs"


def server_url(text: str) -> str:
    """The base address that is written, with a scheme and without a slash at the end.

    Raises:
        InvalidInputError: it is none.
    """
    url = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is none
        host = (parts.hostname or "").encode("idna")
        is_one = bool(host) and parts.scheme in ("http", "https") and not (parts.query or parts.username)
    except ValueError:
        is_one = False
    if not is_one or " " in url or not url.isprintable():
        raise InvalidInputError(f"{text!r} is not a server's address", "write for example http://pool:7433")
    return url.rstrip("/")


def find_server(url: str | None = None, token: str | None = None, state_dir: Path | None = None) -> Address:
    """The address of the server that is meant.

    Args:
        url: base address; default: that of the server of ``state_dir``.
        token: API token; default: that of the login kept for ``url``, or the one that the server left in
            ``state_dir``.
        state_dir: where it is not given, ``$MILLPOND_URL`` and ``$MILLPOND_TOKEN`` stand in for the other two; where
            nothing is said, nor ``$MILLPOND_STATE``, it is the server logged in to last, else the one of
            ``default_state_dir()``.

    Raises:
        InvalidInputError: the address or the token is none.
        UnavailableError: no server runs on the state directory, or another one takes over just now, or its files cannot
            be read.
    """
    if state_dir is None:
        url = url or os.environ.get("MILLPOND_URL")
        token = token or os.environ.get("MILLPOND_TOKEN")
    url, token = url and server_url(url), token and _whole_token(token)
    if url and token:
        return Address(url, token)
    if state_dir is None and (url or not os.environ.get("MILLPOND_STATE")):
        login = kept_login(url)
        if login is not None:
            return Address(login.url, token or login.token, authority=login.authority)
    directory = state_dir or default_state_dir()
    left = read_server_file(directory)
    if not url and not _lives(left) and _lives(standby := read_server_file(directory, STANDBY_FILE)):
        cause = f"no Millpond server leads here now; the one that stands by at {standby.url} takes over"
        raise UnavailableError(cause, "try again in some seconds")
    if left is None:
        if url:
            raise _no_token(url)
        remedy = "start one with `pond up`, or log in to one elsewhere with `pond login URL`"
        raise UnavailableError("no Millpond server is running here", remedy)
    if url and not token and url != left.url:
        raise _no_token(url)  # the token of the server here is for no other
    address = url or left.url
    certificate = left.certificate if address == left.url else ""
    return Address(address, token or _read_token(Path(left.token_path)), certificate=certificate)


def read_server_file(state_dir: Path, name: str = SERVER_FILE) -> ServerFile | None:
    """What the server of a state directory left about itself; None when there is none.

    A file of anything else counts as absent: only a power cut leaves one, and it ended the server as well.

    Args:
        name: ``STANDBY_FILE`` for the one that stands by.

    Raises:
        UnavailableError: the file is there and cannot be read.
    """
    path = state_dir / name
    try:
        return from_json(ServerFile, path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        raise UnavailableError(f"{path} cannot be read ({error.strerror})", "run `pond up` as its owner") from error


def _lives(left: ServerFile | None) -> TypeGuard[ServerFile]:
    return left is not None and Path(f"/proc/{left.pid}").exists()


def _whole_token(text: str) -> str:
    """A token as it is written; the end of a line may have come along from a file."""
    token = text.strip()
    if not (token.isascii() and token.isprintable()):
        raise InvalidInputError("the token has characters that no token has", "copy it once more (MILLPOND_TOKEN)")
    return token


def _no_token(url: str) -> UnavailableError:
    return UnavailableError(
        f"no token for the server at {url}", f"log in with `pond login {url}`, or set MILLPOND_TOKEN"
    )


def _read_token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise UnavailableError(
            f"the API token in {path} cannot be read ({error.strerror})", "set MILLPOND_TOKEN, or be its owner"
        ) from error
