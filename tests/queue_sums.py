"""What ``pond queue show`` says, counted anew from the jobs, and the sums that have to come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from millpond.model.states import JobState
from millpond.scheduling.scheduler import Scheduler
from millpond.scheduling.tenancy.bounds import OTHER_MODELS
from millpond.scheduling.tenancy.queue_views import QueueStatus


def check_queue_sums(core: Scheduler) -> None:
    """Used is what jobs hold; within and borrowed make it up; what is unused of a guarantee is free, lent or away."""
    statuses = core.queue_statuses()
    by_name = {status.queue.name: status for status in statuses}
    _check_work(core, by_name)
    _check_models(core, statuses)
    background = by_name["root"].work.background_milli
    idle = sum(core._state.cluster.idle_milli().values()) + background  # it leaves for any other work
    for status in statuses:
        share, name = status.share, status.queue.name
        assert share.within + share.borrowed == share.used, name
        assert min(share.within, share.borrowed, share.lent, share.free) >= 0, f"{name}: {share}"
        assert share.free <= idle, name
        assert share.lent + share.free <= share.guaranteed, name
        _check_below(status, [each for each in statuses if each.queue.parent == name])
    root, leaves = by_name["root"].share, [status.share for status in statuses if status.takes_jobs]
    assert root.used == sum(share.used for share in leaves)
    assert sum(share.lent for share in leaves) <= sum(share.borrowed for share in leaves), "lent to no one"
    assert root.lent <= root.borrowed
    away = sum(_away(core, by_name["root"]))
    assert root.lent + root.free + away >= root.guaranteed - root.within, "unused, and not accounted for"


def _away(core: Scheduler, root: QueueStatus) -> Iterator[int]:
    """Of each model, how much of what is guaranteed is neither used, nor lent, nor idle."""
    idle = Counter(core._state.cluster.capacity.idle_by_model(core._state.cluster.words.models.names))
    others = sum(milli for model, milli in idle.items() if model not in root.shares)
    for model, share in root.shares.items():
        there = others if model == OTHER_MODELS else idle[model]
        there += root.work.background_milli if len(root.shares) == 1 else 0
        yield max(share.guaranteed - share.within - share.borrowed - there, 0)


def _check_models(core: Scheduler, statuses: Sequence[QueueStatus]) -> None:
    """Of each model, what queues are said to hold is what their jobs hold, and the parts are as of the whole."""
    idle = core._state.cluster.capacity.idle_by_model(core._state.cluster.words.models.names)
    assert sum(idle.values()) == sum(core._state.cluster.idle_milli().values())
    for status in statuses:
        held, counted = dict(status.work.held.models), core._state.queues.by_name[status.queue.name].models
        named = set(status.shares) - {OTHER_MODELS}
        assert {model: status.shares[model].used for model in named} == {model: held.get(model, 0) for model in named}
        if core._state.queues.counts_cards:
            assert {model: milli for model, milli in counted.items() if milli} == held, status.queue.name
        for share in status.shares.values():
            assert share.within + share.borrowed == share.used, status.queue.name
            assert min(share.within, share.borrowed, share.lent, share.free) >= 0, status.queue.name
            assert share.lent + share.free <= share.guaranteed, status.queue.name


def _check_work(core: Scheduler, by_name: dict[str, QueueStatus]) -> None:
    """Held, running, waiting and asked of each queue, by going up from each job by the names of parents."""
    held, running, waiting, asked = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    background = Counter[str]()
    for record in core.jobs.values():
        tasks = [task for task in record.tasks if task.holding is not None]
        milli = sum(
            record.job.roles[task.role_index].request.gpu_milli
            for task in tasks
            if task.holding is not None and task.holding.hold.name != "SWAPPED"
        )
        waits = record.state is JobState.QUEUED and not tasks and not record.is_parked and not record.scaled_to_zero
        queue = record.job.queue if tasks or not record.state.ended else ""  # that of an ended job may be gone
        while queue:
            (background if record.job.is_background else held)[queue] += milli
            running[queue] += record.id in core._state.running
            waiting[queue] += waits
            asked[queue] += sum(r.desired * r.request.gpu_milli for r in record.job.roles) if waits else 0
            queue = by_name[queue].queue.parent
    for name, status in by_name.items():
        assert status.share.used == status.work.held.gpu_milli == held[name], name
        assert status.work.background_milli == background[name], name
        assert status.work.running == running[name], name
        assert (status.work.waiting, status.work.asked_milli) == (waiting[name], asked[name]), name


def _check_below(status: QueueStatus, below: list[QueueStatus]) -> None:
    """What the queues below one hold, and have borrowed and lent, beside what it holds and so on as a whole."""
    if not below:
        return
    name, whole = status.queue.name, status.share
    assert whole.used == sum(each.share.used for each in below), name
    inside = sum(each.share.borrowed for each in below) - whole.borrowed
    assert inside >= 0, f"{name} has borrowed more than the queues in it"
    if not status.queue.guarantee.gpu_milli:
        assert inside == 0, f"without a guarantee of its own {name} has nothing to lend inside"
    assert sum(each.share.lent for each in below) <= whole.lent + inside, name
    assert sum(each.share.free for each in below) <= whole.free, name
