-- Events, messages and sessions: what intake writes.

-- name: add_event
-- Writes nothing when the event is known; then `event_outcome` says what became of it.
INSERT INTO events (channel, account, event_key, outcome) VALUES (?, ?, ?, ?)
ON CONFLICT DO NOTHING;

-- name: event_outcome
SELECT outcome FROM events WHERE channel = ? AND account = ? AND event_key = ?;

-- name: note_album
-- Where an album is, in place of where it was.
INSERT INTO events (channel, account, event_key, outcome) VALUES (?, ?, ?, ?)
ON CONFLICT (channel, account, event_key) DO UPDATE SET outcome = excluded.outcome;

-- name: use_session
-- Makes the session, or marks it active and takes its title. Gives its epoch and from where on it has context.
INSERT INTO sessions (id, kind, origin, owner, title, epoch, root_kind, created_at, active_at)
VALUES (?1, ?2, ?3, ?4, ?5, 0, ?2, ?6, ?6)
ON CONFLICT (id) DO UPDATE SET active_at = excluded.active_at, title = excluded.title
RETURNING epoch, context_from;

-- name: make_session
-- Makes the session when it is absent.
INSERT INTO sessions (id, kind, origin, owner, title, epoch, root_kind, created_at, active_at)
VALUES (?1, ?2, ?3, ?4, ?5, 0, ?2, ?6, ?6)
ON CONFLICT (id) DO NOTHING;

-- name: raise_epoch
-- Nothing stands for what was said before.
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
-- A message was said beside the bot: the next model turn is given all from the first one on.
UPDATE sessions SET context_from = ? WHERE id = ? AND context_from = 0;

-- name: context
-- The last messages said beside the bot that no turn was given, the newest first.
SELECT ord FROM messages INDEXED BY messages_context
WHERE session = ? AND context = 1 AND turn IS NULL AND ord >= ? ORDER BY ord DESC LIMIT ?;

-- name: give_context
-- Given before the first step, whatever that says it was given: nothing waits for it.
UPDATE messages SET turn = ?, given = 0, rev = ? WHERE ord = ?;

-- name: take_heard
-- A message said beside the bot becomes part of a turn: of the same album as what that was begun with.
UPDATE messages SET turn = ?, context = 0, continues = ?, rev = ?
WHERE ord = ? AND session = ? AND context = 1 AND turn IS NULL AND principal = ?;

-- name: forget_context
UPDATE sessions SET context_from = 0 WHERE id = ?;

-- name: parts
-- The messages that a turn began with: when each came, its event key, and whether it was cut off.
SELECT received_at, event_key, cut FROM messages INDEXED BY messages_turn WHERE turn = ? AND context = 0 ORDER BY ord;

-- name: amendable
-- A message that was not given to its model turn yet, by its id: nobody holds that turn, or a call of it has no result,
-- before which no model is asked.
SELECT m.ord, m.session, m.principal, m.conversation FROM turns AS t JOIN messages AS m INDEXED BY messages_turn
ON m.turn = t.id
WHERE t.id = ? AND m.id = ? AND m.given IS NULL AND t.kind = 'model'
  AND (t.state IN ('queued', 'parked') OR t.state = 'running' AND EXISTS (
      SELECT 1 FROM steps AS s WHERE s.turn = t.id AND s.state <> 'finished'
  ));

-- name: amendable_heard
-- A message said beside the bot, by its place: of no turn yet, or of one that nobody holds and that has no answer; or
-- one that became part of a turn, like `amendable`.
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
-- The messages of a turn that its model was not given yet, in the order they came.
SELECT id, ord FROM messages INDEXED BY messages_turn WHERE turn = ? AND given IS NULL ORDER BY ord;

-- name: give
UPDATE messages SET given = ?, rev = ? WHERE ord = ?;

-- name: files_of_message
-- Of one message of a turn: where it stands, and what became of what came with it.
SELECT ord, files FROM messages INDEXED BY messages_turn WHERE turn = ? AND id = ?;

-- name: brought
UPDATE messages SET files = ?, rev = ? WHERE ord = ?;

-- name: refused_at
SELECT refused_at FROM refusals WHERE principal = ?;

-- name: refuse
INSERT INTO refusals (principal, refused_at) VALUES (?, ?)
ON CONFLICT (principal) DO UPDATE SET refused_at = excluded.refused_at;
