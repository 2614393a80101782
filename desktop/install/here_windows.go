package install

import (
	"errors"
	"io/fs"

	winreg "golang.org/x/sys/windows/registry"
)

func here(cfg Config) system { return windows{cfg, currentUser{}} }

// currentUser is HKEY_CURRENT_USER.
type currentUser struct{}

func (currentUser) get(key, name string) (string, bool, error) {
	k, err := winreg.OpenKey(winreg.CURRENT_USER, key, winreg.QUERY_VALUE)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	defer k.Close()
	text, _, err := k.GetStringValue(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return text, err == nil, err
}

func (currentUser) set(v RegistryValue) error {
	k, _, err := winreg.CreateKey(winreg.CURRENT_USER, v.Key, winreg.SET_VALUE)
	if err != nil {
		return err
	}
	defer k.Close()
	return k.SetStringValue(v.Name, v.Text)
}

func (currentUser) remove(key, name string) error {
	k, err := winreg.OpenKey(winreg.CURRENT_USER, key, winreg.SET_VALUE)
	if err == nil {
		defer k.Close()
		err = k.DeleteValue(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (currentUser) removeKey(key string) error {
	k, err := winreg.OpenKey(winreg.CURRENT_USER, key, winreg.QUERY_VALUE|winreg.ENUMERATE_SUB_KEYS)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := k.Stat()
	k.Close()
	if err != nil || info.SubKeyCount > 0 || info.ValueCount > 0 {
		return err
	}
	return winreg.DeleteKey(winreg.CURRENT_USER, key)
}
