-- The schema. Applied in one transaction: a kill at any statement leaves an empty file.
--
-- Times are integer microseconds since 1970, UTC. `rev` grows by one with each change of a row of a session, over the
-- whole store; `ord` is the revision at which the row was made, so it is also the order in which rows were made.
-- Conversations are JSON arrays of channel, account, chat and thread. Payloads are JSON (gateway.store.codec).
--
-- Every index that a transition touches is one more page to write: what few rows are asked for has a partial index, and
-- the `_changed` ones hold only rows that changed after they were made, the others being found by `ord`.

-- One row: a revision that none of the store exceeds, whether the last close was clean, and since when there is an audit.
CREATE TABLE meta (
    one          INTEGER PRIMARY KEY CHECK (one = 1),
    rev          INTEGER NOT NULL,
    clean        INTEGER NOT NULL,
    probes       INTEGER NOT NULL,
    audit_since  INTEGER NOT NULL
);
INSERT INTO meta (one, rev, clean, probes, audit_since) VALUES (1, 0, 1, 0, 0);

-- `preset` is empty for the default of the kind; the end of a plan returns to `preset_before`. `presets_above` (of the
-- sessions that spawned it, the root's first) and `tools_off` are JSON arrays. `context` names the overheard messages
-- since the last model turn, as a JSON array. `summary` stands for the turns of this epoch that ended up to
-- `summary_rev` (their `ended_rev`). For a child: `lineage` as JSON, its parent and root, the turn of its task, in mode
-- RUN the wait of its parent. `live` is 1 until that turn has ended.
CREATE TABLE sessions (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    kind         TEXT NOT NULL,
    origin       TEXT NOT NULL,
    owner        TEXT,
    title        TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    root_kind    TEXT NOT NULL,
    tools        TEXT,
    created_at   INTEGER NOT NULL,
    active_at    INTEGER NOT NULL,
    lineage      TEXT,
    preset       TEXT NOT NULL,
    preset_before TEXT NOT NULL,
    presets_above TEXT NOT NULL,
    tools_off    TEXT NOT NULL,
    summary      TEXT NOT NULL,
    context      TEXT NOT NULL,
    summary_rev  INTEGER NOT NULL,
    parent       TEXT,
    root         TEXT,
    task_turn    TEXT,
    parent_wait  TEXT,
    live         INTEGER NOT NULL
);
CREATE INDEX sessions_children ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_live ON sessions (root) WHERE live = 1;
-- Lists go by when each was active last: of a hundred thousand, none but those that are shown is looked at.
CREATE INDEX sessions_roots ON sessions (active_at) WHERE parent IS NULL;
CREATE INDEX sessions_past ON sessions (active_at) WHERE parent IS NOT NULL AND live = 0;

-- Every event that was ever seen, and what became of it: its message and turn, `drop:<reason>` or `press:<result>`. An
-- album has a row too: its turn, or the messages that were only overheard.
CREATE TABLE events (
    channel    TEXT NOT NULL,
    account    TEXT NOT NULL,
    event_key  TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    PRIMARY KEY (channel, account, event_key)
) WITHOUT ROWID;

-- Events that could not be read, as they came.
CREATE TABLE poison (
    channel    TEXT NOT NULL,
    account    TEXT NOT NULL,
    event_key  TEXT NOT NULL,
    raw        TEXT NOT NULL,
    why        TEXT NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (channel, account, event_key)
) WITHOUT ROWID;

-- `head` is 1 for a turn that its lane lets run as far as order goes: every command turn, and of the model turns of a
-- session the oldest that has not ended. `gathers_until` is set while a new turn waits for the rest of a message. For
-- the task of a child: the turn and the step that gave it. `hops`: messages between sessions that led to it.
CREATE TABLE turns (
    ord            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE,
    session        TEXT NOT NULL REFERENCES sessions (id),
    epoch          INTEGER NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('model', 'command')),
    state          TEXT NOT NULL
                   CHECK (state IN ('queued', 'running', 'parked', 'stopping', 'done', 'stopped', 'failed')),
    conversation   TEXT NOT NULL,
    principal      TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    started_at     INTEGER,
    ended_at       INTEGER,
    active_ms      INTEGER NOT NULL,
    stopped_text   TEXT,
    rev            INTEGER NOT NULL,
    queued_at      INTEGER NOT NULL,
    queued_rev     INTEGER NOT NULL,
    head           INTEGER NOT NULL,
    node           TEXT,
    fence          INTEGER NOT NULL,
    lease_until    INTEGER,
    held_since     INTEGER,
    gathers_until  INTEGER,
    ended_rev      INTEGER,
    given_by       TEXT,
    given_n        INTEGER NOT NULL,
    hops           INTEGER NOT NULL
);
CREATE INDEX turns_given ON turns (given_by) WHERE given_by IS NOT NULL;
CREATE INDEX turns_ord ON turns (session);
CREATE INDEX turns_changed ON turns (session, rev) WHERE rev > ord;
CREATE INDEX turns_lane ON turns (session, kind) WHERE ended_rev IS NULL;
CREATE INDEX turns_active ON turns (state, head, queued_rev) WHERE state IN ('queued', 'running', 'stopping');
CREATE INDEX turns_ended ON turns (session, epoch, ended_rev) WHERE ended_rev IS NOT NULL;
CREATE INDEX turns_gathering ON turns (session) WHERE gathers_until IS NOT NULL;

