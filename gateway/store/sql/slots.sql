-- Slots: the outbox. Every whole slot has the columns of `rows.slot_of`, in its order.

-- name: add_slot
INSERT INTO slots (
    ord, rev, id, conversation, channel, kept, session, turn, n, kind, text, waits, version, sent_version, platform_id,
    state, attempts, uncertain, due_at, created_at, early, file
) VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 1, ?5, '', ?12, 0, 0, ?13, ?13, ?14, ?15);

-- name: slot_of_turn
SELECT seq, early, text FROM slots WHERE id = ? AND turn = ?;

-- name: early_slots
-- Draft slots and status lines of a turn, oldest first.
SELECT seq, id, conversation, n, early FROM slots INDEXED BY slots_early WHERE turn = ? AND early > 0 ORDER BY seq;

-- name: rewrite
-- ?1 slot, ?2 revision, ?3 now, ?4 text, ?5 step, ?6 new value of `early`. A new version, as in `show_anew`; a dead
-- slot is retried, since its text is new.
UPDATE slots
SET text = ?4, n = ?5, early = ?6, version = version + 1, attempts = 0, rev = ?2, once_more = 0,
    sent_version = CASE WHEN kept THEN version + 1 ELSE sent_version END,
    due_at = CASE WHEN state IN ('sent', 'dead') AND NOT kept THEN ?3 ELSE due_at END,
    state = CASE WHEN state IN ('sent', 'dead') AND NOT kept THEN 'due' ELSE state END
WHERE seq = ?1 RETURNING state, kept;

-- name: add_card
INSERT INTO cards (wait, slot) VALUES (?, ?) ON CONFLICT DO NOTHING;

-- name: cards_of_wait
SELECT s.seq, s.session, s.state, s.kept FROM cards AS c JOIN slots AS s ON s.seq = c.slot
WHERE c.wait = ? ORDER BY c.slot;

-- name: show_anew
-- A new version of a changed card, or of a slot to show once more. Due if the last one was sent, or is dead but visible
-- and the text is new. ?1 slot, ?2 revision or NULL, ?3 now, ?4 whether the text is unchanged.
UPDATE slots
SET version = version + 1, attempts = 0, rev = ?2, once_more = ?4,
    sent_version = CASE WHEN kept THEN version + 1 ELSE sent_version END,
    due_at = CASE
        WHEN (state = 'sent' OR (state = 'dead' AND platform_id <> '' AND NOT ?4)) AND NOT kept THEN ?3 ELSE due_at
    END,
    state = CASE
        WHEN (state = 'sent' OR (state = 'dead' AND platform_id <> '' AND NOT ?4)) AND NOT kept THEN 'due' ELSE state
    END
WHERE seq = ?1;

-- name: claimable_slots
-- The oldest slot of each conversation where none is being sent, if it is due; cards of sessions other than a main one
-- come last there. ?1 channels as a JSON array, ?2 now, ?3 limit.
SELECT s.seq, s.session FROM slots AS s INDEXED BY slots_due
WHERE s.state = 'due' AND s.kind <> 'refusal' AND s.due_at <= ?2
  AND s.channel IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (
      SELECT 1 FROM slots AS o INDEXED BY slots_unsent
      WHERE o.conversation = s.conversation AND o.state IN ('due', 'sending')
        AND (o.state = 'sending' OR (
            o.kind = 'card' AND EXISTS (SELECT 1 FROM sessions WHERE id = o.session AND root_kind <> 'main'), o.seq
        ) < (
            s.kind = 'card' AND EXISTS (SELECT 1 FROM sessions WHERE id = s.session AND root_kind <> 'main'), s.seq
        ))
  )
ORDER BY s.seq LIMIT ?3;

-- name: claimable_refusals
-- The same for refusals of channel ?1, of which at most ?4 are being sent at once.
SELECT s.seq, s.session FROM slots AS s INDEXED BY slots_refusals
WHERE s.kind = 'refusal' AND s.state IN ('due', 'sending') AND s.state = 'due' AND s.due_at <= ?2 AND s.channel = ?1
  AND NOT EXISTS (
      SELECT 1 FROM slots AS o INDEXED BY slots_unsent
      WHERE o.conversation = s.conversation AND o.state IN ('due', 'sending')
        AND (o.seq < s.seq OR o.state = 'sending')
  )
ORDER BY s.seq
LIMIT max(0, min(?3, ?4 - (
    SELECT count(*) FROM slots AS r INDEXED BY slots_refusals
    WHERE r.kind = 'refusal' AND r.state IN ('due', 'sending') AND r.state = 'sending' AND r.channel = ?1
)));

