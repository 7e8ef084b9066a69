"""What a job's output, its waiting and the tables look like."""

from __future__ import annotations

import io
import re

import click
import pytest

from millpond.client.cli.error_output import say
from millpond.client.cli.printing import formats
from millpond.client.cli.printing.formats import precise_text
from millpond.client.cli.printing.listing import Column, show
from millpond.client.cli.printing.task_lines import CLEAR_LINE, LONGEST_LINE
from millpond.client.cli.printing.task_output import Output
from millpond.client.cli.printing.waiting_line import WaitingLine
from millpond.model.amounts import milli_text


def printed(chunks, labelled):
    stream, told = io.StringIO(), []
    output = Output((stream, stream), labelled, notify=told.append)
    for chunk in chunks:
        output.write(chunk)
    output.finish()
    return stream.getvalue(), told


def test_one_tasks_output_is_printed_exactly_as_written(make_chunk):
    assert printed([make_chunk("a\r50 %"), make_chunk("\rb"), make_chunk("")], False)[0] == "a\r50 %\rb"


def test_lines_of_several_tasks_do_not_mix(make_chunk):
    chunks = [make_chunk("a", task=0), make_chunk("b\nc", task=1), make_chunk("A\n", task=0)]
    assert printed(chunks, True)[0] == "[1] b\n[0] aA\n[1] c\n"


def test_a_line_without_end_is_not_kept_for_ever(make_chunk):
    stream, piece = io.StringIO(), "x" * 2**16
    output = Output((stream, stream), labelled=True)
    for _ in range(40):
        output.write(make_chunk(piece))
    shown = len(stream.getvalue())
    assert shown > 40 * 2**16 - LONGEST_LINE, "the rest is kept"
    output.finish()
    lines = stream.getvalue().splitlines()
    assert "".join(line.removeprefix("[0] ") for line in lines) == piece * 40
    assert max(map(len, lines)) <= LONGEST_LINE + len(piece)


@pytest.mark.parametrize("labelled", [True, False])
def test_standard_error_goes_to_standard_error(make_chunk, labelled):
    out, err = io.StringIO(), io.StringIO()
    output = Output((out, err), labelled)
    for chunk in (make_chunk("a"), make_chunk("b\n", stream="stderr"), make_chunk("A\n", attempt_over=True)):
        output.write(chunk)
    head = "[0] " if labelled else ""
    assert (out.getvalue(), err.getvalue()) == (f"{head}aA\n", f"{head}b\n")


class Terminal(io.StringIO):
    """A stream on which a person looks."""

    def isatty(self) -> bool:
        return True


STEERING = {
    "move": "\x1b[2J\x1b[10;1H",
    "title": "\x1b]0;root@server\x07",
    "title, other end": "\x1b]2;x\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJmIH4K\x07",
    "query": "\x1b[6n\x1b[c\x1b[>q\x1bP$qm\x1b\\",
    "link": "\x1b]8;;https://elsewhere/\x1b\\",
    "other screen": "\x1b[?1049h",
    "keys": "\x1b[>4;1m",
    "reset": "\x1bc\x1b(0\x1b#8",
    "eight bits": "\x9b\x9d",
    "controls": "\x00\a\b\v\f\x0e\x7f",
    "never ended": "\x1b]0;",
    "broken": "\x1b\x1b",
}


@pytest.mark.parametrize("what", STEERING)
def test_a_terminal_is_shown_colours_and_nothing_else_that_steers_it(make_chunk, what):
    text = f"a\x1b[1;31m{STEERING[what]}\nb\tc\rd\x1b[m\n"
    seen = {stream: stream() for stream in (Terminal, io.StringIO)}
    for stream in seen.values():
        output = Output((stream, stream), labelled=False)
        for letter in text:
            output.write(make_chunk(letter))
        output.finish()
    assert seen[Terminal].getvalue() == "a\x1b[1;31m\nb\tc\rd\x1b[m\n\x1b[0m"
    assert seen[io.StringIO].getvalue() == text, "a file gets what was written"
    whole, raw = Terminal(), Terminal()
    Output((whole, whole), labelled=False).write(make_chunk(text))
    assert whole.getvalue() == "a\x1b[1;31m\nb\tc\rd\x1b[m\n"
    Output((raw, raw), labelled=False, raw=True).write(make_chunk(text))
    assert raw.getvalue() == text


