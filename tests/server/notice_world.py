"""A server without HTTP that tells webhooks and users of what happens, driven turn by turn and pass by pass."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
from server_world import Clock, Server, World

from millpond.model.errors import MillpondError
from millpond.model.states import Outcome
from millpond.node.task.records import TaskId
from millpond.server.auth.account_store import AccountStore
from millpond.server.auth.accounts import Accounts
from millpond.server.auth.records import Group, User
from millpond.server.auth.roles import Caller, UserRole
from millpond.server.auth.vault.ciphers import Cipher
from millpond.server.auth.vault.secrets import Vault
from millpond.server.notifications.components import Notifications, NotificationSources, make_notifications
from millpond.server.notifications.delivery_worker import MakeExecutor
from millpond.server.notifications.messages import MessageWriter
from millpond.server.notifications.settings import NotificationContext
from millpond.server.notifications.webhook_carrier import WebhookRules
from millpond.server.runtime.loop_dependencies import LoopDependencies
from millpond.server.store.deliveries import WAITING
from millpond.server.store.store import Store
from millpond.specs.api.notifications import NotificationRule, RulesRequest, Topic
from millpond.specs.config.notifications import MailRules, NotificationRules
from millpond.specs.config.webhooks import Webhook

PORTAL = "https://pond.example.org"


class InlineExecutor(Executor):
    """Runs each call while it is submitted."""

    def __init__(self, _at_once: int, _name: str) -> None:
        self.calls = 0

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.calls += 1
        done: Future[Any] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


def make_told(
    store: Store,
    accounts: Accounts,
    vault: Vault,
    context: NotificationContext,
    webhooks: WebhookRules | None = None,
    make_executor: MakeExecutor = InlineExecutor,
) -> Notifications:
    """What tells the users of a server of this test, with links into a portal at ``PORTAL``."""
    hooks = webhooks or WebhookRules(dict, lambda: context.rules().chat)
    sources = NotificationSources(store, accounts, vault, MessageWriter(lambda: PORTAL), hooks, make_executor)
    return make_notifications(sources, context)


class NoticeWorld:
    """The server, its users (ada, who owns it, and others in groups), and all that tells them.

    Args:
        transport: how requests to webhooks travel; None: over the network.
        make_executor: what has several receivers served at once.
    """

    def __init__(
        self,
        directory: Path,
        transport: httpx2.BaseTransport | None = None,
        make_executor: MakeExecutor = InlineExecutor,
    ) -> None:
        self.clock = Clock()
        self.make_executor = make_executor
        self.transport = transport
        outbox = SimpleNamespace(address=lambda turn: self.told.outbox.address(turn), wake=lambda: None)
        dependencies = LoopDependencies(clock=self.clock, notices=outbox)
        self.server = Server(directory, World(), self.clock, dependencies=dependencies)
        self.store = self.server.store
        self.hooks: dict[str, Webhook] = {}
        self.rules = NotificationRules()
        self.read_only: MillpondError | None = None
        self.vault = Vault(self.store.secrets, directory, lambda: Cipher.AES_256_GCM, self.clock)
        self.accounts = Accounts(AccountStore(self.store.database), "ada", "secret", self.clock)
        self.told = self.new_notifications()

    def new_notifications(self) -> Notifications:
        """What the next server on this store has."""
        hooks = WebhookRules(lambda: self.hooks, lambda: self.rules.chat, self.transport)
        context = NotificationContext(lambda: self.rules, self.clock, lambda: self.read_only)
        return make_told(self.store, self.accounts, self.vault, context, hooks, self.make_executor)

    def close(self) -> None:
        self.told.close()
        self.store.close()

    # ---- people -----------------------------------------------------------------------------------------------------

    def add_group(self, name: str, **members: UserRole) -> None:
        """A group with a queue of its name, and new users as its members."""
        self.accounts.add_group(Group(name, name))
        for user, role in members.items():
            self.accounts.add_user(User(user), name, role)

    def caller(self, user: str) -> Caller:
        found = self.accounts.caller_named(user)
        assert found is not None
        return found

    def mail_at(self, port: int, **fields: Any) -> None:
        """The configuration names a mail server."""
        settings = {"encryption": "none", "sender": "Millpond <pond@example.org>", **fields}
        self.rules = NotificationRules(MailRules("127.0.0.1", port, **settings), self.rules.chat)

    def subscribe(self, user: str, *rules: NotificationRule, **fields: Any) -> None:
        """A user is told of these."""
        chosen = {"address": f"{user}@example.org", "address_by": "code", "rules": rules, **fields}
        self.told.settings.subscriptions.change(user, lambda known: replace(known, **chosen))

    def choose(self, user: str, *rules: dict[str, Any]) -> None:
        self.told.settings.choose(RulesRequest.model_validate({"rules": rules}), self.caller(user))

    # ---- what happens -----------------------------------------------------------------------------------------------

    def run(self, job: str = "a", outcome: Outcome = Outcome.SUCCESS, code: int = 0, **spec: Any) -> None:
        """A job runs to its end."""
        self.server.submit(job, **spec)
        self.server.turn(2)
        self.server.engine.finish(TaskId(job, 1, 0), outcome, code)
        self.server.turn(2)

    def deliver(self) -> float:
        """One pass of each worker; returns the seconds until something is due again."""
        for worker in self.told.workers:
            worker.deliver_due()
        due_at = [each.due_at for each in self.store.deliveries.latest(1_000) if each.state == WAITING]
        return max(min(due_at, default=self.clock.now + 60.0) - self.clock.now, 0.0)

    def settle(self, passes: int = 1) -> None:
        """Let what is due come due, and deliver it."""
        for _ in range(passes):
            self.clock.now += self.deliver()
            self.deliver()

    def settle_all(self) -> None:
        """Let time pass until nothing waits."""
        for _ in range(50):
            if "waiting" not in self.states():
                return
            self.settle()
        raise AssertionError(f"still waiting: {self.store.deliveries.latest(1)}")

    def states(self) -> list[str]:
        return [delivery.state for delivery in self.store.deliveries.latest(100)]


def by_mail(topic: Topic, **fields: Any) -> NotificationRule:
    """A rule by which mail comes."""
    return NotificationRule(topic=topic, channels=["mail"], **fields)
