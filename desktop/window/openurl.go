package window

import (
	"errors"
	"fmt"
	"net/url"
)

// maxURL bounds an address that is given to a browser; Windows takes 2083 bytes.
const maxURL = 2048

// OpenURL opens an http or https address in the default browser. No shell is involved,
// and nothing else is opened: not files, not other programs' links.
func OpenURL(address string) error {
	clean, err := webURL(address)
	if err != nil {
		return err
	}
	if err := openURL(clean); err != nil {
		return fmt.Errorf("open the default browser: %w", err)
	}
	return nil
}

// webURL writes a web address anew, so that what a browser gets begins with its scheme and
// has no blank, quote or control character in it.
func webURL(address string) (string, error) {
	if len(address) > maxURL {
		return "", fmt.Errorf("the address has %d bytes, more than the %d that every browser takes", len(address), maxURL)
	}
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("the address cannot be read: want one like https://host/path")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "" {
		return "", fmt.Errorf("the address begins with %q: want http:// or https:// and a host", u.Scheme)
	}
	if u.User != nil {
		return "", errors.New("the address has a user name in it: leave it out")
	}
	clean := u.String()
	for _, r := range clean {
		if r <= ' ' || r == 0x7f || r == '"' || r == '\'' || r == '`' || r == '\\' || r == '<' || r == '>' || r == '|' || r == '^' {
			return "", fmt.Errorf("the address has the character %q in it, which has to be escaped", r)
		}
	}
	return clean, nil
}
