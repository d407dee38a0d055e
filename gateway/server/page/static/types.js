/**
 * The shapes of PROTOCOL.md, for editors and type checkers. Nothing here runs.
 *
 * @typedef {{id: string, kind: "main"|"dm"|"non-main", origin: "direct"|"group"|"thread"|"child", title: string,
 *   channel: string, waiting: number, running: number, queued: number, created_at: string, active_at: string, rev: number,
 *   lineage: Lineage|null}} SessionLine
 * @typedef {{parent: string, turn: string, n: number, root: string, depth: number, mode: "run"|"session", agent: string, model: string}} Lineage
 * @typedef {{name: string, usage: string, about: string}} Command
 * @typedef {{type: string, id: string, ord: number, rev: number}} RowBase
 * @typedef {RowBase & {type: "message", turn: string|null, from: string, principal: string, channel: string, text: string, at: string,
 *   given: boolean, files: {name: string, size: number, path: string, trouble: string, audio: string|null}[], role: "person"|"task"|"child", child?: string, quoted?: string}} MessageRow
 * @typedef {RowBase & {type: "turn", kind: "model"|"command", state: "queued"|"running"|"parked"|"stopping"|"done"|"stopped"|"failed",
 *   channel: string, created_at: string, started_at: string|null, ended_at: string|null, active_ms: number}} TurnRow
 * @typedef {{status: "ok"|"error"|"denied"|"expired"|"timeout"|"cancelled"|"unknown", text: string, code: string|null, hint: string|null,
 *   exit_code: number|null, duration_ms: number|null, dropped_bytes: number, full: string|null, pictures: string[],
 *   files: {name: string, url: string, picture: boolean}[]}} Result
 * @typedef {{input_tokens: number, output_tokens: number, cached_tokens: number, cost_micros: number}} Usage
 * @typedef {RowBase & {type: "step", turn: string, n: number, kind: "model"|"tool", state: "planned"|"asked"|"started"|"finished",
 *   started_at: string|null, ended_at: string|null, call?: string, tool?: string, arguments?: string, result?: Result|null,
 *   model?: string, usage?: Usage|null}} StepRow
 * @typedef {{verb: string, label: string, handle: string}} Button
 * @typedef {RowBase & {type: "approval", turn: string, n: number, state: "open"|"approved"|"consumed"|"denied"|"expired"|"cancelled"|
 *   "superseded", tool: string, risk: string, title: string, rendered: string, escaped: boolean, note: string, parts: string[],
 *   facts: [string, string][], details: [string, string][],
 *   opened_at: string, expires_at: string, decided_by: string|null, decided_at: string|null, reason: string|null, outcome: string, question: string,
 *   buttons: Button[]}} ApprovalRow
 * @typedef {RowBase & {type: "question", turn: string, n: number, state: "open"|"answered"|"expired"|"cancelled", answered: [string, string][],
 *   question: string, count: string, asks: string, buttons: {label: string, handle: string, chosen: boolean, ends: boolean}[], write: string,
 *   note: string, opened_at: string, expires_at: string, decided_at: string|null}} QuestionRow
 * @typedef {RowBase & {type: "child", turn: string, n: number, state: "open"|"answered"|"cancelled"|"expired", session: string,
 *   steps: {name: string, state: string, session: string}[],
 *   outcome: "done"|"failed"|"stopped"|null, active_ms: number, usage: Usage, opened_at: string, expires_at: string}} ChildRow
 * @typedef {RowBase & {type: "slot", turn: string|null, n: number|null, kind: "answer"|"note"|"reply"|"checklist"|"file", text: string, audio: string|null, channel: string,
 *   at: string}} SlotRow
 * @typedef {MessageRow|TurnRow|StepRow|ApprovalRow|QuestionRow|ChildRow|SlotRow} Row
 *
 * Entry of the conversation: a row with its parts. `step`: an answer's step; `told`: the child row of a call that spawned a
 * sub-session and waits for it; `waits`: true for a message that arrived while the agent was busy and has not been given to it.
 * @typedef {{key: string, ord: number, kind: "message"|"step"|"card"|"answer"|"note"|"reply"|"live", turn: string|null, row: any,
 *   step?: StepRow|null, told?: ChildRow|null, waits?: boolean, head?: boolean, foot?: TurnRow|null}} Entry
 *
 * File of the message that is being written. `waiting` and `uploading` go on by themselves; `broken` may be tried again, `lost`
 * must be chosen again. `sent`: bytes; `picture`: address of its preview, or empty.
 * @typedef {{id: string, name: string, size: number, type: string, sent: number, error: string, picture: string,
 *   state: "waiting"|"uploading"|"ready"|"broken"|"lost"|"refused"}} Added
 *
 * Pending message: `sending` until the server confirms it, `accepted` until its row arrives, `failed` with the server's error.
 * @typedef {{id: string, text: string, at: string, state: "sending"|"accepted"|"failed", error?: string, rev?: number,
 *   files?: {id: string, name: string, size: number}[]}} Pending
 */
export {};
