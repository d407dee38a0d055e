-- Summaries of long histories, and usage.

-- name: compact
-- ?1 session, ?2 epoch, ?3 last turn in the summary, ?4 summary. Changes nothing when the epoch is over, the turn has
-- not ended in it, or a stored summary reaches as far.
UPDATE sessions SET summary = ?4, summary_rev = t.ended_rev
FROM turns AS t
WHERE sessions.id = ?1 AND sessions.epoch = ?2
  AND t.id = ?3 AND t.session = ?1 AND t.epoch = ?2 AND t.ended_rev > sessions.summary_rev;

-- name: add_spent
INSERT INTO spent (day, principal, model, answers, input_tokens, output_tokens, cached_tokens, cost_micros)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (day, principal, model) DO UPDATE
SET answers = answers + excluded.answers, input_tokens = input_tokens + excluded.input_tokens,
    output_tokens = output_tokens + excluded.output_tokens, cached_tokens = cached_tokens + excluded.cached_tokens,
    cost_micros = cost_micros + excluded.cost_micros;

-- name: spent
-- Since a day, the newest first.
SELECT day, principal, model, answers, input_tokens, output_tokens, cached_tokens, cost_micros
FROM spent WHERE day >= ? ORDER BY day DESC, principal, model;
