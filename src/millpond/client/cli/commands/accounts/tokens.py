"""``pond token``: secrets that stand for an account, for programs."""

from __future__ import annotations

import time
from pathlib import Path

import click

from millpond.client.cli import wording
from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import asks_server, connect
from millpond.client.cli.error_output import say
from millpond.client.cli.listing import Listing, listing_options, show_listing
from millpond.client.cli.tables import Column, show
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.accounts import NewToken, TokenInfo, TokenList
from millpond.specs.errors import BadValueError

_NONE = "no tokens; `pond token create NAME` makes one"
_COLUMNS = (
    Column("ID"),
    Column("USER"),
    Column("KIND"),
    Column("USED", right=True),
    Column("EXPIRES", right=True),
    Column("ALLOWS", gives_way=True),
    Column("NAME", gives_way=True),
)


@click.group("token", cls=SuggestingGroup)
def group() -> None:
    """Tokens: create, list, revoke."""


@group.command("create")
@click.argument("name")
@click.option("--user", help="For whom, such as a service [default: oneself].")
@click.option(
    "--allow", "verbs", multiple=True, metavar="VERB", help="Confine it, such as to submit-jobs; may be repeated."
)
@click.option(
    "--expires", metavar="TIME", default="90d", show_default=True, help="Until when it works; never is allowed."
)
@asks_server
def create(name: str, user: str | None, verbs: tuple[str, ...], expires: str, state_dir: Path | None) -> None:
    """Create a token called NAME and print it once."""
    wish = NewToken.model_construct(name=name, user=user, verbs=list(verbs), lifetime_s=_lifetime(expires))
    with connect(state_dir) as client:
        made = client.accounts.create_token(wish)
    say(f"token {made.id} for {made.user}; it is shown once:")
    click.echo(made.secret)


@group.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Show expired and revoked ones too.")
@listing_options
@asks_server
def ls(everything: bool, output: str, watch: bool, state_dir: Path | None) -> None:
    """List the tokens that you may see, newest first."""
    with connect(state_dir) as client:

        def look() -> Listing:
            now = time.time()
            tokens = [token for token in client.accounts.tokens() if everything or _is_valid(token, now)]
            rows = [_row(token, now) for token in tokens]
            names = [token.id for token in tokens]
            return Listing(TokenList(tokens=tokens), names, lambda wide: show(_COLUMNS, rows, not wide, _NONE))

        show_listing(look, output, watch)


@group.command("revoke")
@click.argument("token_ids", nargs=-1, required=True, metavar="ID...")
@asks_server
def revoke(token_ids: tuple[str, ...], state_dir: Path | None) -> None:
    """Revoke the tokens with these IDs."""
    with connect(state_dir) as client:
        for token_id in token_ids:
            revoked = client.accounts.revoke_token(token_id)
            click.echo(f"{revoked.id}: revoked")


def _lifetime(text: str) -> float | None:
    """Seconds; None for ever."""
    if text == "never":
        return None
    try:
        return quantities.seconds(text)
    except BadValueError as error:
        raise InvalidInputError(f"--expires: {error.cause}", error.hint) from error


def _is_valid(token: TokenInfo, now: float) -> bool:
    return token.revoked_at is None and (token.expires_at is None or now < token.expires_at)


def _row(token: TokenInfo, now: float) -> list[str]:
    used = "never" if token.used_at is None else f"{wording.span(now - token.used_at)} ago"
    if token.revoked_at is not None:
        expires = "revoked"
    elif token.expires_at is None:
        expires = "never"
    else:
        expires = wording.span(token.expires_at - now) if token.expires_at > now else "expired"
    return [token.id, token.user, token.kind, used, expires, ", ".join(token.verbs) or "everything", token.name]
