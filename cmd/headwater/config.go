package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// configFile is a YAML file of options, its keys the names of flags. A flag is
// stronger than an environment variable, and that than the file.
type configFile struct{ values map[string]any }

// loadConfig reads a file for kong. kong-yaml would ignore unknown keys, which
// is how a misspelt limit goes unnoticed.
func loadConfig(r io.Reader) (kong.Resolver, error) {
	f := &configFile{}
	err := yaml.NewDecoder(r).Decode(&f.values)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return f, nil
}

// Validate refuses keys that name no option of a command that reads the file.
func (f *configFile) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, cmd := range app.Leaves(false) {
		if !slices.ContainsFunc(cmd.Flags, isConfig) {
			continue
		}
		for _, flag := range cmd.Flags {
			known[flag.Name] = !isConfig(flag)
		}
	}
	for key := range f.values {
		if !known[key] {
			return fmt.Errorf("configuration file: unknown key %q", key)
		}
	}
	return nil
}

func isConfig(flag *kong.Flag) bool { return flag.Name == "config" }

// Resolve returns a flag's value in the file, nil for none.
func (f *configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	v, ok := f.values[flag.Name]
	if !ok {
		return nil, nil
	}
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	return text(v)
}

// text is a YAML value the way it would be written on the command line.
func text(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	case []any:
		parts := make([]string, len(v))
		for i, p := range v {
			var err error
			if parts[i], err = text(p); err != nil {
				return "", err
			}
		}
		return strings.Join(parts, ","), nil
	}
	return "", fmt.Errorf("configuration file: a value of type %T is not understood", v)
}

// byteSize is a number of bytes, written like 32MiB, 1GiB, 10MB or 4096.
type byteSize int64

var byteUnits = []struct {
	suffix string
	factor int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1},
}

// UnmarshalText parses a size for kong.
func (b *byteSize) UnmarshalText(t []byte) error {
	s, factor := string(t), int64(1)
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			s, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64/factor {
		return fmt.Errorf("%q is no size such as 32MiB", t)
	}
	*b = byteSize(n * factor)
	return nil
}

// network is a range of addresses, or one address.
type network struct{ netip.Prefix }

// UnmarshalText parses a network for kong.
func (n *network) UnmarshalText(t []byte) error {
	if addr, err := netip.ParseAddr(string(t)); err == nil {
		n.Prefix = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
		return nil
	}
	p, err := netip.ParsePrefix(string(t))
	if err != nil {
		return fmt.Errorf("%q is no network such as 10.0.0.0/8", t)
	}
	n.Prefix = p.Masked()
	return nil
}

// logFlags are the options of every command that logs.
type logFlags struct {
	LogLevel  slog.Level `help:"Least level that is logged: debug (every request), info, warn, error." default:"info" group:"Logging"`
	LogFormat string     `help:"Format of log lines: ${enum}." enum:"text,json" default:"text" group:"Logging"`
}

func (l *logFlags) logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.LogLevel}
	if l.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
