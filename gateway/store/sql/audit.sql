-- The audit of the calls that started.

-- name: audit_head
-- The last row; NULLs without one.
SELECT m.audit_since, a.seq, a.hash FROM meta AS m
LEFT JOIN audit AS a ON a.seq = (SELECT max(seq) FROM audit) WHERE m.one = 1;

-- name: add_audit_row
INSERT INTO audit (seq, at, session, turn, n, lane, tool, action_sha, because, wait, grant_id, rule, decided_by, sandbox,
    node, prev_hash, hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: delete_audit_row
-- Behind an export alone; never the last one, which is the head.
DELETE FROM audit WHERE seq = ?;

-- name: audit_rows
SELECT seq, at, session, turn, n, lane, tool, action_sha, because, wait, grant_id, rule, decided_by, sandbox, node, prev_hash,
    hash
FROM audit WHERE seq > ? ORDER BY seq LIMIT ?;

-- name: started_calls
-- Every call ever started, with the audit row of its last start.
SELECT s.ord, s.turn, s.n, s.started_at, s.audit,
    a.seq, a.at, a.session, a.turn, a.n, a.lane, a.tool, a.action_sha, a.because, a.wait, a.grant_id, a.rule, a.decided_by,
    a.sandbox, a.node, a.prev_hash, a.hash
FROM steps AS s LEFT JOIN audit AS a ON a.seq = s.audit
WHERE s.ord > ? AND s.kind = 'tool' AND s.started_at IS NOT NULL ORDER BY s.ord LIMIT ?;

-- name: audit_row
-- The row of a step's last start.
SELECT a.seq, a.at, a.session, a.turn, a.n, a.lane, a.tool, a.action_sha, a.because, a.wait, a.grant_id, a.rule, a.decided_by,
    a.sandbox, a.node, a.prev_hash, a.hash
FROM steps AS s JOIN audit AS a ON a.seq = s.audit WHERE s.turn = ? AND s.n = ?;
