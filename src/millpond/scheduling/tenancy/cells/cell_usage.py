"""What became of the cells that queues are owed: in use, free, lent, or without hardware."""

from __future__ import annotations

from collections.abc import Sequence

from millpond.model.tenancy.cells import CellUsage
from millpond.scheduling.tenancy.cells.book import CellBook
from millpond.scheduling.tenancy.cells.domains import Domain


def usage_of(book: CellBook, queues: Sequence[str]) -> list[CellUsage]:
    """What became of the cells of these queues, the largest first, pinned ones last."""
    found: dict[tuple[bool, str], tuple[int, ...]] = {}
    domains = [domain for queue in queues for domain in book.domains_of(queue)]
    counts = [
        ((domain.pinned is not None, domain.chain.spec.levels[level]), _counts(book, domain, level))
        for domain in sorted(domains, key=lambda each: -each.chain.size[-1])
        for level in range(domain.chain.top, -1, -1)
    ]
    missing = (cell for queue in queues for cell in book.missing.get(queue, ()))
    counts += [((False, cell.level), (cell.count, 0, 0, 0, cell.count)) for cell in missing]
    for key, numbers in counts:
        if numbers[0]:
            before = found.get(key, (0,) * len(numbers))
            found[key] = tuple(a + b for a, b in zip(before, numbers, strict=True))
    return [
        CellUsage(level, pinned, *numbers)
        for (pinned, level), numbers in sorted(found.items(), key=lambda each: each[0][0])
    ]


def _counts(book: CellBook, domain: Domain, level: int) -> tuple[int, int, int, int, int]:
    """Of the cells of a level: how many are owed, in use, free, lent and without hardware."""
    chain = domain.chain
    if domain.pinned is not None:
        if domain.pinned[0] != level:
            return 0, 0, 0, 0, 0
        cell = domain.pinned[1]
        if domain.users[domain.pinned]:
            return 1, 1, 0, 0, 0
        if chain.gone[level][cell]:
            return 1, 0, 0, 0, 1
        return (1, 0, 0, 1, 0) if chain.visitors[level][cell] else (1, 0, 1, 0, 0)
    unbound = domain.unbound[level]
    bad = min(book.doomed(domain, level), unbound) if unbound else 0
    free = min(domain.quiet(level), unbound - bad) if unbound else 0
    return domain.cells[level], domain.cells[level] - unbound, free, unbound - bad - free, bad
