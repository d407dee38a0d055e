-- Sign-in, last contacts, and nodes.

-- name: add_code
INSERT INTO codes (code_sha, owner, until) VALUES (?, ?, ?)
ON CONFLICT (code_sha) DO UPDATE SET owner = excluded.owner, until = excluded.until;

-- name: take_code
DELETE FROM codes WHERE code_sha = ? RETURNING owner, until;

-- name: failures
SELECT count(*) FROM failures WHERE source = ? AND failed_at > ?;

-- name: forget_failures
DELETE FROM failures WHERE failed_at <= ?;

-- name: add_failure
INSERT INTO failures (source, failed_at) VALUES (?, ?);

-- name: add_cookie
INSERT INTO cookies (cookie_sha, owner, until) VALUES (?, ?, ?)
ON CONFLICT (cookie_sha) DO UPDATE SET owner = excluded.owner, until = excluded.until;

-- name: signed_in
SELECT owner FROM cookies WHERE cookie_sha = ? AND until > ?;

-- name: sign_out
DELETE FROM cookies WHERE cookie_sha = ?;

-- name: saw_page
INSERT INTO page_seen (owner, seen_at) VALUES (?, ?) ON CONFLICT (owner) DO UPDATE SET seen_at = excluded.seen_at;

-- name: page_seen
SELECT seen_at FROM page_seen WHERE owner = ?;

-- name: person
SELECT conversation, used_at FROM people WHERE principal = ?;

-- name: owner_chat
SELECT conversation FROM owner_chats WHERE owner = ?;

-- name: alive
UPDATE meta SET alive_at = ?;

-- name: last_alive
SELECT alive_at FROM meta;

-- name: hold
-- Acquires or renews a lease unless another node holds it. ?1 name, ?2 node, ?3 until, ?4 now. One row on success.
INSERT INTO holds (name, node, until) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET node = excluded.node, until = excluded.until
WHERE holds.node = ?2 OR holds.until <= ?4
RETURNING 1;

-- name: all_holds
SELECT name, node FROM holds;

-- name: let_go
DELETE FROM holds WHERE name = ?;

-- name: tell
-- One row if this notice is due. ?1 key, ?2 now, ?3 latest previous notice.
INSERT INTO told (key, at) VALUES (?1, ?2)
ON CONFLICT (key) DO UPDATE SET at = excluded.at WHERE told.at <= ?3
RETURNING 1;

-- name: note
INSERT INTO notes (room, key, value, until) VALUES (?, ?, ?, ?)
ON CONFLICT (room, key) DO UPDATE SET value = excluded.value, until = excluded.until;

-- name: forget_notes
DELETE FROM notes WHERE room = ? AND until <= ?;

-- name: notes
SELECT key, value FROM notes WHERE room = ? AND (until IS NULL OR until > ?) ORDER BY key;
