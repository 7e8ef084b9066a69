"""``pond notify``: what one is told of by mail and by chat, and where."""

from __future__ import annotations

from pathlib import Path

import click

from millpond.client.cli.command_suggestions import SuggestingGroup
from millpond.client.cli.connection import connect, state_dir_option, with_client
from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import Column, Listing, ListTable, lists
from millpond.client.cli.terminal.secret_input import SecretInput, from_stdin
from millpond.client.sdk import Client
from millpond.model.errors import InvalidInputError
from millpond.specs.api.notifications import SPANS_S, NotificationRule, NotificationsInfo, Topic
from millpond.specs.errors import BadValueError
from millpond.specs.quantities import seconds

_EVENTS = tuple(topic.value for topic in Topic)
_CHANNELS = ("mail", "chat")


def _span(rule: NotificationRule) -> str:
    if rule.topic not in SPANS_S:
        return ""
    span = formats.span(rule.span)
    return f"{span} before" if rule.topic == Topic.ENDING else f"after {span}"


_TABLE: ListTable[NotificationRule] = ListTable(
    (
        Column("EVENT", lambda rule: rule.topic),
        Column("OF", lambda rule: f"queue {rule.queue}" if rule.queue else "own"),
        Column("WHEN", _span),
        Column("BY", lambda rule: ", ".join(rule.channels), gives_way=True),
    )
)


@click.group("notify", cls=SuggestingGroup, invoke_without_command=True)
@lists()
def group(client: Client) -> Listing:
    """Show what you are told of by mail and chat, and where; choose it."""
    info = client.notifications.info()
    places, empty = _places(info), f"you are told of nothing; events: {', '.join(_EVENTS)}"
    return Listing.of(info, info.rules, _TABLE, empty=f"{empty}\n{places}", note=places)


@group.command("on")
@click.argument("events", nargs=-1, required=True, type=click.Choice(_EVENTS), metavar="EVENT...")
@click.option("--mail", "by_mail", is_flag=True, help="By mail.")
@click.option("--chat", "by_chat", is_flag=True, help="By your webhook [default: by all that you have set].")
@click.option("--span", metavar="TIME", help="After, or before an end, how long: 2h, 90m.")
@click.option("--queue", default="", help="Of all jobs of a queue whose group you lead [default: of your own].")
@with_client
def on(client: Client, events: tuple[str, ...], by_mail: bool, by_chat: bool, span: str | None, queue: str) -> None:
    """Be told of each EVENT, such as job.failed."""
    info = client.notifications.info()
    has = [channel for channel, is_set in zip(_CHANNELS, (info.address, info.chat), strict=True) if is_set]
    wanted = [channel for channel, is_wanted in zip(_CHANNELS, (by_mail, by_chat), strict=True) if is_wanted] or has
    if not wanted:
        raise InvalidInputError(
            "there is no place to be told at", "set one: `pond notify mail ADDRESS` or `pond notify chat`"
        )
    span_s = None if span is None else _seconds(span)
    fresh = [NotificationRule(topic=event, channels=wanted, span_s=span_s, queue=queue) for event in events]
    client.notifications.choose([*_others(info, events, queue), *fresh])
    click.echo(f"{', '.join(events)}: by {' and '.join(wanted)}")
    for channel in wanted:
        if channel not in has:
            say(f"nothing comes by {channel} before you set it: `pond notify {channel} --help`")


@group.command("off")
@click.argument("events", nargs=-1, required=True, type=click.Choice(_EVENTS), metavar="EVENT...")
@click.option("--queue", default="", help="Of a queue [default: of your own jobs].")
@with_client
def off(client: Client, events: tuple[str, ...], queue: str) -> None:
    """Be told of these no more."""
    client.notifications.choose(_others(client.notifications.info(), events, queue))
    click.echo(f"{', '.join(events)}: off")


@group.command("mail")
@click.argument("address", required=False)
@click.option("--remove", is_flag=True, help="No mail any more.")
@with_client
def mail(client: Client, address: str | None, remove: bool) -> None:
    """Have mail sent to ADDRESS, once you have confirmed it by the code that comes there."""
    if remove == (address is not None):
        raise InvalidInputError("an address or --remove", "give one of the two")
    if address is None:
        client.notifications.forget_address()
        click.echo("no mail comes any more")
        return
    client.notifications.ask_code(address)
    click.echo(f"a code was sent to {address}")
    say("then: `pond notify confirm CODE`")


@group.command("confirm")
@click.argument("code")
@with_client
def confirm(client: Client, code: str) -> None:
    """Confirm your address by the CODE that came there."""
    info = client.notifications.confirm(code)
    click.echo(f"mail comes to {info.address}")
    if not info.rules:
        say("you are told of nothing yet: `pond notify on job.failed`")


@group.command("chat")
@click.option("--format", "form", type=click.Choice(("millpond", "slack", "feishu", "wecom")), help="Of its messages.")
@click.option("--remove", is_flag=True, help="Forget it.")
@from_stdin
@state_dir_option
def chat(form: str | None, remove: bool, stdin: bool, state_dir: Path | None) -> None:
    """Have messages sent to a webhook of yours; its address is asked for, and kept as a secret."""
    if remove == (form is not None):
        raise InvalidInputError("--format or --remove", "give one of the two")
    with connect(state_dir) as client:
        if form is None:
            client.notifications.forget_chat()
            click.echo("no messages come any more")
        else:
            client.notifications.set_chat(SecretInput(stdin).ask("address of the webhook"), form)
            click.echo("set; try it with `pond notify try`")


@group.command("try")
@with_client
def try_(client: Client) -> int:
    """Have a message sent to wherever you are told."""
    trial = client.notifications.send_trial()
    for channel in trial.sent:
        click.echo(f"sent by {channel}")
    for channel, trouble in trial.troubles.items():
        say(f"{channel}: {trouble}")
    return 1 if trial.troubles else 0


def _others(info: NotificationsInfo, events: tuple[str, ...], queue: str) -> list[NotificationRule]:
    """The rules that stay as they are."""
    return [rule for rule in info.rules if rule.queue != queue or rule.topic not in events]


def _places(info: NotificationsInfo) -> str:
    """Where one is told."""
    pending = f" ({info.pending} is to be confirmed)" if info.pending else ""
    mail_to = f"mail: {info.address or 'none'}{pending}" if "mail" in info.offers else "mail: this server sends none"
    chat_to = f"chat: {info.chat or 'none'}" if "chat" in info.offers else "chat: this server allows none"
    failed = next((each.trouble for each in info.deliveries if each.trouble), "")
    return f"{mail_to}; {chat_to}" + (f"\nlast trouble: {failed}" if failed else "")


def _seconds(text: str) -> float:
    try:
        return seconds(text)
    except BadValueError as error:
        raise InvalidInputError(error.cause, error.hint) from error
