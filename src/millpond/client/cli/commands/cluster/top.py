"""``pond top``: every device as it fares now, and below it the tasks that share it."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import click

from millpond.client.cli.connection import with_client
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.listing import middle_cut
from millpond.client.sdk import Client
from millpond.model.amounts import count_text
from millpond.specs.api.pool.nodes import DeviceList, DeviceStatus, SliceStatus
from millpond.specs.escaped_text import json_text
from millpond.specs.option_types import FiniteNumber

_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_CLEAR = "\x1b[H\x1b[2J"
_UNKNOWN = "-"
_PIPE_WIDTH = 160
_WIDEST_NAME = 40
_END_OF_NAME = 9
"""What a name that is cut keeps of its end: by that jobs of one name, and the cards of a machine, differ."""


@dataclass(frozen=True, slots=True)
class _Column:
    title: str
    width: int
    right: bool = True


_NAME = _Column("DEVICE / TASK", 17, right=False)
_COLUMNS = (
    _Column("MODEL", 9, right=False),
    _Column("CLASS", 8, right=False),
    _Column("SHARE%", 6),
    _Column("USE%", 4),
    _Column("GIB", 9),
    _Column("SWAP", 4),
    _Column("W", 4),
    _Column("C", 3),
    _Column("STATE", 7, right=False),
)
_LEAST_WIDTH = _NAME.width + sum(column.width + 1 for column in _COLUMNS)


@click.command("top")
@click.option("--once", is_flag=True, help="Show it once and end, as when the output is no terminal.")
@click.option("-w", "--watch", "interval_s", type=FiniteNumber(0.5, 3600), default=2.0, show_default=True,
              metavar="SECONDS", help="Time between two looks.")  # fmt: skip
@click.option("-o", "--output", type=click.Choice(("table", "json")), default="table", help="Form; JSON comes once.")
@with_client
def command(client: Client, once: bool, interval_s: float, output: str) -> None:
    """Watch the devices: use, memory, power, and the use of each task.

    Below each device stand the tasks on it: whose, their class (who goes first), what they are guaranteed and may use
    of it, and what they do use. A dash is unknown. Ctrl-C ends it.
    """
    if output == "json":
        click.echo(json_text(DeviceList(devices=client.devices())))
        return
    if once or not sys.stdout.isatty():
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _PIPE_WIDTH
        click.echo("\n".join(device_lines(client.devices(), width)))
        return
    try:
        click.echo(_CLEAR, nl=False)
        while True:
            size = shutil.get_terminal_size()
            lines = [
                f"{line}{_REST_OF_LINE}" for line in fitted(device_lines(client.devices(), size.columns), size.lines)
            ]
            click.echo(_HOME + "\n".join(lines) + _REST_OF_SCREEN, nl=False)
            time.sleep(interval_s)
    except KeyboardInterrupt:
        click.echo()


def fitted(lines: Sequence[str], height: int) -> list[str]:
    """As many lines as a terminal has, the last of which says how many are missing."""
    if len(lines) <= height:
        return list(lines)
    return [*lines[: height - 1], f"... {len(lines) - height + 1} more lines; a higher window shows them"]


def device_lines(devices: Sequence[DeviceStatus], width: int) -> list[str]:
    """The devices and their slices as lines of at most so many characters, or as many as the columns need."""
    if not devices:
        return ["no devices on these machines; pond doctor, where one should be, says what was looked for"]
    spare = max(width, _LEAST_WIDTH) - _LEAST_WIDTH
    for_names = min(spare, _WIDEST_NAME - _NAME.width)
    widths = [_NAME.width + for_names, *(column.width for column in _COLUMNS)]
    widths[-1] += spare - for_names
    rows = [[_NAME.title, *(column.title for column in _COLUMNS)]]
    for device in devices:
        rows.append(_device_row(device))
        rows.extend(_slice_row(part) for part in device.slices)
    return [_summary(devices), *(" ".join(_cells(row, widths)).rstrip() for row in rows)]


def _summary(devices: Sequence[DeviceStatus]) -> str:
    latest = [device.latest for device in devices if device.latest is not None]
    uses = [point.use_milli for point in latest if point.use_milli is not None]
    watts = [point.power_w for point in latest if point.power_w is not None]
    fakes = sum(device.fake for device in devices)
    parts = [count_text(len(devices), "device") + (f" ({fakes} fake)" if fakes else "")]
    if uses:
        parts.append(f"{sum(uses) / len(uses) / 10:.0f} % in use")
    if watts:
        parts.append(f"{sum(watts):.0f} W")
    tasks = sum(len(device.slices) for device in devices)
    return ", ".join([*parts, f"{count_text(tasks, 'task')} on them"])


def _device_row(device: DeviceStatus) -> list[str]:
    latest = device.latest
    marks = [mark for mark, holds in (("fake", device.fake), ("experimental", device.experimental)) if holds]
    return [
        f"{device.node} {formats.card_number(device.index, device.instance)}",
        device.model,
        "",
        "",
        _percent(latest.use_milli if latest else None),
        _memory(latest.memory_used_mib if latest else None, device.memory_mib),
        "",
        _whole(latest.power_w if latest else None),
        _whole(latest.temperature_c if latest else None),
        " ".join([formats.device_state(device), *marks]),
    ]


def _slice_row(part: SliceStatus) -> list[str]:
    limit = "" if part.limit_milli == part.compute_milli else f"-{part.limit_milli // 10}"
    return [
        f"  {part.job}/{part.task}",
        part.user or _UNKNOWN,
        part.share_class,
        f"{part.compute_milli // 10}{limit}",
        _percent(part.use_milli),
        _memory(part.memory_used_mib, part.memory_mib),
        _UNKNOWN if part.swapped_mib is None else _gib(part.swapped_mib),
        "",
        "",
        part.state,
    ]


def _percent(milli: int | None) -> str:
    return _UNKNOWN if milli is None else str(round(milli / 10))


def _memory(used_mib: int | None, of_mib: int) -> str:
    used = _UNKNOWN if used_mib is None else _gib(used_mib)
    return f"{used}/{_gib(of_mib)}" if of_mib else used


def _gib(mebibytes: int) -> str:
    """Three digits are enough: a tenth of a GiB says nothing about a full card."""
    return formats.gib(mebibytes) if mebibytes < 100 * 1024 else str(round(mebibytes / 1024))


def _whole(figure: float | None) -> str:
    return _UNKNOWN if figure is None else str(round(figure))


def _cells(cells: Iterable[str], widths: Sequence[int]) -> Iterator[str]:
    for cell, width, column in zip(cells, widths, (_NAME, *_COLUMNS), strict=True):
        kept = _END_OF_NAME if column is _NAME else 0
        cut = middle_cut(cell, width, kept)
        yield cut.rjust(width) if column.right else cut.ljust(width)
