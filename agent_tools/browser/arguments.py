"""Arguments and call scope of the tool `browser`, evaluated before any decision and before any page is opened.

One flat model: every action takes a few of its fields. Fields that an action does not take are dropped, so that a card
shows exactly what is done.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from agent_tools._files.arguments import without_nul
from agent_tools._web.urls import checked_url, host_and_port, scope_of
from agent_tools.browser.save_paths import OWN_FOLDERS, RESERVED, is_reserved, is_write
from agent_tools.browser.settings import BrowserSettings
from gateway.domain.scopes import Scopes
from gateway.domain.tools import (
    CallScope,
    Destination,
    Risk,
)

ActionName = Literal[
    "open", "snapshot", "click", "hover", "drag", "type", "select", "press", "scroll", "wait", "back", "tabs",
    "screenshot", "pdf", "text", "download", "upload", "evaluate", "resize", "dialog", "close",
]  # fmt: skip

TEXT_CHARS = 16_384
"""Most characters that a card shows whole, however the text is escaped."""

HOST_CHARS = 300
"""Most characters of a host: 253 for its name, with a scheme and a port."""

_REF = r"((f\d{1,6})?e|x)\d{1,9}"
"""Pattern of an element reference in snapshots; `f` numbers the frame, `x` marks an element without a role."""
AT_A_PLACE = frozenset({"click", "hover", "drag", "type", "scroll"})
"""Actions that take a place instead of a ref."""
_REF_OR_PLACE = r"^(((f\d+)?e|x)\d+|\d+,\d+)$"
"""Pattern of a ref or a place, for models; `_short` limits both."""
_LONGEST_REF = 20
"""Most characters of either."""
HOW = frozenset({"double", "hold", "right", "middle", "Shift", "Control", "Alt", "Meta"})
"""Ways to click, and the modifier keys held meanwhile."""
TAKES: Mapping[str, str] = MappingProxyType(
    {
        "open": "url!",
        "snapshot": "ref",
        "click": "ref! how",
        "hover": "ref! how",
        "drag": "ref! to! how",
        "type": "ref text! submit",
        "select": "ref! values text",
        "press": "key! ref",
        "scroll": "direction amount ref",
        "wait": "text amount",
        "back": "",
        "tabs": "tab",
        "screenshot": "ref full_page",
        "pdf": "path",
        "text": "ref",
        "download": "url ref path",
        "upload": "host! ref! path!",
        "evaluate": "host! script!",
        "resize": "to!",
        "dialog": "submit! text",
        "close": "tab",
    }
)
"""Fields of each action; `!` marks a required one."""

BY_HAND: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "open": ("url",),
        "click": ("ref", "how"),
        "hover": ("ref",),
        "drag": ("ref", "to"),
        "type": ("ref", "text"),
        "select": ("ref", "values"),
        "press": ("key",),
        "scroll": ("direction", "amount"),
        "wait": ("text",),
        "tabs": ("tab",),
        "screenshot": ("ref",),
        "pdf": ("path",),
        "text": ("ref",),
        "download": ("url", "path"),
        "upload": ("host", "ref", "path"),
        "evaluate": ("host", "script"),
        "resize": ("to",),
        "dialog": ("submit", "text"),
        "close": ("tab",),
    }
)
"""Fields of the words after `/browser <action>`, in order; the last takes the rest of the text."""

_CURES: Mapping[str, str] = MappingProxyType(
    {
        "url": "the address, as in https://example.org/",
        "ref": "the ref of an element from `snapshot`, as in e12",
        "to": "where it ends: a ref as in e12, or a place as in 310,42; for resize the size, as in 800,600",
        "submit": "true accepts the dialog, false refuses",
        "text": "what to write; empty text clears the field",
        "values": "the options to choose, as a list of texts",
        "key": "the key, as in Enter or Control+a",
        "path": "the file, relative to the workspace",
        "script": "the JavaScript to run in the page",
        "host": "the host of the page that is open, as in example.org",
    }
)


def _plain(schema: dict[str, Any]) -> None:
    """Drop titles, defaults and `null` from the schema of optional fields; they would be half of it."""
    for name, field in cast("dict[str, dict[str, Any]]", schema["properties"]).items():
        field.pop("title", None)
        field.pop("default", None)
        kinds: list[dict[str, Any]] = field.pop("anyOf", [])
        kind = [one for one in kinds if one.get("type") != "null"]
        schema["properties"][name] = {**kind[0], **field} if kind else field


class Args(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_plain)

    action: ActionName
    url: Annotated[str | None, Field(description="open, download: the address.")] = None
    ref: Annotated[
        str | None,
        Field(
            pattern=_REF_OR_PLACE,
            description="As in the snapshot: e12. Or a place of the last screenshot: 310,42.",
        ),
    ] = None
    to: Annotated[
        str | None,
        Field(description="drag: ref or place. resize: 800,600."),
    ] = None
    how: Annotated[
        str | None,
        Field(description="click: double, right, hold, Shift, joined by +."),
    ] = None
    text: Annotated[
        str | None,
        Field(
            max_length=TEXT_CHARS,
            description="type: replaces what it holds. select: marks it. wait: until it shows. dialog: answer.",
        ),
    ] = None
    submit: Annotated[bool | None, Field(description="type: press Enter. dialog: accept.")] = None
    values: Annotated[
        list[Annotated[str, Field(max_length=1000)]] | None,
        Field(
            min_length=1,
            max_length=50,
            validation_alias=AliasChoices("values", "value"),
            description="select: options, by label or value.",
        ),
    ] = None
    key: Annotated[str | None, Field(min_length=1, max_length=60, description="press: Enter, Control+a, PageDown.")] = (
        None
    )
    direction: Annotated[Literal["up", "down", "left", "right"] | None, Field(description="scroll: down.")] = None
    amount: Annotated[float | None, Field(gt=0, le=300, description="scroll: screens, else 1. wait: seconds.")] = None
    tab: Annotated[int | None, Field(ge=1, le=100, description="tabs: go to it. close: only it; else all.")] = None
    path: Annotated[
        str | None,
        Field(
            max_length=1000,
            description="upload: a file of the workspace. download, pdf: where to put it, unasked in downloads/.",
        ),
    ] = None
    full_page: Annotated[bool | None, Field(description="screenshot: all of the page.")] = None
    script: Annotated[str | None, Field(max_length=TEXT_CHARS, description="evaluate: an expression.")] = None
    host: Annotated[
        str | None,
        Field(max_length=HOST_CHARS, description="upload, evaluate: the host of the open page."),
    ] = None
    timeout: Annotated[
        float | None,
        Field(
            ge=1,
            le=300,
            validation_alias=AliasChoices("timeout", "timeout_s", "timeout_seconds"),
            description="Seconds (not ms) until it is stopped.",
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _as_it_is_meant(cls, given: object) -> object:
        """Parse `open https://…` in `action`; drop fields that are empty or not of this action."""
        if not isinstance(given, dict):
            return given
        fields = dict(cast("dict[str, object]", given))
        if isinstance(action := fields.get("action"), str):
            fields |= _by_hand(action, fields)
        return _of_the_action(fields)

    @field_validator("url")
    @classmethod
    def _one_form(cls, url: str | None) -> str | None:
        return url and checked_url(url)

    @field_validator("host")
    @classmethod
    def _as_a_card_names_it(cls, host: str | None) -> str | None:
        return host and scope_of(checked_url(host))

    @field_validator("ref", "to")
    @classmethod
    def _short(cls, ref: str | None) -> str | None:
        if ref is not None and len(ref) > _LONGEST_REF:
            raise ValueError("it is too long for a ref as in e12, and for a place as in 310,42")
        return ref

    @field_validator("to")
    @classmethod
    def _ref_or_place(cls, to: str | None) -> str | None:
        if to is not None and not re.fullmatch(_REF_OR_PLACE, to):
            raise ValueError("it must be a ref as in e12, or two numbers as in 310,42")
        return to

    @field_validator("how")
    @classmethod
    def _known_ways(cls, how: str | None) -> str | None:
        ways = how.split("+") if how else []
        if unknown := [one for one in ways if one not in HOW]:
            raise ValueError(f"{unknown[0][:20]!r} is no way to click: join some of {', '.join(sorted(HOW))} with +")
        return "+".join(dict.fromkeys(ways)) or None

    @field_validator("path")
    @classmethod
    def _can_be_a_path(cls, path: str | None) -> str | None:
        return path and without_nul(path)

    @model_validator(mode="after")
    def _complete(self) -> Args:
        for name in TAKES[self.action].split():
            if name.endswith("!") and getattr(self, name[:-1]) is None:
                raise ValueError(f"{self.action} needs {name[:-1]}: {_CURES[name[:-1]]}")
        if self.action == "download" and (self.url is None) == (self.ref is None):
            raise ValueError("download needs either url, the file's address, or ref, the link to it from `snapshot`")
        if self.action == "select" and (self.values is None) == (self.text is None):
            raise ValueError("select needs either values, the options to choose, or text, the words to mark")
        self._check_places()
        if self.action == "wait" and (self.text is None) == (self.amount is None):
            raise ValueError("wait needs either text, which the page will show, or amount, the seconds to wait")
        if self.action in OWN_FOLDERS and is_reserved(PurePosixPath(self.path or "").parts):
            raise ValueError(RESERVED)
        return self

    def _check_places(self) -> None:
        """Raise `ValueError` for a place where only a ref is of use, or a pair that a drag cannot take."""
        if self.ref is not None and "," in self.ref and self.action not in AT_A_PLACE:
            raise ValueError(f"{self.action} needs the ref of an element, as in e12: no place can be given to it")
        if self.action == "resize" and "," not in (self.to or ""):
            raise ValueError("resize needs the new size in to, as in 800,600")
        if self.action == "drag" and self.ref == self.to:
            raise ValueError("it would be dragged onto itself: give another ref or place in to")


def scope(args: Args, settings: BrowserSettings) -> CallScope:
    """Return the worst case of a call: a host is approved once in a session, an upload or a script each time.

    Links of an open page are not covered here: the navigation guard keeps tabs on allowed hosts. Saving a file outside
    the browser's own folders is a write. Its approval covers this one call.
    """
    going = destination(args, settings)
    host = "" if args.url is None else scope_of(args.url)
    subjects = (*([f"host:{host}"] if host else []), *_paths(args))
    sends = (host,) if host else ()
    if is_write(args.action, args.path):
        return CallScope(risk=Risk.WRITE, destination=going, subjects=subjects, sends=sends)
    if host:
        return CallScope(risk=Risk.NETWORK, scope=host, destination=going, subjects=subjects, sends=sends)
    if args.action == "upload":
        return CallScope(risk=Risk.NETWORK, subjects=subjects)
    if args.action == "evaluate":
        return CallScope(risk=Risk.EXECUTE, refused=blocked(settings).get("evaluate", ""))
    return CallScope(risk=Risk.READ)


def _paths(args: Args) -> tuple[str, ...]:
    """Return the file that a call names, as a subject. The gateway relates it to the workspace."""
    return (f"path:{args.path}",) if args.path else ()


def destination(args: Args, settings: BrowserSettings) -> Destination | None:
    """Return the host that a call connects to; None when it names no URL."""
    if args.url is None:
        return None
    return Destination(host=host_and_port(args.url), permitted=settings.hosts, setting="[tools.browser] hosts")


def scopes_of(args: Args, allowed: Scopes) -> Scopes:
    """Return the hosts allowed for one call: those approved for the session, and the host of a download approved alone.

    An approval of a write covers one call (`CallScope.scope` is empty); its card named the host and the path.
    """
    own = is_write(args.action, args.path) and args.url is not None
    return allowed | {scope_of(args.url or "")} if own else allowed


def blocked(settings: BrowserSettings) -> Mapping[str, str]:
    """Return the actions that the settings block, each with the reason and the cure.

    Used for both the offered schema and the decision of a call.
    """
    if settings.evaluate == "ask":
        return {}
    cure = 'The owner allows to ask for them with evaluate = "ask" in [tools.browser].'
    return {"evaluate": f"Scripts are not run in pages here. {cure}"}


def schema(settings: BrowserSettings) -> dict[str, Any]:
    """Return the schema offered to a model, without blocked actions and fields that only those take."""
    made = Args.model_json_schema()
    made.pop("title", None)
    gone = blocked(settings)
    if not gone:
        return made
    fields: dict[str, dict[str, Any]] = made["properties"]
    fields["action"]["enum"] = [action for action in fields["action"]["enum"] if action not in gone]
    taken = {"action", "timeout"}
    for action in fields["action"]["enum"]:
        taken.update(TAKES[action].replace("!", "").split())
    made["properties"] = {name: _without(field, gone) for name, field in fields.items() if name in taken}
    return made


def _without(field: dict[str, Any], gone: Collection[str]) -> dict[str, Any]:
    """Return a field whose description, as in "upload, evaluate: the host", names no blocked action."""
    actions, colon, rest = field.get("description", "").partition(":")
    left = [action for action in actions.split(", ") if action not in gone]
    return {**field, "description": f"{', '.join(left)}{colon}{rest}"} if colon else field


# --- commands typed by people, and fields filled in by models --------------------------------------


def _by_hand(text: str, given: Mapping[str, object]) -> dict[str, object]:
    """Parse `type submit=true e3 two words`: the action, `name=value` words, then the positional fields."""
    if re.match(r"\s*action=", text):
        return _named(text)
    action, rest = _word(text)
    action = action.lower()  # phone keyboards capitalise the first word
    found: dict[str, object] = {"action": action}
    names = list(BY_HAND.get(action, ()))
    known = {"timeout", *TAKES.get(action, "").replace("!", "").split()}
    while rest:
        word, after = _word(rest)
        name, equals, value = word.partition("=")
        if equals and name in known:
            found[name], rest = value, after
        elif not names:
            raise ValueError(f"{action[:40]} takes no {word[:80]!r}: leave it out, or write it as name=value")
        else:
            name = names.pop(0)
            found[name], rest = (word, after) if names else (rest, "")
    if action == "wait" and re.fullmatch(r"\d+(\.\d+)?", str(found.get("text", ""))):
        found["amount"] = found.pop("text")
    twice = sorted((given.keys() - {"action"}) & found.keys())
    if twice:
        raise ValueError(f"{twice[0]} is given twice: give it once")
    return found


def _word(text: str) -> tuple[str, str]:
    """Return the first word and the rest."""
    word, *rest = text.split(maxsplit=1) or [""]
    return word, rest[0].strip() if rest else ""


def _named(text: str) -> dict[str, object]:
    """Parse `action=type ref=e3 text="two words"`. Raises `ValueError`."""
    try:
        words = [word.partition("=") for word in shlex.split(text)]
    except ValueError as error:
        raise ValueError(f"the quotes do not match ({error}): close them") from None
    for name, equals, _ in words:
        if not equals:
            raise ValueError(f"{name[:80]!r} is not of the form name=value: write it so, or begin with the action")
    return {name: value for name, _, value in words}


def _of_the_action(fields: Mapping[str, object]) -> dict[str, object]:
    """Drop known fields that the action does not take. Unknown names stay, to be refused."""
    action = fields.get("action")
    if not isinstance(action, str) or action not in TAKES:
        return dict(fields)
    fields = {"values" if name == "value" else name: value for name, value in fields.items()}
    if action == "download" and isinstance(fields.get("url"), str) and re.fullmatch(_REF, str(fields["url"])):
        fields = {**fields, "ref": fields["url"], "url": None}  # `/browser download e12`
    if isinstance(fields.get("values"), str):
        fields["values"] = [fields["values"]]
    elsewhere = Args.model_fields.keys() - {"action", "timeout", *TAKES[action].replace("!", "").split()}
    return {
        name: value
        for name, value in fields.items()
        if name not in elsewhere and (value != "" or (name == "text" and action in ("type", "dialog", "select")))
    }
