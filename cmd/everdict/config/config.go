// Package config finds the settings of a command: flag before EVERDICT_*
// variable before YAML file before default, and for each where it came from.
package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/everdict/everdict/cmd/everdict/spelling"
)

// FileEnv names the YAML file, unless --config does.
const FileEnv = "EVERDICT_CONFIG"

// Source says which layer a value came from.
type Source string

// The sources, strongest first.
const (
	FromFlag    Source = "flag"
	FromEnv     Source = "env"
	FromFile    Source = "file"
	FromDefault Source = "default"
)

// Options says where to look.
type Options struct {
	Schema []Key
	// File is the value of --config; it must exist then.
	File string
	// Flags are the parsed flags of the command; only those that were given count.
	Flags *pflag.FlagSet
	// Getenv looks up a variable; LookupEnv in os is the usual one. An empty
	// variable counts as not set.
	Getenv func(string) string
	// Home and Dir are the home directory and the working directory, where files
	// are looked for.
	Home, Dir string
	// KeepUnknown makes keys of the file that are not in the schema no error:
	// Config.Unknown has them.
	KeepUnknown bool
}

// Config is the settings of one invocation.
type Config struct {
	schema []Key
	layers []layer
	merged *koanf.Koanf
	// File is the YAML file that was read, empty when there was none.
	File string
	// fromDir says that File was found in the working directory, unasked.
	fromDir bool
	unknown []*UnknownKeyError
}

type layer struct {
	source Source
	values *koanf.Koanf
	// origin says to a person where the value of a key stands.
	origin func(Key) string
}

// UnknownKeyError is a key in a file that is not in the schema.
type UnknownKeyError struct {
	File, Key string
	// Near is the key that was probably meant, empty when none is near.
	Near string
}

func (e *UnknownKeyError) Error() string {
	text := fmt.Sprintf("config: %s: unknown key %q", e.File, e.Key)
	if e.Near != "" {
		text += fmt.Sprintf(": did you mean %q?", e.Near)
	}
	return text
}

// Load reads every layer. What does not fit its key is an error that names the
// place; unknown keys in the file are *UnknownKeyError, joined.
func Load(o Options) (*Config, error) {
	c := &Config{schema: o.Schema, merged: koanf.New(".")}
	defaults := map[string]any{}
	env := map[string]any{}
	flags := map[string]any{}
	for _, k := range o.Schema {
		defaults[k.Name] = k.Default
		if v := o.Getenv(k.Env); v != "" {
			env[k.Name] = v
		}
		if k.Flag == "" || o.Flags == nil {
			continue
		}
		if f := o.Flags.Lookup(k.Flag); f != nil && f.Changed {
			flags[k.Name] = f.Value.String()
			if list, ok := f.Value.(pflag.SliceValue); ok {
				flags[k.Name] = strings.Join(list.GetSlice(), ",")
			}
		}
	}
	if f := o.keyFileFlag(); f != nil {
		flags[APIKey] = "file:" + f.Value.String()
	}
	file, err := c.readFile(o)
	if err != nil {
		return nil, err
	}
	if len(c.unknown) > 0 && !o.KeepUnknown {
		var errs []error
		for _, e := range c.unknown {
			errs = append(errs, e)
		}
		return nil, errors.Join(errs...)
	}
	for _, l := range []struct {
		layer
		from map[string]any
	}{
		{layer{source: FromDefault, origin: func(Key) string { return "default" }}, defaults},
		{layer{source: FromFile, origin: func(Key) string { return c.File }}, file},
		{layer{source: FromEnv, origin: func(k Key) string { return "$" + k.Env }}, env},
		{layer{source: FromFlag, origin: flagOf}, flags},
	} {
		l.values = koanf.New(".")
		if err := l.values.Load(confmap.Provider(l.from, "."), nil); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		if err := c.merged.Merge(l.values); err != nil {
			return nil, fmt.Errorf("config: %w", err)
		}
		c.layers = append(c.layers, l.layer)
	}
	slices.Reverse(c.layers)
	return c, c.check()
}

// readFile finds and flattens the YAML file.
func (c *Config) readFile(o Options) (map[string]any, error) {
	path, asked := o.File, o.File != ""
	if !asked {
		path = o.Getenv(FileEnv)
		asked = path != ""
	}
	candidates := []string{path}
	if !asked {
		candidates = []string{filepath.Join(o.Dir, "everdict.yaml"), filepath.Join(o.Home, ".config", "everdict", "config.yaml")}
		if xdg := o.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(xdg) {
			candidates[1] = filepath.Join(xdg, "everdict", "config.yaml")
		}
	}
	for i, path := range candidates {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) && !asked {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("config: read %s: %w", path, errors.Unwrap(err))
		}
		k := koanf.New(".")
		if err := k.Load(rawBytes(b), yaml.Parser()); err != nil {
			return nil, fmt.Errorf("config: %s is not YAML: %w", path, err)
		}
		c.File, c.fromDir = path, !asked && i == 0
		return c.known(path, k), nil
	}
	return map[string]any{}, nil
}

// rawBytes is a koanf provider of bytes that were read already.
type rawBytes []byte

func (b rawBytes) ReadBytes() ([]byte, error)    { return b, nil }
func (b rawBytes) Read() (map[string]any, error) { return nil, errors.New("has bytes only") }

// known takes over the keys of the file in the form of flags.
func (c *Config) known(path string, k *koanf.Koanf) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(k.All())) {
		if find(c.schema, name) == nil {
			c.unknown = append(c.unknown, &UnknownKeyError{path, name, c.nearest(name)})
			continue
		}
		switch v := k.Get(name).(type) {
		case nil: // "key:" alone leaves the default
		case []any:
			parts := make([]string, len(v))
			for i, e := range v {
				parts[i] = fmt.Sprint(e)
			}
			out[name] = strings.Join(parts, ",")
		default:
			out[name] = fmt.Sprint(v)
		}
	}
	return out
}

