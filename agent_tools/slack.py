"""The tool `slack`: messages, reactions, pins and files in the Slack channel or thread at hand, or in another channel.

Another channel is closed unless a rule of the owner opens it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, cast

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
    post_scope,
    run_post,
    spec_of,
)
from gateway.domain.posts import NewPost, PostAct
from gateway.domain.tools import CallScope, ToolResult
from gateway.ports import ToolContext

ACTS = {
    "post": PostAct.SEND,
    "update": PostAct.EDIT,
    "react": PostAct.REACT,
    "pin": PostAct.PIN,
    "upload": PostAct.FILE,
}

SPEC = spec_of(
    "slack",
    "Post on Slack. In this conversation, or with `channel` in another one that a rule opens: message, update, "
    "reaction, pin, file. Your answer is sent by itself: use this for more than an answer.",
    ACTS.values(),
)


class Args(BaseModel):
    """Arguments of one call."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["post", "update", "react", "pin", "upload"] = "post"
    text: Annotated[PostText, AfterValidator(check_text)] = ""
    channel: Annotated[
        str,
        Field(max_length=CHAT_CHARS, description="Id of another channel, as T0AA/C0CC; none: this one."),
        AfterValidator(check_chat),
    ] = ""
    message: MessageName = ""
    emoji: Annotated[
        str, Field(max_length=100, pattern=r"^([a-z0-9_+'-]+)?$", description="Name of a reaction, such as thumbsup.")
    ] = ""
    path: PostedFile = ""

    @model_validator(mode="before")
    @classmethod
    def _no_poll(cls, given: Any) -> Any:
        """Say what to do instead: models know polls from other platforms."""
        fields: object = given
        if isinstance(fields, dict) and cast("dict[str, object]", fields).get("action") == "poll":
            raise ValueError(
                "action: Slack has no polls; post the choices, each with an emoji to react with, "
                "or ask the person at hand with ask_user"
            )
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        given = {name for name in ("text", "message", "emoji", "path") if getattr(self, name)}
        check_fields(ACTS[self.action], given, self.action)
        if self.action == "upload" and len(self.text) > CAPTION_CHARS:
            raise ValueError(f"text: a caption has at most {CAPTION_CHARS} characters")
        return self


def scope(args: Args, _settings: None) -> CallScope:
    """Return the channel, unless it is the one at hand, and the file."""
    return post_scope(args.channel, args.path)


async def run(ctx: ToolContext, args: Args) -> ToolResult:
    """Post. It leaves once the result is stored."""
    wanted = NewPost(act=ACTS[args.action], chat=args.channel, text=args.text, emoji=args.emoji, message=args.message)
    return await run_post(ctx, "slack", wanted, args.path)
