//! The shape of the tables: keys and indexes. The template declares the same, and a test compares the two.

/// A key attribute with its DynamoDB type: `S` or `N`.
pub type Key = (&'static str, &'static str);

/// An index of a table. All project keys only: what is found is read from the table, consistently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its name.
    pub name: &'static str,
    /// Its partition key.
    pub partition: Key,
    /// Its sort key.
    pub sort: Key,
}

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its logical name in the template.
    pub name: &'static str,
    /// Its partition key.
    pub partition: Key,
    /// Its sort key, where it has one.
    pub sort: Option<Key>,
    /// Its indexes.
    pub indexes: &'static [Index],
}

/// Heads, runs, history, feed.
///
/// ```text
/// pk            sk          what
/// E#<entity>    head        the head, the decisions beside it (`d:<identity>`), validators, order, epoch
/// E#<entity>    r#<rev>     which run made this revision
/// R#<6 hex>     <run id>    the run: claim, frozen facts, and once committed the change itself
/// F#<thousand>  <index>     which run has this place in the feed
/// S#<source>    <index>     the same, by source
/// C#feed        end         the highest index
/// ```
pub const LEDGER: Table = Table {
    name: "LedgerTable",
    partition: ("pk", "S"),
    sort: Some(("sk", "S")),
    indexes: &[
        // Runs that wait: `pending` for their worker (by the end of the lease), `unpublished` for the publisher.
        Index { name: "open", partition: ("open", "S"), sort: ("since", "N") },
        // Entities that have a head, in order.
        Index { name: "entities", partition: ("kind", "S"), sort: ("entity_key", "S") },
        // Committed runs by the sighting that led to them.
        Index { name: "events", partition: ("change_event_id", "S"), sort: ("sk", "S") },
    ],
};

/// Sightings, hints, outcomes, attempts.
///
/// ```text
/// pk            sk    what
/// O#<event>     o     a sighting and what became of it
/// H#<hint>      h     a hint and its copies
/// T#<source>    t     what became of all sightings of a source
/// L#<entity>    l     when an entity was last settled
/// A#<event>     a     how often handling was tried, counted before each try
/// ```
pub const REPLAY: Table = Table {
    name: "ReplayTable",
    partition: ("pk", "S"),
    sort: Some(("sk", "S")),
    indexes: &[
        // Sightings by UTC day, in the order in which they reached us.
        Index { name: "days", partition: ("day", "S"), sort: ("came", "S") },
        // The same by source.
        Index { name: "sources", partition: ("source", "S"), sort: ("came", "S") },
        // Sightings that wait or died, by source.
        Index { name: "open", partition: ("open", "S"), sort: ("came", "S") },
        // Sightings that carry a hint.
        Index { name: "hints", partition: ("hint", "S"), sort: ("came", "S") },
    ],
};

/// The registry, what the poller remembers, and what is due.
pub const SOURCES: Table = Table {
    name: "SourcesTable",
    partition: ("id", "S"),
    sort: None,
    indexes: &[
        // Sources that are polled, by the moment from which a poller may take them.
        Index { name: "due", partition: ("polled", "S"), sort: ("due_at", "N") },
        // Sources whose stream is followed, by the moment from which somebody may take it.
        Index { name: "streams", partition: ("streamed", "S"), sort: ("stream_due", "N") },
    ],
};

/// All tables.
pub const ALL: [Table; 3] = [LEDGER, REPLAY, SOURCES];
