"""The tool `telegram`: messages, reactions, pins, polls and files in the Telegram chat at hand, or in another one.

Another chat is closed unless a rule of the owner opens it.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from agent_tools._messages.posting import (
    CAPTION_CHARS,
    CHAT_CHARS,
    MessageName,
    PostedFile,
    PostText,
    check_chat,
    check_fields,
    check_text,
    one_line,
    post_scope,
    run_post,
    spec_of,
)
from gateway.domain.posts import NewPost, PostAct
from gateway.domain.tools import CallScope, ToolResult
from gateway.ports import ToolContext

REACTIONS = frozenset(
    {
        "👍", "👎", "❤", "🔥", "🥰", "👏", "😁", "🤔", "🤯", "😱", "🤬", "😢", "🎉", "🤩", "🤮", "💩", "🙏", "👌",
        "🕊", "🤡", "🥱", "🥴", "😍", "🐳", "❤️\u200d🔥", "🌚", "🌭", "💯", "🤣", "⚡", "🍌", "🏆", "💔", "🤨",
        "😐", "🍓", "🍾", "💋", "🖕", "😈", "😴", "😭", "🤓", "👻", "👨\u200d💻", "👀", "🎃", "🙈", "😇", "😨", "🤝",
        "✍", "🤗", "🫡", "🎅", "🎄", "☃", "💅", "🤪", "🗿", "🆒", "💘", "🙉", "🦄", "😘", "💊", "🙊", "😎", "👾",
        "🤷\u200d♂️", "🤷", "🤷\u200d♀️", "😡",
    }
)  # fmt: skip
"""Emoji that Telegram takes as a reaction of a bot (`ReactionTypeEmoji` of the Bot API)."""
ACTS = {
    "send": PostAct.SEND,
    "edit": PostAct.EDIT,
    "react": PostAct.REACT,
    "pin": PostAct.PIN,
    "poll": PostAct.POLL,
    "send_file": PostAct.FILE,
}
QUESTION_CHARS = 250
"""Characters of a poll's question: Telegram's 300, less the mark for other chats."""
COLOURED = "\ufe0f"
"""Sign after an emoji that asks for colours; models write it, Telegram does not know it."""

SPEC = spec_of(
    "telegram",
    "Post on Telegram. In this chat, or with `chat` in another one that a rule opens: message, edit, react, pin, "
    "poll, file. Your answer is sent by itself: use this for more than an answer.",
    ACTS.values(),
)


def check_emoji(emoji: str) -> str:
    """Return a reaction in the form that Telegram knows. Raises `ValueError` for any other."""
    bare = emoji.removesuffix(COLOURED)
    if emoji and bare not in REACTIONS:
        raise ValueError(
            "Telegram takes no such reaction; one of \U0001f44d \u2764 \U0001f389 \U0001f440, for instance"
        )
    return bare


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["send", "edit", "react", "pin", "poll", "send_file"] = "send"
    text: Annotated[PostText, AfterValidator(check_text)] = ""
    chat: Annotated[
        str,
        Field(max_length=CHAT_CHARS, description="Id of another chat, such as -1003; none: this one."),
        AfterValidator(check_chat),
    ] = ""
    message: MessageName = ""
    emoji: Annotated[str, Field(max_length=8, description="Reaction, as one emoji."), AfterValidator(check_emoji)] = ""
    options: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=100), AfterValidator(check_text)], ...],
        Field(max_length=10, description="2 to 10 answers of a poll."),
    ] = ()
    path: PostedFile = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = {name for name in ("text", "message", "emoji", "options", "path") if getattr(self, name)}
        check_fields(ACTS[self.action], given, self.action)
        if self.options and len(self.options) < 2:
            raise ValueError("options: a poll has 2 to 10")
        if self.action == "poll" and len(self.text) > QUESTION_CHARS:
            raise ValueError(f"text: a question has at most {QUESTION_CHARS} characters")
        if self.action == "send_file" and len(self.text) > CAPTION_CHARS:
            raise ValueError(f"text: a caption has at most {CAPTION_CHARS} characters")
        return self


def scope(args: Args, _settings: None) -> CallScope:
    """Return the chat, unless it is the one at hand, and the file."""
    return post_scope(args.chat, args.path)


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Post. It leaves once the result is stored."""
    act = ACTS[args.action]
    wanted = NewPost(
        act=act,
        chat=args.chat,
        text=one_line(args.text) if act is PostAct.POLL else args.text,
        options=tuple(map(one_line, args.options)),
        emoji=args.emoji,
        message=args.message,
    )
    return await run_post(ctx, "telegram", wanted, args.path)
