package install

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mac installs for a user of macOS, where the bundle's Info.plist says already what the
// app is and opens: what is left is the start at login. It is tested on every system.
type mac struct{ Config }

func (m mac) record() string {
	return filepath.Join(m.Home, "Library", "Application Support", "Everdict", "installed.json")
}

func (m mac) agent() string {
	return filepath.Join(m.Home, "Library", "LaunchAgents", AgentLabel+".plist")
}

func (m mac) install(ctx context.Context) (rep Report, err error) {
	if m.AtLogin {
		rep, err = m.atLogin(ctx, true)
	}
	if !strings.Contains(m.Executable, ".app/Contents/MacOS/") {
		rep.Kept = append(rep.Kept, Kept{Scheme + ":// links", "macOS gives them to an app's bundle alone: move Everdict.app to Applications and open it once"})
	}
	return rep, err
}

func (m mac) uninstall(context.Context) (rep Report, err error) {
	r, err := readRecord(m.record())
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, r.save()) }()
	return rep, r.takeAll(&rep)
}

func (m mac) atLogin(_ context.Context, on bool) (rep Report, err error) {
	agent, err := LaunchAgent(m.Executable)
	if err != nil {
		return rep, err
	}
	r, err := readRecord(m.record())
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, r.save()) }()
	if on {
		return rep, r.place(&rep, m.agent(), []byte(agent))
	}
	return rep, r.take(&rep, m.agent())
}

func (m mac) startsAtLogin(context.Context) (bool, error) {
	b, err := os.ReadFile(m.agent())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	program := strings.TrimPrefix(plistString("/"+filepath.Base(m.Executable)), "<string>")
	return err == nil && strings.Contains(string(b), program), err
}