-- `unread` says what came with it and cannot be read. `cut`: its platform's limit cut it off; `continues`: it is the
-- rest of such a one. `context`: said beside the bot; of no turn until a new model turn is given it. `attachments` is
-- JSON; `files` says what became of each, and is NULL until somebody looked.
CREATE TABLE messages (
    ord           INTEGER PRIMARY KEY,
    id            TEXT NOT NULL,
    turn          TEXT REFERENCES turns (id),
    given         INTEGER,
    received_at   INTEGER NOT NULL,
    event_key     TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    principal     TEXT NOT NULL,
    name          TEXT NOT NULL,
    direct        INTEGER NOT NULL,
    addressed     INTEGER NOT NULL,
    text          TEXT NOT NULL,
    sent_at       INTEGER NOT NULL,
    quoted        TEXT NOT NULL,
    reply_to      TEXT NOT NULL,
    unread        TEXT NOT NULL,
    cut           INTEGER NOT NULL,
    context       INTEGER NOT NULL,
    continues     INTEGER NOT NULL,
    attachments   TEXT,
    files         TEXT,
    session       TEXT NOT NULL REFERENCES sessions (id),
    rev           INTEGER NOT NULL
);
CREATE INDEX messages_ord ON messages (session);
CREATE INDEX messages_changed ON messages (session, rev) WHERE rev > ord;
CREATE INDEX messages_turn ON messages (turn);
-- Messages of another kind of store: their ids do not name their places.
CREATE INDEX messages_moved ON messages (id) WHERE id <> 'i' || ord;

-- `fence` and `audit` are those of the step's last start.
CREATE TABLE steps (
    ord         INTEGER PRIMARY KEY,
    turn        TEXT NOT NULL REFERENCES turns (id),
    n           INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('planned', 'asked', 'started', 'finished')),
    answer      TEXT,
    call        TEXT,
    answer_n    INTEGER NOT NULL,
    result      TEXT,
    asked_anew  INTEGER NOT NULL,
    started_at  INTEGER,
    ended_at    INTEGER,
    hook_outcome  TEXT,
    session     TEXT NOT NULL REFERENCES sessions (id),
    rev         INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    audit       INTEGER,
    UNIQUE (turn, n)
);
CREATE INDEX steps_ord ON steps (session);
CREATE INDEX steps_changed ON steps (session, rev) WHERE rev > ord;

CREATE TABLE waits (
    ord         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    kind        TEXT NOT NULL CHECK (kind IN ('approval', 'child', 'question', 'timer')),
    session     TEXT NOT NULL REFERENCES sessions (id),
    turn        TEXT NOT NULL REFERENCES turns (id),
    n           INTEGER NOT NULL,
    state       TEXT NOT NULL CHECK (state IN (
                    'open', 'approved', 'consumed', 'denied', 'expired', 'cancelled', 'superseded', 'answered')),
    approval    TEXT,
    payload     TEXT NOT NULL,
    opened_at   INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    decided_by  TEXT,
    decided_at  INTEGER,
    reason      TEXT NOT NULL,
    rev         INTEGER NOT NULL
);
CREATE INDEX waits_ord ON waits (session);
CREATE INDEX waits_changed ON waits (session, rev) WHERE rev > ord;
CREATE INDEX waits_turn ON waits (turn);
CREATE INDEX waits_open ON waits (kind, session) WHERE state = 'open';
CREATE INDEX waits_asked ON waits (ord) WHERE state = 'open' AND kind = 'approval';
CREATE INDEX waits_questions ON waits (ord) WHERE state = 'open' AND kind = 'question';
CREATE INDEX waits_due ON waits (expires_at) WHERE state = 'open' AND kind <> 'timer';
CREATE INDEX waits_timers ON waits (expires_at) WHERE state = 'open' AND kind = 'timer';
CREATE INDEX waits_approved ON waits (decided_at) WHERE state = 'approved';

