-- The audit: a row for each call that started, each with the hash of the one before it (gateway.policy.audit). Rows are only
-- ever added. Applied in one transaction: a kill at any statement leaves the fourth schema.

CREATE TABLE audit (
    seq         INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    session     TEXT NOT NULL,
    turn        TEXT NOT NULL,
    n           INTEGER NOT NULL,
    lane        TEXT NOT NULL,
    tool        TEXT NOT NULL,
    action_sha  TEXT NOT NULL,
    because     TEXT NOT NULL,
    wait        TEXT,
    decided_by  TEXT,
    sandbox     TEXT NOT NULL,
    node        TEXT NOT NULL,
    prev_hash   TEXT NOT NULL,
    hash        TEXT NOT NULL
);

-- The row of a call's last start: a column where the start writes already costs no page, as an index would.
ALTER TABLE steps ADD COLUMN audit INTEGER;

-- What started up to then has no row.
ALTER TABLE meta ADD COLUMN audit_since INTEGER NOT NULL DEFAULT 0;
UPDATE meta SET audit_since = coalesce((SELECT max(started_at) FROM steps), 0);

PRAGMA user_version = 5;
