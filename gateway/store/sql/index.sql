-- Indexes for the kernel: ids of rows that time or a free place makes due, oldest first.

-- name: ready_turns
-- ?1 now, ?2 maximum concurrent command turns, ?3 limit, ?4 the home that asks; empty: of every home. The few held commands are counted once per session.
SELECT t.id FROM turns AS t INDEXED BY turns_active
WHERE t.state IN ('queued', 'running', 'stopping') AND t.state = 'queued' AND t.head = 1
  AND (t.gathers_until IS NULL OR t.gathers_until <= ?1)
  AND (?4 = '' OR t.home IN ('', ?4))
  AND (t.kind = 'model' OR t.session NOT IN (
      SELECT o.session FROM turns AS o INDEXED BY turns_active
      WHERE o.state IN ('queued', 'running', 'stopping') AND o.state IN ('running', 'stopping')
        AND o.kind = 'command'
      GROUP BY o.session HAVING count(*) >= ?2
  ))
ORDER BY t.queued_rev LIMIT ?3;

-- name: turns_of_home
-- Turns of a home that have not ended.
SELECT id FROM turns INDEXED BY turns_homed WHERE home <> '' AND ended_rev IS NULL AND home = ? ORDER BY ord LIMIT ?;

-- name: homes_at_work
-- Homes of turns that have not ended.
SELECT DISTINCT home FROM turns INDEXED BY turns_homed WHERE home <> '' AND ended_rev IS NULL;

-- name: held_turns
SELECT id, node FROM turns INDEXED BY turns_active
WHERE state IN ('queued', 'running', 'stopping') AND state IN ('running', 'stopping') ORDER BY held_since, queued_rev;

-- name: lapsed_turns
SELECT id, node FROM turns INDEXED BY turns_active
WHERE state IN ('queued', 'running', 'stopping') AND state IN ('running', 'stopping') AND lease_until <= ?
ORDER BY held_since, queued_rev LIMIT ?;

-- name: gathering_turns
-- New turns that wait or waited for the rest of a message.
SELECT id FROM turns INDEXED BY turns_gathering WHERE gathers_until IS NOT NULL;

-- name: orphans
-- Live children whose waiting turn has ended and that nobody stopped.
SELECT sessions.id FROM sessions INDEXED BY sessions_live
JOIN waits AS w ON w.id = sessions.parent_wait JOIN turns AS p ON p.id = w.turn
JOIN turns AS t ON t.id = sessions.task_turn
WHERE sessions.live = 1 AND p.ended_rev IS NOT NULL AND t.state <> 'stopping' ORDER BY sessions.seq LIMIT ?;

-- name: expired_waits
-- Open waits past their time, and approved ones left unused by a turn that nobody holds. ?1 now, ?2 decided before, ?3
-- limit.
SELECT id FROM (
    SELECT ord, id FROM waits INDEXED BY waits_due
    WHERE state = 'open' AND kind <> 'timer' AND expires_at <= ?1
    UNION ALL
    SELECT w.ord, w.id FROM waits AS w INDEXED BY waits_approved JOIN turns AS t ON t.id = w.turn
    WHERE w.state = 'approved' AND w.decided_at < ?2 AND t.state NOT IN ('running', 'stopping')
) ORDER BY ord LIMIT ?3;

-- name: due_timers
SELECT id FROM waits INDEXED BY waits_timers
WHERE state = 'open' AND kind = 'timer' AND expires_at <= ? ORDER BY ord LIMIT ?;

-- name: old_turns
-- Ended turns of session ?1 by epoch and end, without the first ?2. ?3 limit.
SELECT id FROM turns INDEXED BY turns_ended WHERE session = ?1 AND ended_rev IS NOT NULL
ORDER BY epoch, ended_rev LIMIT ?3 OFFSET ?2;

-- name: old_turns_but
-- The same without the last ?4 ones. Both ends are found by the index.
SELECT id FROM turns INDEXED BY turns_ended
WHERE session = ?1 AND ended_rev IS NOT NULL AND (epoch, ended_rev) < (
    SELECT epoch, ended_rev FROM turns INDEXED BY turns_ended WHERE session = ?1 AND ended_rev IS NOT NULL
    ORDER BY epoch DESC, ended_rev DESC LIMIT 1 OFFSET ?4 - 1
)
ORDER BY epoch, ended_rev LIMIT ?3 OFFSET ?2;

-- name: loose_messages
-- Messages of session ?1 that belong to no turn, before place ?2, oldest first. ?3 limit.
SELECT id FROM messages INDEXED BY messages_ord WHERE session = ?1 AND ord < ?2 AND turn IS NULL ORDER BY ord LIMIT ?3;

-- name: loose_slots
SELECT id FROM slots INDEXED BY slots_ord WHERE session = ?1 AND ord < ?2 AND turn IS NULL ORDER BY ord LIMIT ?3;

-- name: grants_from
SELECT id FROM grants INDEXED BY grants_wait WHERE wait = ? ORDER BY id;

-- name: some_roots
-- Root sessions behind this id, by id.
SELECT id FROM sessions WHERE id > ? AND parent IS NULL ORDER BY id LIMIT ?;

-- name: asked_waits
-- Every open approval.
SELECT id FROM waits INDEXED BY waits_asked WHERE state = 'open' AND kind = 'approval' ORDER BY ord;

-- name: open_questions
SELECT id FROM waits INDEXED BY waits_questions WHERE state = 'open' AND kind = 'question' ORDER BY ord;

-- name: claimable_slots
-- The oldest slot of each conversation where none is being sent, if it is due; cards of sessions other than a main one
-- come last there. ?1 channels as a JSON array, ?2 now, ?3 limit, ?4 how conversations begin that are left out.
SELECT s.id FROM slots AS s INDEXED BY slots_due
WHERE s.state = 'due' AND s.kind <> 'refusal' AND s.due_at <= ?2
  AND s.channel IN (SELECT value FROM json_each(?1))
  AND NOT EXISTS (SELECT 1 FROM json_each(?4) WHERE substr(s.conversation, 1, length(value)) = value)
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
-- The same for refusals of channel ?1, of which at most ?4 are being sent at once. ?5 as ?4 above.
SELECT s.id FROM slots AS s INDEXED BY slots_refusals
WHERE s.kind = 'refusal' AND s.state IN ('due', 'sending') AND s.state = 'due' AND s.due_at <= ?2 AND s.channel = ?1
  AND NOT EXISTS (SELECT 1 FROM json_each(?5) WHERE substr(s.conversation, 1, length(value)) = value)
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

-- name: is_unsent
-- True if this conversation has unsent slots.
SELECT EXISTS (
    SELECT 1 FROM slots INDEXED BY slots_unsent WHERE conversation = ? AND state IN ('due', 'sending')
);

-- name: sending_slots
SELECT id, node FROM slots INDEXED BY slots_unsent
WHERE state IN ('due', 'sending') AND state = 'sending' ORDER BY seq;

-- name: lapsed_slots
SELECT id, node FROM slots INDEXED BY slots_unsent
WHERE state IN ('due', 'sending') AND state = 'sending'
    AND sending_since < CASE kind WHEN 'file' THEN ?2 ELSE ?1 END
ORDER BY seq LIMIT ?3;

-- name: slots_again
-- Slots that an edit settled by now may have overwritten. ?1 now, ?2 limit.
SELECT id FROM slots INDEXED BY slots_again WHERE again_at <= ? ORDER BY seq LIMIT ?;

-- name: slot_newer
-- One row if a slot has a newer version than this one.
SELECT 1 FROM slots WHERE id = ? AND version > ?;
