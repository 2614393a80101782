//go:build kube

package kube

import (
	"log/slog"
	"os"
	"testing"

	"k8s.io/klog/v2"
)

// quiet is a log that nobody reads; EVERDICT_TEST_DEBUG shows it.
var quiet = slog.New(slog.DiscardHandler)

func TestMain(m *testing.M) {
	if os.Getenv("EVERDICT_TEST_DEBUG") != "" {
		quiet = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	klog.SetSlogLogger(quiet)
	os.Exit(m.Run())
}
