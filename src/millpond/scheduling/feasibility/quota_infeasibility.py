"""What limits and guarantees would keep out for ever, also of a cluster that is empty.

A job that takes cards of several models can run if it can on those of which its queues may ever have enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from millpond.model.amounts import card_memory_text, count_text, cpus_text, gpus_text, memory_text, milli_text
from millpond.model.resources import CARD_MILLI, Amount
from millpond.model.workloads import Job
from millpond.scheduling.explaining.infeasibility import Infeasibility
from millpond.scheduling.feasibility.request_classes import RequestClass, amount_of
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.bounds import OTHER_MODELS, of_model
from millpond.scheduling.tenancy.card_models import choices_of, on_models_alone
from millpond.scheduling.tenancy.promises import keeps_promises
from millpond.scheduling.tenancy.queue_node import QueueNode


def quota_infeasibility(state: State, job: Job) -> Infeasibility | None:
    """The first bound that a job of this size breaks by itself, on each model of cards that it takes; None if none."""
    asked = _least_amount(job)
    for node in state.queues.by_name[job.charged_queue].path:
        beyond = None if node.limit is None else node.unused().first_beyond(node.limit, asked)
        if beyond is not None:
            who = f"queue {node.queue.name!r}"
            return _beyond(job, who, beyond.field, beyond.asked, beyond.most, _UNITS[beyond.field])
    choices = _choices(state, job)
    return _on_choices(state, job, choices)


def infeasibility_on_open_models(
    state: State, job: Job, room: Callable[[Job], Infeasibility | None]
) -> Infeasibility | None:
    """Why a job can never run that its queues and its user may only ever have cards of some models for, on these.

    Args:
        room: why a job has no room on its pool, were that empty.
    """
    choices = _choices(state, job)
    if len(choices) < 2:
        return None
    closed = {each: why for each in choices if (why := _on_choices(state, job, (each,))) is not None}
    if not closed:
        return None
    first = next(iter(closed.values()))
    if len(closed) == len(choices):
        return first
    models = [each.models[0][0] for each in choices if each not in closed]
    lacking = room(on_models_alone(job, models))
    if lacking is None:
        return None
    return replace(first, what=f"{first.what}; and of {' and '.join(models)} alone: {lacking.what}")


def _least_amount(job: Job) -> Amount:
    return amount_of((role.request, role.minimum) for role in job.roles)


def _choices(state: State, job: Job) -> tuple[Amount, ...]:
    """The ways in which a job may hold what it asks for, where a limit or a guarantee names models of cards."""
    asked = _least_amount(job)
    counts = state.queues.counts_cards and asked.has_cards
    return choices_of(state.cluster, RequestClass(job), asked) if counts else (asked,)


def _on_choices(state: State, job: Job, choices: Sequence[Amount]) -> Infeasibility | None:
    return (
        _model_infeasibility(state, job, choices)
        or _guarantee_infeasibility(state, job, choices)
        or _account_infeasibility(state, job, choices)
    )


def _model_infeasibility(state: State, job: Job, choices: Sequence[Amount]) -> Infeasibility | None:
    """A job that asks for more than limits ever leave of each model of cards that it takes, or of their memory."""
    path = [node.unused() for node in state.queues.by_name[job.charged_queue].path]
    beyond = []
    for choice in choices:
        bounds = ((node, node.limit) for node in path if node.limit is not None)
        found = next(((node, each) for node, limit in bounds if (each := node.cards_beyond(limit, choice))), None)
        if found is None:
            return None
        beyond.append(found)
    if all(each.field == "card_memory" for _, each in beyond):
        node, least = min(beyond, key=lambda pair: pair[1].asked)
        return _beyond(job, f"queue {node.queue.name!r}", "card_memory", least.asked, least.most, 1)
    texts = [
        f"queue {node.queue.name!r} never holds more than {_WORDS[most.field](most.most)} of "
        f"{most.model or choice.models[0][0]}"
        for choice, (node, most) in zip(choices, beyond, strict=True)
    ]
    beyond = [pair for pair in beyond if pair[1].field != "card_memory"]
    asked = choices[0].gpu_milli
    most = max(each.most for _, each in beyond)
    less, field, value = _less(job, "gpus", asked, most) if most else ("", "gpu_models", "")
    return Infeasibility(
        f"the job asks for {gpus_text(asked)}; {', '.join(texts)}",
        f"{f'{less}, or for' if most else 'ask for'} other models (gpu_models), or have the limit raised",
        field,
        value,
        (("asked", asked // 1000), ("limit", most // 1000)),
    )


def _guarantee_infeasibility(state: State, job: Job, choices: Sequence[Amount]) -> Infeasibility | None:
    """A queue that may not borrow, and lives on a guarantee of less than the job asks for."""
    found = [_beyond_guarantee(state, job, each) for each in choices]
    if None not in found:
        return max((each for each in found if each is not None), key=lambda each: dict(each.numbers)["limit"])
    return None if job.preemptible else _unguaranteed(state, job, choices)


def _beyond_guarantee(state: State, job: Job, asked: Amount) -> Infeasibility | None:
    leaf = state.queues.by_name[job.charged_queue]
    bounds = leaf.confined_to
    if leaf.is_confined and not any(node.unused().within_guarantee(asked) for node in leaf.guarantors):
        bounds = (*bounds, max(leaf.path, key=lambda node: node.queue.guarantee.gpu_milli))
    for node in bounds:
        empty = node.unused()
        beyond = empty.first_beyond(node.guarantee, asked) if empty.keeps_out(asked) else None
        if beyond is None:
            continue
        wanted, most = beyond.asked, beyond.most
        unit, words = _UNITS[beyond.field], _WORDS[beyond.field]
        less, field, value = _less(job, beyond.field, wanted, most) if most else ("", "queue", "")
        return Infeasibility(
            f"the job asks for {words(wanted)}{beyond.of_model}; queue {job.queue!r} may not borrow, and is guaranteed "
            f"{words(most)}{' of these' if beyond.model else ''}",
            f"{less}, or use another queue" if most else "use another queue",
            field,
            value,
            (("asked", wanted // unit), ("limit", most // unit)),
        )
    return None


def _unguaranteed(state: State, job: Job, choices: Sequence[Amount]) -> Infeasibility | None:
    """A job that is not preemptible, so that it may not borrow, of more than the guarantees it could live on."""
    queues, leaf, asked = state.queues, state.queues.by_name[job.queue], choices[0]
    everything = {node: node.held for node in queues.by_name.values()}
    if not queues.concern_guarantees(asked) or any(
        keeps_promises(node, leaf, each, everything) for node in leaf.guarantors for each in choices
    ):
        return None
    most, model = max(_cards_covered(node, each) for node in leaf.path for each in choices)
    largest = gpus_text(most) + (of_model(model) if model else "")
    beside = any(node.unused().within_guarantee(each) for node in leaf.guarantors for each in choices)
    return Infeasibility(
        f"the job is not preemptible, so it borrows nothing, and asks for {gpus_text(asked.gpu_milli)} and "
        f"{cpus_text(asked.cpu_milli)}; no guarantee of queue {job.queue!r} or above it covers that (the largest is of "
        f"{largest}){' beside those of the queues below it' if beside else ''}",
        "leave it preemptible, ask for less, or have the guarantee raised",
        "preemptible",
        "true",
        (("asked", asked.gpu_milli // 1000), ("limit", most // 1000)),
    )


def _cards_covered(node: QueueNode, choice: Amount) -> tuple[int, str]:
    """How many of such cards a guarantee covers, in milli, and of which model, where guarantees name models."""
    bound = node.guarantee
    if not bound.models or not choice.models:
        return node.queue.guarantee.gpu_milli, ""
    return min(
        (bound.models[model], model) if model in bound.models else (bound.other_milli or 0, OTHER_MODELS)
        for model, _ in choice.models
    )


def _account_infeasibility(state: State, job: Job, choices: Sequence[Amount]) -> Infeasibility | None:
    """A limit of the job's user, or of the group whose queue it is, that the job breaks all by itself."""
    found = [state.limits.never_admits(job, each) for each in choices]
    limit, asked = found[0], choices[0]
    if limit is None or None in found:
        return None
    who = f"user {limit.user!r}" if limit.user else f"queue {limit.queue!r}"
    for field, wanted, most in (
        ("gpus", asked.gpu_milli, limit.gpu_milli),
        ("cpus", asked.cpu_milli, limit.cpu_milli),
        ("card_memory", asked.card_mib, limit.card_mib),
    ):
        if most is not None and wanted > most:
            return _beyond(job, who, field, wanted, most, 1)
    return Infeasibility(f"{who} may run no jobs", "have the limit raised")


