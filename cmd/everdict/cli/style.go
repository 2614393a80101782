package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/everdict/everdict/protocol"
)

// palette colours text, or leaves it alone.
type palette struct{ on bool }

func (p palette) paint(code, s string) string {
	if !p.on || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p palette) red(s string) string    { return p.paint("31", s) }
func (p palette) green(s string) string  { return p.paint("32", s) }
func (p palette) yellow(s string) string { return p.paint("33", s) }
func (p palette) cyan(s string) string   { return p.paint("36", s) }
func (p palette) bold(s string) string   { return p.paint("1", s) }
func (p palette) dim(s string) string    { return p.paint("2", s) }

func (p palette) status(s protocol.Status) string {
	switch s {
	case protocol.StatusSucceeded:
		return p.green(string(s))
	case protocol.StatusFailed:
		return p.red(string(s))
	case protocol.StatusSuspended:
		return p.yellow(string(s))
	case protocol.StatusRunning:
		return p.cyan(string(s))
	}
	return string(s)
}

// writeTable aligns rows under head. Ids and names are never cut; a cell may
// carry colours, and is otherwise expected to be safe (see cell).
func writeTable(w io.Writer, head []string, rows [][]string) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SuppressTrailingSpaces()
	style := table.StyleDefault
	style.Options = table.Options{}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	row := func(cells []string) table.Row {
		r := make(table.Row, len(cells))
		for i, c := range cells {
			r[i] = c
		}
		return r
	}
	if head != nil {
		t.AppendHeader(row(head))
	}
	for _, r := range rows {
		t.AppendRow(row(r))
	}
	t.Render()
}

// cell makes a text from elsewhere one line without control characters, and "-"
// when there is none.
func cell(s string) string {
	if s = oneLine(s, 0); s == "" {
		return "-"
	}
	return s
}

// oneLine is s on one line, cut after max characters (0: not cut).
func oneLine(s string, max int) string {
	s = strings.Join(strings.Fields(safeText(s)), " ")
	if max <= 0 || utf8.RuneCountInString(s) <= max {
		return s
	}
	runes := []rune(s)
	return string(runes[:max-1]) + "…"
}

// safeText shows control characters instead of sending them to a terminal.
func safeText(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "�") {
		if r == '\n' || r == '\t' {
			b.WriteRune(r)
		} else {
			b.WriteString(visible(r))
		}
	}
	return b.String()
}

// visible is r, or what stands for it when it would act on a terminal or on the
// order in which text is shown.
func visible(r rune) string {
	switch {
	case r < 0x20 || r == 0x7f:
		return "^" + string(r^0x40)
	case r >= 0x80 && r < 0xa0, unicode.Is(unicode.Bidi_Control, r), r == '\u2028', r == '\u2029':
		return fmt.Sprintf("<U+%04X>", r)
	}
	return string(r)
}

// span is a duration for people: 310ms, 2.4s, 12s, 4m05s, 3h20m, 2d4h.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// ago is an instant relative to now; the absolute one is in -o json.
func (a *app) ago(t protocol.Time) string {
	if t.IsZero() {
		return "-"
	}
	d := a.now().Sub(t.Time)
	switch {
	case d < time.Second: // also when the server's clock is ahead of this machine's
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	case d < 60*24*time.Hour:
		return fmt.Sprintf("%dd ago", int(d.Hours())/24)
	}
	return t.UTC().Format(time.DateOnly)
}

func (a *app) agoPtr(t *protocol.Time) string {
	if t == nil {
		return "never"
	}
	return a.ago(*t)
}

// verdict is pass, fail or - for none.
func (p palette) verdict(v *bool) string {
	switch {
	case v == nil:
		return "-"
	case *v:
		return p.green("pass")
	default:
		return p.red("fail")
	}
}