-- name: take_slot
UPDATE slots SET state = 'sending', attempts = attempts + 1, node = ?, sending_since = ?, rev = ? WHERE seq = ?
RETURNING id, conversation, session, turn, n, kind, text, waits, version, sent_version, platform_id, state, attempts,
    uncertain, due_at, created_at, file, once_more;

-- name: slot_newer
-- A slot if it has a newer version than this one.
SELECT seq, session, state, kept FROM slots WHERE id = ? AND version > ?;

-- name: slot_brief
SELECT seq, session FROM slots WHERE id = ?;

-- name: slot_sent
-- ?1 slot, ?2 revision or NULL, ?3 version, ?4 the platform's id, ?5 now, ?6 when an edit in progress has settled, ?7
-- whether the sender knows of one. Another node that showed the version before may have one too.
UPDATE slots
SET state = CASE WHEN version > ?3 THEN 'due' ELSE 'sent' END, sent_version = max(sent_version, ?3), platform_id = ?4,
    attempts = 0, uncertain = 0, due_at = ?5, node = NULL, sending_since = NULL, rev = ?2,
    again_at = CASE WHEN ?7 OR shown_by <> node THEN ?6 ELSE again_at END,
    again_over = CASE WHEN ?7 OR shown_by <> node THEN min(coalesce(again_over, ?3 - 1), ?3 - 1) ELSE again_over END,
    shown_by = CASE
        WHEN early > 0 OR (version > ?3 AND kind IN ('answer', 'status')) THEN coalesce(node, shown_by)
    END
WHERE seq = ?1 RETURNING state, conversation;

-- name: slot_part
UPDATE slots SET platform_id = ?3, uncertain = 0, rev = ?2 WHERE seq = ?1;

-- name: slot_retry
-- ?1 slot, ?2 revision or NULL, ?3 whether a message of it may have appeared, ?4 time of the retry, ?5 attempts to
-- subtract, ?6 when an edit in progress has settled, or NULL.
UPDATE slots
SET state = 'due', attempts = max(0, attempts - ?5), uncertain = uncertain OR ?3, due_at = ?4, node = NULL,
    sending_since = NULL, rev = ?2,
    again_at = CASE WHEN ?6 AND version > 1 AND platform_id <> '' THEN ?6 ELSE again_at END,
    again_over = CASE
        WHEN ?6 AND version > 1 AND platform_id <> '' THEN min(coalesce(again_over, sent_version + 1), sent_version + 1)
        ELSE again_over
    END
WHERE seq = ?1;

-- name: slots_again
-- Slots that an edit settled by now may have overwritten, oldest first, and whether a newer version was due since. ?1
-- now, ?2 limit.
SELECT seq, session, state, kept, early, version > again_over FROM slots INDEXED BY slots_again
WHERE again_at <= ? ORDER BY seq LIMIT ?;

-- name: slot_settled
UPDATE slots SET again_at = NULL, again_over = NULL WHERE seq = ?;

-- name: slot_dead
-- ?1 slot, ?2 revision or NULL, ?3 version, ?4 reason, ?5 now.
UPDATE slots
SET state = CASE WHEN version > ?3 THEN 'due' ELSE 'dead' END, why_dead = ?4, attempts = 0, due_at = ?5, node = NULL,
    sending_since = NULL, rev = ?2
WHERE seq = ?1 RETURNING state, conversation;

-- name: is_unsent
-- Whether this conversation has unsent slots.
SELECT EXISTS (
    SELECT 1 FROM slots INDEXED BY slots_unsent WHERE conversation = ? AND state IN ('due', 'sending')
);

-- name: sending_too_long
SELECT seq, session, sent_version = 0 FROM slots INDEXED BY slots_unsent
WHERE state IN ('due', 'sending') AND state = 'sending'
    AND sending_since < CASE kind WHEN 'file' THEN ?2 ELSE ?1 END
ORDER BY seq LIMIT ?3;

-- name: sending
SELECT seq, session, sent_version = 0, node FROM slots INDEXED BY slots_unsent
WHERE state IN ('due', 'sending') AND state = 'sending' ORDER BY seq;

-- name: text_of_slot
SELECT text, n FROM slots WHERE id = ?;

-- name: shown_cards
-- The cards that show a wait in a chat, oldest first, without those never sent.
SELECT s.conversation, s.waits, s.session, s.turn FROM cards AS c JOIN slots AS s ON s.seq = c.slot
WHERE c.wait = ? AND s.sent_version > 0 AND NOT s.kept ORDER BY c.slot;
