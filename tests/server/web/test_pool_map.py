"""The pool as a map: cards with their slices, or machines where there are many."""

from __future__ import annotations

from dataclasses import replace

from job_infos import job_info
from millpond.server.web.pool.pool_map import MOST_IN_DETAIL, NODES_IN_A_BLOCK, Colouring, map_of
from millpond.specs.api.pool.nodes import CordonInfo, DeviceInfo, NodeInfo, SliceInfo

JOBS = {"a": job_info(id="a", user="ada"), "b": job_info(id="b", user="bob")}


def card(index: int, *parts: tuple[str, int, str], health: str = "ok") -> DeviceInfo:
    slices = [
        SliceInfo(job=name, task=0, state=state, compute_milli=milli, limit_milli=1000, memory_mib=1)
        for name, milli, state in parts
    ]
    return DeviceInfo(
        uuid=f"u{index}", index=index, vendor="fake", model="V100", memory_mib=10, free_memory_mib=1,
        free_compute_milli=1000 - sum(part[1] for part in parts), health=health, slices=slices,
        holders=[part[0] for part in parts],
    )  # fmt: skip


def node(name: str, *cards: DeviceInfo) -> NodeInfo:
    return NodeInfo(
        name=name, pool="default", cpu_milli=1, free_cpu_milli=1, memory_mib=1, free_memory_mib=1, devices=list(cards)
    )


def parts_of(nodes: list[NodeInfo], colouring: Colouring) -> list[list[tuple[int, int, str]]]:
    drawn = [each for group in map_of(nodes, colouring, JOBS.get).groups for each in group.nodes]
    return [[(part.begin, part.width, part.look) for part in each.parts] for one in drawn for each in one.cards]


def test_the_slices_of_a_card_stand_side_by_side_as_wide_as_they_are() -> None:
    nodes = [node("n1", card(0, ("a", 250, "running"), ("b", 500, "frozen")), card(1))]
    nodes[0].devices[0] = replace(nodes[0].devices[0], free_compute_milli=750)
    assert parts_of(nodes, Colouring.USE) == [[(0, 250, "held"), (250, 500, "resting")], []]


def test_a_card_that_is_held_while_none_of_its_tasks_is_known_yet_is_about_to_start() -> None:
    nodes = [node("n1", replace(card(0), free_compute_milli=0))]
    assert parts_of(nodes, Colouring.USE) == [[(0, 1000, "coming")]]


def test_owners_have_colours_by_what_they_hold_and_those_of_others_no_name() -> None:
    nodes = [node("n1", card(0, ("a", 1000, "running")), card(1, ("hidden", 1000, "running"), health="ok")),
             node("n2", card(0, ("a", 500, "running"), ("b", 500, "running")))]  # fmt: skip
    drawn = map_of(nodes, Colouring.OWNER, JOBS.get)
    assert drawn.owners == [("o1", "ada", 1500), ("o2", "", 1000), ("o3", "bob", 500)]
    assert parts_of(nodes, Colouring.OWNER)[2] == [(0, 500, "o1"), (500, 500, "o3")]


def test_a_card_that_is_not_well_says_so_in_every_colouring() -> None:
    nodes = [node("n1", card(0, ("a", 1000, "running"), health="faulty"))]
    for colouring in Colouring:
        assert parts_of(nodes, colouring) == [[(0, 1000, "bad")]]
        assert "faulty" in map_of(nodes, colouring, JOBS.get).groups[0].nodes[0].cards[0].text


def test_a_card_that_others_use_is_told_apart_from_one_that_has_failed() -> None:
    used, failed = card(0, health="busy-elsewhere"), card(0, health="faulty")
    for colouring in Colouring:
        assert parts_of([node("n1", used)], colouring) == [[(0, 1000, "foreign")]]
    many = [node("used", used, card(1)), node("both", used, failed), node("failed", failed, card(1))]
    many += [node(f"n{number}", card(0), card(1)) for number in range(MOST_IN_DETAIL)]
    (group,) = map_of(many, Colouring.HEALTH, JOBS.get).groups
    (block,) = group.blocks
    assert [cell.look for cell in block.cells[:4]] == ["foreign", "bad", "bad", "ok"]
    assert (block.broken, block.elsewhere, block.closed) == (2, 1, 0)


def test_a_free_card_that_is_closed_says_so_and_one_that_is_held_shows_its_holder() -> None:
    closure = CordonInfo(begin=1.0, reason="it runs hot")
    nodes = [node("n1", replace(card(0), closure=closure), replace(card(1, ("a", 500, "running")), closure=closure))]
    assert parts_of(nodes, Colouring.USE) == [[(0, 1000, "closed")], [(0, 500, "held")]]
    assert parts_of(nodes, Colouring.HEALTH) == [[(0, 1000, "closed")]] * 2
    assert "closed (it runs hot)" in map_of(nodes, Colouring.USE, JOBS.get).groups[0].nodes[0].cards[1].text


