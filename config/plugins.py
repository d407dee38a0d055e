"""Import of tool specs: of `agent_tools`, and of the owner's modules, which may fail in any way."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, cast

import agent_tools
from gateway.domain.text import cut
from gateway.domain.tool_groups import GROUPS
from gateway.domain.tools import ToolSpec
from gateway.errors import ConfigError

ENTRY_POINTS = "dragoman.tools"
"""Group of entry points at which an installed package registers its tools."""
HOOK_ENTRY_POINTS = "dragoman.hooks"
"""Group of entry points at which an installed package registers its hooks."""
FOLDER_MODULES = "dragoman_tools"
"""Package name under which files of the owner's folder are imported."""
AsyncHook: TypeAlias = Callable[[Mapping[str, Any]], Coroutine[Any, Any, object]]
"""Hook of a package: takes the question and returns the answer, both as JSON values. Foreign code."""
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


def spec_of(module: ModuleType, path: str) -> ToolSpec:
    """Return the `SPEC` of a tool's module. Raises `ConfigError` when there is none."""
    spec = part_of(module, "SPEC")
    if not isinstance(spec, ToolSpec):
        raise ConfigError(f"{path} has no SPEC", cure="Give it SPEC, Args and run, as agent_tools/shell.py does")
    if spec.group and spec.group not in GROUPS:
        cure = f"Known are: {', '.join(GROUPS)}"
        raise ConfigError(f"{path}: there is no tool group {cut(spec.group, 100)!r}", cure=cure)
    return spec


def package_tools(name: str) -> list[ModuleType]:
    """Return the tool modules of an installed package, by the name of its entry point: one, or those in its `TOOLS`.

    Raises `ConfigError` when there is no such package, or when it cannot be imported.
    """
    for entry in entry_points(group=ENTRY_POINTS, name=name):
        module = own_module(entry.module)
        found = part_of(module, entry.attr) if entry.attr else part_of(module, "TOOLS") or module
        modules = list(cast("Sequence[object]", found)) if isinstance(found, list | tuple) else [found]
        wrong = next((one for one in modules if not isinstance(one, ModuleType)), None)
        if wrong is not None:
            cure = "Let its entry point name a module with SPEC, Args and run, or a list of such modules"
            raise ConfigError(f"{entry.value[:100]} is no tool", cure=cure)
        return [one for one in modules if isinstance(one, ModuleType)]
    known = sorted({entry.name for entry in entry_points(group=ENTRY_POINTS)})
    cure = f"Installed are: {', '.join(known)[:500]}" if known else "Install it beside Dragoman"
    raise ConfigError(f"no installed package has tools named {cut(name, 100)!r}", cure=cure)


def package_hook(name: str) -> AsyncHook:
    """Return the hook of an installed package, by the name of its entry point.

    Raises `ConfigError` when there is no such package, when it cannot be imported, or is no async function.
    """
    for entry in entry_points(group=HOOK_ENTRY_POINTS, name=name):
        found = part_of(own_module(entry.module), entry.attr)
        if not inspect.iscoroutinefunction(found):
            cure = "Let its entry point name an async function that takes the call, as docs/hooks.md explains"
            raise ConfigError(f"{entry.value[:100]} is no async function", cure=cure)
        return found
    known = sorted({entry.name for entry in entry_points(group=HOOK_ENTRY_POINTS)})
    cure = f"Installed are: {', '.join(known)[:500]}" if known else "Install it beside Dragoman"
    raise ConfigError(f"no installed package has a hook named {cut(name, 100)!r}", cure=cure)


def file_module(file: Path) -> ModuleType:
    """Import a trusted file of the owner's folder. Raises `ConfigError` for any failure."""
    name = f"{FOLDER_MODULES}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None, "a *.py file has a loader"
    assert spec.loader is not None, "a *.py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script ends with `sys.exit`
        del sys.modules[name]
        why = f"{type(error).__name__}: {said(error)}"
        raise ConfigError(f"{file.name} cannot be imported ({why})", cure="Correct its code") from error
    return module


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
