-- Rows for the kernel: each with the columns of its function in gateway.store.sqlite.decode, then those of the store.

-- name: session_row
-- Last: the end of the last turn that ended in its last epoch with one.
SELECT id, kind, origin, owner, title, epoch, root_kind, tools, created_at, active_at, lineage, preset, preset_before, presets_above, tools_off, summary,
    context, summary_rev, task_turn, parent_wait, live, homes,
    (SELECT t.ended_at FROM turns AS t INDEXED BY turns_ended WHERE t.session = sessions.id AND t.ended_rev IS NOT NULL
    ORDER BY t.epoch DESC, t.ended_rev DESC LIMIT 1)
FROM sessions WHERE id = ?;

-- name: unended_turns
-- Turns of a session that have not ended, oldest first.
SELECT id, kind, state FROM turns INDEXED BY turns_lane WHERE session = ? AND ended_rev IS NULL ORDER BY ord;

-- name: live_below
-- Live children of a root, by their tasks, oldest first.
SELECT s.id FROM sessions AS s INDEXED BY sessions_live JOIN turns AS t ON t.id = s.task_turn
WHERE s.root = ? AND s.live = 1 ORDER BY t.ord;

-- name: turn_row
SELECT id, session, epoch, kind, state, conversation, principal, created_at, started_at, ended_at, active_ms, stopped_text,
    ord, rev, queued_at, queued_rev, head, node, fence, lease_until, held_since, gathers_until, ended_rev, given_by,
    given_n, hops, home
FROM turns WHERE id = ?;

-- name: message_rows
SELECT id, turn, given, received_at, event_key, conversation, principal, name, direct, addressed, text, sent_at,
    quoted, reply_to, unread, cut, context, continues, attachments, files, session, ord, rev
FROM messages INDEXED BY messages_turn WHERE turn = ? ORDER BY ord;

-- name: message_row
SELECT id, turn, given, received_at, event_key, conversation, principal, name, direct, addressed, text, sent_at,
    quoted, reply_to, unread, cut, context, continues, attachments, files, session, ord, rev
FROM messages WHERE ord = ? AND id = 'i' || ord;

-- name: step_rows
SELECT turn, n, kind, state, answer, call, answer_n, result, asked_anew, started_at, ended_at, hook_outcome, session, ord, rev, fence,
    audit
FROM steps WHERE turn = ? ORDER BY n;

-- name: step_row
SELECT turn, n, kind, state, answer, call, answer_n, result, asked_anew, started_at, ended_at, hook_outcome, session, ord, rev, fence,
    audit
FROM steps WHERE turn = ? AND n = ?;

-- name: wait_rows
SELECT id, kind, session, turn, n, state, approval, payload, opened_at, expires_at, decided_by, decided_at, reason, ord,
    rev
FROM waits INDEXED BY waits_turn WHERE turn = ? ORDER BY ord;

-- name: wait_row
SELECT id, kind, session, turn, n, state, approval, payload, opened_at, expires_at, decided_by, decided_at, reason, ord,
    rev
FROM waits WHERE id = ?;

-- name: slots_of_turn
-- Slots of a turn, oldest first, each with whether it is a draft or a status line.
SELECT id, early FROM slots INDEXED BY slots_turn WHERE turn = ? ORDER BY seq;

-- name: tasks_of_turn
-- Tasks that a turn gave to children, oldest first.
SELECT id FROM turns INDEXED BY turns_given WHERE given_by = ? ORDER BY ord;

-- name: slot_row
SELECT id, conversation, session, turn, n, kind, text, waits, version, sent_version, platform_id, state, attempts,
    uncertain, due_at, created_at, file, once_more, fence, post,
    seq, ord, rev, early, node, sending_since, shown_by, again_at, again_over, why_dead
FROM slots WHERE id = ?;

-- name: moved_message
-- The same of a message that came from another kind of store.
SELECT id, turn, given, received_at, event_key, conversation, principal, name, direct, addressed, text, sent_at,
    quoted, reply_to, unread, cut, context, continues, attachments, files, session, ord, rev
FROM messages INDEXED BY messages_moved WHERE id = ? AND id <> 'i' || ord;

-- name: cards_of_wait
SELECT s.id FROM cards AS c JOIN slots AS s ON s.seq = c.slot WHERE c.wait = ? ORDER BY c.slot;

-- name: delete_cards
DELETE FROM cards WHERE wait = ?;

-- name: delete_event
DELETE FROM events WHERE channel = ? AND account = ? AND event_key = ?;

-- name: add_card
INSERT INTO cards (wait, slot) VALUES (?, ?);

-- name: event_outcome
SELECT outcome FROM events WHERE channel = ? AND account = ? AND event_key = ?;

-- name: put_event
INSERT INTO events (channel, account, event_key, outcome) VALUES (?, ?, ?, ?)
ON CONFLICT (channel, account, event_key) DO UPDATE SET outcome = excluded.outcome;

-- name: add_poison
INSERT INTO poison (channel, account, event_key, raw, why, at) VALUES (?, ?, ?, ?, ?, ?);

-- name: fact
SELECT value, until FROM facts WHERE namespace = ? AND key = ?;

-- name: facts
SELECT key, value, until FROM facts WHERE namespace = ? ORDER BY key;

-- name: put_fact
INSERT INTO facts (namespace, key, value, until) VALUES (?, ?, ?, ?)
ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value, until = excluded.until;

-- name: delete_fact
DELETE FROM facts WHERE namespace = ? AND key = ?;

-- name: forget_facts
DELETE FROM facts WHERE until <= ?;
