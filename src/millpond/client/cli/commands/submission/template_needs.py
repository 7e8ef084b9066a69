"""What a template needs: found with the PATH of this shell, or in an environment that it brings along."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from millpond.client.cli.error_output import say
from millpond.client.sdk import Client
from millpond.client.sdk.environment import environment_for
from millpond.client.sdk.transport.discovery import is_on_this_machine
from millpond.model.errors import UnavailableError
from millpond.specs.job.changes import FieldEdit
from millpond.specs.job.job_spec import JobSpec
from millpond.specs.job.template_needs import missing_needs
from millpond.specs.job.templates import Template, waiting_for


def brings_environment(template: Template, path: str, here: bool) -> bool:
    """Whether a template has to bring its environment; if not, everything it needs is found with this ``PATH``.

    Args:
        here: the job runs on this machine, so that what is found counts.

    Raises:
        UnavailableError: something is missing, and it brings none; how to come by it stands in the remedy.
    """
    brings = bool(template.header.environment)
    if brings and not here:
        return True
    missing = missing_needs(template, path)
    if not missing or brings:
        return bool(missing)
    names = " and ".join(need.name for need in missing)
    ways = "; ".join(dict.fromkeys(need.install for need in missing))
    raise UnavailableError(
        f"template {template.name!r} needs {names}, not found with the PATH of this shell",
        f"activate the environment that has it, or install it: {ways}",
    )


def job_of(template: Template, client: Client, changes: tuple[str, ...]) -> tuple[JobSpec, bool]:
    """The job of a template in this folder, and whether it waits for an environment (``make_environment``)."""
    engine = client.server().engine
    # What a pod has is in its image: nothing can be looked for, or brought.
    brings = engine != "kubernetes" and brings_environment(
        template, os.environ.get("PATH", ""), is_on_this_machine(client.address.url)
    )
    env = {} if brings else environment_for(engine)
    return template.job(Path.cwd(), [FieldEdit.parse(change) for change in changes], env, brings), brings


def make_environment(template: Template, client: Client, document: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Submit the job that sees to a template's environment; its id, and the job file of who waits for it."""
    made = client.submit(template.environment_job(document).document).id
    say(f"{made} sees to the environment of {template.name}: made once, then kept on the machine")
    return made, waiting_for(document, made)
