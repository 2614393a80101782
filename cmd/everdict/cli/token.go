package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/everdict/everdict/cmd/everdict/config"
)

// fromVariable as the source of a token means the variable of its setting.
const fromVariable = "env"

// literalToken reports whether the source of a token is the token.
func literalToken(source string) bool {
	if source == "" || source == "-" || source == PairDevice || strings.HasPrefix(source, "file:") {
		return false
	}
	n, isFD := strings.CutPrefix(source, "fd:")
	if !isFD {
		return true
	}
	_, err := strconv.Atoi(n)
	return err != nil
}

// tokenSetting is one of the settings that can hold a runner's token.
type tokenSetting struct {
	key, flag, variable string
}

var tokenSettings = []tokenSetting{
	{config.Pair, "--pair", config.PairEnv},
	{config.PoolToken, "--pool-token", config.PoolTokenEnv},
}

// hideTokens keeps a token that came as an argument or in a variable from the jobs,
// which run as the same user and can read both of this process: the program
// starts itself again, in its place, with the token on a file descriptor.
func (a *app) hideTokens() error {
	if a.cfg.String(config.Pair) != "" && a.cfg.String(config.PoolToken) != "" {
		return &adviceError{fmt.Errorf("%s and %s: a machine is either paired or joins a pool", a.cfg.Origin(config.Pair), a.cfg.Origin(config.PoolToken)), "give one of the two"}
	}
	for _, t := range tokenSettings {
		source := a.cfg.String(t.key)
		if t.key == config.PoolToken && source == fromVariable {
			if source = a.getenv(t.variable); source == "" || source == fromVariable {
				return &adviceError{errors.New(t.flag + " env: " + t.variable + " holds no token"), "set it to the token, or to file:PATH"}
			}
		}
		if !literalToken(source) {
			continue
		}
		if a.cfg.Source(t.key) == config.FromFile {
			return &adviceError{fmt.Errorf("%s: %s holds the token itself", a.cfg.File, t.key), "keep it in a file of its own, with " + t.key + ": file:PATH"}
		}
		if a.cfg.Source(t.key) == config.FromFlag && a.cfg.String(t.key) == source {
			p := a.palette(a.err)
			fmt.Fprintf(a.err, "%s a token given as an argument was visible to other users and stays in the shell's history; better: %s - or %[2]s file:PATH\n", p.yellow("warning:"), t.flag)
		}
		if err := reexec(source, t); err != nil {
			return err
		}
	}
	return nil
}

// poolToken is where the pool token is, with what the variable says in the place of
// "env".
func (a *app) poolToken() string {
	source := a.cfg.String(config.PoolToken)
	if source == fromVariable {
		return a.getenv(config.PoolTokenEnv)
	}
	return source
}
