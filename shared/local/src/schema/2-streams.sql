-- Who follows a stream, until when nobody else may take it, and where it stands.
ALTER TABLE sources ADD COLUMN stream_due INTEGER;     -- NULL: it has no stream
ALTER TABLE sources ADD COLUMN stream_holder TEXT;     -- NULL: nobody follows it
ALTER TABLE sources ADD COLUMN stream_state TEXT;
CREATE INDEX sources_streams ON sources (stream_due) WHERE stream_due IS NOT NULL;
