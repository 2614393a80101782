package vault

import (
	"fmt"
	"sync"
	"testing"

	"github.com/godbus/dbus/v5"
)

// secretService is a small Secret Service with one collection, on a bus of a test's own.
type secretService struct {
	conn *dbus.Conn

	mu       sync.Mutex
	locked   bool
	none     bool // there is no collection
	unlocked int  // how often somebody asked to unlock
	items    map[dbus.ObjectPath]*secretItem
	next     int
}

type secretItem struct {
	service *secretService
	path    dbus.ObjectPath
	attr    map[string]string
	value   []byte
}

// wireSecret is the Secret of the specification.
type wireSecret struct {
	Session     dbus.ObjectPath
	Parameters  []byte
	Value       []byte
	ContentType string
}

func startSecretService(t *testing.T, conn *dbus.Conn) *secretService {
	t.Helper()
	s := &secretService{conn: conn, items: map[dbus.ObjectPath]*secretItem{}}
	for _, e := range []struct {
		v     any
		path  dbus.ObjectPath
		iface string
	}{
		{s, secretsPath, secretsIface},
		{serviceProperties{s}, secretsPath, "org.freedesktop.DBus.Properties"},
		{collection{s}, loginPath, "org.freedesktop.Secret.Collection"},
		{collectionProperties{s}, loginPath, "org.freedesktop.DBus.Properties"},
		{session{}, "/org/freedesktop/secrets/session/1", "org.freedesktop.Secret.Session"},
	} {
		if err := conn.Export(e.v, e.path, e.iface); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := conn.RequestName(secretsName, dbus.NameFlagDoNotQueue); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("take the name: %v, %v", reply, err)
	}
	return s
}

func (s *secretService) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// OpenSession is org.freedesktop.Secret.Service.OpenSession.
func (s *secretService) OpenSession(string, dbus.Variant) (dbus.Variant, dbus.ObjectPath, *dbus.Error) {
	return dbus.MakeVariant(""), "/org/freedesktop/secrets/session/1", nil
}

// ReadAlias is org.freedesktop.Secret.Service.ReadAlias.
func (s *secretService) ReadAlias(string) (dbus.ObjectPath, *dbus.Error) { return "/", nil }

// Unlock is org.freedesktop.Secret.Service.Unlock. A real one would show a prompt for what is locked.
func (s *secretService) Unlock(paths []dbus.ObjectPath) ([]dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locked {
		s.unlocked++
		return nil, "/prompt", nil
	}
	return paths, "/", nil
}

type serviceProperties struct{ s *secretService }

// Get is org.freedesktop.DBus.Properties.Get.
func (p serviceProperties) Get(string, string) (dbus.Variant, *dbus.Error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	if p.s.none {
		return dbus.MakeVariant([]dbus.ObjectPath{}), nil
	}
	return dbus.MakeVariant([]dbus.ObjectPath{loginPath}), nil
}

type collectionProperties struct{ s *secretService }

// Get is org.freedesktop.DBus.Properties.Get.
func (p collectionProperties) Get(string, string) (dbus.Variant, *dbus.Error) {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	return dbus.MakeVariant(p.s.locked), nil
}

type session struct{}

// Close is org.freedesktop.Secret.Session.Close.
func (session) Close() *dbus.Error { return nil }

type collection struct{ s *secretService }

// CreateItem is org.freedesktop.Secret.Collection.CreateItem.
func (c collection) CreateItem(properties map[string]dbus.Variant, secret wireSecret, _ bool) (dbus.ObjectPath, dbus.ObjectPath, *dbus.Error) {
	attr, _ := properties["org.freedesktop.Secret.Item.Attributes"].Value().(map[string]string)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for path, i := range c.s.items {
		if fmt.Sprint(i.attr) == fmt.Sprint(attr) {
			i.value = secret.Value
			return path, "/", nil
		}
	}
	c.s.next++
	i := &secretItem{service: c.s, path: dbus.ObjectPath(fmt.Sprintf("%s/%d", loginPath, c.s.next)), attr: attr, value: secret.Value}
	c.s.items[i.path] = i
	if err := c.s.conn.Export(i, i.path, "org.freedesktop.Secret.Item"); err != nil {
		return "/", "/", dbus.MakeFailedError(err)
	}
	return i.path, "/", nil
}

// SearchItems is org.freedesktop.Secret.Collection.SearchItems.
func (c collection) SearchItems(attr map[string]string) ([]dbus.ObjectPath, *dbus.Error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	found := []dbus.ObjectPath{}
	for path, i := range c.s.items {
		if fmt.Sprint(i.attr) == fmt.Sprint(attr) {
			found = append(found, path)
		}
	}
	return found, nil
}

// GetSecret is org.freedesktop.Secret.Item.GetSecret.
func (i *secretItem) GetSecret(session dbus.ObjectPath) (wireSecret, *dbus.Error) {
	i.service.mu.Lock()
	defer i.service.mu.Unlock()
	return wireSecret{Session: session, Value: i.value, ContentType: "text/plain"}, nil
}

// Delete is org.freedesktop.Secret.Item.Delete.
func (i *secretItem) Delete() (dbus.ObjectPath, *dbus.Error) {
	i.service.mu.Lock()
	defer i.service.mu.Unlock()
	delete(i.service.items, i.path)
	return "/", nil
}
