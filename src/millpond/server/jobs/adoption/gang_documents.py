"""A gang of pods that others made as a job file: to the scheduler it is a job as all others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

from millpond.engines.kubernetes.adoption.gangs import ANNOTATION_PREFIX, FoundGang, GangKey, GangTerms, PodRole
from millpond.model.errors import InvalidInputError
from millpond.model.resources import CARD_MILLI, SHARE_OF_CARD, TaskRequest
from millpond.model.sharing import GPU_SLICES
from millpond.model.workloads import Priority
from millpond.server.store.schema import LONGEST_USER
from millpond.specs.api.jobs.reasons import ReasonInfo, RemedyInfo
from millpond.specs.config.kubernetes import AdoptFile
from millpond.specs.config.origins import slug_of
from millpond.specs.errors import SpecError
from millpond.specs.job.adopted import AdoptedPods
from millpond.specs.job.job_spec import JobSpec, stored_job
from millpond.specs.source_positions import read_documents

SYSTEM_PRIORITY: Final = 1_000_000_000
"""Priority classes from here on are the cluster's own."""
_MARK: Final = 12
_ANY: Final = GangKey("any", "any", "any")


@dataclass(frozen=True, slots=True)
class GangPlace:
    """Where a gang lines up, and as whose.

    Attributes:
        user: as accounts call them, or a namespace and a service account, shortened where the store has no room for it;
            no account has a name with a colon.
    """

    user: str
    queue: str


def place_of(gang: FoundGang, rules: AdoptFile) -> GangPlace:
    """Where a gang lines up.

    Raises:
        InvalidInputError: its label names a queue that its namespace may not have.
    """
    namespace, terms = gang.key.namespace, gang.terms
    rule = rules.of(namespace)
    if rule is None:
        raise InvalidInputError(f"pods of namespace {namespace} are not adopted", "see kubernetes.adopt")
    queue = terms.queue or rule.queues[0]
    if queue not in rule.queues:
        allowed = ", ".join(rule.queues)
        raise InvalidInputError(
            f"namespace {namespace} may not use queue {queue!r}",
            f"label its pods with one of: {allowed}; or have an admin add it to kubernetes.adopt",
        )
    return GangPlace(rule.user or _user_of(namespace, terms.account), queue)


def _user_of(namespace: str, account: str) -> str:
    user = f"{namespace}:{account}"
    if len(user) <= LONGEST_USER:
        return user
    mark = f"~{sha256(user.encode()).hexdigest()[:_MARK]}"  # no name of Kubernetes has a tilde
    return user[: LONGEST_USER - len(mark)] + mark


def name_of(gang: FoundGang) -> str:
    """What the job that stands for a gang is called."""
    return slug_of(gang.key.name) or "pods"


def spec_of(gang: FoundGang, place: GangPlace, rules: AdoptFile) -> JobSpec:
    """The job file that stands for a gang, checked.

    Raises:
        InvalidInputError: an annotation has a value that its field does not take.
    """
    name, adopted = name_of(gang), adopted_by(gang)
    like = _spec_like(gang.roles, gang.terms, place.queue, priority_of(gang, rules))
    return replace(
        like,
        document={**like.document, "name": name, "adopted": adopted},
        file=like.file.model_copy(update={"name": name, "adopted": AdoptedPods.model_validate(adopted)}),
        job=replace(like.job, name=name),
    )


@lru_cache(maxsize=1_000)
def _spec_like(roles: tuple[PodRole, ...], terms: GangTerms, queue: str, priority: Priority) -> JobSpec:
    """The job file of any gang with these: a Deployment has thousands that differ by their names alone.

    Raises:
        InvalidInputError: an annotation has a value that its field does not take.
    """
    document: dict[str, Any] = {
        "name": "pods",
        "queue": queue,
        "priority": priority.name.lower(),
        "roles": [_role(role) for role in roles],
        "checkpoint": {"mode": "none", "grace": f"{terms.grace_s:g}s"},
        "suspend": "never",
        **{field: _value(text) for field, text in terms.fields},
        "adopted": adopted_by(FoundGang(_ANY, terms, roles)),
    }
    try:
        return stored_job(document)
    except SpecError as error:
        problem = error.problems[0]
        field, *within = problem.loc.split(".")
        name = f"{ANNOTATION_PREFIX}{field.replace('_', '-')}" if field else "its annotations"
        if field == "roles":
            name = f"the {within[1]} of its containers"
        raise InvalidInputError(f"{name}: {problem.message}", problem.hint) from error