def test_cards_of_a_closed_node_are_not_shown_as_free() -> None:
    shut = replace(node("n1", card(0), card(1, ("a", 500, "running")), card(2, ("b", 0, "frozen"))), schedulable=False)
    assert parts_of([shut], Colouring.USE) == [[(0, 1000, "closed")], [(0, 500, "held")], [(0, 20, "resting")]]
    empty, broken = replace(shut, devices=[card(0)]), node("n2", card(0, health="faulty"))
    many = [empty, shut, broken, *(node(f"f{number}", card(0)) for number in range(MOST_IN_DETAIL))]
    for colouring, held in ((Colouring.USE, "u1"), (Colouring.OWNER, "o1")):
        looks = [cell.look for group in map_of(many, colouring, JOBS.get).groups for cell in group.blocks[0].cells]
        assert [look for look in looks if look not in ("u0", "free")] == ["closed", "bad", held]


def test_work_that_computes_is_seen_beside_suspended_work_of_the_same_part_of_a_card() -> None:
    shared = replace(card(0, ("a", 1000, "frozen"), ("b", 500, "running")), free_compute_milli=250)
    nodes = [node("n1", shared)]
    assert parts_of(nodes, Colouring.USE) == [[(0, 500, "held"), (500, 250, "coming"), (750, 250, "resting")]]
    assert map_of(nodes, Colouring.USE, JOBS.get).groups[0].nodes[0].cards[0].text.endswith("frozen (a)")


def test_parts_that_the_hardware_cuts_out_of_a_card_are_told_apart() -> None:
    parts = [replace(card(0), instance=number) for number in (1, 2)]
    (drawn,) = map_of([node("n1", *parts)], Colouring.USE, JOBS.get).groups[0].nodes
    assert [each.text for each in drawn.cards] == ["n1/0.1 V100: 0", "n1/0.2 V100: 0"]


def test_only_a_job_that_the_reader_may_see_is_linked() -> None:
    nodes = [node("n1", card(0, ("a", 1000, "running")), card(1, ("hidden", 1000, "running")))]
    cards = map_of(nodes, Colouring.USE, JOBS.get).groups[0].nodes[0].cards
    assert [each.job for each in cards] == ["a", ""]


def test_where_there_are_many_machines_each_is_one_cell() -> None:
    full = [card(0, ("a", 1000, "running")), card(1, ("b", 1000, "running"))]
    quarter = [card(0, ("b", 500, "running")), card(1)]
    many = [node(f"n{number}", card(0), card(1)) for number in range(MOST_IN_DETAIL)]
    nodes = [node("full", *full), node("quarter", *quarter), *many]
    (group,) = map_of(nodes, Colouring.USE, JOBS.get).groups
    assert group.nodes == []
    (block,) = group.blocks
    assert [cell.look for cell in block.cells[:3]] == ["u4", "u1", "u0"]
    assert block.cells[1].text == "quarter: 0.5/2"
    assert (block.held_milli, block.cards, len(block.cells)) == (2_500, 2 * len(nodes), len(nodes))
    (group,) = map_of([replace(nodes[0], schedulable=False), *nodes[1:]], Colouring.HEALTH, JOBS.get).groups
    assert [cell.look for cell in group.blocks[0].cells[:2]] == ["closed", "ok"]
    assert (group.blocks[0].broken, group.blocks[0].closed) == (0, 1)


def test_machines_stand_in_blocks_of_racks_or_of_as_many_as_a_page_lists() -> None:
    nodes = [node(f"n{number}", card(0)) for number in range(NODES_IN_A_BLOCK + 20)]
    (group,) = map_of(nodes, Colouring.USE, JOBS.get).groups
    assert [(block.page, block.first, block.last) for block in group.blocks] == [(1, "n0", "n99"), (2, "n100", "n119")]
    racks = [replace(each, rack=f"r{number % 2}") for number, each in enumerate(nodes)]
    (group,) = map_of(racks, Colouring.USE, JOBS.get).groups
    assert [(block.rack, block.page, block.first) for block in group.blocks] == [("r0", 1, "n0"), ("r1", 1, "n1")]
    (group,) = map_of([*racks[1:], nodes[0]], Colouring.USE, JOBS.get).groups
    assert [block.rack for block in group.blocks] == ["", ""], "one has no rack: a list by racks would lack it"