-- `seq` is the order of the outbox. A slot without a session has neither ord nor rev. `kept` is 1 where a slot counts as
-- sent when it is stored (the web page). `early` is 1 for an answer's draft that no answer took over, 2 for a status line
-- of a turn that has not ended. `again_at` and `again_over`: an edit of a sender that is gone may stand over the text.
CREATE TABLE slots (
    seq            INTEGER PRIMARY KEY,
    id             TEXT NOT NULL UNIQUE,
    conversation   TEXT NOT NULL,
    session        TEXT REFERENCES sessions (id),
    turn           TEXT REFERENCES turns (id),
    n              INTEGER,
    kind           TEXT NOT NULL,
    text           TEXT NOT NULL,
    waits          TEXT NOT NULL,
    version        INTEGER NOT NULL,
    sent_version   INTEGER NOT NULL,
    platform_id    TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('due', 'sending', 'sent', 'dead')),
    attempts       INTEGER NOT NULL,
    uncertain      INTEGER NOT NULL,
    due_at         INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    file           TEXT,
    once_more      INTEGER NOT NULL,
    fence          INTEGER NOT NULL,
    post           TEXT,
    ord            INTEGER,
    rev            INTEGER,
    channel        TEXT NOT NULL,
    kept           INTEGER NOT NULL,
    early          INTEGER NOT NULL,
    node           TEXT,
    sending_since  INTEGER,
    shown_by       TEXT,
    again_at       INTEGER,
    again_over     INTEGER,
    why_dead       TEXT NOT NULL
);
CREATE INDEX slots_ord ON slots (session, ord);
CREATE INDEX slots_changed ON slots (session, rev) WHERE rev > ord;
-- Refusals of strangers wait beside all others, not before them.
CREATE INDEX slots_due ON slots (seq, due_at, channel, conversation) WHERE state = 'due' AND kind <> 'refusal';
CREATE INDEX slots_refusals ON slots (state, seq) WHERE kind = 'refusal' AND state IN ('due', 'sending');
CREATE INDEX slots_unsent ON slots (conversation, seq, state) WHERE state IN ('due', 'sending');
CREATE INDEX slots_early ON slots (turn) WHERE early > 0;
CREATE INDEX slots_again ON slots (again_at) WHERE again_at IS NOT NULL;
CREATE INDEX slots_dead ON slots (seq) WHERE state = 'dead';

-- Which cards show a wait.
CREATE TABLE cards (
    wait  TEXT NOT NULL,
    slot  INTEGER NOT NULL REFERENCES slots (seq),
    PRIMARY KEY (wait, slot)
) WITHOUT ROWID;

-- Small values by namespace and key: sign-ins (only hashes of secrets), last contacts, named leases, notes of channels.
-- `until` is NULL for those that stay.
CREATE TABLE facts (
    namespace  TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    until      INTEGER,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE INDEX facts_until ON facts (until) WHERE until IS NOT NULL;

-- What people allowed for longer than one call. `matches` is a JSON array: an action key, subjects or a scope. `held_by`
-- is the key of the place where it holds, `ended` 1 once it was revoked or has expired.
CREATE TABLE grants (
    id            TEXT PRIMARY KEY,
    tool          TEXT NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('action', 'subjects', 'scope')),
    matches       TEXT NOT NULL,
    risk          TEXT NOT NULL,
    place         TEXT NOT NULL CHECK (place IN ('session', 'chat', 'person')),
    session       TEXT NOT NULL REFERENCES sessions (id),
    epoch         INTEGER NOT NULL,
    root_kind     TEXT NOT NULL,
    conversation  TEXT NOT NULL,
    principal     TEXT NOT NULL,
    shown         TEXT NOT NULL,
    wait          TEXT NOT NULL REFERENCES waits (id),
    granted_by    TEXT NOT NULL,
    quorum        INTEGER NOT NULL,
    by_another    INTEGER NOT NULL,
    granted_at    INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL,
    used          INTEGER NOT NULL,
    last_used_at  INTEGER,
    revoked_at    INTEGER,
    revoked_by    TEXT,
    expired       INTEGER NOT NULL,
    held_by       TEXT NOT NULL,
    ended         INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX grants_held ON grants (held_by) WHERE ended = 0;
CREATE INDEX grants_live ON grants (expires_at) WHERE ended = 0;

-- Tokens and millionths of the currency, by day (ISO, UTC), person and model.
CREATE TABLE spent (
    day            TEXT NOT NULL,
    principal      TEXT NOT NULL,
    model          TEXT NOT NULL,
    answers        INTEGER NOT NULL,
    input_tokens   INTEGER NOT NULL,
    output_tokens  INTEGER NOT NULL,
    cached_tokens  INTEGER NOT NULL,
    cost_micros    INTEGER NOT NULL,
    PRIMARY KEY (day, principal, model)
) WITHOUT ROWID;

-- The audit: a row for each call that started, each with the hash of the one before it (gateway.policy.audit). Rows are
-- only ever added.
CREATE TABLE audit (
    seq         INTEGER PRIMARY KEY,
    at          INTEGER NOT NULL,
    session     TEXT NOT NULL,
    turn        TEXT NOT NULL,
    n           INTEGER NOT NULL,
    lane        TEXT NOT NULL,
    tool        TEXT NOT NULL,
    action_sha  TEXT NOT NULL,
    because     TEXT NOT NULL,
    wait        TEXT,
    grant_id    TEXT,
    rule        TEXT NOT NULL,
    decided_by  TEXT,
    sandbox     TEXT NOT NULL,
    node        TEXT NOT NULL,
    prev_hash   TEXT NOT NULL,
    hash        TEXT NOT NULL
);

PRAGMA application_id = 1148348270;
PRAGMA user_version = 1;
