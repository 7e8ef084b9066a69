"""Routes about tokens, SSH keys and secrets: secrets can be set and named, and never be read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Path
from starlette.requests import HTTPConnection

from millpond.model.errors import InvalidInputError
from millpond.server.api.account_views import ssh_key_info, token_info
from millpond.server.api.description import api_router
from millpond.server.api.permits import (
    Access,
    ClusterReader,
    SecurityOf,
    ServiceOf,
    may,
    secret_in_path,
    secret_target,
    security_of,
    token_in_path,
)
from millpond.server.auth.records import TokenKind
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.server.auth.vault.secrets import GROUP, SERVER, USER
from millpond.server.jobs.secret_uses import jobs_by_secret
from millpond.server.store.settings import SecretRow
from millpond.specs.api.accounts.accounts import NewToken, SecretInfo, SecretList, SecretPut, TokenInfo, TokenList
from millpond.specs.api.accounts.ssh import NewSshKey, PublicKey, SshInfo, SshKeyInfo, SshKeyList
from millpond.specs.errors import suggest
from millpond.specs.validation import VARIABLE

tokens = api_router(prefix="/tokens", tags=["tokens"])
ssh = api_router(tags=["ssh"])
secrets = api_router(prefix="/secrets", tags=["secrets"])

OwnerKind = Literal["user", "group", "server"]
SecretName = Annotated[str, Path(pattern=VARIABLE, max_length=100)]
SecretChanger = Annotated[Access, may(Verb.CHANGE_SECRETS, secret_in_path)]


@tokens.get("")
def list_tokens(access: Annotated[Access, may(Verb.READ_TOKENS)], security: SecurityOf) -> TokenList:
    """The tokens that one may see, the newest first; never their secrets."""
    accounts = security.accounts
    seen = [token for token in accounts.tokens.all() if access.sees(accounts.tokens.target(token.id))]
    return TokenList(tokens=[token_info(token) for token in seen])


@tokens.post("", status_code=201)
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


@tokens.delete("/{token}")
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


async def key_in_path(request: HTTPConnection) -> AccessTarget:
    """The key whose id the path names."""
    return security_of(request).keys.target(request.path_params["key"])


@ssh.get("/ssh")
def gateway(service: ServiceOf, access: ClusterReader) -> SshInfo:
    """Where the gateway is, and the key by which one knows it; an empty host where there is none."""
    return service.ssh


@ssh.get("/ssh-keys")
def list_keys(access: Annotated[Access, may(Verb.READ_TOKENS)], security: SecurityOf) -> SshKeyList:
    """The keys that one may see, the newest first."""
    seen = [key for key in security.keys.all() if access.sees(security.keys.target(key.id))]
    return SshKeyList(keys=[ssh_key_info(key) for key in seen])


@ssh.post("/ssh-keys", status_code=201)
def add_key(body: NewSshKey, access: Annotated[Access, may(Verb.CHANGE_TOKENS)], security: SecurityOf) -> SshKeyInfo:
    """Register a public key: its other half opens the jobs of its user."""
    caller = access.caller
    name = body.user or caller.user
    access.demand(security.accounts.target_user(name))
    if caller.verbs is not None and Verb.USE_JOBS not in caller.verbs:
        raise InvalidInputError(
            "a confined token cannot register a key that opens more", f"use one that allows {Verb.USE_JOBS.value}"
        )
    key = PublicKey.parse(body.key)
    made = security.keys.add(security.accounts.user(name).name, key, body.name)
    access.note(f"for {name}: {key.fingerprint}", target=security.keys.target(made.id))
    return ssh_key_info(made)


@ssh.delete("/ssh-keys/{key}")
def remove_key(
    key: str, access: Annotated[Access, may(Verb.CHANGE_TOKENS, key_in_path)], security: SecurityOf
) -> SshKeyInfo:
    """A key opens nothing any more; what it has opened stays open until its user leaves."""
    known = security.keys.remove(key)
    access.note("removed", known.name)
    return ssh_key_info(known)


@secrets.get("")
async def list_secrets(access: Annotated[Access, may(Verb.READ_SECRETS)], service: ServiceOf) -> SecretList:
    """The secrets that one's jobs can have, or that one may change; never their values."""
    rows = await asyncio.to_thread(service.vault.all)
    seen = [row for row in rows if access.sees(secret_target(row.kind, row.owner, row.name))]
    documents = await asyncio.to_thread(service.job_files.live_with, "secrets")
    jobs = jobs_by_secret(rows, documents, service.lookup.live)
    return SecretList(secrets=[_secret_info(row, jobs.get((row.kind, row.owner, row.name), [])) for row in seen])


@secrets.put("/{kind}/{owner}/{secret}", status_code=201)
async def put_secret(
    kind: OwnerKind,
    owner: str,
    secret: SecretName,
    put: SecretPut,
    access: SecretChanger,
    service: ServiceOf,
    security: SecurityOf,
) -> SecretInfo:
    """Keep a secret of a user or a group, or (owner ``-``) of the server; one of the same name is replaced."""
    if kind == USER:
        security.accounts.user(owner)
    elif kind == GROUP:
        security.accounts.group(owner)
    elif owner != "-":
        raise InvalidInputError(f"the server's secrets have no owner {owner!r}", "write - for the owner")
    row = await asyncio.to_thread(
        service.vault.put, kind, "" if kind == SERVER else owner, secret, put.value, access.caller.user
    )
    access.note("set")
    return _secret_info(row)


@secrets.delete("/{kind}/{owner}/{secret}", status_code=204)
async def drop_secret(
    kind: OwnerKind, owner: str, secret: SecretName, access: SecretChanger, service: ServiceOf
) -> None:
    """Forget a secret. Tasks that run keep it; those that start later do not get it."""
    await asyncio.to_thread(service.vault.drop, kind, "" if kind == SERVER else owner, secret)
    access.note("removed")


def _secret_info(row: SecretRow, jobs: Sequence[str] = ()) -> SecretInfo:
    return SecretInfo(
        kind=row.kind, owner=row.owner, name=row.name, cipher=row.cipher, by=row.by, at=row.at, jobs=list(jobs)
    )