def test_a_terminal_is_shown_marks_that_turn_the_direction_of_writing_by_their_numbers(make_chunk):
    text = "loss \u202e50.0\u202c \u2067x\u2069 مرحبا\n"
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        for letter in text:
            Output((stream, stream), labelled=False).write(make_chunk(letter))
    assert terminal.getvalue() == "loss \\u202e50.0\\u202c \\u2067x\\u2069 مرحبا\n"
    assert file.getvalue() == text


def test_no_task_writes_over_its_number_or_colours_the_line_of_another(make_chunk):
    terminal = Terminal()
    output = Output((terminal, terminal), labelled=True)
    output.write(make_chunk("10 %\r\x1b[8m99 %\n", task=0))
    output.write(make_chunk("b\r\n", task=1))
    assert terminal.getvalue() == "[0] \x1b[8m99 %\x1b[0m\n[1] b\n"


@pytest.mark.parametrize("raw", [True, False])
def test_the_progress_bar_of_a_gang_stands_below_its_lines_until_it_ends(make_chunk, monkeypatch, raw):
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    output = Output((terminal, terminal), labelled=True, raw=raw)
    for data, task in (("\r 1%\r 2%", 0), ("step 1\n", 1), (" of 9\r 3%", 0), (f"\r{'#' * 40}\r", 1), ("\n", 1)):
        output.write(make_chunk(data, task=task))
    output.finish()
    shown = terminal.getvalue().split(CLEAR_LINE)
    assert shown == [
        "[0]  2%",
        "[1] step 1\n[0]  2%",
        "[0]  3%",
        f"[1] {'#' * 15}",
        f"[1] {'#' * 40}\n[0]  3%\n",
    ]


