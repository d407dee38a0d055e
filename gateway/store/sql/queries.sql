-- Reads. Whole rows have the columns of their function in gateway.store.sqlite.decode, in its order.

-- name: session
SELECT id, kind, origin, owner, title, epoch, root_kind, tools, created_at, active_at, lineage, preset, preset_before, presets_above, tools_off, summary
FROM sessions WHERE id = ?;

-- name: session_lines
-- Roots, their live children, and ended children, each with its last revision, open approvals, held and queued turns.
-- ?1 limit of roots, ?2 limit of ended children, most recently active first; ?3 a root always included.
SELECT listed.*,
    max(
        coalesce((SELECT max(ord) FROM turns INDEXED BY turns_ord WHERE session = listed.id), 0),
        coalesce((SELECT max(rev) FROM turns INDEXED BY turns_changed WHERE session = listed.id AND rev > ord), 0),
        coalesce((SELECT max(ord) FROM messages INDEXED BY messages_ord WHERE session = listed.id), 0),
        coalesce(
            (SELECT max(rev) FROM messages INDEXED BY messages_changed WHERE session = listed.id AND rev > ord), 0
        ),
        coalesce((SELECT max(ord) FROM steps INDEXED BY steps_ord WHERE session = listed.id), 0),
        coalesce((SELECT max(rev) FROM steps INDEXED BY steps_changed WHERE session = listed.id AND rev > ord), 0),
        coalesce((SELECT max(ord) FROM waits INDEXED BY waits_ord WHERE session = listed.id), 0),
        coalesce((SELECT max(rev) FROM waits INDEXED BY waits_changed WHERE session = listed.id AND rev > ord), 0),
        coalesce((SELECT max(ord) FROM slots INDEXED BY slots_ord WHERE session = listed.id), 0),
        coalesce((SELECT max(rev) FROM slots INDEXED BY slots_changed WHERE session = listed.id AND rev > ord), 0)
    ),
    (SELECT count(*) FROM waits INDEXED BY waits_open
     WHERE kind IN ('approval', 'question') AND session = listed.id AND state = 'open'),
    (SELECT count(*) FROM turns INDEXED BY turns_lane
     WHERE session = listed.id AND ended_rev IS NULL AND state IN ('running', 'stopping')),
    (SELECT count(*) FROM turns INDEXED BY turns_lane
     WHERE session = listed.id AND ended_rev IS NULL AND state = 'queued')
FROM (
    WITH roots (id) AS (
        SELECT id FROM (
            SELECT id FROM sessions INDEXED BY sessions_roots WHERE parent IS NULL ORDER BY active_at DESC LIMIT ?1
        )
        UNION ALL
        SELECT ?3
    )
    SELECT id, kind, origin, owner, title, epoch, root_kind, tools, created_at, active_at, lineage, preset, preset_before, presets_above, tools_off, '' FROM sessions
    WHERE id IN (
        SELECT id FROM roots
        UNION ALL
        SELECT id FROM sessions INDEXED BY sessions_live WHERE live = 1 AND root IN (SELECT id FROM roots)
        UNION ALL
        SELECT id FROM (
            SELECT id FROM sessions INDEXED BY sessions_past
            WHERE parent IS NOT NULL AND live = 0 ORDER BY active_at DESC LIMIT ?2
        )
    )
) AS listed;

-- name: last_rev
SELECT max(
    coalesce((SELECT max(ord) FROM turns INDEXED BY turns_ord WHERE session = ?1), 0),
    coalesce((SELECT max(rev) FROM turns INDEXED BY turns_changed WHERE session = ?1 AND rev > ord), 0),
    coalesce((SELECT max(ord) FROM messages INDEXED BY messages_ord WHERE session = ?1), 0),
    coalesce((SELECT max(rev) FROM messages INDEXED BY messages_changed WHERE session = ?1 AND rev > ord), 0),
    coalesce((SELECT max(ord) FROM steps INDEXED BY steps_ord WHERE session = ?1), 0),
    coalesce((SELECT max(rev) FROM steps INDEXED BY steps_changed WHERE session = ?1 AND rev > ord), 0),
    coalesce((SELECT max(ord) FROM waits INDEXED BY waits_ord WHERE session = ?1), 0),
    coalesce((SELECT max(rev) FROM waits INDEXED BY waits_changed WHERE session = ?1 AND rev > ord), 0),
    coalesce((SELECT max(ord) FROM slots INDEXED BY slots_ord WHERE session = ?1), 0),
    coalesce((SELECT max(rev) FROM slots INDEXED BY slots_changed WHERE session = ?1 AND rev > ord), 0)
);

