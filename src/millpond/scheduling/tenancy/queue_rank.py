"""Where a job's queue and user stand: the part of the order that changes with what others hold.

Work that a guarantee covers goes before what is borrowed; then the class of priority; then, for orderings that share
fairly, service: what a queue has had of late and holds now, relative to its weight. Queues are compared with their
siblings, from the root down, and users with those of the same queue alone, so that neither the number of its users nor
that of the queues below it adds to what a queue gets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np

from millpond.model.resources import Amount
from millpond.model.tenancy.tenants import BACKGROUND_QUEUE, DEFAULT_QUEUE, ROOT_QUEUE
from millpond.scheduling.ledger.holdings import Holding
from millpond.scheduling.ordering.line_table import (
    ACCOUNT,
    GROUPED,
    KEY,
    LEAST_MILLI,
    PRIORITY,
    QUEUE,
    REQUEST,
    SEQUENCE,
    LineTable,
)
from millpond.scheduling.placement.arrays import BoolArray, FloatArray, Int64Array
from millpond.scheduling.records import JobRecord, TaskRecord
from millpond.scheduling.state import State, user_account
from millpond.scheduling.tenancy.card_models import choices_of
from millpond.scheduling.tenancy.queue_node import QueueNode

LOOKAHEAD_S = 3600.0
"""What a queue holds counts as if it had held it for so much longer: so it is not given everything at once."""

ROUND_S = 3600.0
"""In the default ordering queues take rounds, each of so many seconds of what their weights entitle them to."""

SHARE_POWER = 0.3
SHARE_FLOOR = 0.05
"""Added to every share of a user, so that a newcomer does not go before everything."""

MOST_LAG_S = 86_400.0
"""An overdue job of a user who has had all of the queue counts as submitted so much later; of others, so much less."""

Rank = tuple[float, ...]


class RoundsLeft(NamedTuple):
    """In which rounds the queues of running work would be once it had left.

    Attributes:
        numbers: of the queues.
        nodes, rounds: (levels, work), the number of the queue at each level from the top down, or -1, and its round.
    """

    numbers: dict[QueueNode, int]
    nodes: Int64Array
    rounds: FloatArray


class QueueRank:
    """Ranks of waiting jobs for one cycle; service is looked up once per account.

    What is placed meanwhile is counted when a rank is asked for next: where a single line waits, none ever is.

    Attributes:
        by_share: queues or users are compared at all.
        has_rounds: there is more than one queue to be compared.
        may_fall: ranks fall when others leave, so that a guarantee covers more again.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._turns = state.waiting.turns
        self.by_share = state.ordering.needs_usage and _has_accounts(state)
        built_in = (ROOT_QUEUE, DEFAULT_QUEUE, BACKGROUND_QUEUE)
        self.has_rounds = self.by_share and len(state.queues.by_name) > len(built_in)
        self._strict = state.ordering.share_decides
        self._capacity = state.cluster.capacity.amount if self.by_share else Amount()
        self._rounds: dict[str, Rank] = {}
        self._rounds_without: dict[QueueNode, dict[Amount, float]] = {}
        """See ``round_without``; what a queue is about to hold more is counted."""
        self._standings: dict[str, Rank] = {}
        self._of_users: dict[tuple[str, str], tuple[float, float]] = {}
        self._parts: dict[str, float] = {}
        self._placed: dict[str, list[float]] = {}
        self._uncounted: list[tuple[str, str, Amount]] = []
        self.may_fall = state.queues.has_guarantees
        self._risen: list[str] = []
        """Whose placements may have raised ranks, in order."""
        self._round_changes = 0
        self._covered: BoolArray = np.zeros(0, dtype=np.bool_)
        self._covered_at = -1
        self._left_when_covered: list[tuple[tuple[float, ...], ...] | None] = []
        """By the number of a queue, what its guarantees left when ``_covered`` was found for its lines."""

    @property
    def version(self) -> int:
        """Rises when ranks that were given before may have risen."""
        self._count_placed()
        return len(self._risen)

    @property
    def round_changes(self) -> int:
        """Rises when the service that decides before the key may have, or ``round_without`` may say otherwise."""
        self._count_placed()
        return self._round_changes

    def risen_since(self, version: int) -> set[str]:
        """The queues whose jobs may have risen in rank since a version: what a leaf gets, those above it have too."""
        self._count_placed()
        by_name = self._state.queues.by_name
        tops = {_top_compared(by_name[queue]) for queue in self._risen[version:]}
        return {name for name, node in by_name.items() if not tops.isdisjoint(node.path)}

    def rank(self, record: JobRecord) -> Rank:
        """The lower, the earlier: borrowing or not, class of priority, service of queues and users, key."""
        return self.place_of(record)[0]

    def place_of(self, record: JobRecord) -> tuple[Rank, int]:
        """The rank of a job, and when it came, which decides among equals; the lower, the earlier."""
        self._count_placed()
        tier = self._tier(record, record.demand.least_amount)
        (key, arrival), priority = self._turns.of(record), -float(record.job.priority)
        if not self.by_share:
            return (tier, priority, key), arrival
        stretch, lag_s = self._standing_of(record)
        key = key * stretch if key >= 0.0 else key + lag_s
        return (tier, priority, *self.standing(record.queue, record.job.user), key), arrival

    def precedence(self, record: JobRecord) -> Rank:
        """How the rank of a job begins, running or not: what does not hang on who has had how much of late."""
        return self._tier(record, record.demand.least_amount), -float(record.job.priority)

    def stretch(self, record: JobRecord) -> float:
        """By what the key of a job is multiplied for what its user has had."""
        return self._standing_of(record)[0] if self.by_share else 1.0

    def _standing_of(self, record: JobRecord) -> tuple[float, float]:
        user = record.job.user if record.group is None else _ALL
        ((stretch, lag_s),) = self._standings_of(((record.queue, user),))
        return stretch, lag_s

    def places(self, table: LineTable) -> tuple[FloatArray, ...]:
        """The places of the first of each line: the parts of a rank and behind them the arrivals, (lines,) each."""
        keys, arrivals = self._by_turn(table.figure(KEY), table.figure(SEQUENCE), self._grouped(table), table.firsts)
        parts, stretches, lags_s = self._of_lines(table)
        return (*parts, _stretched(keys, stretches, lags_s), arrivals)

    def places_of(self, table: LineTable, rows: Int64Array, jobs: Sequence[JobRecord]) -> tuple[FloatArray, ...]:
        """The same of jobs that stand anywhere in the lines of these rows, (jobs,) each."""
        turns, sequences = np.array([job.turn for job in jobs]), np.array([float(job.sequence) for job in jobs])
        is_grouped = np.zeros(len(table), dtype=np.bool_)
        is_grouped[self._grouped(table)] = True
        keys, arrivals = self._by_turn(turns, sequences, np.flatnonzero(is_grouped[rows]), jobs)
        parts, stretches, lags_s = self._of_lines(table)
        return (*(part[rows] for part in parts), _stretched(keys, stretches[rows], lags_s[rows]), arrivals)

    def _of_lines(self, table: LineTable) -> tuple[list[FloatArray], FloatArray, FloatArray]:
        """What all of a line have in common, (lines,) each: the parts of their ranks without the key.

        And by what their keys are multiplied, and how much later the overdue ones count as submitted.
        """
        covered = self.covered_now() if table is self._state.waiting.table else self.covered(table)
        parts: list[FloatArray] = [(~covered).astype(np.float64), -table.figure(PRIORITY)]
        stretches, lags_s = np.ones(len(table)), np.zeros(len(table))
        if self.by_share and len(table):
            numbers = table.number(ACCOUNT)
            present = np.flatnonzero(np.bincount(numbers))
            places = np.zeros(int(present[-1]) + 1, dtype=np.int64)
            places[present] = np.arange(len(present))
            of_lines = places[numbers]
            items = table.accounts.items
            accounts = [items[account] or (DEFAULT_QUEUE, "") for account in present.tolist()]
            if self._strict:
                parts.extend(np.array([self.standing(*account) for account in accounts]).T.take(of_lines, axis=1))
            else:
                rounds = [self.rounds(queue or DEFAULT_QUEUE) for queue in table.queues.items]
                parts.extend(np.array(rounds).T.take(table.number(QUEUE), axis=1))
            of_users = np.array([*zip(*self._standings_of(accounts), strict=True)]).take(of_lines, axis=1)
            grouped = self._grouped(table)
            if len(grouped):
                queues = [accounts[account][0] for account in of_lines[grouped].tolist()]
                of_users[:, grouped] = np.array(self._standings_of([(queue, _ALL) for queue in queues])).T
            stretches, lags_s = of_users
        return parts, stretches, lags_s

    def _grouped(self, table: LineTable) -> Int64Array:
        """The lines that have an ordering of their own."""
        return np.flatnonzero(table.figure(GROUPED)) if self._turns else _NONE

    def _by_turn(
        self, keys: FloatArray, arrivals: FloatArray, grouped: Int64Array, jobs: Sequence[JobRecord]
    ) -> tuple[FloatArray, FloatArray]:
        """(jobs,) key and arrival among all, where those of some have an ordering of their own."""
        if len(grouped):
            turns = np.array([self._turns.of(jobs[row]) for row in grouped.tolist()])
            keys, arrivals = keys.copy(), arrivals.copy()
            keys[grouped], arrivals[grouped] = turns.T
        return keys, arrivals

    def _tier(self, record: JobRecord, amount: Amount) -> float:
        return float(not self.may_fall or self._state.entitlements.borrows(record, amount))

    def covered(self, table: LineTable) -> BoolArray:
        """(lines,) whether a guarantee covers the first of each line."""
        found = np.zeros(len(table), dtype=np.bool_)
        if not self.may_fall:
            return found
        by_name, milli, of_lines = self._state.queues.by_name, table.figure(LEAST_MILLI), table.number(QUEUE)
        guarantors = [() if name is None else by_name[name].guarantors for name in table.queues.items]
        others = self._cpu_and_memory(table) if self._state.queues.guarantees_cpus else ()
        takes, card_mib, mixed = self._takes(table)
        none, use_of = (*_NO_GUARANTEE, *[-1.0] * len(takes)), self._state.queues.guarantee_use
        for level in range(max(map(len, guarantors), default=0)):
            nodes = [each[level] if level < len(each) else None for each in guarantors]
            left = np.array([none if node is None else use_of(node).left for node in nodes]).T.take(of_lines, axis=1)
            without, of_card_memory, card_mib_left, *left_of_others = left[: len(_NO_GUARANTEE)]
            cards = left[len(_NO_GUARANTEE) :]
            fits = takes & ((card_mib <= card_mib_left) | (card_mib == 0))
            named = (without > 0) | ((of_card_memory > 0) & (card_mib > 0))
            covered = (fits & np.where(milli > 0, milli <= cards, named)).any(axis=0)
            for asked, room in zip(others, left_of_others, strict=False):
                covered &= (asked <= room) | (asked == 0)
            found |= covered
        for row in mixed.tolist():
            first = table.firsts[row]
            found[row] = not self._state.entitlements.borrows(first, first.demand.least_amount)
        return found

    def covered_now(self) -> BoolArray:
        """(lines,) the same of all lines that wait, to be read: found anew where guarantees leave more or less."""
        table, by_name = self._state.waiting.table, self._state.queues.by_name
        if not self.may_fall:
            return self.covered(table)
        if self._covered_at == self._state.queues.version:
            return self._covered
        self._covered_at = self._state.queues.version
        use_of = self._state.queues.guarantee_use
        now = [
            None if name is None else tuple([use_of(node).left for node in by_name[name].guarantors])
            for name in table.queues.items
        ]
        before, self._left_when_covered = self._left_when_covered, now
        if not before:
            self._covered = self.covered(table)
        elif now != before:
            is_other = np.array([one != other for one, other in zip(now, before, strict=True)])
            rows = np.flatnonzero(is_other[table.number(QUEUE)])
            self._covered = self._covered.copy()
            self._covered[rows] = self.covered(table.only(rows))
        return self._covered

    def _takes(self, table: LineTable) -> tuple[BoolArray, FloatArray, Int64Array]:
        """(models, lines) which models that guarantees name, or others, the first of each line has a choice of.

        Beside that, in the same form, the least memory of cards that it counts for then, in MiB; and the lines of jobs
        whose only choice is of several models.
        """
        state, demands = self._state, table.requests.items
        named = {model: number for number, model in enumerate(state.queues.guaranteed_models)}
        if not state.queues.guarantees_by_card:
            return np.ones((1, len(table)), dtype=np.bool_), np.zeros((1, 1)), _NONE
        takes, is_mixed = np.zeros((len(named) + 1, len(demands)), dtype=np.bool_), np.zeros(len(demands), np.bool_)
        card_mib = np.full(takes.shape, np.inf)
        for number, demand in enumerate(demands):
            for choice in () if demand is None else choices_of(state.cluster, demand, demand.least_amount):
                is_mixed[number] = len(choice.models) > 1
                rows = [named.get(model, len(named)) for model, _ in choice.models] or [len(named)]
                takes[rows, number] = True
                card_mib[rows, number] = np.minimum(card_mib[rows, number], choice.card_mib)
        of_lines = table.number(REQUEST)
        return takes.take(of_lines, axis=1), card_mib.take(of_lines, axis=1), np.flatnonzero(is_mixed[of_lines])

    def _cpu_and_memory(self, table: LineTable) -> tuple[FloatArray, FloatArray]:
        """(lines,) the CPU (milli) and the memory (MiB) of the least size of the first of each line."""
        amounts = [Amount() if each is None else each.least_amount for each in table.requests.items]
        of_lines = table.number(REQUEST)
        cpu, memory = np.array([(each.cpu_milli, each.memory_mib) for each in amounts], dtype=np.float64).T.take(
            of_lines, axis=1
        )
        return cpu, memory

    def rank_of_growth(self, record: JobRecord) -> Rank:
        """The beginning of the rank of a running gang when one of its missing tasks joins it: the key is left out."""
        tier = self._tier(record, record.amount_of(record.queued()[:1])) if self.may_fall else 1.0
        rank = (tier, -float(record.job.priority))
        return (*rank, *self.standing(record.queue, record.job.user)) if self.by_share else rank

    def standing(self, queue: str, user: str) -> Rank:
        """What decides before the key: the service of a leaf and of all above it from the root down, and of the user.

        Where the share does not decide outright these are the rounds of the queues alone. Where the tree is less deep
        than elsewhere, zeros stand in for queues.
        """
        if not self._strict:
            return self.rounds(queue)
        self._count_placed()
        account = user_account(queue, user)
        found = self._standings.get(account)
        if found is None:
            found = self._standings[account] = (*self._levels(queue), self._served_s(account))
        return found

    def rounds(self, queue: str) -> Rank:
        """The rounds of a leaf and of all queues above it, from the root down."""
        if not self.by_share:
            return ()
        self._count_placed()
        found = self._rounds.get(queue)
        if found is None:
            found = self._rounds[queue] = tuple(float(served // ROUND_S) for served in self._levels(queue))
        return found

    def has_turn_before(self, queue: str, other: str, given_up: Amount) -> bool:
        """Whether a leaf has its turn no later than another would have it that held so much less."""
        own, theirs = self.rounds(queue), list(self.rounds(other))
        path = self._path(queue)
        for level, node in enumerate(self._path(other)) if self.by_share else ():
            if node not in path:
                theirs[level] = self.round_without(node, given_up)
        return own <= tuple(theirs)

    def round_without(self, node: QueueNode, given_up: Amount) -> float:
        """The round that a queue would be in if it held so much less."""
        self._count_placed()
        known = self._rounds_without.setdefault(node, {})
        found = known.get(given_up)
        if found is None:
            found = known[given_up] = self._round_without(node, given_up)
        return found

    def _round_without(self, node: QueueNode, given_up: Amount) -> float:
        return self._served_s(node.queue.name, given_up) / node.part // ROUND_S

    def rounds_left(self, work: Sequence[tuple[str, Amount]]) -> RoundsLeft:
        """In which rounds leaves would be, each without some work of it, by what that holds."""
        depth, numbers = self._state.queues.depth, dict[QueueNode, int]()
        nodes, rounds = np.full((depth, len(work)), -1), np.zeros((depth, len(work)))
        for number, (queue, held) in enumerate(work):
            for level, node in enumerate(self._path(queue)):
                nodes[level, number] = numbers.setdefault(node, len(numbers))
                rounds[level, number] = self.round_without(node, held)
        return RoundsLeft(numbers, nodes, rounds)

    def keep_turn(self, queue: str, left: RoundsLeft) -> BoolArray:
        """(work,) whether a leaf has its turn no later than each other would without its work."""
        kept = np.ones(left.nodes.shape[1], dtype=np.bool_)
        path = [left.numbers.get(node, -2) for node in self._path(queue)]
        own = self.rounds(queue)
        for level in reversed(range(len(own))):
            is_common = left.nodes[level] == (path[level] if level < len(path) else -2)
            kept = (kept & (is_common | (own[level] == left.rounds[level]))) | (
                ~is_common & (own[level] < left.rounds[level])
            )
        return kept

    def is_behind(self, queue: str) -> bool:
        """Whether another leaf that holds anything is ahead of a leaf by a round."""
        if not self.has_rounds:
            return False
        own = self.rounds(queue)
        return any(node.gpu_milli and self.rounds(node.queue.name) > own for node in self._state.queues.leaves())

    def _levels(self, queue: str) -> list[float]:
        """The service of a leaf and of all queues above it, each for its weight, from the root down."""
        served = [self._served_s(node.queue.name) / node.part for node in self._path(queue)]
        return served + [0.0] * (self._state.queues.depth - len(served))

    def _path(self, queue: str) -> tuple[QueueNode, ...]:
        """A leaf and all queues above it, without the root, from the top down."""
        return self._state.queues.by_name[queue].path[-2::-1]

    def _standings_of(self, accounts: Collection[tuple[str, str]]) -> list[tuple[float, float]]:
        """What users have had of late of what their queues are entitled to.

        By what it multiplies the keys of their jobs, and how much later the overdue ones count as submitted.
        """
        if self._strict:
            return [(1.0, 0.0)] * len(accounts)
        known, parts = self._of_users, self._parts
        if missing := [account for account in accounts if account not in known]:
            for queue in {queue for queue, _ in missing} - parts.keys():
                parts[queue] = math.prod(node.part for node in self._path(queue))
            names = [queue if user == _ALL else user_account(queue, user) for queue, user in missing]
            shares = self._state.usage.dominant_shares(names, self._capacity, self._state.now)
            for account, share in zip(missing, shares, strict=True):
                had = share / parts[account[0]]
                known[account] = (SHARE_FLOOR + had) ** SHARE_POWER, MOST_LAG_S * min(had, 1.0)
        return [known[account] for account in accounts]

    def place(self, record: JobRecord, placed: Sequence[tuple[TaskRecord, Holding]]) -> None:
        """Tasks of a job are about to start: its queues and its user count as holding them from now on."""
        if self.by_share:
            self._uncounted.append((record.queue, record.job.user, record.amount_of([task for task, _ in placed])))
        elif self._state.queues.by_name[record.queue].guarantors:
            self._risen.append(record.queue)

    def _count_placed(self) -> None:
        """Count what has been placed since a rank was asked for last."""
        if self._uncounted:
            placed, self._uncounted = self._uncounted, []
            for queue, user, amount in placed:
                self._count(queue, user, amount)

    def _count(self, queue: str, user: str, amount: Amount) -> None:
        before = self.standing(queue, user)
        for name in (*(node.queue.name for node in self._path(queue)), user_account(queue, user)):
            more = self._placed.setdefault(name, [0.0, 0.0, 0.0])
            more[0] += amount.gpu_milli
            more[1] += amount.cpu_milli
            more[2] += amount.memory_mib
        rounds, self._rounds = self._rounds, {}
        self._standings.clear()
        has_passed_on = self.standing(queue, user) != before
        if self._renew_rounds_without(queue) or has_passed_on:
            self._round_changes += 1
        if not has_passed_on:
            self._rounds = rounds
        if has_passed_on or self._state.queues.by_name[queue].guarantors:
            self._risen.append(queue)

    def _renew_rounds_without(self, queue: str) -> bool:
        """Work was placed for a leaf: whether it, or a queue above it, is in another round without some work now."""
        is_other = False
        for node in self._path(queue):
            known = self._rounds_without.get(node, {})
            for given_up, before in known.items():
                known[given_up] = now = self._round_without(node, given_up)
                is_other |= now != before
        return is_other

    def _served_s(self, account: str, given_up: Amount | None = None) -> float:
        state = self._state
        more: Sequence[float] = self._placed.get(account, _NOTHING)
        if given_up is not None:
            less = given_up.gpu_milli, given_up.cpu_milli, given_up.memory_mib
            more = tuple(gained - lost for gained, lost in zip(more, less, strict=True))
        return state.usage.served_s(account, self._capacity, state.now, LOOKAHEAD_S, more)


def _stretched(keys: FloatArray, stretches: FloatArray, lags_s: FloatArray) -> FloatArray:
    """(jobs,) keys, for what users have had of late."""
    stretched: FloatArray = np.where(keys < 0.0, keys + lags_s, keys * stretches)
    return stretched


_ALL = "(all)"
"""In place of a user: whose jobs follow an ordering of their own count as if all who use the queue were one."""
_NONE: Int64Array = np.empty(0, dtype=np.int64)
_NOTHING = (0.0, 0.0, 0.0)
_NO_GUARANTEE = (0.0, 0.0, -1.0, -1.0, -1.0)


def _top_compared(node: QueueNode) -> QueueNode:
    """The highest queue above a leaf of which it matters how much it holds: the root only where it guarantees."""
    return next((each for each in node.path[::-1] if each.parent is not None or each in node.guarantors), node)


def _has_accounts(state: State) -> bool:
    """Whether more than one queue or user has used the cluster, or waits for it."""
    if state.usage.accounts > 1:
        return True
    waiting = state.waiting.lines
    if len(waiting) < 2:
        return False
    first = next(iter(waiting))[:2]
    return any(line[:2] != first for line in waiting)
