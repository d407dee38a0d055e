"""The control socket: how commands of the shell reach a running daemon, beside the path of messages.

`server` is the daemon's end, `answers` what it answers, `client` the commands' end, which does without both: asyncio is
half of what such a command costs. One connection carries one request and one answer, each a line of JSON:
`{"command": str, "args": {…}}` → `{"ok": true, "result": …}` or `{"ok": false, "error": str, "cure": str}`. The client
keeps the connection open until the answer came; going away cancels the command.
"""

from __future__ import annotations
