"""Routes about SSH: where the gateway is, and the public keys by which people come in."""

from __future__ import annotations

from typing import Annotated

from starlette.requests import HTTPConnection

from millpond.model.errors import InvalidInputError
from millpond.server.api.account_views import ssh_key_info
from millpond.server.api.description import api_router
from millpond.server.api.permits import Access, ClusterReader, SecurityOf, ServiceOf, may, security_of
from millpond.server.auth.roles import AccessTarget, Verb
from millpond.specs.api.ssh import NewSshKey, PublicKey, SshInfo, SshKeyInfo, SshKeyList

router = api_router(tags=["ssh"])


async def key_in_path(request: HTTPConnection) -> AccessTarget:
    """The key whose id the path names."""
    return security_of(request).keys.target(request.path_params["key"])


@router.get("/ssh")
def gateway(service: ServiceOf, access: ClusterReader) -> SshInfo:
    """Where the gateway is, and the key by which one knows it; an empty host where there is none."""
    return service.ssh


@router.get("/ssh-keys")
def list_keys(access: Annotated[Access, may(Verb.READ_TOKENS)], security: SecurityOf) -> SshKeyList:
    """The keys that one may see, the newest first."""
    seen = [key for key in security.keys.all() if access.sees(security.keys.target(key.id))]
    return SshKeyList(keys=[ssh_key_info(key) for key in seen])


@router.post("/ssh-keys", status_code=201)
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


@router.delete("/ssh-keys/{key}")
def remove_key(
    key: str, access: Annotated[Access, may(Verb.CHANGE_TOKENS, key_in_path)], security: SecurityOf
) -> SshKeyInfo:
    """A key opens nothing any more; what it has opened stays open until its user leaves."""
    known = security.keys.remove(key)
    access.note("removed", known.name)
    return ssh_key_info(known)
