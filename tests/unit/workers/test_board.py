"""What a supervisor and a child see of each other in shared memory."""

from __future__ import annotations

from workers.board import Board


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