// nearest is a key that was probably meant: the same with other separators, the
// same last part, or a few slips from either.
func (c *Config) nearest(name string) string {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
	}
	for _, k := range c.schema {
		if plain(k.Name) == plain(name) {
			return k.Name
		}
	}
	lastOf := func(name string) string { return name[strings.LastIndex(name, ".")+1:] }
	var whole, last []string
	for _, k := range c.schema {
		if plain(lastOf(k.Name)) == plain(lastOf(name)) {
			return k.Name
		}
		whole, last = append(whole, plain(k.Name)), append(last, plain(lastOf(k.Name)))
	}
	if near := spelling.Nearest(plain(name), whole); near != "" {
		return c.schema[slices.Index(whole, near)].Name
	}
	if near := spelling.Nearest(plain(lastOf(name)), last); near != "" {
		return c.schema[slices.Index(last, near)].Name
	}
	return ""
}

// Unknown is the keys of the file that no key of the schema is.
func (c *Config) Unknown() []*UnknownKeyError { return c.unknown }

func (c *Config) check() error {
	for _, k := range c.schema {
		var err error
		switch v := c.text(k.Name); k.Kind {
		case Int:
			_, err = parseInt(v)
		case Bool:
			_, err = parseBool(v)
		case Duration:
			_, err = time.ParseDuration(v)
		}
		if err != nil {
			return fmt.Errorf("config: %s: %s is %q: want %s", c.Origin(k.Name), k.Name, c.shown(k), k.Kind)
		}
	}
	return nil
}

func (c *Config) text(name string) string { return c.merged.String(name) }

// Source says which layer decided the value of a key.
func (c *Config) Source(name string) Source { s, _ := c.decided(name); return s }

// Origin says to a person where the value of a key stands: --flag, $VARIABLE,
// the file's path, or default.
func (c *Config) Origin(name string) string { _, o := c.decided(name); return o }

// FromWorkingDir reports whether the value of a key stands in a file that nobody
// named and that lay in the working directory, which may be anybody's.
func (c *Config) FromWorkingDir(name string) bool {
	return c.fromDir && c.Source(name) == FromFile
}

func (c *Config) decided(name string) (Source, string) {
	k := find(c.schema, name)
	for _, l := range c.layers {
		if k != nil && l.values.Exists(name) {
			return l.source, l.origin(*k)
		}
	}
	panic("config: unknown key " + name)
}

// String is the value of a key.
func (c *Config) String(name string) string { c.decided(name); return c.text(name) }

// Int is the value of a key of kind Int.
func (c *Config) Int(name string) int { n, _ := parseInt(c.String(name)); return n }

// Bool is the value of a key of kind Bool.
func (c *Config) Bool(name string) bool { b, _ := parseBool(c.String(name)); return b }

// Duration is the value of a key of kind Duration.
func (c *Config) Duration(name string) time.Duration {
	d, _ := time.ParseDuration(c.String(name))
	return d
}

// List is the value of a key of kind List; nil when it is empty.
func (c *Config) List(name string) []string { return splitList(c.String(name)) }

// Secret is the value of a secret key, read from the file that file:PATH names.
// It is one line.
func (c *Config) Secret(name string) (string, error) { return c.secret(name, c.String(name)) }

// Secrets is Secret for a key of kind List.
func (c *Config) Secrets(name string) ([]string, error) {
	var values []string
	for _, v := range c.List(name) {
		value, err := c.secret(name, v)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, nil
}

func (c *Config) secret(name, v string) (string, error) {
	path, isFile := strings.CutPrefix(v, "file:")
	if !isFile {
		return strings.TrimSpace(v), nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("config: %s: read %s: %w", c.Origin(name), name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Setting is a key as it is shown.
type Setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Source Source `json:"source"`
	// Origin is the flag, variable or file.
	Origin string `json:"origin"`
	Secret bool   `json:"secret,omitempty"`
}

// Settings is every key in the order of the schema, with secrets masked.
func (c *Config) Settings() []Setting {
	out := make([]Setting, len(c.schema))
	for i, k := range c.schema {
		source, origin := c.decided(k.Name)
		out[i] = Setting{k.Name, c.shown(k), source, origin, k.Secret}
	}
	return out
}

// shown is a value that may be printed. Of a secret only that there is one, and
// its kind; where it is kept is no secret.
func (c *Config) shown(k Key) string {
	v := c.text(k.Name)
	if !k.Secret {
		return v
	}
	if k.Kind != List {
		return masked(v)
	}
	var all []string
	for _, one := range splitList(v) {
		all = append(all, masked(one))
	}
	return strings.Join(all, ",")
}

// masked is a secret as it may be shown.
func masked(v string) string {
	if v == "" || v == "-" || strings.HasPrefix(v, "file:") || strings.HasPrefix(v, "fd:") {
		return v
	}
	for _, prefix := range []string{"ak_", "rnr_", "plt_"} {
		if strings.HasPrefix(v, prefix) {
			return prefix + "********"
		}
	}
	return "********"
}

func parseInt(s string) (int, error) { return strconv.Atoi(strings.TrimSpace(s)) }

// parseBool also takes yes, no, on and off, which people write in variables.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "yes", "on":
		return true, nil
	case "no", "off":
		return false, nil
	}
	return strconv.ParseBool(strings.TrimSpace(s))
}

func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
