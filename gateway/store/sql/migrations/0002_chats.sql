-- What chats need beside the page: cut and quoted messages, talk in groups, answers that are shown while they are
-- written, notes. Applied in one transaction: a kill at any statement leaves the first schema.

-- `unread` says what came with it and cannot be read. `cut`: its platform's limit cut it off; `continues`: it is the
-- rest of such a one. `context`: said beside the bot; of no turn until a new model turn is given it.
ALTER TABLE messages ADD COLUMN quoted TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN reply_to TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN unread TEXT NOT NULL DEFAULT '';
ALTER TABLE messages ADD COLUMN cut INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN context INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN continues INTEGER NOT NULL DEFAULT 0;
CREATE INDEX messages_context ON messages (session) WHERE context = 1 AND turn IS NULL;

-- The `ord` of the oldest message said beside the bot that the next model turn is given; 0 when there is none.
ALTER TABLE sessions ADD COLUMN context_from INTEGER NOT NULL DEFAULT 0;

-- Set while a new turn waits for the rest of a message that was cut off: it cannot be claimed before.
ALTER TABLE turns ADD COLUMN held_until INTEGER;
CREATE INDEX turns_held ON turns (session) WHERE held_until IS NOT NULL;

-- 1 for an answer's slot while no answer took it over.
ALTER TABLE slots ADD COLUMN early INTEGER NOT NULL DEFAULT 0;
CREATE INDEX slots_early ON slots (turn) WHERE early = 1;

-- Refusals of strangers wait beside all others, not before them.
DROP INDEX slots_due;
CREATE INDEX slots_due ON slots (seq, due_at, channel, conversation) WHERE state = 'due' AND kind <> 'refusal';
CREATE INDEX slots_refusals ON slots (state, seq) WHERE kind = 'refusal' AND state IN ('due', 'sending');

-- Small facts by room; `until` is NULL for those that stay.
CREATE TABLE notes (
    room   TEXT NOT NULL,
    key    TEXT NOT NULL,
    value  TEXT NOT NULL,
    until  INTEGER,
    PRIMARY KEY (room, key)
) WITHOUT ROWID;

-- Events that could not be read, as they came.
CREATE TABLE poison (
    channel    TEXT NOT NULL,
    account    TEXT NOT NULL,
    event_key  TEXT NOT NULL,
    raw        TEXT NOT NULL,
    why        TEXT NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (channel, account, event_key)
) WITHOUT ROWID;

-- When the owners were told something last.
CREATE TABLE told (
    key  TEXT PRIMARY KEY,
    at   INTEGER NOT NULL
) WITHOUT ROWID;

PRAGMA user_version = 2;
