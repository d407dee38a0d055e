"""Reader of `[agents]`: kinds of sub-session that a model spawns by name, checked against known tools and models."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import AfterValidator, Field, StrictInt

from config.basics import SettingsTable
from config.model import a_path
from config.reading import Path, TableReader, suggest
from config.text_files import Texts
from config.values import Flaw
from gateway.domain.children import Agent
from gateway.domain.presets import Presets
from gateway.domain.tool_groups import NEWEST

NAME = r"[a-z0-9_-]{1,32}"
_DESCRIPTION_CHARS = 300


def one_line(text: str) -> str:
    """Return a description without blanks around it. Raises `Flaw` unless it is one short line."""
    if not text.strip():
        raise Flaw("it is empty", "Say in one line what the agent is for; models choose by it")
    if not text.isprintable() or len(text) > _DESCRIPTION_CHARS:
        cure = "Shorten it; the rest belongs into the file that `instructions` names"
        raise Flaw(f"it is not one line of at most {_DESCRIPTION_CHARS} characters", cure)
    return text.strip()


class AgentSettings(SettingsTable):
    """`[agents.<name>]`."""

    description: Annotated[str, AfterValidator(one_line)] = Field(
        description="One line that says what it is for: models choose by it."
    )
    model: str | None = Field(
        default=None, description="[model] name, or the name of one of its fallbacks. Default: the spawning session's."
    )
    tools: tuple[str, ...] | None = Field(
        default=None, description="The only tools it may have, of those of the spawning session. Default: all of them."
    )
    preset: str | None = Field(default=None, description="The preset of its sub-sessions. Default: none of their own.")
    generation: Annotated[StrictInt, Field(ge=1, le=NEWEST)] = Field(
        default=NEWEST, description="Highest generation of tools that it may have."
    )
    instructions: Annotated[str, AfterValidator(a_path)] | None = Field(
        default=None, description="A text file that follows its system prompt; relative to the configuration file."
    )


def read_agents(
    raw: object, models: Collection[str] | None, tools: Collection[str], texts: Texts, reader: TableReader
) -> Mapping[str, Agent]:
    """Return the agents by name; the reader collects problems. `models` is None when that table is unusable."""
    agents: dict[str, Agent] = {}
    for name, table in reader.table(raw, ("agents",)).items():
        path = ("agents", name)
        if not re.fullmatch(NAME, name):
            cure = "Use 1 to 32 lower-case letters, digits, - and _"
            reader.wrong(path, f"{name!r} cannot be an agent's name", cure)
            continue
        settings = reader.model(AgentSettings, table, path)
        if settings is None:
            continue
        _check(settings, models, tools, path, reader)
        files = (settings.instructions,) if settings.instructions else ()
        agents[name] = Agent(
            name=name,
            description=settings.description,
            model=settings.model or "",
            tools=None if settings.tools is None else tuple(dict.fromkeys(settings.tools)),
            preset=settings.preset or "",
            generation=settings.generation,
            instructions=texts.read(files, (*path, "instructions"), reader),
        )
    return agents


def _check(
    settings: AgentSettings, models: Collection[str] | None, tools: Collection[str], path: Path, reader: TableReader
) -> None:
    if settings.model is not None and models is not None and settings.model not in models:
        cure = f"{suggest(settings.model, models)}; further ones are added with [[model.fallback]]"
        reader.wrong((*path, "model"), f"no model is called {settings.model!r}", cure)
    for n, tool in enumerate(settings.tools or ()):
        if tool not in tools:
            reader.wrong((*path, "tools", n), f"there is no tool {tool!r}", suggest(tool, tools))


def check_presets(agents: Mapping[str, Agent], presets: Presets, reader: TableReader) -> None:
    """Check that the preset of each agent is there, and may be one of sub-sessions."""
    allowed = [one.name for one in presets.for_children()]
    for name, agent in agents.items():
        if agent.preset and agent.preset not in allowed:
            why = "is for sessions of people only" if agent.preset in presets.by_name else "is not there"
            reader.wrong(
                ("agents", name, "preset"), f"the preset {agent.preset!r} {why}", suggest(agent.preset, allowed)
            )
