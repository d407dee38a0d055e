-- Waits: opened, decided, used, expired. Every selected wait has the columns of `rows.wait_of`, in its order.

-- name: add_wait
INSERT INTO waits (ord, rev, id, kind, session, turn, n, state, approval, payload, opened_at, expires_at)
VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6, 'open', ?7, ?8, ?9, ?10);

-- name: wait
SELECT id, kind, session, turn, n, state, approval, payload, opened_at, expires_at, decided_by, decided_at, reason
FROM waits WHERE id = ?;

-- name: undecided_wait
SELECT 1 FROM waits WHERE id = ? AND state IN ('open', 'approved');

-- name: decide_wait
UPDATE waits SET state = ?, decided_by = ?, decided_at = ?, reason = ?, rev = ? WHERE id = ?;

-- name: set_wait_state
UPDATE waits SET state = ?, rev = ? WHERE id = ?;

-- name: undecided_of_turn
-- Waits that are open, or approved and unused, in order of opening.
SELECT id, n, kind, state FROM waits INDEXED BY waits_turn
WHERE turn = ? AND state IN ('open', 'approved') ORDER BY ord;

-- name: approvals_asked_by
-- Number of open approvals of a session that one person requested.
SELECT count(*) FROM waits AS w INDEXED BY waits_open JOIN turns AS t ON t.id = w.turn
WHERE w.kind = 'approval' AND w.session = ? AND w.state = 'open' AND t.principal = ?;

-- name: open_siblings
-- The open waits of a turn on the steps of one model answer.
SELECT w.id, w.n, w.kind FROM waits AS w INDEXED BY waits_turn JOIN steps AS s ON s.turn = w.turn AND s.n = w.n
WHERE w.turn = ? AND w.state = 'open' AND s.answer_n = ? ORDER BY w.ord;

-- name: expired_waits
-- Open waits past their time, and approved ones left unused by a turn that nobody holds. ?1 now, ?2 decided before, ?3
-- limit.
SELECT id, turn, n, kind FROM (
    SELECT ord, id, turn, n, kind FROM waits INDEXED BY waits_due
    WHERE state = 'open' AND kind <> 'timer' AND expires_at <= ?1
    UNION ALL
    SELECT w.ord, w.id, w.turn, w.n, w.kind FROM waits AS w INDEXED BY waits_approved JOIN turns AS t ON t.id = w.turn
    WHERE w.state = 'approved' AND w.decided_at < ?2 AND t.state NOT IN ('running', 'stopping')
) ORDER BY ord LIMIT ?3;

-- name: due_timers
SELECT id, turn, session, payload, opened_at FROM waits INDEXED BY waits_timers
WHERE state = 'open' AND kind = 'timer' AND expires_at <= ? ORDER BY ord LIMIT ?;

-- name: asked_waits
-- Every open approval, oldest first.
SELECT id, turn, n, expires_at FROM waits INDEXED BY waits_asked
WHERE state = 'open' AND kind = 'approval' ORDER BY ord;
