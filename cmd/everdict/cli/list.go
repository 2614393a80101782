package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// nothing is what is said in place of an empty list, and the next step.
type nothing struct{ text, hint string }

// show prints a list that the server gave: JSON for programs, else a table, or that
// there is nothing.
func show[T any](a *app, list []T, err error, none nothing, head []string, rows func() [][]string) error {
	switch {
	case err != nil:
		return err
	case a.forPrograms():
		_, err := printList(a, each(list))
		return err
	case len(list) == 0:
		fmt.Fprintln(a.out, none.text)
		a.hint("%s", none.hint)
		return nil
	}
	writeTable(a.out, head, rows())
	return nil
}

// printList streams a list as a JSON array or as lines, page by page.
func printList[T any](a *app, list iter.Seq2[T, error]) (more bool, err error) {
	w := a.newList()
	for v, err := range list {
		if err == errMore {
			more = true
			break
		}
		if err != nil {
			return false, err
		}
		if err := w.add(v); err != nil {
			return false, err
		}
	}
	return more, w.end()
}

// each is a slice as a list that cannot fail.
func each[T any](s []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range s {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// listWriter writes JSON documents as they come: an array, or one per line.
type listWriter struct {
	w     io.Writer
	lines bool
	n     int
}

func (a *app) newList() *listWriter { return &listWriter{w: a.out, lines: a.output == "jsonl"} }

func (l *listWriter) add(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	before, after := "", "\n"
	if !l.lines {
		before, after = ",\n  ", ""
		if l.n == 0 {
			before = "[\n  "
		}
	}
	l.n++
	_, err = fmt.Fprintf(l.w, "%s%s%s", before, b, after)
	return err
}

func (l *listWriter) end() error {
	var err error
	switch {
	case l.lines:
	case l.n == 0:
		_, err = fmt.Fprintln(l.w, "[]")
	default:
		_, err = fmt.Fprint(l.w, "\n]\n")
	}
	return err
}
