"""Registry of tools: merges the tools of all sources into the current set. Used by `app`, `agent` and `inbound`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_not
from typing import Any, Protocol, runtime_checkable

from gateway.domain.presets import ONLY_BUILD, Presets
from gateway.errors import ConfigError
from gateway.system.logging_setup import log
from gateway.toolcalls.delegates import UNKNOWN_DELEGATES, Delegates
from gateway.toolcalls.tool_set import Tool, ToolSet


class ToolSource(Protocol):
    """Supplier of tools: the built-in ones, the owner's own, those of an installed package, or those of a server."""

    @property
    def name(self) -> str:
        """Unique name of the source. The policy key `[tools."NAME:*"]` is for all tools of it."""
        ...

    def snapshot(self) -> Sequence[Tool]:
        """Return the present tools with their policies: the same object until they change. Cheap: at most it looks
        whether files changed.
        """
        ...


@runtime_checkable
class SettlingSource(Protocol):
    """Source that must check for changes before a turn takes its tools."""

    async def settle(self) -> None:
        """Check for changes; return at once when nothing did. Bounded in time."""
        ...


class FixedSource:
    """Source whose tools never change."""

    def __init__(self, name: str, tools: Iterable[Tool]) -> None:
        """Take the tools."""
        self._name = name
        self._tools = tuple(tools)

    @property
    def name(self) -> str:
        """Name of the source."""
        return self._name

    def snapshot(self) -> Sequence[Tool]:
        """Return the tools."""
        return self._tools


class Registry:
    """Tools of all sources. Sources come in order of precedence: of two tools of one name the first stays."""

    def __init__(
        self,
        sources: Sequence[ToolSource],
        *,
        sandboxed: bool,
        presets: Presets = ONLY_BUILD,
        delegates: Delegates = UNKNOWN_DELEGATES,
    ) -> None:
        """Read the sources once. `sandboxed`: a sandbox works here. Raises `ConfigError` for bad or repeated names."""
        self._delegates = delegates
        self._sources = tuple(sources)
        self._settling = tuple(source for source in self._sources if isinstance(source, SettlingSource))
        self._sandboxed = sandboxed
        self._presets = presets
        self._seen: tuple[Sequence[Tool], ...] = tuple(source.snapshot() for source in self._sources)
        self._current = self._set(tool for tools in self._seen for tool in tools)
        self._log: Any = log("registry")

    def snapshot(self) -> ToolSet:
        """Return the current set: the same object until a source changes. A source that fails keeps its last tools."""
        seen = tuple(map(self._read, self._sources, self._seen))
        if any(map(is_not, seen, self._seen)):
            self._seen = seen
            self._current = self._merged(seen)
        return self._current

    async def settle(self) -> None:
        """Let sources check for changes, before a turn begins. A source that fails is logged."""
        for source in self._settling:
            try:
                await source.settle()
            except Exception:  # noqa: BLE001 - a source may be foreign code; the turn begins with its last tools
                self._log.exception("changed tools cannot be read")

    def _read(self, source: ToolSource, last: Sequence[Tool]) -> Sequence[Tool]:
        try:
            return source.snapshot()
        except Exception:  # noqa: BLE001 - a source may be foreign code; the other tools must stay
            self._log.exception("tools cannot be listed", source=source.name)
            return last

    def _merged(self, seen: Sequence[Sequence[Tool]]) -> ToolSet:
        """Merge the tools one by one. Leave out each that cannot be in one set with those before it."""
        merged, kept = self._set(()), list[Tool]()
        for source, tools in zip(self._sources, seen, strict=True):
            for tool in tools:
                try:
                    merged = self._set([*kept, tool])
                except ConfigError as error:
                    self._log.error("tool left out", source=source.name, tool=tool.spec.name[:64], error=str(error))
                else:
                    kept.append(tool)
        return merged

    def _set(self, tools: Iterable[Tool]) -> ToolSet:
        return ToolSet(tools, sandboxed=self._sandboxed, presets=self._presets, delegates=self._delegates)
