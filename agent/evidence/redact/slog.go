package redact

import (
	"context"
	"fmt"
	"log/slog"
)

// Handler returns a slog.Handler that masks messages and attributes on their way
// to next: an error of the runner's own can quote a file name of the job's.
func (r *Redactor) Handler(next slog.Handler) slog.Handler {
	if r.Empty() {
		return next
	}
	return &handler{r: r, next: next}
}

type handler struct {
	r    *Redactor
	next slog.Handler
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	out := slog.NewRecord(record.Time, record.Level, h.r.String(record.Message), record.PC)
	record.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, out)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	masked := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		masked[i] = h.attr(a)
	}
	return &handler{r: h.r, next: h.next.WithAttrs(masked)}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{r: h.r, next: h.next.WithGroup(name)}
}

// attr masks a value in the form in which a handler would print it. Numbers,
// times and what holds no secret keep their type.
func (h *handler) attr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		v = slog.StringValue(h.r.String(v.String()))
	case slog.KindGroup:
		group := v.Group()
		masked := make([]slog.Attr, len(group))
		for i, g := range group {
			masked[i] = h.attr(g)
		}
		v = slog.GroupValue(masked...)
	case slog.KindAny:
		if text := fmt.Sprintf("%+v", v.Any()); h.r.Contains([]byte(text)) {
			v = slog.StringValue(h.r.String(text))
		}
	}
	return slog.Attr{Key: a.Key, Value: v}
}
