"""Of which models the cards are that work holds, or could hold: for limits and guarantees that name models.

Work that runs counts for the cards that it has. A job that waits, and would take cards of several models, has a
*choice* for each: it is admitted, or guaranteed, if one of them is, as a whole, and then placed on nodes without cards
of the others. As each model is bounded by itself, what is within bounds on each of several models is so on a mixture of
these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from millpond.model.reservations import AdvanceReservation
from millpond.model.resources import Amount
from millpond.model.workloads import Job
from millpond.scheduling.feasibility.request_classes import RequestClass
from millpond.scheduling.ledger.cluster import Cluster
from millpond.scheduling.ledger.holdings import Holding


def on_models(cluster: Cluster, amount: Amount, holdings: Iterable[Holding]) -> Amount:
    """An amount as it counts on the very cards of holdings, together what it has of cards."""
    by_model: dict[str, int] = {}
    for holding in holdings:
        for device in holding.devices:
            model = cluster.model_of(device)
            by_model[model] = by_model.get(model, 0) + holding.shape.compute_milli
    return replace(amount, models=tuple(sorted(by_model.items())))


def choices_of(cluster: Cluster, demand: RequestClass, amount: Amount) -> tuple[Amount, ...]:
    """The ways in which jobs of a demand may hold an amount: one for each model of their pool that all roles take.

    Where roles have none in common, there is one way: each role counts for every model that it takes.
    """
    asked = [role for role in demand.roles if role.request.devices]
    present = cluster.models_in(demand.pool)
    common = [model for model in present if all(_takes(role.request.models, model) for role in asked)]
    if common:
        return tuple(replace(amount, models=((model, amount.gpu_milli),)) for model in common)
    by_model: dict[str, int] = {}
    for role in asked:
        part = amount.gpu_milli * role.desired * role.request.gpu_milli // max(demand.gpu_milli, 1)
        for model in present:
            if _takes(role.request.models, model):
                by_model[model] = by_model.get(model, 0) + part
    return (replace(amount, models=tuple(sorted(by_model.items()))),)


def on_models_alone(job: Job, models: Sequence[str]) -> Job:
    """The same job, which takes cards of these models alone, all of which it takes."""
    roles = (
        replace(role, request=replace(role.request, models=tuple(models))) if role.request.devices else role
        for role in job.roles
    )
    return replace(job, roles=tuple(roles))


def choices_of_reserved(cluster: Cluster, wanted: AdvanceReservation) -> tuple[Amount, ...]:
    """The same for the cards of a reservation: one for each model of its pool that it takes."""
    present = [model for model in cluster.models_in(wanted.pool) if _takes(wanted.models, model)]
    return tuple(Amount(wanted.gpu_milli, models=((model, wanted.gpu_milli),)) for model in present)


def on_nodes(cluster: Cluster, wanted: AdvanceReservation, by_node: Mapping[str, int]) -> Amount:
    """So much of the cards of nodes, by name, that are kept for a reservation; of a model that it takes."""
    by_model: dict[str, int] = {}
    for name, milli in by_node.items():
        node = cluster.node_named(name)
        model = next((each.model for each in node.devices if _takes(wanted.models, each.model)), "") if node else ""
        by_model[model] = by_model.get(model, 0) + milli
    models = tuple(sorted((model, milli) for model, milli in by_model.items() if model and milli))
    return Amount(sum(by_node.values()), models=models)


def _takes(models: tuple[str, ...], model: str) -> bool:
    return not models or model in models
