"""Limits of users and groups: how many jobs may run at once, and how much they may hold together.

A user's limit counts their work in all queues; that of a group counts the work of all users of its queue, beside the
amounts that the queue tree bounds. How many jobs of a queue may run (``Queue.running_jobs``) is counted here too, at
every level of the tree. Background work counts for none of them. Nothing is counted while there is no limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import BACKGROUND_QUEUE, Limit
from millpond.model.workloads import Job
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.records import JobRecord
from millpond.scheduling.tenancy.queues import QueueTree

Account = tuple[str, str]
"""A user, or a queue: the other is empty."""


class AccountUsage:
    """What the work of one account holds now."""

    __slots__ = ("card_mib", "cpu_milli", "gpu_milli", "jobs")

    def __init__(self) -> None:
        self.jobs = self.gpu_milli = self.cpu_milli = self.card_mib = 0

    def copy(self) -> AccountUsage:
        """The same amounts."""
        twin = AccountUsage()
        twin.jobs, twin.gpu_milli, twin.cpu_milli = self.jobs, self.gpu_milli, self.cpu_milli
        twin.card_mib = self.card_mib
        return twin


class AccountLimitUsage:
    """The limits in force, and what the accounts hold that they could bound.

    Attributes:
        by_account: limits that bound anything, of users and of groups.
        bounds: the same with those that queues have of themselves.
        counted: ids of the jobs that count as running.
        in_force: whether there is any limit.
    """

    def __init__(self, journal: Journal, queues: QueueTree) -> None:
        self._journal = journal
        self._queues = queues
        self.by_account: dict[Account, Limit] = {}
        self.bounds: dict[Account, Limit] = {}
        self.held: dict[Account, AccountUsage] = {}
        self.counted: set[str] = set()
        self.in_force = False

    def copy_from(self, other: AccountLimitUsage) -> None:
        """Have the same limits in force, and the same usage."""
        self.by_account, self.bounds = dict(other.by_account), dict(other.bounds)
        self.counted, self.in_force = set(other.counted), other.in_force
        self.held = {account: held.copy() for account, held in other.held.items()}

    def set_limit(self, limit: Limit, running: Iterable[tuple[JobRecord, Amount]]) -> None:
        """Put a limit in force, or with nothing bounded out of it.

        Args:
            running: all jobs that hold something, with what they hold; read when counting begins.
        """
        self._journal.require_no_trial()
        account = (limit.user, limit.queue)
        if limit == Limit(*account):
            self.by_account.pop(account, None)
        else:
            self.by_account[account] = limit
        self.renew(running)

    def renew(self, running: Iterable[tuple[JobRecord, Amount]]) -> None:
        """Limits, or queues, have changed.

        Args:
            running: as for ``set_limit``.
        """
        self._journal.require_no_trial()
        begins = not self.in_force
        self.bounds = dict(self.by_account)
        for name, node in self._queues.by_name.items():
            if (jobs := node.queue.running_jobs) is not None:
                limit = self.bounds.get(("", name)) or Limit(queue=name)
                jobs = jobs if limit.jobs is None else min(jobs, limit.jobs)
                self.bounds["", name] = replace(limit, jobs=jobs)
        self.in_force = bool(self.bounds)
        self._queues.limits_accounts_by_card = any(limit.card_mib is not None for limit in self.bounds.values())
        if begins and self.in_force:
            self.recount(running)

    def recount(self, running: Iterable[tuple[JobRecord, Amount]]) -> None:
        """Count anew what all jobs hold; ``running`` as for ``set_limit``."""
        self.held.clear()
        self.counted.clear()
        for record, amount in running if self.in_force else ():
            self._count(record.job, 1)
            self._add(self.accounts_of(record.job), amount, 1)

    def count(self, record: JobRecord, sign: int) -> None:
        """A job runs from now on (``sign`` -1: it no longer does); saying so twice changes nothing."""
        if self.in_force and (record.id in self.counted) is (sign < 0):
            self._journal.record(self._count, record.job, -sign)
            self._count(record.job, sign)

    def charge(self, record: JobRecord, amount: Amount, sign: int) -> None:
        """A job holds ``amount`` more (``sign`` -1: less)."""
        if self.in_force:
            accounts = self.accounts_of(record.job)
            self._journal.record(self._add, accounts, amount, -sign)
            self._add(accounts, amount, sign)

    def charge_reserved(self, queue: str, amount: Amount, jobs: int, sign: int) -> None:
        """What is kept for a queue counts as if so many jobs of no user held it (``sign`` -1: no longer)."""
        if self.in_force:
            self._journal.record(self._add_reserved, queue, amount, jobs, -sign)
            self._add_reserved(queue, amount, jobs, sign)

    def exceeded(self, job: Job, amount: Amount) -> Limit | None:
        """The first limit that ``amount`` more for a job, running or not, would break; None when there is none."""
        return self._first_exceeded(self.accounts_of(job), amount, int(job.id not in self.counted), self.held)

    def exceeded_as_reserved(self, queue: str, amount: Amount, jobs: int) -> Limit | None:
        """The same for so many jobs of a queue, whoever their users are."""
        if not self.in_force:
            return None
        return self._first_exceeded(self.accounts_of_queue(queue), amount, jobs, self.held)

    def never_admits(self, job: Job, amount: Amount) -> Limit | None:
        """The first limit that a job of this size would break even if nothing else ran; None when there is none."""
        return self._first_exceeded(self.accounts_of(job), amount, 1, {})

    def _first_exceeded(
        self, accounts: Iterable[Account], amount: Amount, jobs: int, usage: dict[Account, AccountUsage]
    ) -> Limit | None:
        """The first limit that so much more would break for accounts that hold what ``usage`` says."""
        for account in accounts:
            limit = self.bounds.get(account)
            if limit is not None:
                held = usage.get(account) or AccountUsage()
                if any(
                    more > 0 and most is not None and now + more > most
                    for now, more, most in (
                        (held.jobs, jobs, limit.jobs),
                        (held.gpu_milli, amount.gpu_milli, limit.gpu_milli),
                        (held.cpu_milli, amount.cpu_milli, limit.cpu_milli),
                        (held.card_mib, amount.card_mib, limit.card_mib),
                    )
                ):
                    return limit
        return None

    def room(self, user: str, queue: str) -> tuple[float, float]:
        """The most compute and CPU, in milli, that ``exceeded`` may allow one more job; below 0 where none may run."""
        milli = cpu = math.inf
        if queue == BACKGROUND_QUEUE:
            return milli, cpu
        for account in self._accounts(user, queue):
            limit = self.bounds.get(account)
            if limit is not None:
                held = self.held.get(account) or AccountUsage()
                if limit.jobs is not None and held.jobs >= limit.jobs:
                    return -1.0, -1.0
                milli = min(milli, _left(limit.gpu_milli, held.gpu_milli))
                cpu = min(cpu, _left(limit.cpu_milli, held.cpu_milli))
        return milli, cpu

    def accounts_of(self, job: Job) -> tuple[Account, ...]:
        """For whom a job counts: its user, its queue, and all queues above but the root."""
        return () if job.is_background else self._accounts(job.user, job.queue)

    def _accounts(self, user: str, queue: str) -> tuple[Account, ...]:
        return ((user, ""), *self.accounts_of_queue(queue))

    def accounts_of_queue(self, queue: str) -> tuple[Account, ...]:
        """For whom all jobs of a queue count: for it, and for all queues above but the root."""
        return tuple([("", name) for name in self._queues.by_name[queue].accounts])

    def _count(self, job: Job, sign: int) -> None:
        if sign > 0:
            self.counted.add(job.id)
        else:
            self.counted.remove(job.id)
        for account in self.accounts_of(job):
            self._of(account).jobs += sign

    def _add_reserved(self, queue: str, amount: Amount, jobs: int, sign: int) -> None:
        accounts = self.accounts_of_queue(queue)
        self._add(accounts, amount, sign)
        for account in accounts:
            self._of(account).jobs += sign * jobs

    def _add(self, accounts: Iterable[Account], amount: Amount, sign: int) -> None:
        for account in accounts:
            held = self._of(account)
            held.gpu_milli += sign * amount.gpu_milli
            held.cpu_milli += sign * amount.cpu_milli
            if self._queues.counts_cards:
                held.card_mib += sign * amount.card_mib

    def _of(self, account: Account) -> AccountUsage:
        held = self.held.get(account)
        if held is None:
            held = self.held[account] = AccountUsage()
        return held


def _left(most: int | None, held: int) -> float:
    return math.inf if most is None else max(most - held, 0)
