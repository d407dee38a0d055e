-- Copies of the whole store, which read all of it: lists that a row of the kernel holds and a table does not, and rows without a kind's columns.

-- name: inputs_of_turn
SELECT id FROM messages INDEXED BY messages_turn WHERE turn = ? ORDER BY ord;

-- name: waits_of_turn
SELECT id FROM waits INDEXED BY waits_turn WHERE turn = ? ORDER BY ord;

-- name: last_end
SELECT ended_at FROM turns INDEXED BY turns_ended WHERE session = ? AND ended_rev IS NOT NULL
ORDER BY epoch DESC, ended_rev DESC LIMIT 1;

-- name: steps_of_turn
SELECT count(*) FROM steps WHERE turn = ?;

-- name: all_places
-- Sessions in the order in which they were made.
SELECT id, seq FROM sessions;

-- name: all_cards
SELECT c.wait, s.id FROM cards AS c JOIN slots AS s ON s.seq = c.slot ORDER BY c.wait, c.slot;

-- name: all_events
SELECT channel, account, event_key, outcome FROM events;

-- name: all_facts
SELECT namespace, key, value, until FROM facts;

-- name: all_spent
SELECT day, principal, model, answers, input_tokens, output_tokens, cached_tokens, cost_micros FROM spent;

-- name: all_audit
SELECT seq, at, session, turn, n, lane, tool, action_sha, because, wait, grant_id, rule, decided_by, sandbox, node, prev_hash,
    hash
FROM audit ORDER BY seq;

-- name: all_poison
SELECT channel, account, event_key, raw, why, at FROM poison;

-- name: copy_card
INSERT INTO cards (wait, slot) SELECT ?, seq FROM slots WHERE id = ?;

-- name: off
PRAGMA foreign_keys = OFF;

-- name: without_log
-- A new file is written as a whole, flushed once at its end.
PRAGMA journal_mode = OFF;

-- name: unsynchronized
PRAGMA synchronous = OFF;

-- name: foreign_key_check
PRAGMA foreign_key_check;

-- name: integrity_check
-- One row: `ok`, or the first error.
PRAGMA integrity_check(1);

-- name: make_staged
CREATE TABLE staged (kind TEXT NOT NULL, key TEXT NOT NULL, place INTEGER NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (kind, key)) WITHOUT ROWID;

-- name: put_staged
INSERT OR REPLACE INTO staged (kind, key, place, text) VALUES (?, ?, ?, ?);

-- name: delete_staged
DELETE FROM staged WHERE kind = ? AND key = ?;

-- name: all_staged
-- Numbers in their order.
SELECT key, place, text FROM staged WHERE kind = ? ORDER BY length(key), key;

-- name: make_about
-- Facts about a backup, beside the rows of its store.
CREATE TABLE backup (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- name: put_about
INSERT INTO backup (name, value) VALUES (?, ?);

-- name: has_about
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'backup';

-- name: all_about
SELECT name, value FROM backup;

-- name: drop_about
DROP TABLE backup;

-- name: all_homes
-- Places of the files of sessions, the present one last.
SELECT homes FROM sessions WHERE homes <> '[]';

-- name: clear_homes
-- Sessions forget the places of their files: a lone daemon has its own folders only.
UPDATE sessions SET homes = '[]' WHERE homes <> '[]';

-- name: clear_homes_of_turns
UPDATE turns SET home = '' WHERE home <> '';

-- name: forget_members
-- The nodes of the store that was copied are none of the copy.
DELETE FROM facts WHERE namespace = ?;
