-- Scopes allowed for longer than one call.

-- name: allowed_scopes
-- Tool and scope of the used approvals with a scope, of a session and those above it, each in its present epoch.
WITH RECURSIVE up (id, parent, epoch) AS (
    SELECT id, parent, epoch FROM sessions WHERE id = ?
    UNION ALL
    SELECT s.id, s.parent, s.epoch FROM up JOIN sessions AS s ON s.id = up.parent
)
SELECT DISTINCT json_extract(w.approval, '$.action.tool'), json_extract(w.approval, '$.scope')
FROM up JOIN waits AS w ON w.session = up.id JOIN turns AS t ON t.id = w.turn
WHERE w.state = 'consumed' AND w.kind = 'approval' AND json_extract(w.approval, '$.scope') <> '' AND t.epoch = up.epoch;
