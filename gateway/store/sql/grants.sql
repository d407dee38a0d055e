-- Grants: what people allowed for longer than one call.

-- name: grant_row
SELECT id, tool, kind, matches, risk, place, session, epoch, root_kind, conversation, principal, shown, wait,
    granted_by, quorum, by_another, granted_at, expires_at, used, last_used_at, revoked_at, revoked_by, expired
FROM grants WHERE id = ?;

-- name: place_of_turn
-- Facts of a turn for grants: its session, conversation and person; the lineage and root's kind of that session.
SELECT t.session, t.conversation, t.principal, s.lineage, s.root_kind
FROM turns AS t JOIN sessions AS s ON s.id = t.session WHERE t.id = ?;

-- name: histories_above
-- A session and those above it, each with its present epoch.
WITH RECURSIVE up (id, parent, epoch) AS (
    SELECT id, parent, epoch FROM sessions WHERE id = ?
    UNION ALL
    SELECT s.id, s.parent, s.epoch FROM up JOIN sessions AS s ON s.id = up.parent
)
SELECT id, epoch FROM up;

-- name: grants_held_by
-- Grants that did not end, of the places with these keys, oldest first.
SELECT id, tool, kind, matches, risk, place, session, epoch, root_kind, conversation, principal, shown, wait,
    granted_by, quorum, by_another, granted_at, expires_at, used, last_used_at, revoked_at, revoked_by, expired
FROM grants INDEXED BY grants_held
WHERE held_by IN (SELECT value FROM json_each(?)) AND ended = 0 ORDER BY granted_at, id;

-- name: live_grants
-- Grants that did not end, newest first, without those of a session whose history was reset.
SELECT g.id, g.tool, g.kind, g.matches, g.risk, g.place, g.session, g.epoch, g.root_kind, g.conversation, g.principal, g.shown, g.wait,
    g.granted_by, g.quorum, g.by_another, g.granted_at, g.expires_at, g.used, g.last_used_at, g.revoked_at, g.revoked_by, g.expired
FROM grants AS g INDEXED BY grants_live JOIN sessions AS s ON s.id = g.session
WHERE g.ended = 0 AND g.expires_at > ? AND (g.place <> 'session' OR g.epoch = s.epoch)
ORDER BY g.granted_at DESC, g.id DESC LIMIT ?;

-- name: expired_grants
SELECT id FROM grants INDEXED BY grants_live WHERE ended = 0 AND expires_at <= ? ORDER BY expires_at, id LIMIT ?;
