package main

import (
	"strings"
	"testing"

	"github.com/everdict/everdict/desktop/home"
)

// The help says where the files are, and not that some other command did.
func TestHelpSaysWhereFilesAre(t *testing.T) { // not parallel: it sets the environment
	t.Setenv(home.Variable, t.TempDir())
	dirs, err := home.Find()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := residentCommand()
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dirs.Config, dirs.Log()} {
		if !strings.Contains(out.String(), path) {
			t.Errorf("the help does not name %s:\n%s", path, out.String())
		}
	}
}
