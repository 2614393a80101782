package executor

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// certificatesFile is what a job gets of Certificates, below the attempt's directory, which every sandbox shows at the
// same path. Each attempt has a copy of its own: what a job does to it concerns nobody else.
const certificatesFile = "ca.pem"

// Certificates are what jobs trust beside what they know themselves (F37). The zero value is nothing.
type Certificates struct {
	// pem holds the extra certificates, after the system's if whole; no keys.
	pem   []byte
	whole bool
}

// systemBundles are where the systems keep what they trust, in one file.
var systemBundles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Gentoo, Arch
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // RHEL, Fedora
	"/etc/pki/tls/certs/ca-bundle.crt",                  // older RHEL
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/ssl/cert.pem",                                 // Alpine, macOS
}

// ReadCertificates reads a PEM file and puts what the system trusts before it: SSL_CERT_FILE of the environment, else the
// system's own bundle.
func ReadCertificates(file string, environ []string) (Certificates, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return Certificates{}, fmt.Errorf("executor: read the certificates: %w", err)
	}
	extra := certificates(b)
	if len(extra) == 0 {
		return Certificates{}, fmt.Errorf("executor: %s holds no PEM certificate", file)
	}
	bundles := systemBundles
	for _, kv := range environ {
		if path, ok := strings.CutPrefix(kv, "SSL_CERT_FILE="); ok && path != "" {
			bundles = []string{path}
		}
	}
	for _, path := range bundles {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if system := certificates(b); len(system) > 0 {
			return Certificates{pem: append(system, extra...), whole: true}, nil
		}
	}
	return Certificates{pem: extra}, nil
}

// certificates is the part of a PEM file that is certificates: a key that somebody left in the same file stays behind.
func certificates(b []byte) []byte {
	var out bytes.Buffer
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		if _, err := x509.ParseCertificate(block.Bytes); err == nil {
			_ = pem.Encode(&out, &pem.Block{Type: block.Type, Bytes: block.Bytes}) // a buffer takes everything
		}
	}
	return out.Bytes()
}

// lay writes the certificates into the attempt's directory.
func (c Certificates) lay(root string) error {
	if len(c.pem) == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(root, certificatesFile), c.pem, 0o444)
}

// environ points the programs of a job to the certificates.
func (c Certificates) environ(base []string, root string) []string {
	if len(c.pem) == 0 {
		return base
	}
	// This one adds to what Node trusts.
	names := []string{"NODE_EXTRA_CA_CERTS"}
	if c.whole {
		// These replace what OpenSSL, Go, curl, Python's requests and git trust: only for the whole.
		names = append(names, "SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO")
	}
	env := slices.DeleteFunc(slices.Clone(base), func(kv string) bool { return named(kv, names) })
	for _, n := range names {
		env = append(env, n+"="+filepath.Join(root, certificatesFile))
	}
	return env
}