-- name: turn
SELECT id, session, epoch, kind, state, conversation, principal, created_at, started_at, ended_at, active_ms,
       stopped_text, held_since, lease_until
FROM turns WHERE id = ?;

-- name: ended_turns
-- Places of an epoch's last ended turns beyond its summary, the newest first: from the index alone.
-- ?1 session, ?2 epoch, ?3 limit.
SELECT ord FROM turns INDEXED BY turns_ended
WHERE session = ?1 AND epoch = ?2
  AND ended_rev > coalesce((SELECT summary_rev FROM sessions WHERE id = ?1 AND epoch = ?2), 0)
ORDER BY ended_rev DESC LIMIT ?3;

-- name: oldest_ended_turns
-- The same for its first ones, the oldest first.
SELECT ord FROM turns INDEXED BY turns_ended
WHERE session = ?1 AND epoch = ?2
  AND ended_rev > coalesce((SELECT summary_rev FROM sessions WHERE id = ?1 AND epoch = ?2), 0)
ORDER BY ended_rev LIMIT ?3;

-- name: messages_of_turns
-- ? is a JSON array of turns.
SELECT id, turn, given, received_at, event_key, conversation, principal, name, direct, addressed, text, sent_at,
    quoted, reply_to, unread, cut, context, continues, attachments, files
FROM messages INDEXED BY messages_turn WHERE turn IN (SELECT value FROM json_each(?)) ORDER BY ord;

-- name: steps_of_turns
SELECT turn, n, kind, state, answer, call, answer_n, result, asked_anew, started_at, ended_at, hook_outcome
FROM steps WHERE turn IN (SELECT value FROM json_each(?)) ORDER BY turn, n;

-- name: waits_of_turns
SELECT id, kind, session, turn, n, state, approval, payload, opened_at, expires_at, decided_by, decided_at, reason
FROM waits INDEXED BY waits_turn WHERE turn IN (SELECT value FROM json_each(?)) ORDER BY ord;

-- name: changed_rows
-- Rows of a session changed after a revision: what, key, ord, rev. ?1 session, ?2 revision, ?3 limit.
-- For each table the rows unchanged since creation, and the rows changed since.
SELECT what, at, ord, rev FROM (
    SELECT * FROM (SELECT 'turn' AS what, ord AS at, ord, rev FROM turns INDEXED BY turns_ord
                   WHERE session = ?1 AND ord > ?2 AND rev = ord ORDER BY ord LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'turn', ord, ord, rev FROM turns INDEXED BY turns_changed
                   WHERE session = ?1 AND rev > ?2 AND rev > ord ORDER BY rev LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'message', ord, ord, rev FROM messages INDEXED BY messages_ord
                   WHERE session = ?1 AND ord > ?2 AND rev = ord ORDER BY ord LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'message', ord, ord, rev FROM messages INDEXED BY messages_changed
                   WHERE session = ?1 AND rev > ?2 AND rev > ord ORDER BY rev LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'step', ord, ord, rev FROM steps INDEXED BY steps_ord
                   WHERE session = ?1 AND ord > ?2 AND rev = ord ORDER BY ord LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'step', ord, ord, rev FROM steps INDEXED BY steps_changed
                   WHERE session = ?1 AND rev > ?2 AND rev > ord ORDER BY rev LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'wait', ord, ord, rev FROM waits INDEXED BY waits_ord
                   WHERE session = ?1 AND ord > ?2 AND rev = ord ORDER BY ord LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'wait', ord, ord, rev FROM waits INDEXED BY waits_changed
                   WHERE session = ?1 AND rev > ?2 AND rev > ord ORDER BY rev LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'slot', seq, ord, rev FROM slots INDEXED BY slots_ord
                   WHERE session = ?1 AND ord > ?2 AND rev = ord ORDER BY ord LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'slot', seq, ord, rev FROM slots INDEXED BY slots_changed
                   WHERE session = ?1 AND rev > ?2 AND rev > ord ORDER BY rev LIMIT ?3)
) ORDER BY rev LIMIT ?3;

-- name: older_rows
-- The last rows of a session before a place, the newest first: what, key, ord, rev. ?1 session, ?2 place, ?3 limit.
SELECT what, at, ord, rev FROM (
    SELECT * FROM (SELECT 'turn' AS what, ord AS at, ord, rev FROM turns INDEXED BY turns_ord
                   WHERE session = ?1 AND ord < ?2 ORDER BY ord DESC LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'message', ord, ord, rev FROM messages INDEXED BY messages_ord
                   WHERE session = ?1 AND ord < ?2 ORDER BY ord DESC LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'step', ord, ord, rev FROM steps INDEXED BY steps_ord
                   WHERE session = ?1 AND ord < ?2 ORDER BY ord DESC LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'wait', ord, ord, rev FROM waits INDEXED BY waits_ord
                   WHERE session = ?1 AND ord < ?2 ORDER BY ord DESC LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT 'slot', seq, ord, rev FROM slots INDEXED BY slots_ord
                   WHERE session = ?1 AND ord < ?2 ORDER BY ord DESC LIMIT ?3)
) ORDER BY ord DESC LIMIT ?3;

