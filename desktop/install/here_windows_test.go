package install

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	winreg "golang.org/x/sys/windows/registry"
)

// TestCurrentUser is the registry of Windows itself, in a key that nobody else has.
func TestCurrentUser(t *testing.T) {
	t.Parallel()
	const own = `Software\Everdict test of the registry`
	t.Cleanup(func() {
		if err := (currentUser{}).removeKey(own); err != nil {
			t.Error(err)
		}
	})
	var below func(key, path string) []string
	below = func(key, path string) (all []string) {
		k, err := winreg.OpenKey(winreg.CURRENT_USER, key, winreg.ENUMERATE_SUB_KEYS)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		names, err := k.ReadSubKeyNames(-1)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all = append(append(all, path+name), below(key+`\`+name, path+name+`\`)...)
		}
		slices.Sort(all)
		return all
	}
	testRegistry(t, currentUser{}, own, func() []string { return below(own, "") })
}
