"""``pond token``: secrets that stand for an account, for programs."""

from __future__ import annotations

import time

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError
from millpond.specs import quantities
from millpond.specs.api.accounts.accounts import NewToken, TokenInfo, TokenList
from millpond.specs.errors import BadValueError


def _expiry(token: TokenInfo) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is None:
        return "never"
    left_s = token.expires_at - time.time()
    return formats.span(left_s) if left_s > 0 else "expired"


_TABLE: ListTable[TokenInfo] = ListTable(
    (
        Column("ID", lambda token: token.id),
        Column("USER", lambda token: token.user),
        Column("KIND", lambda token: token.kind),
        Column("USED", lambda token: formats.used(token.used_at), right=True),
        Column("EXPIRES", _expiry, right=True),
        Column("ALLOWS", lambda token: ", ".join(token.verbs) or "everything", wraps=True),
        Column("NAME", lambda token: token.name, gives_way=True),
    ),
)


def _lifetime(_context: click.Context, _option: click.Parameter, text: str) -> float | None:
    """Seconds; None for ever."""
    if text == "never":
        return None
    try:
        return quantities.seconds(text)
    except BadValueError as error:
        raise InvalidInputError(f"--expires: {error.cause}", error.hint) from error


@click.group("token", cls=SuggestingGroup)
def group() -> None:
    """Tokens: create, list, revoke."""


@group.command("create")
@click.argument("name")
@click.option("--user", help="For whom, such as a service [default: oneself].")
@click.option(
    "--allow", "verbs", multiple=True, metavar="VERB,...", help="Confine it, such as to submit-jobs; may be repeated."
)
@click.option(
    "--expires",
    "lifetime_s",
    callback=_lifetime,
    metavar="TIME",
    default="90d",
    show_default=True,
    help="Until when it works; never is allowed.",
)
@with_client
def create(client: Client, name: str, user: str | None, verbs: tuple[str, ...], lifetime_s: float | None) -> None:
    """Create a token called NAME and print it once."""
    request = NewToken.model_construct(
        name=name, user=user, verbs=",".join(verbs).split(",") if verbs else [], lifetime_s=lifetime_s
    )
    made = client.accounts.create_token(request)
    say(f"token {made.id} for {made.user}; it is shown once:")
    click.echo(made.secret)


@group.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Show expired and revoked ones too.")
@lists()
def ls(client: Client, everything: bool) -> Listing:
    """List the tokens that you may see, newest first."""
    now = time.time()
    tokens = [token for token in client.accounts.tokens() if everything or _is_valid(token, now)]
    return Listing.of(TokenList(tokens=tokens), tokens, _TABLE, empty="no tokens; `pond token create NAME` makes one")


@group.command("revoke")
@click.argument("token_ids", nargs=-1, required=True, metavar="ID...")
@with_client
def revoke(client: Client, token_ids: tuple[str, ...]) -> None:
    """Revoke the tokens with these IDs."""
    for token_id in token_ids:
        revoked = client.accounts.revoke_token(token_id)
        click.echo(f"{revoked.id}: revoked")


def _is_valid(token: TokenInfo, now: float) -> bool:
    return token.revoked_at is None and (token.expires_at is None or now < token.expires_at)
