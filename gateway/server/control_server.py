"""Server of the control socket: one task and one request for each connection, only from the daemon's user.

Passes requests of `control_client` to the handlers of `control_commands`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from gateway.errors import BadRequest, DragomanError, Forbidden, NotFound, StartError
from gateway.server.control_wire import REQUEST_AT_MOST, address, decode, encode
from gateway.system.logging_setup import log

Command = Callable[[Mapping[str, Any]], Awaitable[Any]]

_AT_ONCE = 32
"""Connections served concurrently; further ones wait in the backlog."""
_IO_TIMEOUT_S = 10.0
"""Timeout in seconds for reading a request, and for writing an answer."""
_ACCEPT_BACKOFF_S = 0.1
"""Backoff in seconds before the next accept when the system is out of descriptors."""


class ControlServer:
    """Server of `commands` at a socket in the state folder."""

    def __init__(
        self,
        path: Path,
        commands: Mapping[str, Command],
        *,
        limit_s: float = 30.0,
        limits: Mapping[str, float] | None = None,
        user: int | None = None,
    ) -> None:
        """Take the socket's path and the handlers; open nothing yet.

        `limit_s`: timeout of a command in seconds; `limits`: timeouts of single commands. `user`: the only user
        served, by default the daemon's own. A handler gets the request's `args`, returns a JSON value, and raises
        `DragomanError` to refuse.
        """
        self._path = path
        self._commands = commands
        self._limit_s = limit_s
        self._limits = dict(limits or {})
        self._user = os.geteuid() if user is None else user

    def check_place(self) -> None:
        """Raise `StartError` when another daemon listens there already. Removes the socket file of a dead one."""
        _clear(self._path)

    async def run(self, ready: asyncio.Event | None = None) -> None:
        """Serve until cancelled; then cancel the commands under way and remove the socket file.

        Sets `ready` once it listens. Replaces the socket file of a dead daemon. Raises `StartError` when another daemon
        listens there or the folder is open to others.
        """
        with _listen(self._path) as listener:
            mark = os.lstat(self._path)
            if ready is not None:
                ready.set()
            try:
                async with asyncio.TaskGroup() as group:
                    await self._accept(listener, group)
            finally:
                _remove(self._path, mark)

    async def _accept(self, listener: socket.socket, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        free = asyncio.Semaphore(_AT_ONCE)
        while True:
            await free.acquire()
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:
                free.release()
                log("control_server").warning("a connection was not accepted", error=str(error))
                await asyncio.sleep(_ACCEPT_BACKOFF_S)
                continue
            serving = group.create_task(self._serve(connection, free), name="control-connection")
            # A task that is cancelled before it begins closes nothing itself.
            serving.add_done_callback(lambda _, accepted=connection: accepted.close())

    async def _serve(self, connection: socket.socket, free: asyncio.Semaphore) -> None:
        try:
            with connection:
                connection.setblocking(False)
                answer = encode(await self._answer(connection))
                async with asyncio.timeout(_IO_TIMEOUT_S):
                    await asyncio.get_running_loop().sock_sendall(connection, answer)
        except (OSError, _GoneError):
            log("control_server").info("the client went away")
        finally:
            free.release()

    async def _answer(self, connection: socket.socket) -> Mapping[str, Any]:
        try:
            _check_user(connection, self._user)
            request = decode(await _read_line(connection))
            result = await self._run_command(connection, request)
            encode({"result": result})
        except DragomanError as error:
            return {"ok": False, "error": error.message, "cure": error.cure}
        except _GoneError:
            raise
        except Exception as error:  # noqa: BLE001 - an edge: a command's failure becomes its answer
            log("control_server").error("a command failed", exc_info=error)
            return {"ok": False, "error": "The daemon failed to do that.", "cure": "See its log."}
        return {"ok": True, "result": result}

    async def _run_command(self, connection: socket.socket, request: Mapping[str, Any]) -> Any:
        name, args = request.get("command"), request.get("args", {})
        if not isinstance(name, str) or not isinstance(args, dict):
            raise BadRequest("A request needs a command and args.", cure="Use the `dragoman` command.")
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(sorted(self._commands))
            raise NotFound(f"The daemon knows no command {name[:64]!r}.", cure=f"It knows: {known}.")
        limit_s = self._limits.get(name, self._limit_s)
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await _while_connected(connection, command(cast("dict[str, Any]", args)))
        except TimeoutError:
            if not limit.expired():
                raise
            raise DragomanError(
                f"{name} took longer than {limit_s:g} s and was stopped.", cure="Try it again."
            ) from None


class _GoneError(Exception):
    """Raised when the client disconnected, so that nobody would read an answer."""


async def _while_connected(connection: socket.socket, work: Awaitable[Any]) -> Any:
    """Return or raise the outcome of `work`; cancel it and raise `_GoneError` when the client disconnects."""
    values: list[Any] = []
    failures: list[Exception] = []

    async def settle() -> None:
        # Caught here, because a TaskGroup would wrap it.
        try:
            values.append(await work)
        except Exception as error:  # noqa: BLE001 - an edge: raised again below
            failures.append(error)
        finally:
            watcher.cancel()

    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(_until_gone(connection), name="control-watch")
        worker = group.create_task(settle(), name="control-command")
        watcher.add_done_callback(lambda _: worker.cancel())
    if failures:
        raise failures[0]
    if not values:
        raise _GoneError
    return values[0]


async def _until_gone(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    try:
        while await loop.sock_recv(connection, 4096):
            pass
    except OSError:
        pass


async def _read_line(connection: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    line = bytearray()
    try:
        async with asyncio.timeout(_IO_TIMEOUT_S):
            while b"\n" not in line:
                data = await loop.sock_recv(connection, 65_536)
                if not data:
                    raise _GoneError
                line += data
                if len(line) > REQUEST_AT_MOST:
                    raise BadRequest("The request is longer than 1 MiB.", cure="Send less.")
    except TimeoutError:
        raise BadRequest("No request arrived in time.", cure="Use the `dragoman` command.") from None
    return bytes(line.partition(b"\n")[0])


def _check_user(connection: socket.socket, user: int) -> None:
    if not hasattr(socket, "SO_PEERCRED"):
        return  # elsewhere the modes of folder and socket must suffice
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[1] != user:
        raise Forbidden("The daemon belongs to another user.", cure="Run this command as the daemon's user.")


def _listen(path: Path) -> socket.socket:
    _check_folder(path.parent)
    _clear(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        with address(path) as name:
            # Nobody can connect between bind and chmod: the folder is closed, and listen comes last.
            listener.bind(name)
        path.chmod(0o600)
        listener.listen(_AT_ONCE)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise StartError(
            f"The control socket {path} cannot be made: {error.strerror}.", cure="Choose another --state folder."
        ) from None
    except BaseException:
        listener.close()
        raise
    return listener


def _check_folder(folder: Path) -> None:
    try:
        mode = folder.stat().st_mode
    except OSError as error:
        raise StartError(f"The state folder {folder} cannot be used: {error.strerror}.", cure="Create it.") from None
    if mode & 0o077:
        raise StartError(f"The state folder {folder} is open to other users.", cure=f"Run: chmod 700 {folder}")


def check_place(path: Path) -> None:
    """Raise `StartError` when another kind of file is at the socket's path. Changes nothing."""
    if os.path.lexists(path) and not stat.S_ISSOCK(path.lstat().st_mode):
        raise StartError(f"{path} is in the way: it is not a socket.", cure="Move it away.")


def _clear(path: Path) -> None:
    """Remove the socket of a dead daemon. Raises `StartError` if a live one listens."""
    try:
        check_place(path)
        with address(path) as name, socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            probe.connect(name)
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except BlockingIOError:
        raise _in_use(path) from None  # its backlog is full: a daemon listens
    else:
        raise _in_use(path)


def _in_use(path: Path) -> StartError:
    return StartError(
        f"Another daemon runs on the state folder {path.parent}.",
        cure="Stop it, or give this one its own --state folder.",
    )


def _remove(path: Path, mark: os.stat_result) -> None:
    """Remove the socket file, unless another process has replaced it."""
    try:
        now = os.lstat(path)
        if (now.st_dev, now.st_ino) == (mark.st_dev, mark.st_ino):
            path.unlink()
    except FileNotFoundError:
        pass