def test_a_progress_bar_in_letters_that_take_the_room_of_two_stays_within_its_line(make_chunk, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    output = Output((terminal, terminal), labelled=True)
    output.write(make_chunk(f"\r{'训练' * 20}"))
    output.write(make_chunk(f"\r{'训练' * 3}"))
    assert terminal.getvalue().split(CLEAR_LINE) == ["[0] 训练训练训练训 ", "[0] 训练训练训练"]


def test_a_file_gets_the_progress_bars_of_a_gang_as_they_were_written(make_chunk):
    chunks = [make_chunk("\r 1%"), make_chunk("\r 2%\r\n")]
    assert printed(chunks, True)[0] == "[0] \r 1%\r 2%\r\n"


def test_a_line_carries_the_time_at_which_it_began(make_chunk):
    stream = io.StringIO()
    output = Output((stream, stream), labelled=True, timed=True)
    for data, at in (("a", 0.0), ("b\nc\n", 61.255), ("old\n", None)):
        output.write(make_chunk(data, written_at=at))
    assert re.fullmatch(r"[\d-]{10} \d\d:\d\d:01\.25", precise_text(61.255))
    lines = [f"{precise_text(0.0)} [0] ab", f"{precise_text(61.255)} [0] c", f"{'-' * len(precise_text(0.0))} [0] old"]
    assert stream.getvalue().splitlines() == lines


def test_an_unfinished_line_is_printed_when_its_task_ends(make_chunk):
    assert printed([make_chunk("no newline", attempt_over=True)], True)[0] == "[0] no newline\n"


def test_another_run_is_announced_once(make_chunk):
    chunks = [make_chunk("a\n"), make_chunk("b\n", attempt=2), make_chunk("c\n", attempt=2)]
    assert printed(chunks, False) == ("a\nb\nc\n", ["train-abcde was started again, run 2"])


def test_on_a_terminal_the_reason_is_one_line_that_goes_away(make_job):
    stream = io.StringIO()
    with WaitingLine(stream, interactive=True) as line:
        line.show(make_job(state="queued", reason="soon"), 1060.0)
        line.show(make_job(state="queued", reason="no room " * 40), 1065.0)
        line.show(make_job(state="queued", reason="almost"), 1066.0)
        line.show(make_job(state="succeeded", reason="it succeeded"), 1067.0)
    parts = stream.getvalue().split("\r\x1b[2K")
    assert parts[1].startswith("queued for 1m05s: no room")
    assert len(parts[1]) <= 79
    assert parts[2:] == ["queued for 1m06s: almost", ""]
    assert "\n" not in stream.getvalue()


def test_a_reason_in_letters_that_take_the_room_of_two_stays_within_its_line(make_job, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    with WaitingLine(stream, interactive=True) as line:
        line.show(make_job(state="queued", reason="soon"), 1060.0)
        line.show(make_job(state="queued", reason="队列" * 40), 1065.0)
    assert stream.getvalue().split("\r\x1b[2K")[1] == f"queued for 1m05s: {'队列' * 5}…"


def test_without_a_terminal_the_reason_is_said_once(make_job):
    stream = io.StringIO()
    with WaitingLine(stream, interactive=False) as line:
        line.show(make_job(state="queued", reason="just a moment"), 1000.0)
        line.show(make_job(state="starting", reason="starting on a"), 1001.0)
        for reason in ("", "no room", "still no room"):
            line.show(make_job(state="queued", reason=reason), 1002.0)
    assert stream.getvalue() == "pond: train-abcde waits: no room\n"


def test_a_table_in_a_pipe_is_plain_and_complete(capsys):
    long = "x" * 200
    show(
        [Column("ID"), Column("GPUS", right=True), Column("WHERE", gives_way=True)], [["a", "10", long], ["bb", "", ""]]
    )
    assert capsys.readouterr().out == f"ID  GPUS  WHERE\na     10  {long}\nbb     -  -\n"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_table_shows_nothing_of_what_would_steer_a_terminal(capsys, monkeypatch, is_terminal):
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal, raising=False)
    show([Column("METRIC"), Column("LAST")], [["\x1b]0;owned\x07\x1b[2Jlo\u202ess\n", "1"], ["损失", "2"]])
    shown = capsys.readouterr().out
    assert all(letter.isprintable() for line in shown.split("\n") for letter in line)
    assert "?]0;owned" in shown
    assert "损失" in shown


def test_a_message_shows_nothing_of_what_would_steer_a_terminal(capsys):
    say("the job writes to \x1b]0;owned\x07\n\tand on")
    assert capsys.readouterr().err == "pond: the job writes to ?]0;owned?\n              and on\n"


def test_a_table_on_a_terminal_keeps_ids_whole_and_fits(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    show([Column("ID"), Column("WHERE", gives_way=True)], [["a-rather-long-name-abcde", "y" * 100]])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert max(len(line) for line in lines) <= 40
    assert "a-rather-long-name-abcde" in lines[1]
    assert lines[1].rstrip().endswith("…")


def test_a_sentence_in_a_table_goes_on_in_the_next_line(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    show([Column("ID"), Column("WHAT", wraps=True)], [["a-rather-long-name", "it asks for 4 GPUs, and 0 are free"]])
    _, first, *further = click.unstyle(capsys.readouterr().out).splitlines()
    assert max(map(len, (first, *further))) <= 40
    assert " ".join(line.split("a-rather-long-name")[-1].strip() for line in (first, *further)) == (
        "it asks for 4 GPUs, and 0 are free"
    )


def test_a_table_on_a_terminal_narrower_than_its_titles_keeps_all_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    titles = ["QUEUE", "GUARANTEE", "BORROWED", "WAITING"]
    columns = [Column(titles[0], gives_way=True), *(Column(title, right=True) for title in titles[1:])]
    show(columns, [["vision-long", "1", "2", "3"]])
    head, row = click.unstyle(capsys.readouterr().out).splitlines()
    assert head.split() == titles
    assert row.split() == ["vision…", "1", "2", "3"]


def test_an_overlong_id_leaves_room_for_the_other_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    show([Column("ID"), Column("STATE"), Column("WHERE", gives_way=True)], [["x" * 100, "running", "on node-1"]])
    line = click.unstyle(capsys.readouterr().out).splitlines()[1]
    assert len(line) <= 80
    assert "…" in line
    assert line.rstrip().endswith("x  running  on node-1")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (59.9, "59s"), (130, "2m10s"), (3 * 3600 + 300, "3h05m"), (2 * 86400 + 4 * 3600, "2d04h")],
)
def test_spans_take_two_units_at_most(seconds, text):
    assert formats.span(seconds) == text


def test_amounts_have_no_needless_zeros():
    assert [formats.gib(32768), formats.gib(1536), milli_text(250), milli_text(8000)] == [
        "32",
        "1.5",
        "0.25",
        "8",
    ]
