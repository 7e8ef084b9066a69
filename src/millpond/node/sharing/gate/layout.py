"""The files of a slice as ``native/gate/layout.h`` lays them out; a test compares the two.

Times are CLOCK_MONOTONIC in nanoseconds.
"""

from __future__ import annotations

import ctypes

MAGIC = 0x31455441474C504D
VERSION = 1
SLOTS = 64
MEMBERS = 64
CLASSES = 3
LIVE_LOCK = 65536
"""Byte of the usage file, behind which each process that has a slot holds a lock until it ends."""


class SliceControl(ctypes.Structure):
    """What the agent lays down for one slice."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("member", ctypes.c_uint32),
        ("reserved0", ctypes.c_uint64),
        ("cap_bytes", ctypes.c_uint64),
        ("context_bytes", ctypes.c_uint64),
        ("guarantee_milli", ctypes.c_uint32),
        ("limit_milli", ctypes.c_uint32),
        ("share_class", ctypes.c_uint32),
        ("paused", ctypes.c_uint32),
        ("in_flight_us", ctypes.c_uint32),
        ("floor_milli", ctypes.c_uint32),
        ("refuse_managed", ctypes.c_uint32),
        ("cards", ctypes.c_uint32),
        ("uuid", ctypes.c_char * 48),
        ("uncounted_bytes", ctypes.c_uint64),
    )


class Slot(ctypes.Structure):
    """One process of the task."""

    _fields_ = (
        ("pid", ctypes.c_uint64),
        ("used_bytes", ctypes.c_uint64),
        ("reserved0", ctypes.c_uint64),
        ("launches", ctypes.c_uint64),
        ("busy_ns", ctypes.c_uint64),
        ("last_launch_ns", ctypes.c_uint64),
        ("denials", ctypes.c_uint64),
        ("in_flight", ctypes.c_uint64),
        ("outstanding_ns", ctypes.c_uint64),
        ("unmeasured", ctypes.c_uint64),
        ("turn_timeouts", ctypes.c_uint64),
        ("waited_ns", ctypes.c_uint64),
        ("claimed_bytes", ctypes.c_uint64),
        ("due_ns", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 2),
    )


class TaskUsage(ctypes.Structure):
    """What the processes of a task count."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("clocked_milli", ctypes.c_uint32),
        ("busy_clock_ns", ctypes.c_uint64),
        ("limit_clock_ns", ctypes.c_uint64),
        ("floor_clock_ns", ctypes.c_uint64),
        ("fill_clock_ns", ctypes.c_uint64),
        ("demand_from_ns", ctypes.c_uint64),
        ("demand_busy_ns", ctypes.c_uint64),
        ("demand_launched_ns", ctypes.c_uint64),
        ("past_launches", ctypes.c_uint64),
        ("past_busy_ns", ctypes.c_uint64),
        ("past_denials", ctypes.c_uint64),
        ("past_unmeasured", ctypes.c_uint64),
        ("past_turn_timeouts", ctypes.c_uint64),
        ("past_waited_ns", ctypes.c_uint64),
        ("slot_top", ctypes.c_uint64),
        ("slot", Slot * SLOTS),
    )


class Turn(ctypes.Structure):
    """Whose turn it is in one class."""

    _fields_ = (
        ("holder", ctypes.c_uint32),
        ("reserved0", ctypes.c_uint32),
        ("until_ns", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 6),
    )


class CardMember(ctypes.Structure):
    """One slice of a card."""

    _fields_ = (
        ("present", ctypes.c_uint32),
        ("guarantee_milli", ctypes.c_uint32),
        ("virtual_ns", ctypes.c_uint64),
        ("active_until_ns", ctypes.c_uint64),
        ("waiting_ns", ctypes.c_uint64),
        ("active_ns", ctypes.c_uint64),
        ("returns_ns", ctypes.c_uint64),
        ("demand_milli", ctypes.c_uint64),
        ("demand_until_ns", ctypes.c_uint64),
    )


class Card(ctypes.Structure):
    """What the gates of one card need of each other."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("members", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 6),
        ("turn", Turn * CLASSES),
        ("member", CardMember * MEMBERS),
    )
