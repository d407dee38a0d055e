-- The journal of a turn.

-- name: step_count
SELECT count(*) FROM steps WHERE turn = ?;

-- name: add_answer
INSERT INTO steps (ord, rev, turn, n, session, kind, state, answer, ended_at)
VALUES (?1, ?1, ?2, ?3, ?4, 'model', 'finished', ?5, ?6);

-- name: add_call
INSERT INTO steps (ord, rev, turn, n, session, kind, state, call, answer_n)
VALUES (?1, ?1, ?2, ?3, ?4, 'tool', 'planned', ?5, ?6);

-- name: step
SELECT n, state, answer_n, fence, asked_anew FROM steps WHERE turn = ? AND n = ?;

-- name: unfinished_steps
SELECT n, state, started_at FROM steps WHERE turn = ? AND state <> 'finished' ORDER BY n;

-- name: ask_step
UPDATE steps SET state = 'asked', rev = ? WHERE turn = ? AND n = ?;

-- name: ask_step_anew
UPDATE steps SET state = 'planned', asked_anew = 1, rev = ? WHERE turn = ? AND n = ?;

-- name: start_step
UPDATE steps SET state = 'started', started_at = ?, fence = ?, audit = ?, rev = ? WHERE turn = ? AND n = ?;

-- name: finish_step
UPDATE steps SET state = 'finished', result = ?, ended_at = ?, rev = ? WHERE turn = ? AND n = ?;
