-- Turns: queue, leases, end. Every turn selected here has the columns of `rows.TurnColumns`, in its order.

-- name: add_turn
INSERT INTO turns (
    ord, rev, id, session, epoch, kind, state, conversation, principal, created_at, head, queued_at, queued_rev, held_until
) VALUES (?1, ?1, ?2, ?3, ?4, ?5, 'queued', ?6, ?7, ?8, ?9, ?8, ?10, ?11);

-- name: turn_row
SELECT ord, id, session, kind, state, conversation, principal, started_at, active_ms, held_since, lease_until, fence,
       head, stopped_text
FROM turns WHERE id = ?;

-- name: lane_head
-- The oldest unended turn of a lane: in a model lane the only one that may start.
SELECT ord, id, session, kind, state, conversation, principal, started_at, active_ms, held_since, lease_until, fence,
       head, stopped_text
FROM turns INDEXED BY turns_lane
WHERE session = ? AND kind = ? AND ended_rev IS NULL ORDER BY ord LIMIT 1;

-- name: lane
-- All unended turns of a lane, oldest first.
SELECT ord, id, session, kind, state, conversation, principal, started_at, active_ms, held_since, lease_until, fence,
       head, stopped_text
FROM turns INDEXED BY turns_lane
WHERE session = ? AND kind = ? AND ended_rev IS NULL ORDER BY ord;

-- name: lane_counts
-- Numbers of held and of queued turns of a lane.
SELECT count(*) FILTER (WHERE state IN ('running', 'stopping')), count(*) FILTER (WHERE state = 'queued')
FROM turns INDEXED BY turns_lane
WHERE session = ? AND kind = ? AND ended_rev IS NULL;

-- name: claim_next
-- Leases the turn queued first of those that may run. One row or none: its fence, then the columns of `rows.turn_of`.
-- ?1 revision, ?2 node, ?3 now, ?4 end of the lease, ?5 maximum concurrent command turns. The few held ones are counted
-- once per session.
UPDATE turns
SET state = 'running', node = ?2, fence = fence + 1, lease_until = ?4, held_since = ?3,
    started_at = coalesce(started_at, ?3), held_until = NULL, rev = ?1
WHERE ord = (
    SELECT t.ord FROM turns AS t INDEXED BY turns_active
    WHERE t.state IN ('queued', 'running', 'stopping') AND t.state = 'queued' AND t.head = 1
      AND (t.held_until IS NULL OR t.held_until <= ?3)
      AND (t.kind = 'model' OR t.session NOT IN (
          SELECT o.session FROM turns AS o INDEXED BY turns_active
          WHERE o.state IN ('queued', 'running', 'stopping') AND o.state IN ('running', 'stopping')
            AND o.kind = 'command'
          GROUP BY o.session HAVING count(*) >= ?5
      ))
    ORDER BY t.queued_rev LIMIT 1
)
RETURNING fence, id, session, epoch, kind, state, conversation, principal, created_at, started_at, ended_at, active_ms,
    stopped_text;

-- name: held_turn
-- The new turn that waits for the rest of a person's message. In order: session, now, person, conversation.
SELECT ord, id, session, kind, state, conversation, principal, started_at, active_ms, held_since, lease_until, fence,
       head, stopped_text
FROM turns INDEXED BY turns_held
WHERE session = ? AND held_until > ? AND principal = ? AND conversation = ? ORDER BY ord DESC LIMIT 1;

-- name: hold_anew
-- The new turns that wait or waited for the rest of a message.
UPDATE turns SET held_until = ? WHERE held_until IS NOT NULL AND state = 'queued' AND started_at IS NULL;

-- name: hold_turn
UPDATE turns SET held_until = ? WHERE ord = ?;

-- name: renew
-- Time between the end of a lease and its renewal was no work: the machine slept, or the process was suspended.
-- ?1 now, ?2 end of the lease, ?3 turn, ?4 fence.
UPDATE turns SET held_since = held_since + max(0, ?1 - lease_until), lease_until = ?2
WHERE id = ?3 AND fence = ?4 AND state IN ('running', 'stopping') RETURNING state;

-- name: set_turn_epoch
UPDATE turns SET epoch = ?, rev = ? WHERE ord = ?;

-- name: mark_stopping
UPDATE turns SET state = 'stopping', stopped_text = ?, rev = ? WHERE ord = ?;

-- name: queue_turn
UPDATE turns
SET state = 'queued', active_ms = ?, queued_at = ?, queued_rev = ?, rev = ?, node = NULL, lease_until = NULL,
    held_since = NULL
WHERE ord = ?;

-- name: park_turn
UPDATE turns
SET state = 'parked', active_ms = ?, rev = ?, node = NULL, lease_until = NULL, held_since = NULL
WHERE ord = ?;

-- name: end_turn
UPDATE turns
SET state = ?2, active_ms = ?3, ended_at = ?4, ended_rev = ?5, rev = ?5, head = 0, node = NULL, lease_until = NULL,
    held_since = NULL
WHERE ord = ?1;

-- name: move_head
-- After the end of a model turn: makes the oldest one left in its lane the head. Returns its state and until when it is
-- held back.
UPDATE turns SET head = 1
WHERE ord = (
    SELECT ord FROM turns INDEXED BY turns_lane
    WHERE session = ? AND kind = 'model' AND ended_rev IS NULL ORDER BY ord LIMIT 1
)
RETURNING state, held_until;

-- name: lease_ran_out
SELECT id FROM turns INDEXED BY turns_active
WHERE state IN ('queued', 'running', 'stopping') AND state IN ('running', 'stopping') AND lease_until <= ?
ORDER BY held_since, queued_rev LIMIT ?;

-- name: leased
SELECT id, node FROM turns INDEXED BY turns_active
WHERE state IN ('queued', 'running', 'stopping') AND state IN ('running', 'stopping') ORDER BY held_since, queued_rev;