def _beyond(job: Job, who: str, field: str, wanted: int, most: int, unit: int) -> Infeasibility:
    """A job that asks for more than ``who`` ever holds, in units of which ``unit`` make one of the numbers given."""
    words, (less, changed, value) = _WORDS[field], _less(job, field, wanted, most)
    return Infeasibility(
        f"the job asks for {words(wanted)}; {who} never holds more than {words(most)}",
        f"{less}{' (gpus)' if field == 'card_memory' and not changed else ''}, or have the limit raised",
        changed,
        value,
        (("asked", wanted // unit), ("limit", most // unit)),
    )


def _less(job: Job, field: str, wanted: int, most: int) -> tuple[str, str, str]:
    """What a job that asks for too much of something in all should ask for, the field of its file, and the value.

    A task alone should ask for less, tasks that are alike should be fewer; without a field where that does not do.
    """
    tasks = sum(role.minimum for role in job.roles)
    fewer = most * tasks // wanted
    if tasks > 1 and len(job.roles) == 1 and fewer:
        return f"ask for at most {count_text(fewer, 'task')}", "tasks", str(fewer)
    if field == "gpus" and most > CARD_MILLI:
        most -= most % CARD_MILLI
    is_field = tasks == 1 and field != "card_memory" and most
    less = f"ask for at most {_WORDS[field](most)}"
    return (less, field, _written(field, most)) if is_field else (less, "", "")


_UNITS = {"gpus": 1000, "cpus": 1000, "memory": 1, "card_memory": 1}
_WORDS: dict[str, Callable[[int], str]] = {
    "gpus": gpus_text, "cpus": cpus_text, "memory": memory_text, "card_memory": card_memory_text,
}  # fmt: skip


def _written(field: str, amount: int) -> str:
    """As a job file has it."""
    return f"{amount}MiB" if field == "memory" else milli_text(amount)
