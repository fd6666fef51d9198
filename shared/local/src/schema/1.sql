-- Times are milliseconds since the epoch. Columns named after a type of the domain hold it as JSON.

CREATE TABLE sources (
    id           TEXT PRIMARY KEY,
    source       TEXT NOT NULL,
    next_due     INTEGER,                -- NULL: nobody polls it
    leased_until INTEGER NOT NULL DEFAULT 0,
    poll_state   TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX sources_due ON sources (next_due) WHERE next_due IS NOT NULL;

CREATE TABLE messages (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    message     TEXT NOT NULL,
    visible_at  INTEGER NOT NULL,
    attempts    INTEGER NOT NULL DEFAULT 0,
    owner       TEXT,                    -- the process that has it in hand
    enqueued_at INTEGER NOT NULL
) STRICT;
CREATE INDEX messages_visible ON messages (visible_at);
CREATE INDEX messages_owner ON messages (owner) WHERE owner IS NOT NULL;

CREATE TABLE dead_letters (
    id          INTEGER PRIMARY KEY,     -- that of the message
    source      TEXT NOT NULL,
    message     TEXT NOT NULL,
    fault       TEXT NOT NULL,
    attempts    INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    died_at     INTEGER NOT NULL
) STRICT;

CREATE TABLE observations (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id    TEXT NOT NULL UNIQUE,
    source      TEXT NOT NULL,
    entity      TEXT NOT NULL,
    hint        TEXT,                    -- NULL while a row of `hints` leads here
    received_at INTEGER NOT NULL,
    observation TEXT NOT NULL,
    state       TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'committed', 'no_op', 'dead')),
    outcome     TEXT,
    settled_at  INTEGER
) STRICT;
CREATE INDEX observations_source ON observations (source);
CREATE INDEX observations_open ON observations (source, received_at) WHERE state IN ('pending', 'dead');
CREATE INDEX observations_hint ON observations (hint) WHERE hint IS NOT NULL;
CREATE INDEX observations_settled ON observations (source, entity, settled_at) WHERE state IN ('committed', 'no_op');

CREATE TABLE hints (
    key          TEXT PRIMARY KEY,
    event_id     TEXT NOT NULL,
    copies       INTEGER NOT NULL DEFAULT 0,
    marked_at    INTEGER NOT NULL,
    last_copy_at INTEGER,
    expires_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX hints_expiry ON hints (expires_at);

-- What became of all sightings of a source; what was stopped at the door is still counted when its hint expires.
CREATE TABLE tallies (
    source    TEXT PRIMARY KEY,
    committed INTEGER NOT NULL DEFAULT 0,
    no_op     INTEGER NOT NULL DEFAULT 0,
    dead      INTEGER NOT NULL DEFAULT 0,
    copies    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;

CREATE TABLE heads (
    source         TEXT NOT NULL,
    entity         TEXT NOT NULL,
    revision       INTEGER NOT NULL,     -- 0: never committed, only confirmed
    head           TEXT,
    decided        TEXT NOT NULL,
    decided_at     INTEGER,
    upstream_order TEXT,
    epoch          INTEGER NOT NULL,     -- raised by every commit and confirmation
    PRIMARY KEY (source, entity)
) STRICT, WITHOUT ROWID;

CREATE TABLE decisions (
    source   TEXT NOT NULL,
    entity   TEXT NOT NULL,
    identity TEXT NOT NULL,
    decision TEXT NOT NULL,
    PRIMARY KEY (source, entity, identity)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    run_id          TEXT PRIMARY KEY,
    idempotency_key TEXT NOT NULL,
    event_id        TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('pending', 'finalized', 'failed', 'rolled_back')),
    token           INTEGER NOT NULL,
    claimant        TEXT NOT NULL,
    lease_until     INTEGER NOT NULL,
    frozen          TEXT NOT NULL,
    first_seen_at   INTEGER NOT NULL,
    finalized_at    INTEGER
) STRICT;
CREATE INDEX runs_pending ON runs (lease_until) WHERE status = 'pending';

CREATE TABLE changes (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,  -- the order of commits
    run_id   TEXT NOT NULL UNIQUE REFERENCES runs (run_id),
    source   TEXT NOT NULL,
    entity   TEXT NOT NULL,
    revision INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    record   TEXT NOT NULL,
    idx      INTEGER                             -- NULL: not in the feed yet
) STRICT;
CREATE UNIQUE INDEX changes_entity ON changes (source, entity, revision);
CREATE INDEX changes_event ON changes (event_id);
CREATE INDEX changes_unpublished ON changes (seq) WHERE idx IS NULL;
CREATE UNIQUE INDEX changes_idx ON changes (idx) WHERE idx IS NOT NULL;
CREATE INDEX changes_source ON changes (source, idx) WHERE idx IS NOT NULL;
