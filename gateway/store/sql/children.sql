-- Children: sessions that a step spawned. `live` is 1 until the turn of the present task has ended.

-- name: family
-- Children below session ?1: the live ones, the ?2 that ended last, and the parents of all these. Each with its parent,
-- whether it is live, its place and when its task ended. There may be thousands of others.
WITH RECURSIVE below (id, parent, live, task_turn, place) AS (
    SELECT id, parent, live, task_turn, seq FROM sessions INDEXED BY sessions_children WHERE parent = ?1
    UNION ALL
    SELECT sessions.id, sessions.parent, sessions.live, sessions.task_turn, sessions.seq
    FROM below JOIN sessions INDEXED BY sessions_children ON sessions.parent = below.id
), lines (id, parent, live, place, ended) AS MATERIALIZED (
    SELECT below.id, below.parent, below.live, below.place, coalesce(t.ended_rev, 0)
    FROM below JOIN turns AS t ON t.id = below.task_turn
), last (id, parent) AS MATERIALIZED (
    SELECT id, parent FROM lines WHERE live = 1
    UNION ALL
    SELECT id, parent FROM (SELECT id, parent FROM lines WHERE live = 0 ORDER BY ended DESC LIMIT ?2)
)
SELECT id, parent, live, place, ended FROM lines
WHERE id IN (SELECT id FROM last) OR id IN (SELECT parent FROM last);

-- name: child_lines
-- ? is a JSON array of children. Columns of `rows.session_of`, of `rows.turn_of` for the task, open approvals, input
-- and output tokens of the task, and the step that gave it.
SELECT c.id, c.kind, c.origin, c.owner, c.title, c.epoch, c.root_kind, c.tools, c.created_at, c.active_at, c.lineage,
    c.preset, c.preset_before, c.presets_above, c.tools_off, '',
    t.id, t.session, t.epoch, t.kind, t.state, t.conversation, t.principal, t.created_at, t.started_at, t.ended_at,
    t.active_ms, t.stopped_text,
    (SELECT count(*) FROM waits INDEXED BY waits_open
     WHERE kind IN ('approval', 'question') AND session = c.id AND state = 'open'),
    (SELECT coalesce(sum(json_extract(answer, '$.usage.input_tokens')), 0) FROM steps
     WHERE turn = t.id AND kind = 'model'),
    (SELECT coalesce(sum(json_extract(answer, '$.usage.output_tokens')), 0) FROM steps
     WHERE turn = t.id AND kind = 'model'),
    t.given_n
FROM sessions AS c JOIN turns AS t ON t.id = c.task_turn WHERE c.id IN (SELECT value FROM json_each(?));

-- name: task_lines
-- The same of the tasks that turn ? gave, by its steps.
SELECT c.id, c.kind, c.origin, c.owner, c.title, c.epoch, c.root_kind, c.tools, c.created_at, c.active_at, c.lineage,
    c.preset, c.preset_before, c.presets_above, c.tools_off, '',
    t.id, t.session, t.epoch, t.kind, t.state, t.conversation, t.principal, t.created_at, t.started_at, t.ended_at,
    t.active_ms, t.stopped_text,
    (SELECT count(*) FROM waits INDEXED BY waits_open
     WHERE kind IN ('approval', 'question') AND session = c.id AND state = 'open'),
    (SELECT coalesce(sum(json_extract(answer, '$.usage.input_tokens')), 0) FROM steps
     WHERE turn = t.id AND kind = 'model'),
    (SELECT coalesce(sum(json_extract(answer, '$.usage.output_tokens')), 0) FROM steps
     WHERE turn = t.id AND kind = 'model'),
    t.given_n
FROM turns AS t INDEXED BY turns_given JOIN sessions AS c ON c.id = t.session WHERE t.given_by = ? ORDER BY t.given_n, t.ord;
