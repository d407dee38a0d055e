-- The first schema. Applied in one transaction: a kill at any statement leaves an empty file.
--
-- Times are integer microseconds since 1970, UTC. `rev` grows by one with each change of a row of a session, over the
-- whole store; `ord` is the revision at which the row was made, so it is also the order in which rows were made.
-- Conversations are JSON arrays of channel, account, chat and thread. Payloads are JSON (gateway.store.codec).
--
-- Every index that a transition touches is one more page to write: what few rows are asked for has a partial index, and
-- the `_changed` ones hold only rows that changed after they were made, the others being found by `ord`.

-- One row: a revision that none of the store exceeds, whether the last close was clean, and when a node said that it
-- lives.
CREATE TABLE meta (
    one       INTEGER PRIMARY KEY CHECK (one = 1),
    rev       INTEGER NOT NULL,
    clean     INTEGER NOT NULL,
    probes    INTEGER NOT NULL,
    alive_at  INTEGER
);
INSERT INTO meta (one, rev, clean, probes, alive_at) VALUES (1, 0, 1, 0, NULL);

CREATE TABLE sessions (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL UNIQUE,
    kind        TEXT NOT NULL,
    origin      TEXT NOT NULL,
    owner       TEXT,
    title       TEXT NOT NULL,
    epoch       INTEGER NOT NULL,
    root_kind   TEXT NOT NULL,
    tools       TEXT,
    created_at  INTEGER NOT NULL,
    active_at   INTEGER NOT NULL
);

-- Every event that was ever seen, and what became of it: the id of its message with the id of its
-- turn, if it has one, `drop:<reason>` or `press:<result>`.
CREATE TABLE events (
    channel    TEXT NOT NULL,
    account    TEXT NOT NULL,
    event_key  TEXT NOT NULL,
    outcome    TEXT NOT NULL,
    PRIMARY KEY (channel, account, event_key)
) WITHOUT ROWID;

-- `head` is 1 for a turn that its lane lets run as far as order goes: every command turn, and of the model turns of a
-- session the oldest that has not ended. `ended_rev` is set when the turn has ended.
CREATE TABLE turns (
    ord           INTEGER PRIMARY KEY,
    rev           INTEGER NOT NULL,
    id            TEXT NOT NULL UNIQUE,
    session       TEXT NOT NULL REFERENCES sessions (id),
    epoch         INTEGER NOT NULL,
    kind          TEXT NOT NULL CHECK (kind IN ('model', 'command')),
    state         TEXT NOT NULL
                  CHECK (state IN ('queued', 'running', 'parked', 'stopping', 'done', 'stopped', 'failed')),
    conversation  TEXT NOT NULL,
    principal     TEXT NOT NULL,
    created_at    INTEGER NOT NULL,
    started_at    INTEGER,
    ended_at      INTEGER,
    active_ms     INTEGER NOT NULL DEFAULT 0,
    head          INTEGER NOT NULL,
    queued_at     INTEGER NOT NULL,
    queued_rev    INTEGER NOT NULL,
    node          TEXT,
    fence         INTEGER NOT NULL DEFAULT 0,
    lease_until   INTEGER,
    held_since    INTEGER,
    stopped_text  TEXT,
    ended_rev     INTEGER
);
CREATE INDEX turns_ord ON turns (session);
CREATE INDEX turns_changed ON turns (session, rev) WHERE rev > ord;
CREATE INDEX turns_lane ON turns (session, kind) WHERE ended_rev IS NULL;
CREATE INDEX turns_active ON turns (state, head, queued_rev) WHERE state IN ('queued', 'running', 'stopping');
CREATE INDEX turns_ended ON turns (session, epoch, ended_rev) WHERE ended_rev IS NOT NULL;

CREATE TABLE messages (
    ord           INTEGER PRIMARY KEY,
    rev           INTEGER NOT NULL,
    id            TEXT NOT NULL,
    session       TEXT NOT NULL REFERENCES sessions (id),
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
    sent_at       INTEGER NOT NULL
);
CREATE INDEX messages_ord ON messages (session);
CREATE INDEX messages_changed ON messages (session, rev) WHERE rev > ord;
CREATE INDEX messages_turn ON messages (turn);

