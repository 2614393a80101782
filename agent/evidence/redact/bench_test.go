package redact

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

var benchSecrets = []Secret{
	{"ANTHROPIC_API_KEY", apiKey},
	{"GITHUB_TOKEN", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"},
	{"DATABASE_URL", "postgres://app:Zq8vK2mW4xTb@db.internal:5432/app"},
	{"AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYFIXTUREKEY"},
	{"OPENAI_API_KEY", "sk-proj-T3BlbkFJq1w2e3r4t5y6u7i8o9p0aSdFgHjKlZxCvBnM"},
}

// logText is what builds and test runs print, with a hash or two.
var logText = func() string {
	var b strings.Builder
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, "2026-03-04T10:11:%02d.%03dZ INFO [worker-%d] fetched https://registry.example.com/pkg/left-pad/-/left-pad-1.%d.0.tgz in %d ms\n", i%60, i%1000, i%8, i, i%300)
		fmt.Fprintf(&b, "--- PASS: TestParse/case_%d (0.0%ds)\n    parse_test.go:%d: want [1 2 3], got [1 2 3]\n", i, i%10, i%500)
		fmt.Fprintf(&b, "integrity sha512-XI5MPzVNApjAyhQzphX8BkmKsKUxD4LdyK24iZ%dQGinBN9yTQT3bFlCBy/aVx2HrNcqQGsdot8ghrjyrvMCoEA==\n", i)
	}
	return b.String()
}()

func keyEvery(n int) string {
	var b strings.Builder
	for piece := range slices.Chunk([]byte(logText), n) {
		b.Write(piece)
		b.WriteString(apiKey)
	}
	return b.String()
}

func BenchmarkWriter(b *testing.B) {
	for _, bench := range []struct {
		name    string
		secrets []Secret
		write   int
		text    string
	}{
		{"no secrets", nil, 32 << 10, logText},
		{"5 secrets", benchSecrets, 32 << 10, logText},
		{"5 secrets, small writes", benchSecrets, 120, logText},
		{"5 secrets, base64", benchSecrets, 32 << 10, wrapped(76, logText)},
		{"5 secrets, one every 4 KiB", benchSecrets, 32 << 10, keyEvery(4 << 10)},
		{"5 secrets and a service account", append([]Secret{{"SA", serviceAccount}}, benchSecrets...), 32 << 10, logText},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := New(bench.secrets).Writer(io.Discard)
			text := []byte(bench.text)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				for rest := text; len(rest) > 0; {
					n := min(bench.write, len(rest))
					if _, err := w.Write(rest[:n]); err != nil {
						b.Fatal(err)
					}
					rest = rest[n:]
				}
			}
		})
	}
}

func BenchmarkNew(b *testing.B) {
	secrets := append([]Secret{{"SA", serviceAccount}, {"PEM", pemKey}}, benchSecrets...)
	b.ReportAllocs()
	for b.Loop() {
		New(secrets)
	}
}
