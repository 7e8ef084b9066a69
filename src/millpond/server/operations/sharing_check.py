"""Who shares out the cards of this machine, and who uses one beyond its slice: for the check of a machine."""

from __future__ import annotations

from pathlib import Path

from millpond.node.sharing.agent_lock import AgentLock
from millpond.node.task.records import TaskFiles, running_records
from millpond.server.operations.findings import Finding, Grade


def sharing(state_dir: Path) -> Finding:
    """Whether all who share cards keep to their slices, as far as the server has seen."""
    what = "sharing cards"
    outside = escapes(state_dir.absolute())
    if outside:
        remedy = "talk to their owners; pools can suspend or end such tasks (slices: escapes)"
        return Finding(what, Grade.LIMITED, "beyond their slices: " + "; ".join(outside), remedy)
    holder = AgentLock().holder()
    if holder and not holder.endswith(f"state directory {state_dir.resolve()}"):
        remedy = "stop it, or submit to it; a server with this state directory refuses slices and swapping meanwhile"
        return Finding(what, Grade.LIMITED, f"done by another server ({holder})", remedy)
    return Finding(what, Grade.OK, f"done by {holder}" if holder else "done by no server at the moment")


def escapes(state_dir: Path) -> list[str]:
    """Tasks that run and were seen to use a card beyond their slice."""
    found = []
    for record in running_records(state_dir):
        seen = TaskFiles.of(state_dir, record.id).escape
        if record.alive and seen.exists():
            found.append(f"{record.id.job}, task {record.id.task}: {seen.read_text()}")
    return found
