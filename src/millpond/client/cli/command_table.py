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
        "open": _here("accounts.login:open_portal", "Open the portal in a browser."),
        "down": _here("server.down:command", "Stop the server and its jobs."),
        "help": _here("inspection.help:command", "Show the help of a command; with --json of all, for programs."),
        "run": _here("submission.run:command", "Run a command in the pool and follow its output."),
        "dev": _here("interactive.dev:command", "Start a notebook, an editor or a shell."),
    },
    "Submit": {
        "submit": _here("submission.submit:command", "Submit a job file and print the job's id."),
        "apply": _here("submission.apply:command", "Show where and when a job would run, then submit it."),
        "rollout": _here("control.rollout:group", "Follow, pause or roll back an update of a service."),
        "schema": _here("library.schema:command", "Print the schema of job files or of the configuration."),
        "template": _here("library.template:command", "Show templates of job files."),
        "clone": _here("submission.submit:clone", "Submit a job again, with changes."),
    },
    "Follow": {
        "ps": _here("inspection.ps:command", "List jobs."),
        "get": _here("inspection.get:command", "Show the details of a job."),
        "logs": _here("inspection.logs:command", "Print the output of a job."),
        "events": _here("cluster.events:command", "List events and decisions."),
        "why": _here("inspection.why:command", "Show why a job waits or runs, and what would help."),
        "wait": _here("inspection.wait:command", "Wait until jobs end; exit with their exit code."),
        "metrics": _here("inspection.metrics:command", "Print the metrics that a job reported."),
        "output": _here("inspection.output_files:group", "List the output files of a job (`output ls JOB`)."),
        "get-output": _here("inspection.output_files:get_output", "Download the output files of a job."),
    },
    "Change": {
        "stop": _here("control.jobs:stop", "End jobs."),
        "suspend": _here("control.jobs:suspend", "Suspend jobs: frozen, or swapped to host memory."),
        "resume": _here("control.jobs:resume", "Resume suspended jobs."),
        "requeue": _here("control.jobs:requeue", "End runs, and let their jobs start anew."),
        "priority": _here("control.jobs:priority", "Change the class of priority of jobs."),
        "migrate": _here("control.jobs:migrate", "Move running jobs to other cards."),
        "resize": _here("control.jobs:resize", "Change the number of tasks of an elastic job."),
        "delete": _here("control.jobs:delete", "Delete ended jobs with their output."),
    },
    "Work inside": {
        "exec": _here("interactive.exec:command", "Run a command in a running task."),
        "attach": _here("interactive.exec:attach", "Open a shell in a running task."),
        "forward": _here("interactive.forward:command", "Forward a local port to a port of a running task."),
    },
    "Data and images": {
        "data": _here("library.data:group", "Put, get, list, share and remove named datasets."),
        "image": _here("library.images:group", "Images that jobs run in: list, add, build, save, pull, remove."),
    },
    "The pool": {
        "top": _here("cluster.top:command", "Watch the devices and their tasks."),
        "nodes": _here("cluster.nodes:command", "List nodes; cordon, drain, roll and uncordon them."),
        "queue": _here("cluster.queue:group", "Show queues with guarantee, limit and usage."),
        "reserve": _here("cluster.reserve:reserve", "Reserve cards for a queue, from one time to another."),
        "reservations": _here("cluster.reserve:group", "List reservations; cancel them."),
        "usage": _here("cluster.usage:command", "Show usage, costs and waits by user, group, model or month."),
        "mcp": _here("inspection.mcp:command", "Answer the questions of an agent (Model Context Protocol)."),
    },
    "Accounts": {
        "login": _here("accounts.login:login", "Log in to a server with a password or an invitation."),
        "logout": _here("accounts.login:logout", "Log out and revoke the token."),
        "whoami": _here("accounts.login:whoami", "Show the current user."),
        "user": _here("accounts.users:group", "Users: add, list, change, disable; your password."),
        "group": _here("accounts.groups:group", "Groups: add, list, limit; members and invitations."),
        "token": _here("accounts.tokens:group", "Tokens: create, list, revoke."),
        "ssh-key": _here("accounts.ssh_keys:group", "Public keys for SSH into jobs: add, list, remove."),
        "notify": _here("accounts.notify:group", "Choose what you are told of by mail and by chat."),
        "secret": _here("library.secret:group", "Secrets for jobs and webhooks: set, list, remove."),
        "audit": _here("accounts.audit:command", "List changes and refused requests."),
    },
    "Operate the server": {
        "doctor": _here("server.upkeep:doctor", "Check this machine and show remedies."),
        "kube": _here("server.kube:command", "Check a Kubernetes cluster."),
        "config": _here("server.config:command", "Check the server's configuration file."),
        "backup": _here("server.backup:backup", "Write the server's state to a file."),
        "verify": _here("server.upkeep:verify", "Decide again what the log of a server says, and compare."),
        "restore": _here("server.backup:restore", "Restore a backup into an empty state directory."),
        "compile": _here("server.upkeep:compile_scheduler", "Compile the scheduler: twice as fast."),
        "service": _here("server.service:command", "Install the server as a systemd service."),
        "completion": _here("inspection.help:completion", "Print the completion script of a shell."),
        "webhooks": _here("cluster.webhooks:group", "Webhooks: list, add, test, remove; list deliveries."),
    },
    "Try policies on traces": {
        "what-if": _here("simulation.what_if:command", "Show what a change would do to all who wait."),
        "history": _here("simulation.history:group", "Export the jobs of this server as a trace."),
        "replay": _here("simulation.replay:command", "Replay a cluster trace through the scheduler."),
        "learn": _here("simulation.learn:command", "Learn an ordering from a trace; judge it on later weeks."),
        "compare": _here("simulation.compare:command", "Compare policies on a trace in an HTML report."),
    },
}

COMMANDS: dict[str, CommandEntry] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
