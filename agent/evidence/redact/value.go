package redact

import (
	"encoding/json"
	"strings"
)

// minDistinct is how many different bytes a value must have.
const minDistinct = 4

// common are words that stand in ordinary output and protect nothing.
var common = map[string]bool{
	"password": true, "passw0rd": true, "password1": true, "changeme": true, "redacted": true, "undefined": true,
	"localhost": true, "username": true, "disabled": true, "required": true, "production": true, "development": true,
	"testing": true, "test-key": true, "testtest": true, "testtoken": true, "test-token": true, "example.com": true,
	"placeholder": true, "anthropic": true, "everdict": true, "postgres": true, "12345678": true, "123456789": true,
	"1234567890": true, "127.0.0.1": true, "localhost:8080": true, "claude-code": true, "/bin/bash": true,
}

// weak reports whether masking value would destroy evidence and protect nothing.
func weak(value string) bool {
	return len(value) < MinBytes || distinct(value) < minDistinct || common[strings.ToLower(value)]
}

func distinct(s string) int {
	var seen [256]bool
	n := 0
	for i := range len(s) {
		if !seen[s[i]] {
			seen[s[i]] = true
			n++
		}
	}
	return n
}

// trim takes off the space around a value, which files and shells add and take
// away: what is left is in every form of it.
func trim(s string) string { return strings.Trim(s, " \t\r\n\x00") }

// boundary reports whether a line is the first or last one of PEM, the same for
// every key.
func boundary(line string) bool {
	return strings.HasPrefix(line, "-----BEGIN ") || strings.HasPrefix(line, "-----END ")
}

// withoutBoundaries returns what lies between the lines of a text that are PEM
// boundaries.
func withoutBoundaries(text string) []string {
	if !strings.Contains(text, "-----BEGIN ") {
		return []string{text}
	}
	var parts []string
	for {
		before, rest, found := strings.Cut(text, "-----")
		if part := trim(before); part != "" && !strings.HasPrefix(part, "BEGIN ") && !strings.HasPrefix(part, "END ") {
			parts = append(parts, part)
		}
		if !found {
			return parts
		}
		text = rest
	}
}

// sensitive are parts of the names under which JSON documents hold what must
// not be known.
var sensitive = []string{"key", "secret", "token", "passw", "credential", "private", "auth", "cert", "signature"}

// sensitiveLeaves returns the strings in a JSON object or array that are secret
// on their own: those under a name that says so, and keys in PEM. ok is false when value
// is no such document or has none, and is one secret as a whole.
func sensitiveLeaves(value string) (leaves []string, ok bool) {
	if value[0] != '{' && value[0] != '[' {
		return nil, false
	}
	var doc any
	if err := json.Unmarshal([]byte(value), &doc); err != nil {
		return nil, false
	}
	var visit func(v any, secret bool)
	visit = func(v any, secret bool) {
		switch v := v.(type) {
		case map[string]any:
			for name, v := range v {
				visit(v, secret || sensitiveName(name))
			}
		case []any:
			for _, v := range v {
				visit(v, secret)
			}
		case string:
			v = trim(v)
			public := strings.HasPrefix(v, "https://") && !strings.Contains(v, "@") // auth_uri and its like
			if !weak(v) && (secret && !public || strings.Contains(v, "-----BEGIN ")) {
				leaves = append(leaves, v)
			}
		}
	}
	visit(doc, false)
	return leaves, len(leaves) > 0
}

func sensitiveName(name string) bool {
	name = strings.ToLower(name)
	for _, s := range sensitive {
		if strings.Contains(name, s) {
			return true
		}
	}
	return false
}
