/** Durations and costs of steps and turns, as text. Pure. */
import { between, duration, plural } from "./format.js";

/** @typedef {import("./types.js").Usage} Usage */
/** @type {Record<string, string>} */
const SYMBOLS = { USD: "$", EUR: "€", GBP: "£" };

/** "$0.012", "3.40 CHF", "<$0.001". @param {number} micros  millionths @param {string} currency */
export function money(micros, currency) {
  const symbol = SYMBOLS[currency];
  const amount = micros / 1_000_000;
  const less = micros > 0 && micros < 1000 ? "<" : "";
  const figure = less ? "0.001" : amount >= 1 ? amount.toFixed(2) : amount.toFixed(3);
  return symbol ? `${less}${symbol}${figure}` : `${less}${figure} ${currency}`;
}

/** @param {(Usage|null|undefined)[]} all @returns {Usage} */
export function sumOf(all) {
  const sum = { input_tokens: 0, output_tokens: 0, cached_tokens: 0, cost_micros: 0 };
  for (const usage of all) {
    sum.input_tokens += usage?.input_tokens ?? 0;
    sum.output_tokens += usage?.output_tokens ?? 0;
    sum.cached_tokens += usage?.cached_tokens ?? 0;
    sum.cost_micros += usage?.cost_micros ?? 0;
  }
  return sum;
}

/** "3,360 tokens · $0.004"; unknown figures are omitted. @param {Usage|null|undefined} usage @param {string} currency @returns {string[]} */
export function costs(usage, currency) {
  const tokens = usage ? usage.input_tokens + usage.output_tokens : 0;
  return [
    tokens ? `${tokens.toLocaleString()} tokens` : "",
    usage?.cost_micros ? money(usage.cost_micros, currency) : "",
  ].filter(Boolean);
}

/**
 * Returns the time in ms when the model was called, as far as the turn's rows show: when all its input existed.
 * @param {any[]} rows  of its session @param {import("./types.js").StepRow} step @param {any} turn
 */
export function askedAt(rows, step, turn) {
  if (step.started_at) return Date.parse(step.started_at);
  const before = rows
    .filter((row) => row.type === "step" && row.turn === step.turn && row.n < step.n && row.ended_at)
    .map((row) => Date.parse(row.ended_at));
  const begun = turn?.started_at ? [Date.parse(turn.started_at)] : [];
  return before.length || begun.length ? Math.max(...before, ...begun) : null;
}

/** Model, time, tokens, cost of one answer. @param {any[]} rows  of its session @param {import("./types.js").StepRow} step @param {string} currency */
export function answerFigures(rows, step, currency) {
  const from = askedAt(rows, step, rows.find((row) => row.type === "turn" && row.id === step.turn));
  const ms = from && step.ended_at ? Date.parse(step.ended_at) - from : 0;
  return [step.model ?? "", ms > 0 ? duration(ms) : "", ...costs(step.usage, currency)].filter(Boolean);
}

/** Returns the union length of time spans in ms. @param {[number, number][]} spans */
function together(spans) {
  let total = 0;
  let covered = -Infinity;
  for (const [from, to] of spans.sort((a, b) => a[0] - b[0])) {
    total += Math.max(0, to - Math.max(from, covered));
    covered = Math.max(covered, to);
  }
  return total;
}

/**
 * Returns the totals of an ended turn. Waiting for a person is excluded, waiting for sub-sessions included; their cost is part of its own.
 * @param {any[]} rows  of its session @param {import("./types.js").TurnRow} turn
 */
export function turnSums(rows, turn) {
  const own = rows.filter((row) => row.turn === turn.id);
  const answers = own.filter((row) => row.type === "step" && row.kind === "model");
  const asked = own
    .filter((row) => row.type === "approval" || row.type === "question")
    .map((row) => /** @type {[number, number]} */ ([row.opened_at, row.decided_at ?? row.expires_at].map(Date.parse)));
  const wall = between(turn.started_at, turn.ended_at) ?? 0;
  return {
    calls: own.filter((row) => row.type === "step" && row.kind === "tool").length,
    answers: answers.length,
    model: answers[answers.length - 1]?.model ?? "",
    ms: Math.max(turn.active_ms, wall - together(asked)),
    usage: sumOf(own.filter((row) => row.usage).map((row) => row.usage)),
  };
}

/** "2 calls · 12 s · 4,120 tokens · $0.012": the last line of a turn. @param {ReturnType<typeof turnSums>} sums @param {string} currency */
export const turnFigures = (sums, currency) =>
  [
    sums.answers === 1 && !sums.calls ? sums.model : "",
    sums.calls ? plural(sums.calls, "call") : "",
    sums.ms ? duration(sums.ms) : "",
    ...costs(sums.usage, currency),
  ].filter(Boolean);
