"""The way in: the service that answers, the routes in front of it, and the HTTP server that brings them requests."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from millpond.model.amounts import count_text
from millpond.model.hardware.nodes import Node
from millpond.server.api.app import make_app
from millpond.server.api.service import Service
from millpond.server.auth.components import Security
from millpond.server.auth.guard import PORTAL_PREFIX
from millpond.server.auth.oidc.pending_logins import GOOD_FOR_S
from millpond.server.auth.owner import owner_name, prepare_first_login
from millpond.server.http.security_headers import seen_from_outside
from millpond.server.http.server import HttpOptions, HttpServer
from millpond.server.http.tls import Encryption, renew
from millpond.server.operations.pod_address import url_for_pods
from millpond.server.startup.components import CoreComponents
from millpond.server.startup.configuration import AT_THE_NEXT_START, Current, reload
from millpond.server.startup.garbage_collection import keep_what_is_loaded
from millpond.server.startup.leadership import ServingRight
from millpond.server.startup.local_engine import unlimited_text
from millpond.server.startup.options import ServerOptions
from millpond.server.store.connection.database import password_notes
from millpond.server.version import VERSION
from millpond.server.views.about import ServerFacts
from millpond.server.views.reports.usage import ReportRates
from millpond.server.web.entry import entry_path
from millpond.server.web.portal import portal_routes
from millpond.specs.api.accounts.ssh import SshInfo
from millpond.specs.api.server import first_login_text
from millpond.specs.config.listen import ListenFile, is_loopback


def make_service(current: Current, lead: ServingRight, base: CoreComponents, notes: Sequence[str]) -> Service:
    """What answers requests.

    Args:
        notes: what else is said of this start.
    """
    identity = ServerFacts(
        url=lead.post.left.url,
        state_dir=base.components.state_dir,
        started_at=time.time(),
        engine="local" if current.config.kubernetes is None else "kubernetes",
        certificate_ends=lambda: None if (way := lead.post.encryption) is None else way.certificate.ends_at,
        unlimited=unlimited_text(base.host.limiter),
        cards_not_closed=base.engine.why_no_card_is_closed(),
        longest_dev_s=current.config.dev.longest,
        ssh=base.listener.info if base.listener else SshInfo(),
        origins=base.origins,
        unshared=base.engine.why_nothing_is_shared,
        notes=tuple(notes),
        settings=lambda: current.config.document,
        at_start=AT_THE_NEXT_START,
        pending=current.pending,
    )
    return Service(
        base.components, identity, base.engine.access, lambda: ReportRates(current.config.prices, current.config.energy)
    )


def make_http_server(
    options: ServerOptions, current: Current, lead: ServingRight, base: CoreComponents, service: Service
) -> HttpServer:
    """What brings requests, once it runs; it ends by itself when the scheduler fails or the lead is lost.

    Raises:
        UnavailableError: the invitation for the first login cannot be written.
    """
    listening, loop, encryption = current.config.listening, base.components.loop, lead.post.encryption
    ways = [listening.public_url or "", url_for_pods(current.config, lead.post.left.url)]
    names = filter(None, [urlsplit(way).hostname for way in ways])
    app = make_app(service, base.security, base.tenants, options.host, base.token, names, portal_routes())
    notes = [*_notes(options, current, lead, base), *service.about.notes]

    def ready() -> None:
        lead.state.announce(lead.post.left)
        print(f"Millpond {VERSION} is up at {lead.post.left.url}", flush=True)
        print(_portal_note(lead.post.left.url, base.security), flush=True)
        for note in notes:
            print(note, flush=True)
        service.metrics.prepare().add_done_callback(lambda _: keep_what_is_loaded())

    def on_hangup() -> None:
        reload(
            options.config,
            loop,
            current,
            base.components.queue_settings,
            base.components.notifications.receivers,
        )
        if encryption is not None and renew(encryption):
            lead.state.announce(replace(lead.post.left, certificate=encryption.certificate.pem))

    def on_signal() -> None:
        lead.post.deadline.begin()
        service.closing.set()

    def stop() -> None:
        lead.post.deadline.begin()
        http.stop()

    way = HttpOptions(None if encryption is None else encryption.context, tuple(listening.trusted_proxies))
    http = HttpServer(seen_from_outside(app, listening), ready, on_signal, on_hangup, way)
    loop.when_failed(stop)
    if lead.leadership is not None:
        lead.leadership.on_lost = stop
        if lead.is_lost:
            stop()
    return http


def _notes(options: ServerOptions, current: Current, lead: ServingRight, base: CoreComponents) -> list[str]:
    listening = current.config.listening
    is_reached = not is_loopback(options.host) or bool(listening.trusted_proxies)
    invitation = prepare_first_login(base.security, owner_name(), base.components.state_dir, is_reached)
    return [
        *([] if base.components.loop.read_only is None else [str(base.components.loop.read_only)]),
        *_notes_on_machine(base),
        *_first_login_notes(invitation, listening.public_url or ""),
    ]


def _notes_on_machine(base: CoreComponents) -> list[str]:
    """What is said of the machine when the server is up."""
    machine, unshared = base.host.machine, base.engine.why_nothing_is_shared()
    apart = base.components.isolation.apart.trouble
    return [
        *(machine.notes or (_summary(machine.nodes),)),
        *([f"jobs are not kept apart from each other: {apart}"] if apart else []),
        *([f"no card is shared out: {unshared}"] if unshared else []),
    ]


def start_warnings(options: ServerOptions, current: Current, lead: ServingRight, base: CoreComponents) -> list[str]:
    """What whoever starts this server should know, in the background too."""
    warning = base.components.isolation.warning
    return [
        *([warning] if warning else []),
        *_notes_on_the_way(options.host, current.config.listening, lead.post.encryption),
        *password_notes(options.store),
    ]


def _notes_on_the_way(host: str, listening: ListenFile, encryption: Encryption | None) -> list[str]:
    """What is said of the way that requests take."""
    notes = []
    if encryption is not None:
        notes.append(encryption.certificate.trouble(time.time()))
    if not listening.is_encrypted and not is_loopback(host):
        notes.append(
            "requests from elsewhere are not encrypted: set listen.certificate and listen.key, or put a proxy in front "
            "and name it in listen.trusted_proxies (docs/security.md)"
        )
    return [note for note in notes if note]


def _portal_note(url: str, security: Security) -> str:
    """Where the portal is: on a terminal with a link that logs its owner in, in a log without."""
    if not sys.stdout.isatty():
        return f"portal: {url}{PORTAL_PREFIX}"
    owner = security.accounts.caller_named(owner_name())
    if owner is None:
        return f"portal: {url}{PORTAL_PREFIX}"
    ticket, _ = security.portal_links.make(owner)
    return f"portal: {url}{entry_path(ticket)} (works once, for {GOOD_FOR_S / 60:.0f} minutes)"


def _first_login_notes(invitation: Path | None, public_url: str) -> list[str]:
    """How to log in from elsewhere for the first time; the secret itself on a terminal only, never in a log."""
    if invitation is None:
        return []
    how = first_login_text(public_url)
    return [f"{how}, and this: {invitation.read_text().strip()}" if sys.stdout.isatty() else f"{how}; see {invitation}"]


def _summary(nodes: Sequence[Node]) -> str:
    cards = [device for node in nodes for device in node.devices]
    return f"{count_text(len(nodes), 'node')}, {count_text(len(cards), 'GPU')}"
