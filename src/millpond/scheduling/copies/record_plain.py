"""The records of jobs and their tasks as plain data, and back, with what they hold."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from millpond.model.codec import from_plain, to_plain
from millpond.model.decisions import SuspendMode
from millpond.model.reasons import Cause
from millpond.model.states import Outcome, TaskState
from millpond.scheduling import runs
from millpond.scheduling.elastic.measured_speed import speeds_of
from millpond.scheduling.ledger.holdings import Holding, HoldState
from millpond.scheduling.lifecycle import Trigger
from millpond.scheduling.migration.device_moves import devices_alone
from millpond.scheduling.ordering.forecasts import NEVER
from millpond.scheduling.ordering.queueing import group_of, new_record
from millpond.scheduling.reclaiming.roster import SLOT_BIN
from millpond.scheduling.records import JobRecord, Migration, MigrationStage, TaskRecord
from millpond.scheduling.state import State
from millpond.scheduling.tenancy.cells.stakes import class_in_cells, leaving_stake, part_of, stake_of
from millpond.scheduling.tenancy.cells.uses import CellUse, Stake

_MADE_ANEW = {
    "demand", "id", "queue", "group", "gpu_milli", "elastic", "amount", "state", "line", "slot", "_common_tasks",
}  # fmt: skip
"""Fields of a job's record that follow from others."""
_CONVERTED = {
    "job", "_tasks", "key", "displaces_above", "suspended_why", "suspend_mode", "ready_at", "suspend_refused",
    "leave_s", "return_s", "migration", "stop_trigger", "stop_cause",
    "turn", "progress", "speeds",
}  # fmt: skip
"""Fields that ``record_plain`` and ``record_in`` write and read one by one."""
_RECORD_FIELDS = tuple(each.name for each in fields(JobRecord) if each.name not in _MADE_ANEW | _CONVERTED)
"""All others: they are JSON as they are."""


def record_plain(state: State, record: JobRecord) -> dict[str, Any]:
    """The record of a job with its tasks."""
    plain: dict[str, Any] = {name: getattr(record, name) for name in _RECORD_FIELDS}
    if record.slot >= 0:
        plain["bins_outlived"] = int(state.roster.slots[SLOT_BIN, record.slot])
    plain["job"] = to_plain(record.job)
    plain["suspended"] = [
        to_plain(record.suspended_why),
        record.suspend_mode.value,
        record.ready_at,
        record.suspend_refused,
    ]
    moved = record.migration
    plain["migration"] = moved and [moved.live, moved.source, moved.target, moved.stage.value, moved.reason]
    plain["switching_s"] = [record.leave_s, record.return_s]
    plain["progress"] = to_plain(record.progress)
    plain["speeds"] = [list(measured) for measured in record.speeds]
    plain["on_roster"] = record.slot >= 0
    plain["key"] = [_finite(part) for part in record.key] if record.line else None
    if record.group is not None and record.line:
        plain["turn"] = _finite(record.turn)
    plain["displaces_above"] = _finite(record.displaces_above) if record.line else None
    plain["stop"] = [record.stop_trigger.value if record.stop_trigger else None, to_plain(record.stop_cause)]
    plain["tasks"] = [_task_plain(state, task) for task in record.tasks]
    return plain


def _task_plain(state: State, task: TaskRecord) -> dict[str, Any]:
    holding = task.holding
    cluster = state.cluster
    return {
        "role": task.role_index,
        "state": task.state.value,
        "placement": None if task.placement is None else to_plain(task.placement),
        "hold": None
        if holding is None
        else [
            int(holding.hold),
            cluster.node_name(holding.node),
            [cluster.device_ids[d] for d in holding.devices],
            *_right_plain(holding),
        ],
        "vacating": None
        if task.vacating is None
        else [int(task.vacating.hold), [cluster.device_ids[d] for d in task.vacating.devices]],
        "outcome": to_plain(task.outcome),
        "exit_code": task.exit_code,
        "detail": task.detail,
        "surplus": task.surplus,
        "device_failed": task.device_failed,
        "kept_until": task.kept_until,
        "shares": holding is not None and holding.is_shared,
    }


