"""Table of methods and the functions that answer them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.slack import files, messages, places
from tests.support.slack.checks import Json
from tests.support.slack.telling import Teller

HANDLERS: Mapping[str, Callable[[Teller, Json], Json]] = {
    "api.test": lambda team, p: {"args": p},
    "auth.test": places.auth_test,
    "chat.postMessage": messages.post_message,
    "chat.postEphemeral": messages.post_ephemeral,
    "chat.update": messages.update,
    "chat.delete": messages.delete,
    "chat.startStream": messages.start_stream,
    "chat.appendStream": messages.append_stream,
    "chat.stopStream": messages.stop_stream,
    "conversations.info": places.info,
    "conversations.open": places.open_direct,
    "conversations.history": places.history,
    "conversations.replies": places.replies,
    "users.info": places.user_info,
    "reactions.add": places.add_reaction,
    "reactions.remove": places.remove_reaction,
    "pins.add": places.add_pin,
    "assistant.threads.setStatus": places.set_status,
    "assistant.threads.setTitle": places.set_title,
    "assistant.threads.setSuggestedPrompts": places.set_prompts,
    "agents.sessions.setStatus": places.set_session,
    "views.open": places.open_view,
    "views.update": places.update_view,
    "files.getUploadURLExternal": files.announce,
    "files.completeUploadExternal": files.complete,
    "files.info": files.info,
}
