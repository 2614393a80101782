package diff

import (
	"bytes"

	"github.com/everdict/everdict/agent/evidence/diff/internal/gitobj"
)

// masked returns the content of a changed file without secrets and makes d's new
// entry one of that content. ok is false when the file is left out instead: what
// a program made of a secret in binary does not work without it, and bytes of
// another length in the middle of it would say something that never was.
func (c *comparison) masked(d delta, content []byte) (masked []byte, ok bool) {
	red := c.b.cfg.Redact
	if !red.Contains(content) {
		return content, true
	}
	c.Redacted = true
	if bytes.IndexByte(content, 0) >= 0 {
		c.secret(d, "the file is binary and holds a secret")
		return nil, false
	}
	masked = red.Bytes(content)
	d.new.size = int64(len(masked))
	d.new.id = gitobj.Name(gitobj.Blob, masked)
	return masked, true
}

// secretName leaves a change out whose path holds a secret.
func (c *comparison) secretName(d delta) bool {
	if !c.b.cfg.Redact.Contains([]byte(d.path)) {
		return false
	}
	c.Redacted = true
	c.secret(d, "the name holds a secret")
	return true
}

func (c *comparison) secret(d delta, detail string) {
	o := Omission{Path: d.path, Reason: Secret, Kind: d.kind(), Detail: detail}
	if d.new != nil {
		o.Bytes = d.new.size
	} else {
		o.Bytes = d.old.size
	}
	c.Omitted = append(c.Omitted, o)
}
