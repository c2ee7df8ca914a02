"""What a supervisor and a child see of each other in shared memory."""

from __future__ import annotations

from turnyard.state.upkeep import Suspects
from workers.board import Board, Phase


def test_what_one_side_writes_the_other_reads() -> None:
    board = Board.create(2)
    Board(board.fd, 2).line(1).tick = 12.5
    assert board.line(1).tick == 12.5
    assert board.line(0).tick == 0
    board.close()


def test_a_cleared_line_holds_nothing_of_the_child_before() -> None:
    board = Board.create(1)
    line = board.line(0)
    line.tick, line.valid_until, line.doubt = 1.0, 2.0, True
    line.clear()
    assert (line.tick, line.valid_until, line.doubt) == (0, 0, False)
    board.close()


def test_suspects_are_the_turns_in_the_apps_code_and_all_of_them_if_none_was() -> None:
    seats = Board.create(2, seats=3).line(1).seats
    names = [f"{letter * 26}" for letter in "abcd"]
    taken = [seats.take(name) for name in names]
    taken[3].show(Phase.IN_TOOL)  # found no seat, and shows it to nobody
    assert seats.suspects() == Suspects(tuple(names[:3]), alone=False)
    taken[0].show(Phase.WAITING)
    taken[1].show(Phase.IN_TOOL)
    taken[2].show(Phase.RENDERING)
    assert seats.suspects() == Suspects((names[1], names[2]), alone=False)
    for seat in taken[1:]:
        seats.leave(seat)
    assert seats.suspects() == Suspects((names[0],), alone=True)
