"""The table of commands: where each lives, and the line that ``pond --help`` shows for it.

A command's module is imported when the command is used, never before.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command lives, and the line that ``pond --help`` shows for it."""

    target: str
    help: str


def _here(place: str, line: str) -> CommandEntry:
    return CommandEntry(f"millpond.client.cli.commands.{place}", line)


SECTIONS: dict[str, dict[str, CommandEntry]] = {
    "Start here": {
        "up": _here("server.up:command", "Start the server on this machine."),
        "down": _here("server.down:command", "Stop the server, and its jobs with it."),
        "run": _here("jobs.run:command", "Run a command in the pool and follow its output."),
        "dev": _here("jobs.dev:command", "Start a place to work: a notebook, an editor, a shell."),
    },
    "Hand in work": {
        "submit": _here("jobs.submit:command", "Hand in a job file; prints the job's id."),
        "apply": _here("jobs.apply:command", "Show what would become of a job, then hand it in."),
        "rollout": _here("jobs.rollout:group", "Follow, pause or undo the update of a service."),
        "schema": _here("library.schema:command", "Print what a job file or the configuration may hold."),
        "template": _here("library.template:command", "Show ready job files."),
        "clone": _here("jobs.clone:command", "Hand in a job once more, with changes."),
    },
    "Follow it": {
        "ps": _here("jobs.ps:command", "List jobs."),
        "get": _here("jobs.get:command", "Show how far a job has come, and everything about it."),
        "logs": _here("jobs.logs:command", "Print what a job wrote."),
        "events": _here("cluster.events:command", "Tell what happened and what was decided."),
        "why": _here("jobs.why:command", "Tell why a job waits or runs, and what would help."),
        "wait": _here("jobs.wait:command", "Wait for the end of jobs; exits with their exit code."),
        "metrics": _here("jobs.metrics:command", "Print what a job reported of itself."),
        "output": _here("jobs.output_files:group", "List what a job left (`output ls JOB`)."),
        "get-output": _here("jobs.output_files:get_output", "Fetch what a job left in its output folder."),
    },
    "Change it": {
        "stop": _here("jobs.stop:command", "End jobs."),
        "suspend": _here("jobs.suspend:command", "Halt jobs where they are."),
        "resume": _here("jobs.resume:command", "Let suspended jobs go on."),
        "migrate": _here("jobs.migrate:command", "Have running jobs go on with other cards."),
        "resize": _here("jobs.resize:command", "Give an elastic job another number of tasks."),
        "delete": _here("jobs.delete:command", "Drop ended jobs and all that they wrote."),
    },
    "Work inside": {
        "exec": _here("jobs.exec:command", "Run a command beside a running task."),
        "attach": _here("jobs.attach:command", "Open a shell beside a running task."),
        "forward": _here("jobs.forward:command", "Reach a port of a running task from here."),
    },
    "Data and images": {
        "data": _here("library.data:group", "Put, get, list, share and remove named datasets."),
        "image": _here("library.images:group", "Images that jobs run in: list, add, build, save, pull, remove."),
    },
    "The pool": {
        "top": _here("cluster.top:command", "Watch the devices, and what each task makes of them."),
        "nodes": _here("cluster.nodes:command", "List machines and what is free; close, empty and open them."),
        "queue": _here("cluster.queue:group", "Show queues: what each is promised, may not exceed, and holds."),
        "usage": _here("cluster.usage:command", "Tell who held how much, for how long, and what it costs."),
    },
    "People": {
        "login": _here("accounts.login:login", "Log in at a server, by password or invitation."),
        "logout": _here("accounts.login:logout", "Forget the login, and have the server forget it."),
        "whoami": _here("accounts.login:whoami", "Tell who one is to the server."),
        "user": _here("accounts.users:group", "Users: add, list, change, disable; one's own password."),
        "group": _here("accounts.groups:group", "Groups: add, list, limit; who is in them."),
        "token": _here("accounts.tokens:group", "Tokens: create, list, revoke."),
        "ssh-key": _here("accounts.ssh_keys:group", "Public keys for SSH into jobs: add, list, remove."),
        "secret": _here("library.secret:group", "Secrets for jobs and webhooks: set, list, remove."),
        "audit": _here("accounts.audit:command", "Tell who changed what."),
    },
    "Look after the server": {
        "doctor": _here("server.doctor:command", "Look what works on this machine, and what would mend the rest."),
        "config": _here("server.config:command", "Check the server's configuration file."),
        "backup": _here("server.backup:backup", "Write everything the server remembers to a file."),
        "restore": _here("server.backup:restore", "Put a backup back into an empty state directory."),
        "service": _here("server.service:command", "Run the server as a service of systemd."),
        "completion": _here(
            "server.completion:command", "Print the script by which a shell completes commands and jobs."
        ),
        "webhooks": _here("cluster.webhooks:command", "List what was told to other programs."),
    },
    "Try policies on traces": {
        "history": _here("simulation.history:group", "Write the jobs that this server ran as a trace."),
        "replay": _here("simulation.replay:command", "Play a cluster trace through the scheduler."),
        "compare": _here("simulation.compare:command", "Compare policies on a trace; writes an HTML page."),
    },
}

COMMANDS: dict[str, CommandEntry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
