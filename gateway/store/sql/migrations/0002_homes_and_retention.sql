-- Homes of the files of sessions, and what the removal of old turns looks up. Stores of before have no homes.

-- For a root: the places that held the files of its family, as a JSON array, the present one last.
ALTER TABLE sessions ADD COLUMN homes TEXT NOT NULL DEFAULT '[]';

-- The place that holds the files of the turn's session; empty while none does.
ALTER TABLE turns ADD COLUMN home TEXT NOT NULL DEFAULT '';
CREATE INDEX turns_homed ON turns (home) WHERE home <> '' AND ended_rev IS NULL;

DROP INDEX slots_early;
CREATE INDEX slots_turn ON slots (turn) WHERE turn IS NOT NULL;
CREATE INDEX cards_slot ON cards (slot);
CREATE INDEX grants_wait ON grants (wait);
CREATE INDEX grants_session ON grants (session);

PRAGMA user_version = 2;
