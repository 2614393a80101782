package notify

import (
	"context"
	"encoding/xml"
	"fmt"
	"strings"

	"git.sr.ht/~jackmordaunt/go-toast/wintoast"
)

// notify writes the toast's document by itself: the library's template does not escape
// what it is given. It is not asked to fall back to a script of PowerShell.
func notify(_ context.Context, title, body string) error {
	if err := wintoast.SetAppData(wintoast.AppData{AppID: "Everdict"}); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := wintoast.Push(toast(title, body)); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

func toast(title, body string) string {
	var b strings.Builder
	b.WriteString(`<toast><visual><binding template="ToastGeneric"><text>`)
	_ = xml.EscapeText(&b, []byte(title)) // into memory
	b.WriteString(`</text><text>`)
	_ = xml.EscapeText(&b, []byte(body))
	b.WriteString(`</text></binding></visual></toast>`)
	return b.String()
}
