package window

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestOptionsAsFlags(t *testing.T) {
	t.Parallel()
	want := Options{Title: "A title, with -- in it", Kinds: []Kind{App, Browser}, ProfileDir: "/tmp/a b", BrowserArgs: []string{"--no-sandbox", "--x=1,2"}, Width: 3, Height: 4}
	var got Options
	flags := pflag.NewFlagSet("window", pflag.ContinueOnError)
	got.Register(flags)
	if err := flags.Parse(want.args()); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q were read as %+v (%v), want %+v", want.args(), got, err, want)
	}
	if err := flags.Parse([]string{"--kind=popup"}); err == nil {
		t.Error("a kind that there is not was taken")
	}
}

func TestWebURL(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, in, want, refused string }{
		{name: "https", in: "https://everdict.example/pair?c=prc_1#x", want: "https://everdict.example/pair?c=prc_1#x"},
		{name: "http with a port", in: "http://127.0.0.1:8787/", want: "http://127.0.0.1:8787/"},
		{name: "upper case", in: "HTTPS://everdict.example/", want: "https://everdict.example/"},
		{name: "a blank in the path is escaped", in: "https://a.example/x y", want: "https://a.example/x%20y"},
		{name: "a file", in: "file:///etc/passwd", refused: "want http"},
		{name: "another program's link", in: "everdict://pair?c=1", refused: "want http"},
		{name: "script", in: "javascript:alert(1)", refused: "want http"},
		{name: "a flag", in: "--help", refused: "want http"},
		{name: "nothing", in: "", refused: "want http"},
		{name: "no host", in: "https:///path", refused: "host"},
		{name: "opaque", in: "https:a.example", refused: "want http"},
		{name: "a user", in: "https://good.example@evil.example/", refused: "user name"},
		{name: "a quote in the query", in: `https://a.example/?q="`, refused: `'"'`},
		{name: "a blank in the query", in: "https://a.example/?q=a b", refused: "' '"},
		{name: "a line break", in: "https://a.example/\nx", refused: "cannot be read"},
		{name: "a backquote in the query", in: "https://a.example/?`id`", refused: "'`'"},
		{name: "too long", in: "https://a.example/" + strings.Repeat("x", maxURL), refused: "2048"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := webURL(tt.in)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Errorf("%q: %q, %v, want an error that says %q", tt.in, got, err, tt.refused)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("%q: %q, %v, want %q", tt.in, got, err, tt.want)
			}
		})
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		"http://127.0.0.1:4770/?t=x":     true,
		"http://[::1]:4770/":             true,
		"https://127.0.0.1/":             false,
		"http://localhost:1/":            false,
		"http://192.0.2.1/":              false,
		"http://127.0.0.1@evil.example/": false,
		"file:///etc/passwd":             false,
		"%":                              false,
		"":                               false,
	} {
		if err := local(in); (err == nil) != ok {
			t.Errorf("%q as the address of the page: %v", in, err)
		} else if err != nil && in != "" && strings.Contains(err.Error(), in) {
			t.Errorf("the error %q has the address in it", err)
		}
	}
}

func TestOutward(t *testing.T) {
	t.Parallel()
	const page = "http://127.0.0.1:4770/?t=x"
	for link, leaves := range map[string]bool{
		"http://127.0.0.1:4770/other":         false,
		"http://127.0.0.1:4771/":              true,
		"https://everdict.example/":           true,
		"https://127.0.0.1:4770/":             true,
		"about:blank":                         true,
		"http://127.0.0.1:4770@evil.example/": true,
	} {
		if got := outward(page, link); got != leaves {
			t.Errorf("a link to %s leaves the page: %v, want %v", link, got, leaves)
		}
	}
}
