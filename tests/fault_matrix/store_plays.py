"""How a store goes wrong, and at which step of a call."""

import errno
from collections.abc import Callable

from fault_matrix.cell import Cell
from fault_matrix.disk import Disk
from fault_matrix.engine_plays import Reply, answering, refusing, well
from fault_matrix.fault import Play
from scripted_engine import Exchange, Turn

Strike = Callable[[Disk], None]

_CHANGES = ("make_directory", "create", "rename", "unlink")


def no_space(disk: Disk) -> None:
    """Files can be made, renamed and removed, not written."""
    disk.fail({"write": errno.ENOSPC})


def read_only(disk: Disk) -> None:
    disk.fail(dict.fromkeys(_CHANGES, errno.EROFS))


def no_permission(disk: Disk) -> None:
    disk.fail(dict.fromkeys(_CHANGES, errno.EACCES))


def no_descriptors(disk: Disk) -> None:
    """Nothing can be opened, what needs no descriptor works."""
    disk.fail(dict.fromkeys(("create", "sync"), errno.EMFILE))


def input_output_error(disk: Disk) -> None:
    disk.fail(dict.fromkeys(("write", "rename"), errno.EIO))


def vanished(disk: Disk) -> None:
    disk.vanish()


def crawling(seconds: float) -> Strike:
    return lambda disk: disk.crawl(seconds)


def at_begin(strike: Strike) -> Play:
    """Before the call comes."""

    async def play(cell: Cell) -> str:
        await cell.warm_up()
        strike(cell.disk)
        return await answering(well)(cell)

    return play


def at_commit(strike: Strike) -> Play:
    """While the engine answers: the record is what cannot be written."""
    return _meanwhile(strike, well)


def at_mark(strike: Strike) -> Play:
    """While the engine refuses: that the call failed is what cannot be written."""
    return _meanwhile(strike, refusing(500))


def _meanwhile(strike: Strike, reply: Reply) -> Play:
    async def play(cell: Cell) -> str:
        async def struck(exchange: Exchange, turn: Turn) -> None:
            strike(cell.disk)
            await reply(exchange, turn)

        return await answering(struck)(cell)

    return play
