package notify

import "testing"

func TestToast(t *testing.T) {
	t.Parallel()
	got := toast("a<b", `"&]]>`)
	want := `<toast><visual><binding template="ToastGeneric"><text>a&lt;b</text><text>&#34;&amp;]]&gt;</text></binding></visual></toast>`
	if got != want {
		t.Errorf("the toast is %s, want %s", got, want)
	}
}
