"""Routes about tokens."""

from __future__ import annotations

from typing import Annotated

from millpond.model.errors import InvalidInputError
from millpond.server.api.account_views import token_info
from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, SecurityOf, may, token_in_path
from millpond.server.auth.records import TokenKind
from millpond.server.auth.roles import Verb
from millpond.specs.api.accounts import NewToken, TokenInfo, TokenList
from millpond.specs.errors import suggest

router = api_router(prefix="/tokens", tags=["tokens"])


@router.get("")
def list_tokens(access: Annotated[Access, may(Verb.READ_TOKENS)], security: SecurityOf) -> TokenList:
    """The tokens that one may see, the newest first; never their secrets."""
    accounts = security.accounts
    seen = [token for token in accounts.tokens.all() if access.sees(accounts.tokens.target(token.id))]
    return TokenList(tokens=[token_info(token) for token in seen])


@router.post("", status_code=201)
def create_token(body: NewToken, access: Annotated[Access, may(Verb.CHANGE_TOKENS)], security: SecurityOf) -> TokenInfo:
    """Make a token. Its secret is in this answer and can never be seen again."""
    accounts, caller = security.accounts, access.caller
    name = body.user or caller.user
    access.demand(accounts.target_user(name))
    verbs = frozenset(map(_verb, body.verbs))
    if caller.verbs is not None and not (verbs and verbs <= caller.verbs):
        raise InvalidInputError(
            "a confined token cannot make one that opens more", f"name verbs among {', '.join(sorted(caller.verbs))}"
        )
    token, secret = accounts.tokens.issue(
        accounts.user(name).name, TokenKind.PERSONAL, body.lifetime_s, body.name, verbs
    )
    confined = ", ".join(sorted(verbs)) or "everything"
    access.note(f"for {name}: {confined}", target=accounts.tokens.target(token.id))
    return token_info(token, secret)


@router.delete("/{token}")
def revoke_token(
    token: str, access: Annotated[Access, may(Verb.CHANGE_TOKENS, token_in_path)], security: SecurityOf
) -> TokenInfo:
    """A token opens nothing any more."""
    accounts = security.accounts
    known = accounts.tokens.get(token)
    accounts.tokens.revoke(known)
    access.note("revoked", known.name)
    return token_info(accounts.tokens.get(token))


def _verb(word: str) -> Verb:
    try:
        return Verb(word)
    except ValueError as error:
        raise InvalidInputError(f"there is no verb {word!r}", suggest(word, [verb.value for verb in Verb])) from error
