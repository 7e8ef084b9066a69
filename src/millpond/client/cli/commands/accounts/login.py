"""``pond login``, ``logout`` and ``whoami``: a token for a server elsewhere, kept for this user alone.

And ``pond open``: the portal in a browser, logged in by a link that works once.
"""

from __future__ import annotations

import getpass
import os
import platform
import sys
import webbrowser
from pathlib import Path

import click

from millpond.client.cli.commands.accounts.limit_options import disk_text, limits_text
from millpond.client.cli.connection import job_argument, with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.path_parameter import PathParameter
from millpond.client.cli.terminal.secret_input import SecretInput, from_stdin
from millpond.client.sdk import Client
from millpond.client.sdk.transport.credentials import StoredLogin, forget_login, keep_login
from millpond.client.sdk.transport.discovery import is_on_this_machine, server_url
from millpond.client.sdk.transport.login import log_in, require_answer
from millpond.client.sdk.transport.oidc_login import Landing, SignOnAttempt
from millpond.client.sdk.transport.trust import absolute
from millpond.model.errors import InvalidInputError, NotLoggedInError
from millpond.specs.api.accounts.accounts import LoginInfo, LoginRequest


@click.command("login")
@click.argument("url")
@click.option("--user", help="Name of the account [default: the name here].")
@click.option("--invitation", "invited", is_flag=True, help="Use an invitation, and choose a password.")
@click.option(
    "--ca",
    type=PathParameter(exists=True, dir_okay=False),
    help="Certificates that may vouch for the server [default: those that the system trusts].",
)
@click.option("--oidc", is_flag=True, help="Log in in a browser, at the server's OpenID Connect provider.")
@click.option("--no-browser", is_flag=True, help="With --oidc: show a code to be typed in any browser anywhere.")
@from_stdin
def login(
    url: str, user: str | None, invited: bool, ca: Path | None, oidc: bool, no_browser: bool, stdin: bool
) -> None:
    """Log in to the server at URL; commands use it from now on.

    The token is kept in $XDG_CONFIG_HOME/millpond/logins.json, for this user alone.
    """
    address, authority = server_url(url), absolute(ca)
    if address.startswith("http:") and not is_on_this_machine(address):
        say(f"the way to {address} is not encrypted: who listens on the way can read the password")
    if oidc:
        if user or invited or stdin:
            raise InvalidInputError("--oidc asks for nothing here", "leave out --user, --invitation and --stdin")
        info = _sign_on(address, authority, no_browser or not has_browser())
        _keep(address, info, authority)
        return
    if not stdin and sys.stdin.isatty():
        require_answer(address, authority)
    secrets, label = SecretInput(stdin), f"pond login on {platform.node()}"[:100]
    if invited:
        invitation = secrets.ask("invitation")
        request = LoginRequest(invitation=invitation.strip(), new_password=secrets.ask_new(), label=label)
    else:
        name = user or _name_here()
        request = LoginRequest(user=name, password=secrets.ask(f"password of {name}"), label=label)
    info = log_in(address, request, authority=authority)
    _keep(address, info, authority)


def _name_here() -> str:
    """The name of the account that runs this.

    Raises:
        InvalidInputError: it has none, as in containers that run under a mere number.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # from Python 3.13 on the latter
        raise InvalidInputError(f"the account {os.getuid()} has no name here", "say which is meant: --user") from error


def _keep(address: str, info: LoginInfo, authority: str) -> None:
    path = keep_login(StoredLogin(address, info.user, info.token, authority))
    click.echo(f"logged in at {address} as {info.user}; the token is in {path}")


def _sign_on(address: str, authority: str, by_code: bool) -> LoginInfo:
    """Log in in a browser: in one of this machine, or with a code in any."""
    if by_code:
        attempt = SignOnAttempt(address, authority=authority)
        say(f"open {attempt.info.link} in a browser and type this code within ten minutes:")
        click.echo(attempt.info.code)
        return attempt.finish()
    with Landing() as landing:
        attempt = SignOnAttempt(address, landing, authority=authority)
        say(
            f"log in in the browser that opens now, or open {attempt.info.link}\n"
            f"it must show the code {attempt.info.code}; for a browser elsewhere use --no-browser"
        )
        webbrowser.open(attempt.info.link)
        return attempt.finish(landing.wait)


def has_browser() -> bool:
    """Whether a browser can open on this screen."""
    if os.environ.get("SSH_CONNECTION"):
        return False
    if sys.platform != "darwin" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


@click.command("logout")
@with_client
def logout(client: Client) -> None:
    """Revoke the token of this login on the server, and delete it here."""
    try:
        client.accounts.logout()
    except NotLoggedInError:
        say("the server had forgotten this login already")
    forget_login(client.address.url)
    click.echo(f"logged out at {client.address.url}")


@click.command("whoami")
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "name"]), default="table", help="Form of the answer."
)
@with_client
def whoami(client: Client, output: str) -> None:
    """Show the current user: roles, limits, and the restrictions of the token in use."""
    info = client.accounts.whoami()
    url = client.address.url
    if output == "json":
        click.echo(info.model_dump_json(indent=2))
        return
    if output == "name":
        click.echo(info.user)
        return
    how = "by the token in its state directory" if info.how == "owner" else f"by a {info.how}"
    click.echo(f"{info.user}{' (admin)' if info.admin else ''} at {url}, {how}")
    for membership in info.groups:
        click.echo(f"{membership.role} of {membership.group}, queue {membership.queue}")
    for place in info.invitations:
        click.echo(f"invited by {place.by} to {place.group} as {place.role}: pond group accept {place.group}")
    if info.verbs:
        click.echo(f"this token allows {', '.join(info.verbs)}")
    click.echo(limits_text(info.limits))
    for held in info.disk:
        if held.used_bytes or held.limit_bytes is not None:
            click.echo(disk_text(held))


@click.command("open")
@job_argument("job", required=False)
@click.option("--print", "only_print", is_flag=True, help="Print the address, and open nothing.")
@with_client
def open_portal(client: Client, job: str | None, only_print: bool) -> None:
    """Open the portal in a browser, at the page of JOB or at the overview.

    Where no browser can open, the address is printed. It logs one browser in, once, within ten minutes.
    """
    link = client.accounts.portal_link(client.find(job).id if job else "")
    if only_print or not has_browser() or not webbrowser.open(link.url):
        click.echo(link.url)
