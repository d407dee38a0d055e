"""What Slack allows, on the way out and in. Figures of its documentation, unless a line says that they are ours."""

from __future__ import annotations

TEXT_CHARS = 40_000
"""Characters of a message without blocks; Slack cuts off what is beyond."""
BLOCKS = 50
"""Blocks of a message."""
HEADER_CHARS = 150
SECTION_CHARS = 3000
CONTEXT_ELEMENTS = 10
BUTTON_CHARS = 75
VALUE_CHARS = 2000
"""What a button carries."""
ACTION_ID_CHARS = 255
METADATA_CHARS = 3000
"""What a form carries."""

MESSAGE_CHARS = 10_000
"""Ours: characters of all blocks of a message. From about 13,000 on, Slack refuses it (`msg_blocks_too_long`)."""
FALLBACK_CHARS = 3000
"""Ours: what notifications and screen readers are given. Slack refuses an edit with more than 4,000."""
UPLOAD_BYTES = 100_000_000
"""Ours: Slack takes 1 GB."""
CAPTION_CHARS = 3000
"""Ours: characters of what is said beside a file."""
NAME_CHARS = 255
"""Ours: characters of a file's name."""
TEXT_PARTS = 2
"""Ours: messages that one text may fill; a longer one goes as a file."""
ACTION_CHARS = 6000
"""Ours: characters of an action that a card shows itself; a longer one goes as a file."""
