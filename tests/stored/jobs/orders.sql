CREATE TABLE customers (id text PRIMARY KEY, name text NOT NULL, country text NOT NULL);
INSERT INTO customers VALUES ('c1', 'Ada', 'UK'), ('c2', 'Blaise', 'FR');
