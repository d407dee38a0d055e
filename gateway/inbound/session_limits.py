"""Commands that change a session's limits: /plan, /build, /preset, /tools off and on. Used by `control_replies`."""

from __future__ import annotations

from difflib import get_close_matches

from gateway.domain.sessions import Session
from gateway.domain.text import as_code
from gateway.ports import Control, ControlEffect, SessionChange
from gateway.toolcalls.tool_set import ToolSet

SWITCHES = frozenset({"on", "off"})
"""First words after /tools that switch a tool."""


def change_preset(command: str, rest: str, session: Session, tools: ToolSet, *, owner: bool) -> Control:
    """Return the effect and reply of /plan, /build or /preset. `rest`: the text after it; `owner`: an owner wrote."""
    name = rest.strip() if command == "preset" else command
    if not name:
        return answer(_presets_text(session, tools))
    if not owner:
        return answer("Only an owner can change the preset here.")
    if name not in {one.name for one in tools.presets.for_people()}:
        return answer(f"There is no preset {as_code(name[:40])} for this session. There are: {_names(tools)}.")
    now = tools.preset_of(session)
    preset = tools.presets.by_name[name]
    about = f": {preset.about}" if preset.about else ""
    if now.name == name:
        return answer(f"The preset {as_code(name)} is in force already{about}")
    said = f"The preset is now {as_code(name)}{about} It holds from the next call on."
    if command != "preset" and rest.strip():
        said += " Write what is to be done as a message of its own."
    return _changing(SessionChange(preset=name), said)


def switch_tool(rest: str, session: Session, tools: ToolSet, *, owner: bool) -> Control:
    """Return the effect and reply of `/tools off NAME` and `/tools on NAME`. `rest`: `off NAME`."""
    switch, _, word = rest.strip().partition(" ")
    if not owner:
        return answer("Only an owner can switch tools on and off here.")
    spec = tools.commands.get(word.strip().lower())
    name = spec.name if spec is not None else word.strip()
    off = switch == "off"
    if spec is None and (off or name not in session.tools_off):
        asked = as_code(name[:40]) if name else "without a name"
        near = get_close_matches(name, tools.commands, n=1)
        return answer(f"There is no tool {asked}." + (f" Did you mean {as_code(near[0])}?" if near else ""))
    if off is (name in session.tools_off):
        return answer(f"{as_code(name)} is {switch} here already.")
    names = frozenset({name})
    change = SessionChange(tools_off=names) if off else SessionChange(tools_on=names)
    how = "It comes back with" if off else "Its permission is as configured. Take it away with"
    return _changing(
        change, f"{as_code(name)} is {switch} in this session. {how} `/tools {'on' if off else 'off'} {name}`."
    )


def _presets_text(session: Session, tools: ToolSet) -> str:
    now = tools.preset_of(session).name
    lines = (
        f"- {as_code(one.name)}{' (in force)' if one.name == now else ''}: {one.about}"
        for one in tools.presets.for_people()
    )
    return "\n".join([f"The preset here is {as_code(now)}. Choose with `/preset NAME`:", "", *lines])


def _names(tools: ToolSet) -> str:
    return ", ".join(as_code(one.name) for one in tools.presets.for_people())


def _changing(change: SessionChange, reply: str) -> Control:
    return Control(effect=ControlEffect.NONE, only=None, reply=reply, idle="", stopped_text="", change=change)


def answer(reply: str) -> Control:
    """Return a control without an effect, only a reply."""
    return Control(effect=ControlEffect.NONE, only=None, reply=reply, idle="", stopped_text="")
