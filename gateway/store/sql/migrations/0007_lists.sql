-- Lists of sessions go by when each was active last: of a hundred thousand, none but those that are shown is looked at.
-- Applied in one transaction: a kill at any statement leaves the sixth schema.

CREATE INDEX sessions_roots ON sessions (active_at) WHERE parent IS NULL;
CREATE INDEX sessions_past ON sessions (active_at) WHERE parent IS NOT NULL AND live = 0;

PRAGMA user_version = 7;
