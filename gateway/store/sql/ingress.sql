-- Events, messages and sessions: what ingress writes.

-- name: add_event
-- Writes nothing when the event is known; then `event_outcome` says what became of it.
INSERT INTO events (channel, account, event_key, outcome) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: event_outcome
SELECT outcome FROM events WHERE channel = ? AND account = ? AND event_key = ?;

-- name: use_session
-- Makes the session, or marks it active and takes its title. Gives its epoch.
INSERT INTO sessions (id, kind, origin, owner, title, epoch, root_kind, created_at, active_at)
VALUES (?1, ?2, ?3, ?4, ?5, 0, ?2, ?6, ?6)
ON CONFLICT (id) DO UPDATE SET active_at = excluded.active_at, title = excluded.title
RETURNING epoch;

-- name: raise_epoch
UPDATE sessions SET epoch = epoch + 1 WHERE id = ? RETURNING epoch;

-- name: saw_person
INSERT INTO people (principal, conversation, used_at) VALUES (?, ?, ?)
ON CONFLICT (principal) DO UPDATE SET conversation = excluded.conversation, used_at = excluded.used_at;

-- name: saw_owner_chat
INSERT INTO owner_chats (owner, conversation) VALUES (?, ?)
ON CONFLICT (owner) DO UPDATE SET conversation = excluded.conversation
WHERE conversation <> excluded.conversation;

-- name: add_message
INSERT INTO messages (
    ord, rev, id, session, turn, received_at, event_key, conversation, principal, name, direct, addressed, text, sent_at
) VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);

-- name: ungiven
-- The messages of a turn that its model was not given yet, in the order they came.
SELECT id, ord FROM messages INDEXED BY messages_turn WHERE turn = ? AND given IS NULL ORDER BY ord;

-- name: give
UPDATE messages SET given = ?, rev = ? WHERE ord = ?;

-- name: refused_at
SELECT refused_at FROM refusals WHERE principal = ?;

-- name: refuse
INSERT INTO refusals (principal, refused_at) VALUES (?, ?)
ON CONFLICT (principal) DO UPDATE SET refused_at = excluded.refused_at;