def as_pods_can(reason: ReasonInfo, document: Mapping[str, Any]) -> ReasonInfo:
    """A reason of a job, with what would help as whoever made its pods can do it.

    In words alone, as they write no job file; and no part of a card where they ask for cards by number.

    Args:
        document: of the job; one that stands for no pods of others is left as it is.
    """
    remedy = reason.remedy
    if remedy is None or "adopted" not in document:
        return reason
    takes_parts = any(GPU_SLICES in role.get("extras", {}) for role in document["roles"])
    is_lost = is_part_of_card(remedy) and not takes_parts
    return replace(reason, remedy=None if is_lost else RemedyInfo(change=remedy.change))


def is_part_of_card(remedy: RemedyInfo) -> bool:
    """Whether what would help is to ask for a part of a card in place of a whole one."""
    return remedy.field.endswith("gpus") and not remedy.value.isdecimal()


def priority_of(gang: FoundGang, rules: AdoptFile) -> Priority:
    """The class of its priority: as the configuration has it, else by the number."""
    named = rules.priorities.get(gang.terms.priority_class)
    if named is not None:
        return Priority[named.upper()]
    number = gang.terms.priority
    if number >= SYSTEM_PRIORITY:
        return Priority.CRITICAL
    return Priority.HIGH if number > 0 else Priority.NORMAL if number == 0 else Priority.LOW


def adopted_by(gang: FoundGang) -> dict[str, Any]:
    """A gang, as job files have it."""
    nodes = [
        [{"key": each.key, "operator": each.operator.value, "values": list(each.values)} for each in term]
        for term in gang.terms.selection
    ]
    spacing = [
        {
            "kind": rule.kind.value,
            "label": rule.label,
            "roles": list(rule.roles),
            "others": list(rule.others),
            "most": rule.most,
            "counted": dict(rule.counted),
            "empty": rule.empty,
            "least_places": rule.least_places,
        }
        for rule in gang.terms.spacing
    ]
    return {
        **asdict(gang.key),
        **({"nodes": nodes} if nodes else {}),
        **({"spacing": spacing} if spacing else {}),
        **({"contents": list(gang.terms.contents)} if gang.terms.contents else {}),
    }


def key_in(document: Mapping[str, Any]) -> GangKey:
    """The gang that a stored job file stands for."""
    adopted = AdoptedPods.model_validate(document["adopted"])
    return GangKey(adopted.namespace, adopted.kind, adopted.name, adopted.uid, adopted.part, adopted.cluster)


def _role(role: PodRole) -> dict[str, Any]:
    request = role.request
    return {
        "name": role.name,
        "tasks": {"desired": role.count, "min": role.least, "max": role.count},
        "gpus": _gpus(request),
        "extras": dict(request.extras),
        "cpus": f"{request.cpu_milli}m",
        "memory": f"{request.memory_mib}MiB",
    }


def _gpus(request: TaskRequest) -> Any:
    part = request.slice
    if part.compute_milli == CARD_MILLI:
        return request.devices
    memory = {} if part.memory_mib == SHARE_OF_CARD else {"memory": f"{part.memory_mib}MiB"}
    return {"cards": 1, "compute": part.compute_milli / CARD_MILLI, **memory}


def _value(text: str) -> Any:
    """An annotation's value, as it would be read in a job file."""
    try:
        (document,) = read_documents(f"---\n{text}")  # so it is no JSON: [A100, H100] is none
    except (SpecError, ValueError):  # ValueError: it is several documents
        return text
    return document.value
