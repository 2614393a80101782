package desktop

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/everdict/everdict/desktop/control"
	"github.com/everdict/everdict/desktop/home"
	"github.com/everdict/everdict/desktop/settings"
	"github.com/everdict/everdict/protocol"
)

// Versions of the documents.
const (
	settingsVersion    = 1
	connectionsVersion = 1
)

// Prefixes of ids of this computer's own.
const connectionPrefix = "con_"

// record is a connection as it is kept. The device key is in the vault, under ID.
type record struct {
	ID          string                     `json:"id"`
	Coordinator string                     `json:"coordinator"`
	Account     protocol.Account           `json:"account"`
	Runner      string                     `json:"runner"`
	Label       string                     `json:"label"`
	Target      string                     `json:"target"`
	PairedAt    protocol.Time              `json:"pairedAt"`
	Key         control.KeyPlace           `json:"key"`
	Settings    control.ConnectionSettings `json:"settings"`
	// Paused by the user.
	Paused bool `json:"paused,omitempty"`
	// Revoked is why the coordinator does not take it any more.
	Revoked string `json:"revoked,omitempty"`
	// Unpairing: the user wants it gone; what is left to do is done at the next start.
	Unpairing bool `json:"unpairing,omitempty"`
}

// leftover is a pairing that may not have come to its end: its key is in the vault.
type leftover struct {
	ID    string           `json:"id"`
	Key   control.KeyPlace `json:"key"`
	Label string           `json:"label"`
	// Replaces is the connection that it replaces.
	Replaces string `json:"replaces,omitempty"`
}

// keptConnections is the document.
type keptConnections struct {
	Connections []record   `json:"connections"`
	Leftovers   []leftover `json:"leftovers,omitempty"`
}

func (k *keptConnections) check() error {
	seen := map[string]bool{}
	for i := range k.Connections {
		r := &k.Connections[i]
		if !connectionID(r.ID) || seen[r.ID] || r.Runner == "" {
			return errors.New("a connection has no id of its own")
		}
		seen[r.ID] = true
		if err := protocol.CheckCoordinator(r.Coordinator); err != nil {
			return err
		}
		r.Settings.Understood = true // it was, when they were made
		if err := settings.CheckConnection(&r.Settings); err != nil {
			return err
		}
		r.Settings.Understood = false
	}
	for _, l := range k.Leftovers {
		if !connectionID(l.ID) {
			return errors.New("a pairing has no id")
		}
	}
	return nil
}

// connectionID says whether id can name directories, which go with the connection: ".." could not.
func connectionID(id string) bool {
	return strings.HasPrefix(id, connectionPrefix) && filepath.Base(id) == id
}

func (a *App) settingsPath() string    { return filepath.Join(a.cfg.Dirs.Config, "settings.json") }
func (a *App) connectionsPath() string { return filepath.Join(a.cfg.Dirs.Config, "connections.json") }

// save keeps the connections. The caller has the mutex: the order of writes is that of the changes.
func (a *App) save() error {
	k := keptConnections{Connections: []record{}, Leftovers: a.leftovers}
	for _, c := range a.connections {
		k.Connections = append(k.Connections, c.rec)
	}
	return home.Write(a.connectionsPath(), connectionsVersion, &k)
}
