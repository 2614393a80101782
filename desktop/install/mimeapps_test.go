package install

import (
	"slices"
	"testing"
)

func TestHandlerInMimeapps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, before, after string
		// left is what is there when ours is taken away again; "" means before.
		left string
	}{
		{"no file", "", "[Default Applications]\nx-scheme-handler/everdict=dev.everdict.desktop\n", "[Default Applications]\n"},
		{"other defaults",
			"[Default Applications]\ntext/html=firefox.desktop\n",
			"[Default Applications]\nx-scheme-handler/everdict=dev.everdict.desktop\ntext/html=firefox.desktop\n", ""},
		{"no defaults",
			"[Added Associations]\ntext/html=firefox.desktop;\n",
			"[Added Associations]\ntext/html=firefox.desktop;\n\n[Default Applications]\nx-scheme-handler/everdict=dev.everdict.desktop\n",
			"[Added Associations]\ntext/html=firefox.desktop;\n\n[Default Applications]\n"},
		{"the same key in another group",
			"[Added Associations]\nx-scheme-handler/everdict=other.desktop\n[Default Applications]\n",
			"[Added Associations]\nx-scheme-handler/everdict=other.desktop\n[Default Applications]\nx-scheme-handler/everdict=dev.everdict.desktop\n", ""},
		{"another handler",
			"[Default Applications]\nx-scheme-handler/everdict=other.desktop\n",
			"[Default Applications]\nx-scheme-handler/everdict=dev.everdict.desktop;other.desktop\n", ""},
		{"ours after another",
			"[Default Applications]\nx-scheme-handler/everdict = other.desktop;dev.everdict.desktop;\n",
			"[Default Applications]\nx-scheme-handler/everdict=dev.everdict.desktop;other.desktop\n",
			"[Default Applications]\nx-scheme-handler/everdict=other.desktop\n"},
		{"an empty value",
			"[Default Applications]\nx-scheme-handler/everdict=\n",
			"[Default Applications]\nx-scheme-handler/everdict=dev.everdict.desktop\n",
			"[Default Applications]\n"},
		{"no line break at the end",
			"[Default Applications]\na/b=c.desktop",
			"[Default Applications]\nx-scheme-handler/everdict=dev.everdict.desktop\na/b=c.desktop", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := SetHandler(tt.before, DesktopFile)
			if got != tt.after {
				t.Errorf("became\n%s\nwant\n%s", got, tt.after)
			}
			if again := SetHandler(got, DesktopFile); again != got {
				t.Errorf("a second time it became\n%s", again)
			}
			if h := Handlers(got); !slices.Equal(h[:1], []string{DesktopFile}) {
				t.Errorf("the handlers are %q, want ours first", h)
			}
			left := tt.left
			if left == "" {
				left = tt.before
			}
			if got := RemoveHandler(got, DesktopFile); got != left {
				t.Errorf("without ours it is\n%s\nwant\n%s", got, left)
			}
		})
	}
}
