-- Children: sessions that a step spawned. `live` is 1 until the turn of the task has ended.

-- name: add_child
INSERT INTO sessions (
    id, kind, origin, owner, title, epoch, root_kind, tools, created_at, active_at, lineage, parent, root, task_turn,
    parent_wait, live
) VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12, ?13, 1);

-- name: child
-- No row for a session that is no child.
SELECT lineage, title, task_turn, parent_wait, live FROM sessions WHERE id = ? AND parent IS NOT NULL;

-- name: children_of_turn
-- Children spawned by a turn. Their ids begin with its id: ?1 is that id with a point, ?2 with the next character.
SELECT id FROM sessions WHERE id > ?1 AND id < ?2;

-- name: live_below_root
SELECT count(*) FROM sessions INDEXED BY sessions_live WHERE root = ? AND live = 1;

-- name: end_child
UPDATE sessions SET live = 0 WHERE id = ?;

-- name: spawning_turn
-- Session, conversation, person and epoch of a spawning turn, and the present epoch of its session.
SELECT t.session, t.conversation, t.principal, t.epoch, s.epoch
FROM turns AS t JOIN sessions AS s ON s.id = t.session WHERE t.id = ?;

-- name: unheard_ends
-- Turns of session ?1 that nobody has started and whose messages are all from ?2, reports of ended children: each with
-- conversation and person, the newest first.
SELECT t.id, t.conversation, t.principal FROM turns AS t INDEXED BY turns_lane
WHERE t.session = ?1 AND t.kind = 'model' AND t.ended_rev IS NULL AND t.started_at IS NULL
  AND (SELECT min(principal = ?2) FROM messages INDEXED BY messages_turn WHERE turn = t.id) = 1
ORDER BY t.ord DESC;

-- name: open_wait
-- Session and turn of a wait while it is open.
SELECT session, turn FROM waits WHERE id = ? AND state = 'open';

-- name: answer_wait
UPDATE waits SET state = 'answered', payload = ?, rev = ? WHERE id = ?;

-- name: session_active
UPDATE sessions SET active_at = ? WHERE id = ?;

-- name: spent_by_turn
-- Input tokens, output tokens and cost of its answers and of all its descendants, awaited or not.
WITH RECURSIVE tasks (turn) AS (
    SELECT ?1
    UNION ALL
    SELECT c.task_turn FROM tasks CROSS JOIN sessions AS c
    WHERE c.id > 'child:' || tasks.turn || '.' AND c.id < 'child:' || tasks.turn || '/'
)
SELECT coalesce(sum(json_extract(answer, '$.usage.input_tokens')), 0),
    coalesce(sum(json_extract(answer, '$.usage.output_tokens')), 0),
    coalesce(sum(json_extract(answer, '$.usage.cost_micros')), 0)
FROM tasks CROSS JOIN steps WHERE steps.turn = tasks.turn AND kind = 'model';

-- name: unended_below
-- Stoppable turns of a child and all below it, or of all below a root, in order of creation. Starts from the few turns
-- of live children and climbs to the sessions above: a session may have thousands of ended children.
SELECT t.id, t.principal FROM turns AS t INDEXED BY turns_lane
WHERE t.session > 'child:' AND t.session < 'child;' AND t.ended_rev IS NULL AND t.state <> 'stopping'
  AND ?1 IN (
      WITH RECURSIVE above (id) AS (
          SELECT t.session
          UNION ALL
          SELECT sessions.parent FROM above JOIN sessions ON sessions.id = above.id WHERE sessions.parent IS NOT NULL
      )
      SELECT id FROM above
  )
ORDER BY t.ord;

-- name: is_below
-- One row if child ?1 is below session ?2.
WITH RECURSIVE above (id) AS (
    SELECT parent FROM sessions WHERE id = ?1
    UNION ALL
    SELECT sessions.parent FROM above JOIN sessions ON sessions.id = above.id WHERE sessions.parent IS NOT NULL
)
SELECT 1 FROM above WHERE id = ?2;

-- name: orphans
-- Live children whose waiting turn has ended and that nobody stopped.
SELECT sessions.id FROM sessions INDEXED BY sessions_live
JOIN waits AS w ON w.id = sessions.parent_wait JOIN turns AS p ON p.id = w.turn
JOIN turns AS t ON t.id = sessions.task_turn
WHERE sessions.live = 1 AND p.ended_rev IS NOT NULL AND t.state <> 'stopping' ORDER BY sessions.seq LIMIT ?;

-- name: family
-- Children below session ?1: the live ones, the ?2 that ended last, and the parents of all these. Each with its parent,
-- whether it is live, its place and when its task ended. There may be thousands of others.
WITH RECURSIVE below (id, parent, live, task_turn) AS (
    SELECT id, parent, live, task_turn FROM sessions INDEXED BY sessions_children WHERE parent = ?1
    UNION ALL
    SELECT sessions.id, sessions.parent, sessions.live, sessions.task_turn
    FROM below JOIN sessions INDEXED BY sessions_children ON sessions.parent = below.id
), lines (id, parent, live, place, ended) AS MATERIALIZED (
    SELECT below.id, below.parent, below.live, t.ord, coalesce(t.ended_rev, 0)
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
-- and output tokens of the task.
SELECT c.id, c.kind, c.origin, c.owner, c.title, c.epoch, c.root_kind, c.tools, c.created_at, c.active_at, c.lineage, '',
    t.id, t.session, t.epoch, t.kind, t.state, t.conversation, t.principal, t.created_at, t.started_at, t.ended_at,
    t.active_ms, t.stopped_text,
    (SELECT count(*) FROM waits INDEXED BY waits_open WHERE kind = 'approval' AND session = c.id AND state = 'open'),
    (SELECT coalesce(sum(json_extract(answer, '$.usage.input_tokens')), 0) FROM steps
     WHERE turn = t.id AND kind = 'model'),
    (SELECT coalesce(sum(json_extract(answer, '$.usage.output_tokens')), 0) FROM steps
     WHERE turn = t.id AND kind = 'model')
FROM sessions AS c JOIN turns AS t ON t.id = c.task_turn WHERE c.id IN (SELECT value FROM json_each(?));
