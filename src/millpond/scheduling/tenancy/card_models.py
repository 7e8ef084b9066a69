"""What the cards are that work holds, or could hold: for limits and guarantees that name their models or their memory.

Work that runs counts for the cards that it has, and for the memory that it takes of these. A job that waits, and would
take cards of several models, has a *choice* for each: it is admitted, or guaranteed, if one of them is, as a whole, and
then placed on nodes without cards of the others. It counts for as much memory then as the largest cards of that model
in its pool have. As each model is bounded by itself, and memory of all together, what is within bounds on each of
several models is so on a mixture of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from millpond.model.resources import CARD_MILLI, Amount
from millpond.model.tenancy.reservations import AdvanceReservation
from millpond.model.workloads import Job
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding


def on_models(cluster: Cluster, amount: Amount, holdings: Iterable[Holding]) -> Amount:
    """An amount as it counts on the very cards of holdings, together what it has of cards."""
    by_model: dict[str, int] = {}
    card_mib = 0
    for holding in holdings:
        card_mib += sum(holding.memory_mib)
        for device in holding.devices:
            model = cluster.model_of(device)
            by_model[model] = by_model.get(model, 0) + holding.shape.compute_milli
    return replace(amount, models=tuple(sorted(by_model.items())), card_mib=card_mib, card_share_milli=0)


def _of_model(cluster: Cluster, pool: str, amount: Amount, model: str) -> Amount:
    """An amount of cards of a pool as it counts if all of them are of one model."""
    card_mib = amount.card_mib + _memory_of(cluster, pool, amount.card_share_milli, model)
    return replace(amount, models=((model, amount.gpu_milli),), card_mib=card_mib, card_share_milli=0)


def _memory_of(cluster: Cluster, pool: str, share_milli: int, *models: str) -> int:
    """The memory of so many milli of the largest cards of these models in a pool, in MiB."""
    return (
        share_milli
        * max((cluster.hardware_index.largest_card_mib(pool, model) for model in models), default=0)
        // CARD_MILLI
    )


def choices_of(cluster: Cluster, demand: RequestClass, amount: Amount) -> tuple[Amount, ...]:
    """The ways in which jobs of a demand may hold an amount: one for each model of their pool that all roles take.

    Where roles have none in common, there is one way: each role counts for every model that it takes.
    """
    asked = [role for role in demand.roles if role.request.devices]
    present = cluster.hardware_index.models_in(demand.pool)
    common = [model for model in present if all(_takes(role.request.models, model) for role in asked)]
    if common:
        return tuple(_of_model(cluster, demand.pool, amount, model) for model in common)
    by_model: dict[str, int] = {}
    for role in asked:
        part = amount.gpu_milli * role.desired * role.request.gpu_milli // max(demand.gpu_milli, 1)
        for model in present:
            if _takes(role.request.models, model):
                by_model[model] = by_model.get(model, 0) + part
    card_mib = amount.card_mib + _memory_of(cluster, demand.pool, amount.card_share_milli, *by_model)
    return (replace(amount, models=tuple(sorted(by_model.items())), card_mib=card_mib, card_share_milli=0),)


def on_models_alone(job: Job, models: Sequence[str]) -> Job:
    """The same job, which takes cards of these models alone, all of which it takes."""
    roles = (
        replace(role, request=replace(role.request, models=tuple(models))) if role.request.devices else role
        for role in job.roles
    )
    return replace(job, roles=tuple(roles))


def choices_of_reserved(cluster: Cluster, wanted: AdvanceReservation) -> tuple[Amount, ...]:
    """The same for the cards of a reservation: one for each model of its pool that it takes."""
    present = [model for model in cluster.hardware_index.models_in(wanted.pool) if _takes(wanted.models, model)]
    amount = Amount(wanted.gpu_milli, card_share_milli=wanted.gpu_milli)
    return tuple(_of_model(cluster, wanted.pool, amount, model) for model in present)


def on_nodes(cluster: Cluster, wanted: AdvanceReservation, by_node: Mapping[str, int]) -> Amount:
    """So much of the cards of nodes, by name, that are kept for a reservation; of a model that it takes."""
    by_model: dict[str, int] = {}
    for name, milli in by_node.items():
        node = cluster.node_named(name)
        model = next((each.model for each in node.devices if _takes(wanted.models, each.model)), "") if node else ""
        by_model[model] = by_model.get(model, 0) + milli
    models = tuple(sorted((model, milli) for model, milli in by_model.items() if model and milli))
    card_mib = sum(_memory_of(cluster, wanted.pool, milli, model) for model, milli in models)
    return Amount(sum(by_node.values()), models=models, card_mib=card_mib)


def _takes(models: tuple[str, ...], model: str) -> bool:
    return not models or model in models
