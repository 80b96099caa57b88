-- The tables of fraud.py. If a table is missing, the error of the run shows the CREATE TABLE statement for that table.

CREATE TABLE alerts (
    card text NOT NULL,
    time timestamptz NOT NULL,
    rule text NOT NULL,
    payment text NOT NULL,
    reason text NOT NULL
);

-- Payments that arrived after the watermark had passed them.
CREATE TABLE late_events (
    job text NOT NULL,
    source text NOT NULL,
    key jsonb,
    timestamp timestamptz NOT NULL,
    value jsonb,
    watermark timestamptz NOT NULL,
    by text
);

-- Records that are not valid payments.
CREATE TABLE dead_letters (
    job text NOT NULL,
    handler text NOT NULL,
    callback text NOT NULL,
    error text NOT NULL,
    traceback text NOT NULL,
    shown text NOT NULL,
    source text,
    record jsonb,
    key jsonb,
    timestamp timestamptz,
    tag text NOT NULL,
    watermark timestamptz,
    state jsonb NOT NULL,
    timers jsonb NOT NULL,
    packed bytea NOT NULL
);
