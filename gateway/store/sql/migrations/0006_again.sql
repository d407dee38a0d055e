-- What an edit of a sender that is gone may stand over is shown once more (decision 36). Applied in one transaction: a
-- kill at any statement leaves the fifth schema.

-- The node that shows the beginning of an answer, or a status line of a turn at work, and may be editing it.
ALTER TABLE slots ADD COLUMN shown_by TEXT;
-- When a slot is to be shown once more.
ALTER TABLE slots ADD COLUMN again_at INTEGER;
CREATE INDEX slots_again ON slots (again_at) WHERE again_at IS NOT NULL;

PRAGMA user_version = 6;
