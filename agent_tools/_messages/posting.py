"""Arguments, scope and running of a post, the same on every platform. Used by `telegram` and `slack`."""

from __future__ import annotations

import mimetypes
from collections.abc import Collection
from pathlib import PurePosixPath
from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from agent_tools._files.arguments import without_nul
from agent_tools._files.text_files import media_type
from gateway.domain.posts import NewPost, Post, PostAct
from gateway.domain.text import plain, visible
from gateway.domain.tools import (
    KEPT_BYTES,
    ApprovalMode,
    Availability,
    CallScope,
    Effect,
    ResultStatus,
    Risk,
    SubjectKind,
    ToolResult,
    ToolSpec,
)
from gateway.errors import BadRequest
from gateway.ports import ToolContext

TEXT_CHARS = 20_000
"""Characters of the longest text. A longer one belongs into a file."""
CHAT_CHARS = 150
"""Characters of a chat's name in a call."""
CAPTION_CHARS = 500
"""Characters of a file's caption."""

PostText: TypeAlias = Annotated[
    str, Field(max_length=TEXT_CHARS, description="Markdown; a poll's question; a file's caption.")
]
MessageName: TypeAlias = Annotated[
    str,
    Field(max_length=CHAT_CHARS, description="Name from an earlier result; none: the message that began this turn."),
]
PostedFile: TypeAlias = Annotated[
    str, Field(max_length=4096, description="File of the workspace."), AfterValidator(without_nul)
]


def spec_of(channel: str, description: str, acts: Collection[PostAct]) -> ToolSpec:
    """Return the spec of a channel's tool, which has the channel's name."""
    return ToolSpec(
        name=channel,
        description=description,
        risk=Risk.NETWORK,
        effect=Effect.IDEMPOTENT,
        availability=Availability.ALWAYS,
        approval=dict.fromkeys(("main", "dm", "non-main"), ApprovalMode.ALLOW),
        positional="text",
        shows="text",
        example="The backup is done.",
        channel=channel,
        posts=frozenset(acts),
        subjects=frozenset({SubjectKind.CHAT, SubjectKind.PATH}),
        in_order=True,
        indexed=True,
    )


_DONE = {
    PostAct.SEND: "The message",
    PostAct.EDIT: "The new text",
    PostAct.FILE: "The file",
    PostAct.POLL: "The poll",
    PostAct.REACT: "The reaction",
    PostAct.PIN: "The pin",
}
_NEEDS = {
    PostAct.SEND: {"text"},
    PostAct.EDIT: {"text", "message"},
    PostAct.FILE: {"path"},
    PostAct.POLL: {"text", "options"},
    PostAct.REACT: {"emoji"},
    PostAct.PIN: set[str](),
}
_TAKES = {
    PostAct.FILE: {"text"},
    PostAct.REACT: {"message"},
    PostAct.PIN: {"message"},
}


def check_fields(act: PostAct, given: set[str], action: str) -> None:
    """Check that an action has its fields and no others. `given`: those with a value. Raises `ValueError`."""
    needs = _NEEDS[act]
    takes = needs | _TAKES.get(act, set())
    if missing := sorted(needs - given):
        raise ValueError(f"{action} needs {', '.join(missing)}")
    if surplus := sorted(given - takes):
        raise ValueError(f"{action} takes no {', '.join(surplus)}")


def check_chat(chat: str) -> str:
    """Return the name of a chat. Raises `ValueError` for text that no configuration can name."""
    if chat and not (chat.isascii() and chat.isprintable() and " " not in chat):
        raise ValueError("write the chat's id as the configuration does")
    return chat


def check_text(text: str) -> str:
    """Return a text that shows something. Raises `ValueError` for one of blanks and invisible characters."""
    if text and not visible(text):
        raise ValueError("it shows nothing")
    return text


def post_scope(chat: str, path: str) -> CallScope:
    """Return the scope of a post: the file that leaves, and the chat when it is not the one at hand."""
    chats = (f"{SubjectKind.CHAT}:{chat}",) if chat else ()
    paths = (f"{SubjectKind.PATH}:{path}",) if path else ()
    where = f" to the chat {chat}" if chat else ""
    return CallScope(risk=Risk.NETWORK, subjects=(*chats, *paths), summary=f"post{where}" if where else "")


async def run_post(ctx: ToolContext, channel: str, wanted: NewPost, path: str = "") -> ToolResult:
    """Check a post and return it with the result, which carries it out."""
    kept = ()
    if wanted.act is PostAct.FILE:
        # Checked before the copy: nothing is kept for a destination that is refused.
        post = await ctx.messages.post(channel, wanted)
        data = await ctx.files.read(path, KEPT_BYTES)
        if not data:
            raise BadRequest(f"`{path}` is empty.", cure="Write something into it first.")
        name = PurePosixPath(path).name
        kind = media_type(data) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        kept = (await ctx.artifacts.file(ctx.files.root.joinpath(*ctx.files.parts(path)), name, kind),)
    else:
        post = await ctx.messages.post(channel, wanted)
    return ToolResult(status=ResultStatus.OK, text=_said(post, ctx.messages.name), posts=(post,), files=kept)


def _said(post: Post, name: str) -> str:
    """Return the text for the model. The post leaves after this: whether the platform takes it is not known yet."""
    where = f"{post.conversation.channel}:{post.conversation.chat}"
    named = f" Its name is {name}." if post.act in (PostAct.SEND, PostAct.POLL) else ""
    sure = "It is sent once, in order; the owner gets a notice if the platform refuses it."
    return f"{_DONE[post.act]} for {where} is stored.{named} {sure}"


def one_line(text: str) -> str:
    """Return a text for a field without formatting, without characters that hide or reorder others."""
    return plain(text)
