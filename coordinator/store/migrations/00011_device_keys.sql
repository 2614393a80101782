-- +goose Up

-- The public half of the key of a machine that was paired without a token, in
-- base64url. Its token_hash is 'device:' and its id, which is the hash of nothing.
-- Two runners never have one key: a machine is one device (F52).
ALTER TABLE runners ADD COLUMN public_key TEXT;

CREATE UNIQUE INDEX runners_public_key ON runners (public_key) WHERE public_key IS NOT NULL;

-- +goose Down
DROP INDEX runners_public_key;
DELETE FROM runners WHERE public_key IS NOT NULL;
ALTER TABLE runners DROP COLUMN public_key;
