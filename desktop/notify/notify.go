// Package notify shows a notification by the desktop's own means: one call on the session
// bus of Linux, a toast on Windows, osascript on macOS. What it is asked to show can come
// from a run: it is text, whatever is in it, and short.
package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// AppID is how desktops know the app: the name of its .desktop file, the group of its
// toasts.
const AppID = "dev.everdict"

// Longest title and body, in characters; desktops show less.
const (
	maxTitle = 120
	maxBody  = 600
)

// ErrUnavailable says that nothing here shows notifications.
var ErrUnavailable = errors.New("nothing here shows notifications")

// Notify shows a notification and returns when the desktop has taken it, which does not
// say that anybody saw it.
func Notify(ctx context.Context, title, body string) error {
	title, body = plain(title, maxTitle), plain(body, maxBody)
	if title == "" {
		return errors.New("a notification needs a title")
	}
	if err := notify(ctx, title, body); err != nil {
		return fmt.Errorf("show a notification: %w", err)
	}
	return nil
}

// plain keeps what can be read: no control characters, none that turn the direction of
// the text, and not too many.
func plain(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == unicode.ReplacementChar || !unicode.IsPrint(r) && !unicode.IsSpace(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most-1]) + "…"
	}
	return s
}
