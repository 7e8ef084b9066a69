"""What a tree of queues remembers of its usage is what it would find anew."""

from __future__ import annotations

import random

from worlds import queue

from millpond.model.resources import Amount
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.tenancy.queues import QueueTree


def test_rooms_and_shields_follow_charges_trials_and_changes_of_queues() -> None:
    draws, journal = random.Random(3), Journal()
    tree = QueueTree(journal)
    tree.set_queues([queue("team", guarantee=6, limit=12), queue("red", parent="team", guarantee=2, limit=7)])
    tree.set_queues([queue("blue", parent="team", borrows=False), queue("green", limit=9), queue("own", guarantee=3)])
    leaves, held, rooms, shielding = ("red", "blue", "green", "own", "default"), [], set(), set()
    for step in range(300):
        mark = journal.begin()
        is_kept = step % 3 > 0
        if held and draws.random() < len(held) / 24:
            draws.shuffle(held)
            tree.charge(*held[-1], -1)
            if is_kept:
                held.pop()
        else:
            charged = draws.choice(leaves), Amount(draws.choice((0, 500, 1500)), draws.choice((0, 1000)))
            tree.charge(*charged, 1)
            if is_kept:
                held.append(charged)
        check(tree, leaves)
        if is_kept:
            journal.commit()
        else:
            journal.rollback(mark)
            check(tree, leaves)
        if step % 50 == 49:
            tree.set_queue(queue("green", limit=draws.choice((None, 4, 11))))
            check(tree, leaves)
        rooms.add(tree.room("red"))
        shielding.add(tree.shielding)
    assert len(rooms) > 4
    assert len(shielding) > 2


def check(tree: QueueTree, leaves: tuple[str, ...]) -> None:
    remembered = [tree.room(name) for name in leaves], tree.shielding
    tree._forget_answers()
    assert remembered == ([tree.room(name) for name in leaves], tree.shielding)
    for name in leaves:
        tree.room(name)  # remembered until the next charge
