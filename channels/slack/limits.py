"""Limits of Slack. Figures of its documentation, unless a line says that they are ours."""

from __future__ import annotations

TEXT_CHARS = 40_000
"""Characters of a message without blocks; Slack truncates a longer one."""
BLOCKS = 50
"""Blocks of a message."""
HEADER_CHARS = 150
"""Characters of a header block."""
SECTION_CHARS = 3000
"""Characters of a section block."""
CONTEXT_ELEMENTS = 10
"""Elements of a context block."""
BUTTON_CHARS = 75
"""Characters of a button's label."""
VALUE_CHARS = 2000
"""Characters of a button's payload."""
ACTION_ID_CHARS = 255
"""Characters of a button's id."""
METADATA_CHARS = 3000
"""Characters of a form's `private_metadata`."""

MESSAGE_CHARS = 10_000
"""Characters of all blocks of a message; ours. From about 13,000 on, Slack refuses it (`msg_blocks_too_long`)."""
FALLBACK_CHARS = 3000
"""Characters for notifications and screen readers; ours. Slack refuses an edit with more than 4,000."""
UPLOAD_BYTES = 100_000_000
"""Bytes of an upload; ours. Slack accepts 1 GB."""
CAPTION_CHARS = 3000
"""Characters of a file's caption; ours."""
NAME_CHARS = 255
"""Characters of a file's name; ours."""
TEXT_PARTS = 2
"""Messages that one text may fill; ours. A longer text goes as a file."""
ACTION_CHARS = 6000
"""Characters of an action inside a card; ours. A longer action goes as a file."""
