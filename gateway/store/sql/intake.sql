-- Events, messages and sessions: what intake writes.

-- name: add_event
-- Writes nothing when the event is known; `event_outcome` returns its outcome then.
INSERT INTO events (channel, account, event_key, outcome) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: event_outcome
SELECT outcome FROM events WHERE channel = ? AND account = ? AND event_key = ?;

-- name: note_album
-- Replaces the location of an album.
INSERT INTO events (channel, account, event_key, outcome) VALUES (?, ?, ?, ?)
ON CONFLICT (channel, account, event_key) DO UPDATE SET outcome = excluded.outcome;

-- name: use_session
-- Creates the session, or marks it active and updates its title. Returns its epoch and the first place of its context.
INSERT INTO sessions (id, kind, origin, owner, title, epoch, root_kind, created_at, active_at)
VALUES (?1, ?2, ?3, ?4, ?5, 0, ?2, ?6, ?6)
ON CONFLICT (id) DO UPDATE SET active_at = excluded.active_at, title = excluded.title
RETURNING epoch, context_from;

-- name: make_session
-- Creates the session when absent.
INSERT INTO sessions (id, kind, origin, owner, title, epoch, root_kind, created_at, active_at)
VALUES (?1, ?2, ?3, ?4, ?5, 0, ?2, ?6, ?6)
ON CONFLICT (id) DO NOTHING;

-- name: raise_epoch
-- Drops summary and context of the old epoch.
UPDATE sessions SET epoch = epoch + 1, context_from = 0, summary = '', summary_rev = 0 WHERE id = ? RETURNING epoch;

-- name: saw_person
INSERT INTO people (principal, conversation, used_at) VALUES (?, ?, ?)
ON CONFLICT (principal) DO UPDATE SET conversation = excluded.conversation, used_at = excluded.used_at;

-- name: saw_owner_chat
INSERT INTO owner_chats (owner, conversation) VALUES (?, ?)
ON CONFLICT (owner) DO UPDATE SET conversation = excluded.conversation
WHERE conversation <> excluded.conversation;

-- name: add_message
INSERT INTO messages (
    ord, rev, id, session, turn, received_at, event_key, conversation, principal, name, direct, addressed, text, sent_at,
    quoted, reply_to, unread, cut, attachments, context, continues
) VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20);

-- name: heard
-- Records an overheard message: the next model turn gets all from the first one on.
UPDATE sessions SET context_from = ? WHERE id = ? AND context_from = 0;

-- name: context
-- The last overheard messages that no turn was given, the newest first.
SELECT ord FROM messages INDEXED BY messages_context
WHERE session = ? AND context = 1 AND turn IS NULL AND ord >= ? ORDER BY ord DESC LIMIT ?;

-- name: give_context
-- Counts as given before the first step, whatever that step names: nothing waits for it.
UPDATE messages SET turn = ?, given = 0, rev = ? WHERE ord = ?;

-- name: take_heard
-- Moves an overheard message into the turn of its album.
UPDATE messages SET turn = ?, context = 0, continues = ?, rev = ?
WHERE ord = ? AND session = ? AND context = 1 AND turn IS NULL AND principal = ?;

-- name: forget_context
UPDATE sessions SET context_from = 0 WHERE id = ?;

-- name: parts
-- The messages that a turn began with: time received, event key, and whether it was cut off.
SELECT received_at, event_key, cut FROM messages INDEXED BY messages_turn WHERE turn = ? AND context = 0 ORDER BY ord;

-- name: amendable
-- A message by its id, not yet given to its model turn: nobody holds that turn, or one of its calls has no result, and
-- no model is asked before that.
SELECT m.ord, m.session, m.principal, m.conversation FROM turns AS t JOIN messages AS m INDEXED BY messages_turn
ON m.turn = t.id
WHERE t.id = ? AND m.id = ? AND m.given IS NULL AND t.kind = 'model'
  AND (t.state IN ('queued', 'parked') OR t.state = 'running' AND EXISTS (
      SELECT 1 FROM steps AS s WHERE s.turn = t.id AND s.state <> 'finished'
  ));

-- name: amendable_heard
-- An overheard message by its place: of no turn yet, or of one that nobody holds and that has no answer; or one that
-- became part of a turn, like `amendable`.
SELECT m.ord, m.session, m.principal, m.conversation FROM messages AS m LEFT JOIN turns AS t ON t.id = m.turn
WHERE m.ord = ? AND (
    m.context = 1
    AND (m.turn IS NULL OR t.state = 'queued' AND NOT EXISTS (SELECT 1 FROM steps AS s WHERE s.turn = t.id))
    OR m.context = 0 AND m.given IS NULL AND t.kind = 'model' AND t.state IN ('queued', 'parked')
);

-- name: amend
UPDATE messages SET text = ?, rev = ? WHERE ord = ?;

-- name: add_poison
INSERT INTO poison (channel, account, event_key, raw, why, at) VALUES (?, ?, ?, ?, ?, ?);

-- name: ungiven
-- The messages of a turn not yet given to its model, in order of arrival.
SELECT id, ord FROM messages INDEXED BY messages_turn WHERE turn = ? AND given IS NULL ORDER BY ord;

-- name: give
UPDATE messages SET given = ?, rev = ? WHERE ord = ?;

-- name: files_of_message
-- Place of a message of a turn, and the outcome of fetching its attachments.
SELECT ord, files FROM messages INDEXED BY messages_turn WHERE turn = ? AND id = ?;

-- name: brought
UPDATE messages SET files = ?, rev = ? WHERE ord = ?;

-- name: refused_at
SELECT refused_at FROM refusals WHERE principal = ?;

-- name: refuse
INSERT INTO refusals (principal, refused_at) VALUES (?, ?)
ON CONFLICT (principal) DO UPDATE SET refused_at = excluded.refused_at;