-- `fence` is the one under which the step was started last.
CREATE TABLE steps (
    ord         INTEGER PRIMARY KEY,
    rev         INTEGER NOT NULL,
    turn        TEXT NOT NULL REFERENCES turns (id),
    n           INTEGER NOT NULL,
    session     TEXT NOT NULL REFERENCES sessions (id),
    kind        TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('planned', 'asked', 'started', 'finished')),
    answer      TEXT,
    call        TEXT,
    answer_n    INTEGER NOT NULL DEFAULT 0,
    result      TEXT,
    asked_anew  INTEGER NOT NULL DEFAULT 0,
    started_at  INTEGER,
    ended_at    INTEGER,
    fence       INTEGER NOT NULL DEFAULT 0,
    UNIQUE (turn, n)
);
CREATE INDEX steps_ord ON steps (session);
CREATE INDEX steps_changed ON steps (session, rev) WHERE rev > ord;

CREATE TABLE waits (
    ord         INTEGER PRIMARY KEY,
    rev         INTEGER NOT NULL,
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
    reason      TEXT NOT NULL DEFAULT ''
);
CREATE INDEX waits_ord ON waits (session);
CREATE INDEX waits_changed ON waits (session, rev) WHERE rev > ord;
CREATE INDEX waits_turn ON waits (turn);
CREATE INDEX waits_open ON waits (kind, session) WHERE state = 'open';
CREATE INDEX waits_asked ON waits (ord) WHERE state = 'open' AND kind = 'approval';
CREATE INDEX waits_due ON waits (expires_at) WHERE state = 'open' AND kind <> 'timer';
CREATE INDEX waits_timers ON waits (expires_at) WHERE state = 'open' AND kind = 'timer';
CREATE INDEX waits_approved ON waits (decided_at) WHERE state = 'approved';

-- `seq` is the order of the outbox. What belongs to no session has neither ord nor rev. `kept` is 1 where a slot counts
-- as sent when it is stored (the web page).
CREATE TABLE slots (
    seq            INTEGER PRIMARY KEY,
    ord            INTEGER,
    rev            INTEGER,
    id             TEXT NOT NULL UNIQUE,
    conversation   TEXT NOT NULL,
    channel        TEXT NOT NULL,
    kept           INTEGER NOT NULL,
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
    node           TEXT,
    sending_since  INTEGER,
    why_dead       TEXT NOT NULL DEFAULT ''
);
CREATE INDEX slots_ord ON slots (session, ord);
CREATE INDEX slots_changed ON slots (session, rev) WHERE rev > ord;
CREATE INDEX slots_due ON slots (seq, due_at, channel, conversation) WHERE state = 'due';
CREATE INDEX slots_unsent ON slots (conversation, seq, state) WHERE state IN ('due', 'sending');
CREATE INDEX slots_dead ON slots (seq) WHERE state = 'dead';

-- Which cards show a wait.
CREATE TABLE cards (
    wait  TEXT NOT NULL,
    slot  INTEGER NOT NULL REFERENCES slots (seq),
    PRIMARY KEY (wait, slot)
) WITHOUT ROWID;

-- When a stranger was told no.
CREATE TABLE refusals (
    principal   TEXT PRIMARY KEY,
    refused_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- Where a person wrote last, directly; and where an owner did, not counting the web page.
CREATE TABLE people (
    principal     TEXT PRIMARY KEY,
    conversation  TEXT NOT NULL,
    used_at       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE owner_chats (
    owner         TEXT PRIMARY KEY,
    conversation  TEXT NOT NULL
) WITHOUT ROWID;

-- Sign-in: only hashes of secrets.
CREATE TABLE codes (
    code_sha  TEXT PRIMARY KEY,
    owner     TEXT NOT NULL,
    until     INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE cookies (
    cookie_sha  TEXT PRIMARY KEY,
    owner       TEXT NOT NULL,
    until       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE failures (
    source     TEXT NOT NULL,
    failed_at  INTEGER NOT NULL
);
CREATE INDEX failures_source ON failures (source, failed_at);
CREATE INDEX failures_age ON failures (failed_at);
CREATE TABLE page_seen (
    owner    TEXT PRIMARY KEY,
    seen_at  INTEGER NOT NULL
) WITHOUT ROWID;

-- Named leases of nodes.
CREATE TABLE holds (
    name   TEXT PRIMARY KEY,
    node   TEXT NOT NULL,
    until  INTEGER NOT NULL
) WITHOUT ROWID;

PRAGMA application_id = 1148348270;
PRAGMA user_version = 1;
