"""Import of tool specs: of `agent_tools`, and of the owner's modules, which may fail in any way."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType

import agent_tools
from gateway.domain.text import cut
from gateway.domain.tools import ToolSpec
from gateway.errors import ConfigError

SAID_CHARS = 500
"""Most characters of a foreign error's text."""


def own_module(path: str) -> ModuleType:
    """Import a module of the owner's. Raises `ConfigError` for any failure: its code may raise anything."""
    if not path or path.startswith("."):
        raise ConfigError(f"{path!r} is no import path", cure="Write it whole, as in my_package.my_module")
    named = cut(path, 100)
    try:
        return importlib.import_module(path)
    except ImportError as error:
        cure = "Write an import path: dots, and no .py" if path.endswith(".py") else "Correct the path, or install it"
        raise ConfigError(f"{named} cannot be imported: {said(error)}", cure=cure) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script ends with `sys.exit`
        why = f"{type(error).__name__}: {said(error)}"
        raise ConfigError(f"{named} cannot be imported ({why})", cure="Correct the path, or its code") from error


def said(error: BaseException) -> str:
    """Return the text of an error of foreign code, cut. Never raises."""
    try:
        return cut(str(error), SAID_CHARS)
    except Exception:  # noqa: BLE001 - its __str__ is foreign code too
        return "it does not say why"


def part_of(module: ModuleType, name: str) -> object:
    """Return an attribute of the owner's module, or None. Raises `ConfigError` when the access fails."""
    try:
        return getattr(module, name, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = f"{type(error).__name__}: {said(error)}"
        raise ConfigError(
            f"{name} of {cut(module.__name__, 100)} cannot be had ({why})", cure="Correct its code"
        ) from error


def own_tool_spec(path: str) -> ToolSpec:
    """Return the `SPEC` of the owner's tool at an import path. Raises `ConfigError` when there is none."""
    spec = part_of(own_module(path), "SPEC")
    if not isinstance(spec, ToolSpec):
        raise ConfigError(f"{path} has no SPEC", cure="Give it SPEC, Args and run, as agent_tools/shell.py does")
    return spec


def tool_specs() -> Mapping[str, ToolSpec]:
    """Return the `SPEC` of every module in `agent_tools`, by name. Raises `ConfigError` for a duplicate name."""
    specs: dict[str, ToolSpec] = {}
    for module in sorted(pkgutil.iter_modules(agent_tools.__path__), key=lambda found: found.name):
        if module.name.startswith("_"):
            continue
        spec = getattr(importlib.import_module(f"agent_tools.{module.name}"), "SPEC", None)
        if not isinstance(spec, ToolSpec):
            continue
        if spec.name in specs:
            raise ConfigError(f"Two tools are called {spec.name}.", cure="Remove one of their files from agent_tools.")
        specs[spec.name] = spec
    return specs
