"""What a tree of queues remembers of its usage is what it would find anew."""

from __future__ import annotations

import random
from dataclasses import replace

from worlds import queue

from millpond.model.resources import Amount
from millpond.scheduling.ledger.journal import Journal
from millpond.scheduling.tenancy.queues import QueueTree


def test_rooms_and_shields_follow_charges_trials_and_changes_of_queues() -> None:
    draws, journal = random.Random(3), Journal()
    tree = QueueTree(journal)
    tree.set_queues([queue("team", guarantee=6, limit=12), queue("red", parent="team", guarantee=2, limit=7)])
    tree.set_queues([queue("blue", parent="team", borrows=False), queue("green", limit=9), queue("own", guarantee=3)])
    named = Amount(2000, models=(("T4", 2000),))
    tree.set_queue(replace(queue("of-model", limit=9), guarantee=named))
    leaves: tuple[str, ...] = ("red", "blue", "green", "own", "of-model", "default")
    held: list[tuple[str, Amount]] = []
    rooms, shielding, left = set(), set(), set()
    for step in range(300):
        mark = journal.begin()
        is_kept = step % 3 > 0
        if held and draws.random() < len(held) / 24:
            draws.shuffle(held)
            tree.charge(*held[-1], -1)
            if is_kept:
                held.pop()
        else:
            milli = draws.choice((0, 500, 1500))
            models = ((draws.choice(("T4", "A100")), milli),) if milli else ()
            charged = draws.choice(leaves), Amount(milli, draws.choice((0, 1000)), models=models)
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
        left.add(tree.guarantee_use(tree.by_name["of-model"]).left)
    assert len(rooms) > 4
    assert len(shielding) > 2
    assert len(left) > 4


def check(tree: QueueTree, leaves: tuple[str, ...]) -> None:
    remembered = answers(tree, leaves)
    tree._forget_answers()
    assert remembered == answers(tree, leaves)  # remembered until the next charge


def answers(tree: QueueTree, leaves: tuple[str, ...]) -> tuple[object, ...]:
    uses = [tree.guarantee_use(node) for node in tree.by_name.values()]
    return [tree.room(name) for name in leaves], tree.shielding, uses