def record_in(state: State, plain: dict[str, Any]) -> JobRecord:
    """What ``record_plain`` wrote; its tasks hold in the ledger what they held."""
    record = new_record(state, from_plain(plain["job"]), plain["sequence"], plain["submitted_at"])
    for name in _RECORD_FIELDS:
        setattr(record, name, plain[name])
    why, mode, record.ready_at, record.suspend_refused = plain["suspended"]
    record.leave_s, record.return_s = plain["switching_s"]
    record.progress = from_plain(plain["progress"])
    record.speeds = speeds_of(plain["speeds"])
    record.suspended_why, record.suspend_mode = Cause(why) if why else None, SuspendMode(mode)
    if plain["migration"] is not None:
        live, source, target, stage, reason = plain["migration"]
        record.migration = Migration(live, source, target, MigrationStage(stage), reason)
    trigger, cause = plain["stop"]
    record.stop_trigger = Trigger(trigger) if trigger else None
    record.stop_cause = Cause(cause) if cause else None
    record.tasks = [_task(state, record, number, item) for number, item in enumerate(plain["tasks"])]
    record.count_tasks()
    record.refresh()
    if plain["key"] is not None:
        record.key = tuple(map(_number, plain["key"]))
        record.group = group_of(state, record)
        record.turn = record.key[0] if record.group is None else _number(plain["turn"])
        record.displaces_above = _number(plain["displaces_above"])
        state.waiting.add(record)
        if record.rekey_at:
            heapq.heappush(state.rekeys, (record.rekey_at, record.sequence, record.id))
        if record.look_at:
            heapq.heappush(state.looks, (record.look_at, record.sequence, record.id))
    return record


def _task(state: State, record: JobRecord, number: int, plain: dict[str, Any]) -> TaskRecord:
    role = record.job.roles[plain["role"]]
    task = TaskRecord(number, role.name, plain["role"])
    task.state = TaskState(plain["state"])
    task.placement = from_plain(plain["placement"])
    task.outcome = Outcome(plain["outcome"]) if plain["outcome"] else None
    for name in ("exit_code", "detail", "surplus", "device_failed"):
        setattr(task, name, plain[name])
    task.kept_until = plain["kept_until"]
    if plain["hold"] is not None:
        hold, node, devices, *right = plain["hold"]
        if node in state.cluster.node_index:
            task.holding = runs.holding_at(state, record, task, node, devices)
            _give_right(task.holding, record, right)
            task.holding.is_shared = plain["shares"]
            state.cluster.change(task.holding, HoldState(hold))
    if plain["vacating"] is not None and task.holding is not None:
        _leave(state, record, task, *plain["vacating"])
    return task


def _leave(state: State, record: JobRecord, task: TaskRecord, hold: int, devices: list[str]) -> None:
    """What a task has where it comes from."""
    cluster, holding = state.cluster, task.holding
    assert holding is not None
    old = cluster.holding(holding.node, holding.shape, [cluster.device_index[uuid] for uuid in devices])
    task.vacating = devices_alone(old) if hold else old
    task.vacating.stake = leaving_stake(record) if hold else stake_of(record, None)
    cluster.change(task.vacating, HoldState(hold))


def place_plain(state: State, task: TaskRecord, holding: Holding) -> list[Any]:
    """Where a task is to be, by names."""
    cluster = state.cluster
    devices = [cluster.device_ids[device] for device in holding.devices]
    return [task.number, cluster.node_name(holding.node), devices, *_right_plain(holding)]


def place_in(
    state: State, record: JobRecord, number: int, node: str, devices: list[str], *right: Any
) -> tuple[TaskRecord, Holding]:
    """What ``place_plain`` wrote."""
    task = record.tasks[number]
    holding = runs.holding_at(state, record, task, node, devices)
    _give_right(holding, record, right)
    return task, holding


def rights_plain(record: JobRecord) -> list[Any]:
    """By what right each task of a job is on its cards: its number, and the right if it has one."""
    return [[task.number, *_right_plain(task.holding)] for task in record.tasks if task.holding is not None]


def rights_in(record: JobRecord, plain: Sequence[Any]) -> list[tuple[Holding, Stake | None, bool]]:
    """What ``rights_plain`` wrote, for the holdings that this speaks of."""
    found: list[tuple[Holding, Stake | None, bool]] = []
    for number, *right in plain:
        holding = record.tasks[number].holding
        if holding is not None:
            twin = holding.copy()
            twin.stake, twin.is_in_cell = stake_of(record, None), False
            _give_right(twin, record, right)
            found.append((holding, twin.stake, twin.is_in_cell))
    return found


def _right_plain(holding: Holding) -> list[Any]:
    """By what right a holding is on its cards, if it is a right to cells."""
    use = None if holding.stake is None else holding.stake.use
    return [] if use is None else [[use.cluster, use.level, use.pin, holding.is_in_cell]]


def _give_right(holding: Holding, record: JobRecord, right: Sequence[Any]) -> None:
    for cluster, level, pin, holding.is_in_cell in right:
        use = CellUse(record.id, cluster, level, pin, class_in_cells(record), part_of(holding))
        holding.stake = stake_of(record, use)


def _finite(number: float) -> float | None:
    """The number as JSON knows it: None stands for infinity."""
    return None if number == NEVER else number


def _number(plain: float | None) -> float:
    """What ``_finite`` wrote."""
    return NEVER if plain is None else plain