-- name: turns_at
-- ? is a JSON array of ords, here and in the next statements.
SELECT ord, id, session, epoch, kind, state, conversation, principal, created_at, started_at, ended_at, active_ms,
       stopped_text
FROM turns WHERE ord IN (SELECT value FROM json_each(?));

-- name: messages_at
SELECT ord, id, turn, given, received_at, event_key, conversation, principal, name, direct, addressed, text, sent_at,
    quoted, reply_to, unread, cut, context, continues, attachments, files
FROM messages WHERE ord IN (SELECT value FROM json_each(?));

-- name: steps_at
SELECT ord, turn, n, kind, state, answer, call, answer_n, result, asked_anew, started_at, ended_at, hook_outcome
FROM steps WHERE ord IN (SELECT value FROM json_each(?));

-- name: waits_at
SELECT ord, id, kind, session, turn, n, state, approval, payload, opened_at, expires_at, decided_by, decided_at, reason
FROM waits WHERE ord IN (SELECT value FROM json_each(?));

-- name: slots_at
-- By seq.
SELECT seq, id, conversation, session, turn, n, kind, text, waits, version, sent_version, platform_id, state, attempts,
    uncertain, due_at, created_at, file, once_more, fence, post
FROM slots WHERE seq IN (SELECT value FROM json_each(?));

-- name: wait
SELECT id, kind, session, turn, n, state, approval, payload, opened_at, expires_at, decided_by, decided_at, reason
FROM waits WHERE id = ?;

-- name: open_approvals
SELECT id, kind, session, turn, n, state, approval, payload, opened_at, expires_at, decided_by, decided_at, reason
FROM waits INDEXED BY waits_asked WHERE state = 'open' AND kind = 'approval' ORDER BY ord LIMIT ? OFFSET ?;

-- name: card_slots
SELECT s.id, s.conversation, s.session, s.turn, s.n, s.kind, s.text, s.waits, s.version, s.sent_version, s.platform_id,
    s.state, s.attempts, s.uncertain, s.due_at, s.created_at, s.file, s.once_more, s.fence, s.post
FROM cards AS c JOIN slots AS s ON s.seq = c.slot WHERE c.wait = ? ORDER BY c.slot;

-- name: counts
-- In the order of `Counts`. Parked turns are those not ended, not queued and not held.
SELECT queued, held, unended - queued - held, asked, due, dead, queued_at, grants FROM
    (SELECT count(*) AS unended FROM turns INDEXED BY turns_lane WHERE ended_rev IS NULL),
    (SELECT count(*) FILTER (WHERE state = 'queued') AS queued, count(*) FILTER (WHERE state <> 'queued') AS held
     FROM turns INDEXED BY turns_active WHERE state IN ('queued', 'running', 'stopping')),
    (SELECT count(*) AS asked FROM waits INDEXED BY waits_asked WHERE state = 'open' AND kind = 'approval'),
    (SELECT sum(n) AS due FROM (
        SELECT count(*) AS n FROM slots INDEXED BY slots_due
        WHERE state = 'due' AND kind <> 'refusal'
        UNION ALL
        SELECT count(*) FROM slots INDEXED BY slots_refusals
        WHERE kind = 'refusal' AND state IN ('due', 'sending') AND state = 'due'
    )),
    (SELECT count(*) AS grants FROM grants INDEXED BY grants_live WHERE ended = 0),
    (SELECT count(*) AS dead FROM slots INDEXED BY slots_dead WHERE state = 'dead'),
    -- The oldest queued turn is one of two: the first of those that may run, the first of the others.
    (SELECT min(queued_at) AS queued_at FROM (
        SELECT * FROM (SELECT queued_at FROM turns INDEXED BY turns_active
                       WHERE state IN ('queued', 'running', 'stopping') AND state = 'queued' AND head = 0
                       ORDER BY queued_rev LIMIT 1)
        UNION ALL
        SELECT * FROM (SELECT queued_at FROM turns INDEXED BY turns_active
                       WHERE state IN ('queued', 'running', 'stopping') AND state = 'queued' AND head = 1
                       ORDER BY queued_rev LIMIT 1)
    ));
