-- What a model at work needs: children, summaries of long histories, what was spent. Applied in one transaction: a kill
-- at any statement leaves the second schema.

-- Of a child: `lineage` as JSON, its parent and root, the turn that does its task, in mode RUN the wait of its parent.
-- `live` is 1 until that turn has ended.
ALTER TABLE sessions ADD COLUMN lineage TEXT;
ALTER TABLE sessions ADD COLUMN parent TEXT;
ALTER TABLE sessions ADD COLUMN root TEXT;
ALTER TABLE sessions ADD COLUMN task_turn TEXT;
ALTER TABLE sessions ADD COLUMN parent_wait TEXT;
ALTER TABLE sessions ADD COLUMN live INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_children ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_live ON sessions (root) WHERE live = 1;

-- What stands for the turns of this epoch that ended up to `summary_rev` (their `ended_rev`).
ALTER TABLE sessions ADD COLUMN summary TEXT NOT NULL DEFAULT '';
ALTER TABLE sessions ADD COLUMN summary_rev INTEGER NOT NULL DEFAULT 0;

-- `early` is 2 for a turn's status line while the turn has not ended.
DROP INDEX slots_early;
CREATE INDEX slots_early ON slots (turn) WHERE early > 0;

-- Tokens and millionths of the currency, by day (ISO, UTC), person and model.
CREATE TABLE spent (
    day            TEXT NOT NULL,
    principal      TEXT NOT NULL,
    model          TEXT NOT NULL,
    answers        INTEGER NOT NULL,
    input_tokens   INTEGER NOT NULL,
    output_tokens  INTEGER NOT NULL,
    cached_tokens  INTEGER NOT NULL,
    cost_micros    INTEGER NOT NULL,
    PRIMARY KEY (day, principal, model)
) WITHOUT ROWID;

PRAGMA user_version = 3;
