-- Summaries of long histories, and usage.

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
