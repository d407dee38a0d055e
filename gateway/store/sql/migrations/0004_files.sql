-- Files that come with messages and out of calls, and approvals that cover a scope. Applied in one transaction: a kill at any statement leaves the third
-- schema.

-- What came with a message, as JSON; NULL for nothing. `files`: what became of each, NULL until somebody looked.
ALTER TABLE messages ADD COLUMN attachments TEXT;
ALTER TABLE messages ADD COLUMN files TEXT;

-- Of a FILE slot: which file of the session's output folder it shows, as JSON.
ALTER TABLE slots ADD COLUMN file TEXT;

-- What was allowed for longer than one call: read before each call of such a tool.
CREATE INDEX waits_scoped ON waits (session)
WHERE state = 'consumed' AND json_extract(approval, '$.scope') <> '';

PRAGMA user_version = 4;
