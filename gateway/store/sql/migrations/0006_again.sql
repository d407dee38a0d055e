-- What an edit of a sender that is gone may stand over is shown once more (decision 36). Applied in one transaction: a
-- kill at any statement leaves the fifth schema.

-- The node that shows the beginning of an answer, or a status line of a turn at work, and may be editing it.
ALTER TABLE slots ADD COLUMN shown_by TEXT;
UPDATE slots SET shown_by = '' WHERE early > 0 AND sent_version > 0 AND NOT kept;
-- When a slot is to be shown once more, if it shows a newer version by then than this one, of which an edit may be late.
ALTER TABLE slots ADD COLUMN again_at INTEGER;
ALTER TABLE slots ADD COLUMN again_over INTEGER;
-- Whether its version says what the one before it does.
ALTER TABLE slots ADD COLUMN once_more INTEGER NOT NULL DEFAULT 0;
CREATE INDEX slots_again ON slots (again_at) WHERE again_at IS NOT NULL;

PRAGMA user_version = 6;
