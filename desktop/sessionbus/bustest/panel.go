package bustest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/everdict/everdict/desktop/eventually"
)

const (
	watcherName = "org.kde.StatusNotifierWatcher"
	itemIface   = "org.kde.StatusNotifierItem"
	menuIface   = "com.canonical.dbusmenu"
)

// Panel takes tray icons, and is the hand of the person before it.
type Panel struct {
	conn  *dbus.Conn
	items chan Registered
}

// Registered is a tray icon that has come.
type Registered struct {
	// Sender is the connection that it came by.
	Sender string
	Path   dbus.ObjectPath
}

// Panel starts a panel on the bus.
func (b *Bus) Panel(t testing.TB) *Panel {
	t.Helper()
	p := &Panel{conn: b.Connect(t), items: make(chan Registered, 64)}
	if err := p.conn.Export(&itemWatcher{p.items}, "/StatusNotifierWatcher", watcherName); err != nil {
		t.Fatal(err)
	}
	own(t, p.conn, watcherName)
	return p
}

type itemWatcher struct{ items chan Registered }

// RegisterStatusNotifierItem is org.kde.StatusNotifierWatcher.RegisterStatusNotifierItem.
func (w *itemWatcher) RegisterStatusNotifierItem(path string, from dbus.Sender) *dbus.Error {
	w.items <- Registered{Sender: string(from), Path: dbus.ObjectPath(path)}
	return nil
}

// Tray is an icon in the panel.
type Tray struct {
	conn *dbus.Conn
	item dbus.BusObject
	menu dbus.BusObject
}

// Tray waits for the next icon.
func (p *Panel) Tray(t testing.TB) *Tray {
	t.Helper()
	select {
	case r := <-p.items:
		tray := &Tray{conn: p.conn, item: p.conn.Object(r.Sender, r.Path)}
		var path dbus.ObjectPath
		if err := tray.get("Menu", &path); err != nil {
			t.Fatalf("read the path of the menu: %v", err)
		}
		tray.menu = p.conn.Object(r.Sender, path)
		return tray
	case <-time.After(eventually.Patience):
		t.Fatal("no tray icon came to the panel")
		return nil
	}
}

func (tr *Tray) get(property string, into any) error {
	v, err := tr.item.GetProperty(itemIface + "." + property)
	if err != nil {
		return err
	}
	return dbus.Store([]any{v.Value()}, into)
}

// Look is what is seen without opening the menu.
type Look struct {
	Title, Tooltip string
	Width, Height  int
	Pixels         string // ARGB, four bytes each
}

// Look reads icon, title and tooltip.
func (tr *Tray) Look() (Look, error) {
	var l Look
	var tip struct {
		Name  string
		Icons []struct {
			W, H int32
			Pix  []byte
		}
		Title, Text string
	}
	var icons []struct {
		W, H int32
		Pix  []byte
	}
	for property, into := range map[string]any{"Title": &l.Title, "ToolTip": &tip, "IconPixmap": &icons} {
		if err := tr.get(property, into); err != nil {
			return l, fmt.Errorf("read %s of the tray icon: %w", property, err)
		}
	}
	l.Tooltip = tip.Title
	if len(icons) > 0 {
		l.Width, l.Height, l.Pixels = int(icons[0].W), int(icons[0].H), string(icons[0].Pix)
	}
	return l, nil
}

// Line is a line of the menu.
type Line struct {
	ID        int32
	Label     string
	Enabled   bool
	Checked   bool
	Separator bool
	Children  []Line
}

// Menu reads the menu.
func (tr *Tray) Menu() ([]Line, error) {
	var revision uint32
	var root layout
	if err := tr.menu.Call(menuIface+".GetLayout", 0, int32(0), int32(-1), []string{}).Store(&revision, &root); err != nil {
		return nil, fmt.Errorf("read the menu: %w", err)
	}
	return lines(root.Children)
}

type layout struct {
	ID       int32
	Props    map[string]dbus.Variant
	Children []dbus.Variant
}

func lines(children []dbus.Variant) ([]Line, error) {
	var out []Line
	for _, child := range children {
		var l layout
		if err := dbus.Store([]any{child.Value()}, &l); err != nil {
			return nil, fmt.Errorf("a line of the menu is %v: %w", child, err)
		}
		line := Line{ID: l.ID, Separator: l.Props["type"].Value() == "separator"}
		line.Label, _ = l.Props["label"].Value().(string)
		line.Enabled, _ = l.Props["enabled"].Value().(bool)
		state, _ := l.Props["toggle-state"].Value().(int32)
		line.Checked = state == 1
		var err error
		if line.Children, err = lines(l.Children); err != nil {
			return nil, err
		}
		out = append(out, line)
	}
	return out, nil
}

// Find waits until the menu has a line of this label, under lines of the labels before it.
func (tr *Tray) Find(t testing.TB, labels ...string) Line {
	t.Helper()
	var found Line
	eventually.Nil(t, fmt.Sprintf("a menu with %q", labels), func() error {
		at, err := tr.Menu()
		if err != nil {
			return err
		}
		for _, label := range labels {
			i := slices.IndexFunc(at, func(l Line) bool { return l.Label == label })
			if i < 0 {
				return fmt.Errorf("the menu is %+v", at)
			}
			found = at[i]
			at = found.Children
		}
		return nil
	})
	return found
}

// Click clicks on a line of the menu.
func (tr *Tray) Click(t testing.TB, labels ...string) {
	t.Helper()
	tr.Press(t, tr.Find(t, labels...))
}

// Press clicks on a line that was found before.
func (tr *Tray) Press(t testing.TB, l Line) {
	t.Helper()
	if err := tr.menu.Call(menuIface+".Event", 0, l.ID, "clicked", dbus.MakeVariant(""), uint32(0)).Err; err != nil {
		t.Fatalf("click on %q: %v", l.Label, err)
	}
}

// Activate clicks on the icon itself.
func (tr *Tray) Activate(t testing.TB) {
	t.Helper()
	if err := tr.item.Call(itemIface+".Activate", 0, int32(0), int32(0)).Err; err != nil {
		t.Fatalf("click on the icon: %v", err)
	}
}

// Gone says whether the icon's process has left the bus.
func (tr *Tray) Gone() error {
	var owned bool
	if err := tr.conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, tr.item.Destination()).Store(&owned); err != nil {
		return err
	}
	if owned {
		return fmt.Errorf("%s is on the bus", tr.item.Destination())
	}
	return nil
}
