"""Output of `dragoman tools`: the list, one tool, the size of its schema, a call as a command, and a template."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from config.load import Loaded
from config.own_files import NAME
from config.tools import describe
from gateway.app.own_tools import load_folder, make_workers
from gateway.app.tool_hosts import ToolHosts
from gateway.app.tool_loader import load_tools
from gateway.egress import Egress
from gateway.errors import BadRequest, NotFound
from gateway.sandbox import probe
from gateway.system.clock import SystemClock
from gateway.toolcalls.tool_set import Tool

TEMPLATE = '''"""The tool `{name}`."""

from agent_tools.own import tool


@tool(risk="read", effect="pure", permission="main", timeout=30)
def {name}(text: str, times: int = 1) -> str:
    """Repeat a text. A model reads this line to know when to call the tool.

    Args:
        text: The text to repeat.
        times: How often.
    """
    return text * times
'''


class Tools:
    """All tools of a configuration, by name, without a daemon."""

    def __init__(self, loaded: Loaded) -> None:
        """Load the tools, and try the untrusted files in workers. Raises `ConfigError` for an incomplete module."""
        containment = asyncio.run(probe())
        hosts = ToolHosts(state=loaded.state, clock=SystemClock(), containment=containment, egress=Egress())
        sources, _ = load_tools(loaded, hosts.of)
        folder = load_folder(loaded, sources, make_workers(loaded, containment), containment)
        if folder is not None:
            asyncio.run(folder.settle_all())
        every = [*sources, *([] if folder is None else [folder])]
        self._found = {tool.spec.name: (source.name, tool) for source in every for tool in source.snapshot()}

    def rows(self, *, own: bool) -> list[dict[str, Any]]:
        """Return a row for each tool, sorted by name; `own`: only those that are not part of Dragoman."""
        return [
            {
                "name": name,
                "source": source or "module",
                "risk": tool.spec.risk.value,
                "where": tool.policy.availability.value,
                "state": tool.missing or "usable",
            }
            for name, (source, tool) in sorted(self._found.items())
            if not (own and source == "builtin")
        ]

    def get(self, name: str) -> Tool:
        """Return a tool. Raises `NotFound`."""
        if name not in self._found:
            raise NotFound(f"There is no tool {name[:64]!r}.", cure="`dragoman tools list --all` names all of them.")
        return self._found[name][1]

    def lines(self, name: str) -> Iterator[str]:
        """Yield a description of a tool, for people. Raises `NotFound`."""
        tool = self.get(name)
        yield f"{name}: {tool.spec.description}"
        if tool.missing:
            yield f"It cannot be used: {tool.missing}"
            return
        yield f"source: {self._found[name][0] or 'module'}"
        yield f"risk: {tool.spec.risk.value}, effect: {tool.spec.effect.value}"
        yield f"policy: {describe(name, tool.policy)}"
        yield f"price: {price(tool)} bytes, {'when a model uses it' if tool.spec.indexed else 'in every request'}"
        yield json.dumps(_schema(tool), indent=2, ensure_ascii=False)

    def prices(self) -> list[dict[str, Any]]:
        """Return the size of each usable tool in a first request, largest first."""
        usable = [tool for _, tool in self._found.values() if not tool.missing]
        rows = [
            {
                "name": tool.spec.name,
                "first_request": _line_bytes(tool) if tool.spec.indexed else price(tool),
                "when_used": price(tool),
            }
            for tool in usable
        ]
        return sorted(rows, key=lambda row: (-int(row["first_request"]), str(row["name"])))


def price(tool: Tool) -> int:
    """Return the bytes of a tool's name, description and schema in a request of a model."""
    function = {"name": tool.spec.name, "description": tool.spec.description, "parameters": _schema(tool)}
    return len(json.dumps({"type": "function", "function": function}, ensure_ascii=False).encode())


def _line_bytes(tool: Tool) -> int:
    """Return the most bytes of a tool's line in the index."""
    return min(60, len(f"{tool.spec.name}: {tool.spec.description}\n".encode()))


def _schema(tool: Tool) -> Mapping[str, Any]:
    return tool.arguments.schema if tool.schema is None else tool.schema


def command(tool: Tool, text: str) -> str:
    """Return the chat command of a call with these JSON arguments. Raises `BadRequest`."""
    name = tool.spec.name
    if tool.missing:
        raise BadRequest(f"{name} cannot be used: {tool.missing}", cure="Nothing was run.")
    try:
        given: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRequest(
            f"The arguments are not JSON: {error}.", cure='Write, for instance, \'{"path": "a"}\'.'
        ) from None
    if not isinstance(given, dict):
        raise BadRequest("The arguments are no JSON object.", cure='Write, for instance, \'{"path": "a"}\'.')
    arguments = cast("dict[str, Any]", given)
    properties: Mapping[str, Any] = _schema(tool).get("properties", {})
    by_hand, positional = tool.spec.by_hand, tool.spec.positional
    if positional is not None:
        if arguments.keys() - {positional} or not isinstance(arguments.get(positional, ""), str):
            raise BadRequest(f"/{by_hand} takes {positional} alone.", cure="Leave the other arguments out.")
        return f"/{by_hand} {arguments.get(positional, '')}".rstrip()
    words = [f"{key}={_value(properties.get(key), value)}" for key, value in arguments.items()]
    return " ".join([f"/{by_hand}", *(shlex.quote(word) for word in words)])


def _value(schema: object, value: object) -> str:
    is_text = isinstance(schema, dict) and cast("dict[str, object]", schema).get("type") == "string"
    return value if is_text and isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def write_template(loaded: Loaded, name: str) -> Path:
    """Write a file for a new tool into the owner's folder, and return its path. Raises `BadRequest`."""
    if not NAME.fullmatch(name):
        raise BadRequest(f"{name[:64]!r} is no tool name.", cure="Use lower case letters, digits and `_`.")
    if loaded.folder is None:
        raise BadRequest("No tools folder is configured.", cure='Write [tools] folder = "tools" and make that folder.')
    if name in loaded.tools:
        raise BadRequest(f"There is a tool {name} already.", cure="Choose another name.")
    path = loaded.folder.path / f"{name}.py"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(name=name))
    except FileExistsError:
        raise BadRequest(f"There is {path} already.", cure="Choose another name.") from None
    except OSError as error:
        raise BadRequest(f"{path} cannot be written: {error.strerror}.", cure="Let this user write there.") from error
    return path
